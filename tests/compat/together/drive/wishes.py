"""Every wish that the newest create() knows and this fleet can honour, told back as it was said."""

from __future__ import annotations

import together
from client import REGION, Story, create_args, tell, whole

SCRIPTS = {
    "worker_prolog": "#!/bin/sh\necho 1",
    "worker_epilog": "#!/bin/sh\necho 2",
    "controller_prolog": "#!/bin/sh\necho 3",
    "controller_epilog": "#!/bin/sh\necho 4",
    "login_init_script": "#!/bin/sh\necho 5",
    "nodeset_init_script": "#!/bin/sh\necho 6",
    "extra_slurm_conf": "MaxJobCount=5000",
}


async def slurm(s: Story) -> None:
    made = whole(
        await s.call(
            s.clusters.create,
            **create_args("slurm", num_gpus=16),
            cluster_type="SLURM",
            slurm_shm_size_gib=64,
            shared_volume={
                "region": REGION,
                "size_tib": 3,
                "volume_name": "home",
                "is_lifecycle_independent": False,
            },
            acceptance_tests_params={"enabled": True, "dcgm_diag_level": "DCGM_DIAG_LEVEL_SHORT"},
            add_ons=[{"add_on_type": "slurm_web", "name": "web", "config": {"slurm_web": {"enabled": True}}}],
            cluster_config={"load_balancer": "NONE", "slurm_startup_scripts": SCRIPTS, "ssh_ca_enabled": True},
            extra_body={"gpu_node_failover_enabled": True, "a_field_from_the_future": 1},
        )
    )
    assert (made.cluster_type, made.slurm_shm_size_gib, made.cluster_config.ssh_ca_enabled) == ("SLURM", 64, True)
    assert made.cluster_config.slurm_startup_scripts.to_dict() == SCRIPTS
    [add_on] = made.add_ons
    assert (add_on.add_on_type, add_on.name, add_on.config.slurm_web.enabled) == ("slurm_web", "web", True)
    seen = await s.ready(made.cluster_id)
    assert seen.volumes[0].size_tib == 3
    assert all(node.auto_remediation_enabled for node in seen.gpu_worker_nodes)
    assert seen.gpu_worker_nodes[0].slurm_worker_hostname == "worker-0.slurm-compute.slurm"
    off = await s.call(
        s.clusters.update,
        made.cluster_id,
        add_ons=[{"name": "web", "config": {"slurm_web": {"enabled": False}}}],
        cluster_config={"load_balancer": "NONE", "jumphost_enabled": True},
    )
    assert (off.add_ons, off.cluster_config.jumphost_enabled, off.cluster_config.ssh_ca_enabled) == ([], True, True)
    volume_id = seen.volumes[0].volume_id
    await s.call(s.clusters.delete, made.cluster_id)
    await s.gone(s.clusters.storage.retrieve, volume_id)


async def kubernetes(s: Story) -> None:
    regions = (await s.call(s.clusters.list_regions)).regions
    image = next(region for region in regions if region.name == REGION).driver_versions[0]
    args = create_args("kube")
    del args["cuda_version"], args["nvidia_driver_version"]
    made = whole(
        await s.call(
            s.clusters.create,
            **args,
            nvidia_version_id=image.id,
            install_traefik=True,
            duration_days=2,
            num_preemptible_gpus=0,
            cluster_config={
                "load_balancer": "TRAEFIK",
                "kubernetes_dashboard_enabled": True,
                "observability": {"enabled": True},
                "gpu_operator_version": "v24.6.2",
            },
            acceptance_tests_params={"enabled": False},
        )
    )
    assert (made.nvidia_driver_version_id, made.cuda_version) == (image.id, image.cuda_version)
    assert (made.install_traefik, made.duration_hours) == (True, 48)
    assert made.reservation_end_time is not None
    assert [add_on.add_on_type for add_on in made.add_ons] == ["dashboard"]
    assert made.cluster_config.kubernetes_dashboard_enabled is True
    assert (made.cluster_config.load_balancer, made.cluster_config.gpu_operator_version) == ("TRAEFIK", "v24.6.2")
    await s.ready(made.cluster_id)


async def outsiders(s: Story) -> None:
    raw = s.clusters.with_raw_response
    answer = await s.call(raw.create, **create_args("raw"), extra_body={"zzz": 1, "cluster_config": None})
    assert answer.headers["x-muster-ignored-fields"] == "zzz"
    oidc = {
        "issuer_url": "https://127.0.0.1:9/",
        "client_id": "c",
        "username_claim": "email",
        "username_prefix": "-",
        "group_claim": "groups",
        "group_prefix": "-",
    }
    told = ""
    try:
        await s.call(s.clusters.create, **create_args("oidc"), oidc_config=oidc)
    except together.BadRequestError as refused:
        told = str(refused)
    assert "public internet" in told, "an issuer inside our network was looked up"


async def story(s: Story) -> None:
    await slurm(s)
    await kubernetes(s)
    await outsiders(s)


tell(story)

"""Answers that leave a Terraform plan empty, and a destroy without a pause: by the provider's law (provider.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from .conftest import Tenant
from .provider import CLUSTER, CLUSTERS, VOLUME, VOLUMES, Attribute, Resource
from .test_repairs import until

REGION = "us-central-8"
PLAIN: dict[str, Any] = {
    "region": REGION,
    "gpu_type": "H100_SXM",
    "num_gpus": 8,
    "cuda_version": "12.8",
    "nvidia_driver_version": "570",
}
SLURM: dict[str, Any] = {"cluster_type": "SLURM", "slurm_shm_size_gib": 64}


def resource(tenant: Tenant, kind: Mapping[str, Attribute], **config: Any) -> Resource:
    return Resource(tenant.wire.http, kind, config)


def cluster(tenant: Tenant, name: str, **config: Any) -> Resource:
    """As docs/terraform.md tells people to write it: project and type are said, though the server knows them."""
    said = {**PLAIN, "cluster_name": name, "project_id": tenant.project_id, "cluster_type": "KUBERNETES", **config}
    return resource(tenant, CLUSTER, **said)


def ready(tenant: Tenant, made: Resource) -> Resource:
    look = lambda: tenant.wire.good("GET", f"{CLUSTERS}/{made.id}")  # noqa: E731
    until(look, lambda seen: seen["status"] == "Ready", "ready")
    return made


def gone(tenant: Tenant, path: str) -> None:
    until(lambda: tenant.wire.ask("GET", path).status_code, lambda status: status == 404, f"{path} gone")


def test_a_volume_and_a_cluster_from_apply_to_destroy(tenant: Tenant) -> None:
    volume = resource(tenant, VOLUME, region=REGION, volume_name="data", size_tib=1)
    volume.create()
    made = cluster(tenant, "train", volume_id=volume.id)
    made.create()
    for one in (volume, made):
        one.refresh()
        assert one.changes() == {}, "a second plan, while it is still being made"
    ready(tenant, made).refresh()
    assert made.changes() == {}
    assert [told["volume_id"] for told in made.answer["volumes"]] == [volume.id]
    made.update(num_gpus=16)
    volume.update(size_tib=2)
    for one in (volume, made):
        one.refresh()
        assert one.changes() == {}
    assert (made.answer["num_gpus"], volume.answer["size_tib"]) == (16, 2)
    made.destroy()
    volume.destroy()  # at once: nobody waits for the cluster to be gone
    volume.refresh()
    assert volume.answer["status"] == "deleting"
    gone(tenant, f"{CLUSTERS}/{made.id}")
    gone(tenant, f"{VOLUMES}/{volume.id}")


@pytest.mark.parametrize(
    "config",
    [
        SLURM,
        {
            **SLURM,
            "cluster_config": {"load_balancer": "NONE", "slurm_startup_scripts": {"worker_prolog": "#!/bin/sh\n"}},
        },
        {**SLURM, "cluster_config": {"load_balancer": "NONE", "jumphost_enabled": True}},
        {"cluster_config": {"load_balancer": "NGINX", "observability": {"enabled": True}}},
        {"install_traefik": True, "cluster_config": {"load_balancer": "TRAEFIK", "ingress": {"enabled": True}}},
        {"add_ons": [{"add_on_type": "ingress", "name": "in", "config": {"ingress": {"enabled": True}}}]},
        {"auto_scale": True, "auto_scale_max_gpus": 24, "gpu_node_failover_enabled": True},
        {"acceptance_tests_params": {"enabled": True, "gpu_burn_skipped": True}},
    ],
    ids=lambda config: "-".join(config),
)
def test_whatever_is_configured_reads_back_as_it_was_said(tenant: Tenant, config: dict[str, Any]) -> None:
    made = cluster(tenant, "one", **config)
    made.create()
    made.refresh()
    assert made.changes() == {}
    ready(tenant, made).refresh()
    assert made.changes() == {}


def test_what_the_page_warns_of(tenant: Tenant) -> None:
    """docs/terraform.md says what to write; this is what happens to who does not."""
    bare = resource(tenant, CLUSTER, **PLAIN, cluster_name="bare")
    bare.create()
    bare.refresh()
    assert (set(bare.changes()), bare.replacing()) == ({"project_id", "cluster_type"}, {"project_id"})
    off = cluster(tenant, "off", cluster_config={"load_balancer": "NONE"})
    off.create()
    off.refresh()
    assert set(off.changes()) == {"cluster_config"}


def test_a_replacement_takes_the_name_at_once(tenant: Tenant) -> None:
    first = cluster(tenant, "same")
    first.create()
    first.destroy()
    second = cluster(tenant, "same")
    second.create()
    assert second.id != first.id
    assert ready(tenant, second).id == second.id


def test_an_import_wants_no_replacement(tenant: Tenant) -> None:
    made = cluster(tenant, "found", **SLURM)
    made.create()
    taken = cluster(tenant, "found", **SLURM)
    taken.take_in(made.id)
    assert taken.replacing() == set()
    assert set(taken.changes()) == {"auto_scaled", "gpu_node_failover_enabled"}, "which the provider never reads back"
    taken.update()
    taken.refresh()
    assert taken.changes() == {}


def test_a_change_that_dropped_a_block_is_no_mistake(tenant: Tenant) -> None:
    """What was configured and no longer is goes out as null."""
    made = cluster(tenant, "less", cluster_config={"load_balancer": "NGINX"})
    made.create()
    ready(tenant, made)
    del made.config["cluster_config"]
    made.update()
    assert made.answer["num_gpus"] == 8

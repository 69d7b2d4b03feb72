"""Every method of the clusters resource, and every field of what it answers."""

from __future__ import annotations

import base64
from typing import Any

from client import HAS_REMEDIATIONS, REGION, VERSION, Story, create_args, tell, whole


async def regions(s: Story) -> None:
    found = whole(await s.call(s.clusters.list_regions)).regions
    here = next(region for region in found if region.name == REGION)
    assert "H100_SXM" in here.supported_instance_types
    if VERSION < (2, 10):
        assert {"CUDA_12_5_555", "CUDA_12_6_560", "CUDA_12_6_565", "CUDA_12_8_570"} <= set(here.driver_versions)
        return
    pairs = {(v.cuda_version, v.nvidia_driver_version) for v in here.driver_versions}
    assert {("12.5", "555"), ("12.6", "560"), ("12.6", "565"), ("12.8", "570")} <= pairs


async def volumes(s: Story) -> str:
    made = whole(await s.call(s.clusters.storage.create, region=REGION, size_tib=1, volume_name="data"))
    assert (made.volume_name, made.size_tib) == ("data", 1)
    assert made.status in ("provisioning", "available")
    again = await s.call(s.clusters.storage.create, region=REGION, size_tib=1, volume_name="data")
    assert again.volume_id == made.volume_id
    grown = whole(await s.call(s.clusters.storage.update, volume_id=made.volume_id, size_tib=2))
    assert grown.size_tib == 2
    seen = whole(await s.call(s.clusters.storage.retrieve, made.volume_id))
    assert (seen.volume_id, seen.size_tib) == (made.volume_id, 2)
    await s.until(
        lambda: s.call(s.clusters.storage.retrieve, made.volume_id), lambda v: v.status == "available", "available"
    )
    listed = whole(await s.call(s.clusters.storage.list)).volumes
    assert [volume.volume_id for volume in listed] == [made.volume_id]
    return str(made.volume_id)


async def clusters(s: Story, volume_id: str) -> Any:
    made = whole(await s.call(s.clusters.create, **create_args("first", num_gpus=16, volume_id=volume_id)))
    assert made.status == "WaitingForControlPlaneNodes"
    assert (made.cluster_name, made.region, made.gpu_type, made.num_gpus) == ("first", REGION, "H100_SXM", 16)
    assert made.kube_config == ""
    again = await s.call(s.clusters.create, **create_args("first", num_gpus=16, volume_id=volume_id))
    assert again.cluster_id == made.cluster_id
    seen = whole(await s.ready(made.cluster_id))
    listed = whole(await s.call(s.clusters.list)).clusters
    assert [cluster.cluster_id for cluster in listed] == [made.cluster_id]
    bound = await s.call(s.clusters.storage.retrieve, volume_id)
    assert bound.status == "bound"
    return seen


def field_by_field(cluster: Any, volume_id: str) -> None:
    assert cluster.cluster_type == "KUBERNETES"
    [volume] = cluster.volumes
    assert (volume.volume_id, volume.volume_name, volume.size_tib, volume.status) == (volume_id, "data", 2, "bound")
    assert {node.host_name for node in cluster.control_plane_nodes} == {"controller", "login"}
    assert all(node.status == "Running" and node.network for node in cluster.control_plane_nodes)
    assert [node.host_name for node in cluster.gpu_worker_nodes] == ["worker-0", "worker-1"]
    for node in cluster.gpu_worker_nodes:
        assert (node.status, node.num_gpus) == ("Running", 8)
        assert node.num_cpu_cores > 0
        assert node.memory_gib > 0
        assert len(node.networks) == 1
    text = base64.b64decode(cluster.kube_config).decode()
    assert f'name: "{cluster.cluster_name}"' in text
    if VERSION < (2, 10):
        assert (cluster.driver_version, cluster.duration_hours) == ("CUDA_12_6_560", 0)
        assert cluster.gpu_worker_nodes[0].node_name == "worker-0"
        return
    assert (cluster.cuda_version, cluster.nvidia_driver_version) == ("12.6", "560")
    phases = [moved.phase for moved in cluster.phase_transitions]
    assert phases == [
        "CLUSTER_PHASE_WAITING_FOR_SUBNET",
        "CLUSTER_PHASE_WAITING_FOR_SHARED_VOLUME",
        "CLUSTER_PHASE_WAITING_FOR_CONTROL_PLANE_NODES",
        "CLUSTER_PHASE_WAITING_FOR_DATA_PLANE_NODES",
        "CLUSTER_PHASE_INSTALLING_DRIVERS",
        "CLUSTER_PHASE_RUNNING_ACCEPTANCE_TESTS",
        "CLUSTER_PHASE_READY",
    ]
    times = [moved.transition_time for moved in cluster.phase_transitions]
    assert times == sorted(times)
    assert cluster.first_ready_at == times[-1]
    for node in cluster.gpu_worker_nodes:
        assert node.instance_id
        assert [moved.phase for moved in node.phase_transitions][-1] == "NODE_PHASE_RUNNING"
        assert (node.nvswitch_count, node.ib_hca_count) == (4, 8)
    assert (cluster.billing_type, cluster.num_cpu_workers, cluster.add_ons) == ("ON_DEMAND", 0, [])
    assert cluster.control_plane_ready is True


async def resize(s: Story, cluster_id: str) -> Any:
    grown = await s.call(s.clusters.update, cluster_id, num_gpus=24, cluster_type="KUBERNETES")
    assert grown.num_gpus == 24
    seen = await s.until(
        lambda: s.call(s.clusters.retrieve, cluster_id),
        lambda c: c.status == "Ready" and [n.status for n in c.gpu_worker_nodes] == ["Running"] * 3,
        "three workers",
    )
    shrunk = await s.call(s.clusters.update, cluster_id, num_gpus=16)
    assert shrunk.num_gpus == 16
    seen = await s.until(
        lambda: s.call(s.clusters.retrieve, cluster_id),
        lambda c: [n.status for n in c.gpu_worker_nodes] == ["Running"] * 2,
        "two workers",
    )
    assert seen.status == "Ready"
    if VERSION >= (2, 40):
        [gone] = seen.deleted_gpu_worker_nodes
        assert gone.deleted_at is not None
        reasons = {(event.node_id, event.reason) for event in seen.node_lifecycle_events}
        assert {(gone.node_id, "TogetherScaledUp"), (gone.node_id, "TogetherScaledDown")} <= reasons
    return seen


async def repair(s: Story, cluster: Any, mode: str) -> Any:
    r, [node, *_] = s.clusters.remediations, cluster.gpu_worker_nodes
    where = {"cluster_id": cluster.cluster_id, "instance_id": node.instance_id}
    made = whole(
        await s.call(
            r.create, node.instance_id, cluster_id=cluster.cluster_id, mode=f"REMEDIATION_MODE_{mode}", reason="why"
        )
    )
    assert (made.state, made.trigger) == ("PENDING", "REMEDIATION_TRIGGER_MANUAL")
    assert (made.cluster_id, made.instance_id, made.reason) == (cluster.cluster_id, node.instance_id, "why")
    return whole(
        await s.until(
            lambda: s.call(r.retrieve, made.id, **where), lambda m: m.state in ("SUCCEEDED", "FAILED"), mode
        )
    )


async def remediations(s: Story, cluster: Any) -> None:
    done = await repair(s, cluster, "REBOOT_VM")
    assert (done.state, done.error_message) == ("SUCCEEDED", None), done
    assert done.start_time <= done.end_time
    listed = whole(
        await s.call(
            s.clusters.remediations.list,
            "-",
            cluster_id=cluster.cluster_id,
            mode=["REMEDIATION_MODE_REBOOT_VM", "REMEDIATION_MODE_VM_ONLY"],
            state=["SUCCEEDED", "QUARANTINED"],
            trigger=["REMEDIATION_TRIGGER_MANUAL"],
            page_size=1,
        )
    )
    assert [item.id for item in listed.remediations] == [done.id]
    assert (listed.has_next, listed.next_page_token) == (False, "")
    seen = await s.call(s.clusters.retrieve, cluster.cluster_id)
    latest = {node.instance_id: node.latest_remediation for node in seen.gpu_worker_nodes}
    assert latest[done.instance_id].id == done.id


async def the_end(s: Story, cluster_id: str, volume_id: str) -> None:
    assert (await s.call(s.clusters.delete, cluster_id)).cluster_id == cluster_id
    await s.gone(s.clusters.retrieve, cluster_id)
    assert (await s.call(s.clusters.list)).clusters == []
    assert (await s.call(s.clusters.storage.delete, volume_id)).success is True
    await s.gone(s.clusters.storage.retrieve, volume_id)


async def story(s: Story) -> None:
    if VERSION >= (2, 25):
        who = whole(await s.call(s.client.whoami))
        assert (who.project.id if VERSION >= (3,) else who.project_id) is not None
    await regions(s)
    volume_id = await volumes(s)
    cluster = await clusters(s, volume_id)
    field_by_field(cluster, volume_id)
    cluster = await resize(s, cluster.cluster_id)
    if HAS_REMEDIATIONS:
        await remediations(s, cluster)
    await the_end(s, cluster.cluster_id, volume_id)


tell(story)

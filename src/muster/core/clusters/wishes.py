"""A cluster in the drivers' words: what the substrate should hold and what the orchestrator should make. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from muster.contracts.orchestrator import Member, Target
from muster.contracts.substrate import FabricWish, NodeWish
from muster.core.clusters.snapshot import ClusterView, Snapshot
from muster.model.clusters import Mount, Node, NodeRole
from muster.model.phases import NodePhase

CONTROL_CPUS = 4
CONTROL_MEMORY_GIB = 16

MEMBER_PHASES = (NodePhase.JOINING, NodePhase.RUNNING, NodePhase.DRAINING, NodePhase.LOST)


def fabric_wish(snapshot: Snapshot) -> FabricWish:
    return FabricWish(key=snapshot.cluster.id, region=snapshot.cluster.region, rules=snapshot.rules)


def node_wish(view: ClusterView, node: Node) -> NodeWish:
    """Everything the substrate must know of a node; the same view and node give the same wish."""
    spec = view.cluster.spec
    shape = view.instance_type if node.role is NodeRole.WORKER else None
    lease = view.leases[node.lease_id or ""]
    return NodeWish(
        key=node.id,
        fabric=view.cluster.id,
        host_id=lease.host_id,
        host_name=node.host_name,
        region=view.cluster.region,
        name=node.name,
        role=node.role,
        slots=lease.slots,
        gpu_type=spec.gpu_type if shape else "",
        gpus=shape.gpus if shape else 0,
        cpus=shape.cpus if shape else CONTROL_CPUS,
        memory_gib=shape.memory_gib if shape else CONTROL_MEMORY_GIB,
        shm_gib=spec.config.shm_gib if shape else 0,
        image=spec.config.slurm_image or spec.image_id,
        rootfs=spec.config.slurm_image,
        generation=node.generation,
        mounts=tuple(
            Mount(volume_id=volume.id, path=attachment.mount_path, read_only=attachment.read_only)
            for attachment, volume in view.mounts
        ),
    )


def target_of(view: ClusterView, nodes: Iterable[Node] | None = None) -> Target:
    """The cluster as it should be, made of these nodes (default: all that are members now)."""
    members = [node for node in (view.nodes if nodes is None else nodes) if node.phase in MEMBER_PHASES]
    return Target(
        cluster_id=view.cluster.id,
        name=view.cluster.name,
        project_id=view.cluster.project_id,
        generation=view.cluster.generation,
        spec=view.cluster.spec,
        members=tuple(_member(view, node) for node in members),
        authorized_keys=view.cluster.spec.ssh_keys,
        address=view.address,
    )


def _member(view: ClusterView, node: Node) -> Member:
    shape = view.instance_type if node.role is NodeRole.WORKER else None
    return Member(
        node_id=node.id,
        name=node.name,
        role=node.role,
        address=node.address,
        generation=node.generation,
        gpu_type=view.cluster.spec.gpu_type if shape else "",
        gpus=shape.gpus if shape else 0,
        cpus=shape.cpus if shape else CONTROL_CPUS,
        memory_gib=shape.memory_gib if shape else CONTROL_MEMORY_GIB,
    )

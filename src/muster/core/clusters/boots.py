"""Nodes booted anew in place: because their owner asks, or because something changed that only a boot takes in. Pure.

The wish counts boots (`ClusterSpec.boots`) and a node remembers the count it was last booted for, so that a restart
survives a crash, is done once, and reaches a node that was away when it was asked. *Law.* A node is marked only where
the wish it boots by is read at the same moment or later: a doubt costs one boot too many, never one too few.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from muster.core.clusters.snapshot import Snapshot
from muster.model.clusters import Boots, ClusterSpec, Node, NodeRole
from muster.model.phases import NodePhase

WORKERS = (NodeRole.WORKER,)
EVERYONE = tuple(NodeRole)


def restarted(spec: ClusterSpec, roles: Collection[NodeRole]) -> ClusterSpec:
    """The wish with one more boot for these roles."""
    control = any(role is not NodeRole.WORKER for role in roles)
    boots = Boots(control=spec.boots.control + control, workers=spec.boots.workers + (NodeRole.WORKER in roles))
    return replace(spec, boots=boots)


def with_boots(before: ClusterSpec, after: ClusterSpec) -> ClusterSpec:
    """The changed wish, with the boots that its changes need: an image is for all, /dev/shm is a worker's."""
    if (before.image_id, before.config.slurm_image) != (after.image_id, after.config.slurm_image):
        return restarted(after, EVERYONE)
    return restarted(after, WORKERS) if before.config.shm_gib != after.config.shm_gib else after


def booted(node: Node, spec: ClusterSpec) -> Node:
    """The node, about to boot by this wish."""
    return replace(node, mending=replace(node.mending, boot=_wished(node, spec)))


def outdated(snapshot: Snapshot) -> list[Node]:
    """Nodes that are up and were booted for an older wish."""
    up = (NodePhase.JOINING, NodePhase.RUNNING)
    spec = snapshot.cluster.spec
    return [node for node in snapshot.nodes if node.phase in up and node.mending.boot < _wished(node, spec)]


def under_way(snapshot: Snapshot) -> list[Node]:
    """Nodes that are to come up, or to come up anew."""
    late = [node for node in snapshot.nodes if node.phase in (NodePhase.PENDING, NodePhase.BOOTING)]
    return late + outdated(snapshot)


def _wished(node: Node, spec: ClusterSpec) -> int:
    return spec.boots.workers if node.role is NodeRole.WORKER else spec.boots.control

"""The node and lease rows of a cluster, made before anything is asked of a driver. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from muster.contracts.clock import Entropy
from muster.contracts.store import Insert, Op
from muster.core.capacity.placement import Grant
from muster.model.base import Instant
from muster.model.clusters import Mending, Moved, Node, NodeRole, Share
from muster.model.hosts import Lease
from muster.model.phases import NodePhase

_UNMENDED: Final = Mending()


class Seat(NamedTuple):
    """A node and the lease that holds its place."""

    node: Node
    lease: Lease


def seat(
    entropy: Entropy,
    *,
    cluster_id: str,
    project_id: str,
    role: NodeRole,
    ordinal: int,
    grant: Grant,
    because: str,
    at: Instant,
    replaces: str = "",
    ends_at: Instant | None = None,
    share: Share = Share.OWN,
) -> Seat:
    node_id, lease_id = entropy.uuid(), entropy.uuid()
    node = Node(
        id=node_id,
        cluster_id=cluster_id,
        project_id=project_id,
        role=role,
        name=node_name(role, ordinal),
        ordinal=ordinal,
        share=share,
        host_id=grant.host_id,
        host_name=grant.host_name,
        lease_id=lease_id,
        phase_since=at,
        because=because,
        history=(Moved(phase=NodePhase.PENDING, at=at, because=because),),
        mending=Mending(replaces=replaces) if replaces else _UNMENDED,
        created_at=at,
    )
    lease = Lease(
        id=lease_id,
        host_id=grant.host_id,
        slots=grant.slots,
        node_id=node_id,
        cluster_id=cluster_id,
        project_id=project_id,
        taken_at=at,
        ends_at=ends_at,
    )
    return Seat(node, lease)


def seat_ops(seats: Sequence[Seat]) -> list[Op]:
    """Rows of one kind side by side: the store writes each run of them in one go."""
    return [*(Insert(new.node) for new in seats), *(Insert(new.lease) for new in seats)]


def node_name(role: NodeRole, ordinal: int) -> str:
    return f"worker-{ordinal}" if role is NodeRole.WORKER else str(role)


def free_ordinals(nodes: Sequence[Node], count: int) -> list[int]:
    """The lowest ordinals that no live worker has: a replacement takes a new name, never a living one's."""
    taken = {node.ordinal for node in nodes if node.role is NodeRole.WORKER}
    ordinals: list[int] = []
    candidate = 0
    while len(ordinals) < count:
        if candidate not in taken:
            ordinals.append(candidate)
        candidate += 1
    return ordinals

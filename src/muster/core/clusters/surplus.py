"""Who leaves when a cluster shrinks: the named first, then the broken, the drained, the idle, the youngest. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from muster.contracts.orchestrator import Standing
from muster.core.clusters.snapshot import Snapshot
from muster.model.clusters import Node, NodeRole, Share
from muster.model.phases import NodePhase

_LEAVE_ORDER = (NodePhase.FAILED, NodePhase.LOST, NodePhase.PENDING, NodePhase.BOOTING, NodePhase.JOINING)
_STANDING_ORDER = (Standing.ABSENT, Standing.DOWN, Standing.DRAINED, Standing.DRAINING, Standing.IDLE)


def staying(snapshot: Snapshot) -> list[Node]:
    """Workers that are not on their way out."""
    out = (NodePhase.LEAVING, NodePhase.DRAINING)
    return [node for node in snapshot.nodes if node.role is NodeRole.WORKER and node.phase not in out]


def surplus(snapshot: Snapshot, standings: Mapping[str, Standing]) -> list[Node]:
    """Workers beyond the wish for their share, in the order in which they go."""
    return [node for share in Share for node in _beyond(snapshot, share, standings)]


def _beyond(snapshot: Snapshot, share: Share, standings: Mapping[str, Standing]) -> list[Node]:
    stay = [node for node in staying(snapshot) if node.share is share and node.reclaim_at is None]
    over = len(stay) - snapshot.cluster.spec.wanted(share)
    if over <= 0:
        return []

    def rank(node: Node) -> tuple[int, int, int, int]:
        standing = standings.get(node.id, Standing.UNKNOWN)
        return (
            0 if node.id in snapshot.cluster.spec.leave_first else 1,
            _LEAVE_ORDER.index(node.phase) if node.phase in _LEAVE_ORDER else len(_LEAVE_ORDER),
            _STANDING_ORDER.index(standing) if standing in _STANDING_ORDER else len(_STANDING_ORDER),
            -node.ordinal,
        )

    return sorted(stay, key=rank)[:over]

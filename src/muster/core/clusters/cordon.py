"""What the death of a node means for its host, as rows to be written with it. Leans on the store, read only."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contracts.store import Find, Op, Replace, Store, Wake
from muster.core.clusters.deeds import NodeMove
from muster.model.base import Instant, changed
from muster.model.hosts import Host
from muster.model.phases import NodePhase


async def cordon_dead(store: Store, moves: Sequence[NodeMove], now: Instant) -> list[Op]:
    """A host under a node that died takes no new ones until the operator has looked at it; and the health room is
    told of the dead, and of those that are back."""
    news = any(NodePhase.LOST in (move.phase, move.node.phase) for move in moves)
    told: list[Op] = [Wake("health", moves[0].node.cluster_id, now)] if news else []
    ids = {move.node.host_id for move in moves if move.phase is NodePhase.LOST and move.node.host_id}
    if not ids:
        return told
    hosts = await store.find(Find(Host, one_of={"id": sorted(ids)}))
    reason = "a node died on it; uncordon it when it has been looked at"
    cordons = [Replace(changed(host, cordoned=True, cordon_reason=reason)) for host in hosts if not host.cordoned]
    return [*cordons, *told]

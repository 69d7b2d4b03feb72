"""What one run of the cluster reconciler writes down: always under its claim, always whole.

*Laws.* Nodes never change without their cluster; requests that a change settles are settled in its batch; a wait or
an observation is written only when it says something new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.contracts.reconciler import Outcome, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Op, Replace, Store
from muster.contracts.substrate import Fence
from muster.core.clusters.conditions import announced, with_conditions, with_status
from muster.core.clusters.moves import node_moved_event
from muster.core.clusters.requests import settle
from muster.core.clusters.snapshot import Snapshot
from muster.model.base import Instant, changed
from muster.model.clusters import Cluster, Node
from muster.model.events import Event


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of the reconciler: what is true in the store, and the hold we have on it."""

    snapshot: Snapshot
    claim: Claim
    now: Instant

    @property
    def cluster(self) -> Cluster:
        return self.snapshot.cluster

    @property
    def fence(self) -> Fence:
        return Fence(self.cluster.id, self.claim.token)


class Records:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def _observed(self, turn: Turn, cluster: Cluster) -> None:
        """Written only when something of it is new."""
        seen = with_conditions(cluster, turn.now)
        if seen != turn.cluster or settle(turn.snapshot.requests, seen, turn.now):
            events = announced(turn.cluster, seen, turn.now)
            await self._record(Step.CLUSTER_RECORD, turn, changed(seen, updated_at=turn.now), events=events)

    async def _wait(self, turn: Turn, because: str, until: Instant) -> Outcome:
        """Waiting is told (explain shows it), but written only when the reason is new."""
        if turn.cluster.status.waiting_for != because:
            cluster = with_status(turn.cluster, waiting_for=because, waiting_until=until)
            await self._record(Step.CLUSTER_RECORD, turn, changed(cluster))
        return Wait(because, until)

    async def _record_nodes(
        self,
        turn: Turn,
        nodes: Sequence[Node],
        *,
        cluster: Cluster | None = None,
        extra: Sequence[Op] = (),
        events: Sequence[Event] = (),
        step: Step = Step.NODES_RECORD,
    ) -> None:
        """Nodes never change without their cluster's version: cached views hang on it."""
        cluster = cluster or changed(turn.cluster, updated_at=turn.now)
        ops: list[Op] = [*(Replace(node) for node in nodes), *extra]
        told = [*(node_moved_event(node, turn.now) for node in nodes), *events]
        await self._record(step, turn, cluster, ops=ops, events=told)

    async def _record(
        self, step: Step, turn: Turn, cluster: Cluster, *, ops: Sequence[Op] = (), events: Sequence[Event] = ()
    ) -> None:
        cluster = with_conditions(cluster, turn.now)
        requests = [Replace(request) for request in settle(turn.snapshot.requests, cluster, turn.now)]
        await self._store.apply(Batch(step, [Replace(cluster), *ops, *requests], events, fence=turn.claim))

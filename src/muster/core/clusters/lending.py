"""Hosts on loan: idle ones are lent to whoever wishes for preemptible workers, and asked back when others need them.

One piece of work per line of the calendar. Leans on capacity/preemption.py for who gets and who gives, on the
calendar for what is promised, on shorts.py for who waits. *Laws.* Lent is only what is idle, and not promised
within a notice and a margin. A grant is one batch: the count in the wish, the nodes, their leases. Asking back is
one batch as well and ends nothing: the cluster's own reconciler warns, waits and lets go. Both are safe to repeat:
what is held is counted anew each time.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

import msgspec.structs

from muster.contracts.clock import Clock, Entropy
from muster.contracts.orchestrator import Orchestrator, Standing
from muster.contracts.reconciler import Advance, Gone, Outcome, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Find, Op, Replace, Store, Wake
from muster.core.capacity.placement import Ask, LineKey, Placement
from muster.core.capacity.preemption import MARGIN, NOTICE, Hold, Wish, fill, victims
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import CatalogService
from muster.core.clusters.conditions import with_status
from muster.core.clusters.nodes import free_ordinals, seat, seat_ops
from muster.core.clusters.reclaim import lent
from muster.core.clusters.shorts import Shorts
from muster.core.clusters.snapshot import load_view
from muster.core.clusters.telling import cluster_event
from muster.core.clusters.wishes import target_of
from muster.errors import DriverError, NeverFits, OutOfStock, UniqueViolation
from muster.model.base import MINUTE, Instant, changed
from muster.model.clusters import Cluster, Node, NodeRole, Share
from muster.model.hosts import ANY_TIME
from muster.model.phases import SERVING, NodePhase

LOOK_EVERY = MINUTE
"""Whatever is not announced (a promise that draws near, a host that was mended) is seen this soon."""


@dataclass(frozen=True, slots=True)
class Lent:
    """A line as it is lent now: who wishes or holds, and what each of them holds."""

    key: LineKey
    clusters: dict[str, Cluster]
    held: list[Node]

    @property
    def staying(self) -> list[Node]:
        """Not asked back yet."""
        return [node for node in self.held if node.reclaim_at is None and node.phase is not NodePhase.LEAVING]

    def staying_of(self, cluster: Cluster) -> list[Node]:
        return [node for node in self.staying if node.cluster_id == cluster.id]


class PreemptionReconciler:
    kind = "preemption"

    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        catalog: CatalogService,
        capacity: Capacity,
        orchestrator: Orchestrator,
        notice_ms: Instant = NOTICE,
    ) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._catalog = catalog
        self._capacity = capacity
        self._orchestrator = orchestrator
        self._shorts = Shorts(store, capacity)
        self._notice_ms = notice_ms

    async def everything(self) -> list[str]:
        await self._capacity.sync()
        return [key.id for key in self._capacity.line_keys()]

    async def reconcile(self, id: str, claim: Claim) -> Outcome:
        clusters = await self._store.find(Find(Cluster, equals={"preemptible_line": id, "gone_at": None}))
        if not clusters:
            return Gone()
        await self._capacity.sync()
        key = next((key for key in self._capacity.line_keys() if key.id == id), None)
        if key is None:
            return Gone()
        await self._capacity.look_at(key)
        live = await self._store.find(
            Find(Node, one_of={"cluster_id": [cluster.id for cluster in clusters]}, equals={"gone_at": None})
        )
        line = Lent(key, {cluster.id: cluster for cluster in clusters}, [node for node in live if lent(node)])
        return await self._weigh(line, claim, self._clock.now())

    async def _weigh(self, line: Lent, claim: Claim, now: Instant) -> Outcome:
        """Ask back what others need; else lend what nobody needs."""
        free = self._capacity.free_hosts(line.key)
        needed = await self._shorts.hosts_lacking(line.key, await self._per_host(line.key), now)
        room = self._capacity.room(line.key, now, now + self._notice_ms + MARGIN)
        room = max(0, min(room, free + len(line.held)) - needed)
        if len(line.staying) > room:
            return await self._ask_back(line, len(line.staying) - room, claim, now)
        granted = fill(min(free - needed, room - len(line.staying)), _wishes(line))
        if granted:
            id, nodes = next(iter(granted.items()))
            return await self._lend(line, line.clusters[id], nodes, claim, now)
        return await self._forget(line, claim) or Wait("idle hosts", now + LOOK_EVERY)

    async def _per_host(self, key: LineKey) -> dict[str, int]:
        catalog = await self._catalog.current()
        return {shape.id: max(1, key.slots // shape.gpus) for shape in catalog.instance_types.values()}

    # ---- lending

    async def _lend(self, line: Lent, cluster: Cluster, nodes: int, claim: Claim, now: Instant) -> Outcome:
        ask = Ask(line.key.region, line.key.gpu_type, line.key.slots, nodes, at=now, ends_at=ANY_TIME)
        try:
            placement = await self._capacity.place(ask)
        except (OutOfStock, NeverFits):
            return Wait("idle hosts", now + LOOK_EVERY)
        try:
            ops = await self._seat_ops(cluster, placement, now)
            after = self._on_loan(cluster, len(line.staying_of(cluster)) + nodes, now)
            words = f"{nodes} preemptible workers"
            event = cluster_event(after, "preemptible_granted", words, now, workers=nodes)
            batch = [Replace(after), *ops, *self._capacity.guard(placement), Wake("cluster", cluster.id, now)]
            await self._store.apply(Batch(Step.PREEMPTION_GRANT, batch, [event], fence=claim))
        except UniqueViolation:
            await self._capacity.refused(placement)
            return Advance("another took the host first")
        except BaseException:
            self._capacity.give_back(placement)
            raise
        return Advance(f"{words} for {cluster.name}")

    def _on_loan(self, cluster: Cluster, nodes: int, now: Instant) -> Cluster:
        loans = msgspec.structs.replace(cluster.status.loans, last_at=now)
        spec = msgspec.structs.replace(cluster.spec, preemptible_granted=nodes)
        return changed(with_status(cluster, loans=loans), spec=spec, updated_at=now)

    async def _seat_ops(self, cluster: Cluster, placement: Placement, now: Instant) -> list[Op]:
        nodes = await self._store.find(Find(Node, equals={"cluster_id": cluster.id, "gone_at": None}))
        ordinals = free_ordinals(nodes, len(placement.workers))
        seats = [
            seat(
                self._entropy,
                cluster_id=cluster.id,
                project_id=cluster.project_id,
                role=NodeRole.WORKER,
                ordinal=ordinal,
                grant=grant,
                because="its host is idle",
                at=now,
                ends_at=ANY_TIME,
                share=Share.PREEMPTIBLE,
            )
            for ordinal, grant in zip(ordinals, placement.workers, strict=True)
        ]
        return seat_ops(seats)

    # ---- asking back

    async def _ask_back(self, line: Lent, hosts: int, claim: Claim, now: Instant) -> Outcome:
        """One cluster's at a time; the next turn counts what was asked back already."""
        idle = await self._idle(line)
        holds = [Hold(node.id, node.project_id, _began_at(node, idle)) for node in line.staying]
        losses = Counter[str]()
        for cluster in line.clusters.values():
            losses[cluster.project_id] += cluster.status.loans.reclaimed
        chosen = victims(holds, hosts, now, losses)
        by_id = {node.id: node for node in line.staying}
        first = line.clusters[by_id[chosen[0]].cluster_id]
        asked = [by_id[id] for id in chosen if by_id[id].cluster_id == first.id]
        after = _after_asking(first, len(line.staying_of(first)) - len(asked), len(asked), now)
        back: list[Op] = [Replace(changed(node, reclaim_at=now + self._notice_ms)) for node in asked]
        words = f"{len(asked)} preemptible workers are asked back: others need their hosts"
        event = cluster_event(after, "preemptible_reclaimed", words, now, workers=len(asked))
        batch = [Replace(after), *back, Wake("cluster", first.id, now)]
        await self._store.apply(Batch(Step.PREEMPTION_RECLAIM, batch, [event], fence=claim))
        return Advance(words)

    async def _idle(self, line: Lent) -> set[str]:
        """Nodes on which nothing runs, as far as their clusters can say."""
        idle: set[str] = set()
        for id in sorted({node.cluster_id for node in line.staying}):
            view = await load_view(self._store, await self._catalog.current(), line.clusters[id])
            with contextlib.suppress(DriverError):  # nobody can say: as if they were at work
                standings = await self._orchestrator.observe(target_of(view))
                idle |= {node_id for node_id, standing in standings.items() if standing is Standing.IDLE}
        return idle

    # ---- the end

    async def _forget(self, line: Lent, claim: Claim) -> Outcome | None:
        """Who neither wishes for any nor holds any is no longer ours to look at."""
        for cluster in line.clusters.values():
            holds = any(node.cluster_id == cluster.id for node in line.held)
            if not cluster.spec.preemptible_workers and not holds:
                await self._store.apply(
                    Batch(Step.PREEMPTION_GRANT, [Replace(changed(cluster, preemptible_line=None))], fence=claim)
                )
                return Advance(f"{cluster.name} wishes for none")
        return None


def _wishes(line: Lent) -> Sequence[Wish]:
    return [
        Wish(
            key=cluster.id,
            tenant=cluster.project_id,
            wished=cluster.spec.preemptible_workers if _may_borrow(cluster) else 0,
            held=len(line.staying_of(cluster)),
            since=cluster.status.loans.last_at,
        )
        for cluster in line.clusters.values()
    ]


def _began_at(node: Node, idle: Set[str]) -> Instant | None:
    """Since when work runs on it, as far as anybody knows: since it joined, unless it is idle."""
    at_work = node.phase in (NodePhase.RUNNING, NodePhase.DRAINING) and node.id not in idle
    return node.phase_since if at_work else None


def _may_borrow(cluster: Cluster) -> bool:
    spec = cluster.spec
    stops = cluster.delete_wished_at is not None or spec.paused or spec.unfunded_since is not None
    return cluster.phase in SERVING and not stops


def _after_asking(cluster: Cluster, left: int, asked: int, now: Instant) -> Cluster:
    loans = cluster.status.loans
    loans = msgspec.structs.replace(loans, reclaimed=loans.reclaimed + asked)
    spec = msgspec.structs.replace(cluster.spec, preemptible_granted=left)
    return changed(with_status(cluster, loans=loans), spec=spec, updated_at=now)

"""A cluster's size changed by the system, not by its owner: what must be written for it, in one batch.

Leans on placement, quota and purse as any wish for capacity does: who may not have more waits, and is told why.
*Laws.* More workers and their seats are one batch, unless their hosts are lent and must be asked back first; what was
grown is billed on demand; nobody is asked twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec.structs

from muster.contracts.clock import Entropy
from muster.contracts.metering import Purse, Want
from muster.contracts.store import Op, Store, Wake
from muster.core.capacity.placement import Ask, Placement
from muster.core.capacity.service import Capacity
from muster.core.clusters.conditions import with_status
from muster.core.clusters.deeds import Grow, Shrink
from muster.core.clusters.loans import waits_for_lent
from muster.core.clusters.nodes import seat_ops
from muster.core.clusters.seating import Seating
from muster.core.clusters.snapshot import ClusterView
from muster.core.clusters.telling import cluster_event
from muster.core.clusters.terms import held_until
from muster.core.clusters.windows import NOTHING
from muster.errors import InsufficientBalance, NeverFits, OutOfStock, QuotaExceeded
from muster.model.base import Instant, changed
from muster.model.clusters import Billing, Cluster
from muster.model.events import Event

REFUSALS = (OutOfStock, NeverFits, QuotaExceeded, InsufficientBalance)


class Grown(NamedTuple):
    """The cluster with its new wish, the seats taken for it, and what must be written beside it."""

    cluster: Cluster
    placement: Placement
    ops: Sequence[Op]
    event: Event


class Growth:
    def __init__(self, store: Store, entropy: Entropy, capacity: Capacity, purse: Purse) -> None:
        self._capacity = capacity
        self._purse = purse
        self._seating = Seating(store, entropy)

    async def seated(self, view: ClusterView, step: Grow, now: Instant) -> Grown:
        """As many as can be had, half as many if not, but no fewer than would help; else one of `REFUSALS`."""
        workers = step.workers
        while True:
            try:
                return await self._seated(view, workers, step.because, now)
            except REFUSALS:
                if workers // 2 < step.least:
                    raise
                workers //= 2

    async def _seated(self, view: ClusterView, workers: int, because: str, now: Instant) -> Grown:
        cluster, spec = view.cluster, view.cluster.spec
        gpus = view.instance_type.gpus if view.instance_type else 8
        project = await self._seating.project(cluster.project_id)
        guard = await self._seating.quota_guard(project, workers * gpus)
        await self._purse.require(project, [Want(spec.instance_type, spec.region, workers, Billing.ON_DEMAND)])
        ask = Ask(spec.region, spec.gpu_type, gpus, workers, at=now, ends_at=held_until(cluster))
        grown = _scaled(cluster, spec.autoscaled_workers + workers, now)
        try:
            placement = await self._capacity.place(ask)
        except OutOfStock:
            line = waits_for_lent(self._capacity, ask)
            if line is None:
                raise
            placement, grown = NOTHING, msgspec.structs.replace(grown, short_line=line)
            guard = [*guard, Wake("preemption", line, now)]
        seats = self._seating.more_seats(cluster, view.nodes, placement, now)
        ops = [*seat_ops(seats), *self._capacity.guard(placement), *guard]
        return Grown(grown, placement, ops, _event(grown, f"{workers} more workers: {because}", now))

    async def refused(self, grown: Grown) -> None:
        """Another took the same hosts first."""
        await self._capacity.refused(grown.placement)

    def give_back(self, grown: Grown) -> None:
        """It was not written, or nobody knows: what is remembered of its project may be wrong."""
        self._capacity.give_back(grown.placement)
        self._seating.forget(grown.cluster.project_id)


def waits_because(refusal: Exception) -> str:
    """Without figures that change from minute to minute: it is written down whenever it changes."""
    if isinstance(refusal, InsufficientBalance):
        return "more workers: the balance does not cover them"
    return f"more workers: {refusal}"


def shrunk(cluster: Cluster, nodes: Sequence[str], step: Shrink, now: Instant) -> tuple[Cluster, Event]:
    """The wish for so many fewer, and which; `nodes` are the living."""
    first = [id for id in (*cluster.spec.leave_first, *step.node_ids) if id in nodes]
    fewer = _scaled(cluster, cluster.spec.autoscaled_workers - len(step.node_ids), now)
    spec = msgspec.structs.replace(fewer.spec, leave_first=tuple(dict.fromkeys(first)))
    return msgspec.structs.replace(fewer, spec=spec), _event(fewer, step.because, now)


def ungrown(cluster: Cluster) -> Cluster:
    """Who stops gives back what its queue asked for: what it comes back for is its owner's wish."""
    if not cluster.spec.autoscaled_workers:
        return cluster
    spec = msgspec.structs.replace(cluster.spec, autoscaled_workers=0)
    return with_status(msgspec.structs.replace(cluster, spec=spec), growth_waits="")


def _scaled(cluster: Cluster, autoscaled_workers: int, now: Instant) -> Cluster:
    spec = msgspec.structs.replace(cluster.spec, autoscaled_workers=autoscaled_workers)
    wished = changed(cluster, spec=spec, generation=cluster.generation + 1, updated_at=now)
    return with_status(wished, scaled_at=now, growth_waits="")


def _event(cluster: Cluster, message: str, now: Instant) -> Event:
    return cluster_event(cluster, "autoscaled", message, now, workers=cluster.spec.own_workers)

"""Histories of people who plan ahead: no promise too many, none broken, every charge proven after every crash."""

from __future__ import annotations

from collections import Counter

from muster.contracts.store import Find
from muster.model.billing import Contract
from muster.model.capacity import Reservation
from muster.model.clusters import Billing, Cluster
from muster.testing.simulation.history import Plot, play
from muster.testing.simulation.invariants import ALWAYS, EVENTUALLY, charges_are_proven
from muster.testing.simulation.mutants import HEALTHY
from muster.testing.simulation.outside import Outside

BUSY = Plot(users=1, planners=3, hosts=10)
PROVEN = {**ALWAYS, "charges_are_proven": charges_are_proven}


def test_promises_hold_whatever_dies() -> None:
    seen: Counter[str] = Counter()

    async def counted(outside: Outside) -> None:
        for reservation in await outside.store.find(Find(Reservation)):
            seen[f"{reservation.kind} {reservation.state}"] += 1
        seen["contracts"] += await outside.store.count(Find(Contract))

    for seed in range(1, 5):
        report = play(seed, BUSY, always=PROVEN, eventually={**EVENTUALLY, "counted": counted})
        assert report.broken is None, report.story()
    assert seen["contracts"] >= 20, seen
    assert len(seen) >= 6, seen  # terms, windows and quotes, in most of their states


def test_who_scheduled_in_time_is_ready_by_its_start() -> None:
    judged = 0

    async def counted(outside: Outside) -> None:
        nonlocal judged
        for cluster in await outside.store.find(Find(Cluster)):
            in_time = (cluster.spec.begins_at or 0) > cluster.created_at
            ready = cluster.status.first_ready_at is not None
            judged += cluster.spec.billing is Billing.SCHEDULED and in_time and ready

    for seed in range(1, 5):
        report = play(seed, HEALTHY, eventually={**EVENTUALLY, "counted": counted})
        assert report.broken is None, report.story()
    assert judged >= 5

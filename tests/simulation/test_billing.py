"""Histories with little credit and soaring prices: what cannot be paid for stops, and every charge is proven, after
every crash. And the checker checked: metering in a batch of its own is caught, by the proof and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from muster.contracts import metering
from muster.contracts.store import Batch, Find
from muster.model.billing import EntryKind, LedgerEntry
from muster.model.clusters import Cluster
from muster.model.phases import Phase
from muster.testing.simulation.history import Plot, play
from muster.testing.simulation.invariants import ALWAYS, EVENTUALLY, charges_are_proven
from muster.testing.simulation.outside import Outside

POOR = Plot(credit_micro=700_000_000)
PROVEN = {**ALWAYS, "charges_are_proven": charges_are_proven}
SEEDS = range(2, 9)


def test_credit_ends_in_the_middle_of_everything() -> None:
    seen = {"unfunded": 0, "charged": 0}

    async def counted(outside: Outside) -> None:
        for cluster in await outside.store.find(Find(Cluster)):
            seen["unfunded"] += any(moved.phase == Phase.UNFUNDED for moved in cluster.status.history)
        seen["charged"] += await outside.store.count(Find(LedgerEntry, equals={"kind": EntryKind.USAGE}))

    for seed in SEEDS:
        report = play(seed, POOR, always=PROVEN, eventually={**EVENTUALLY, "counted": counted})
        assert report.broken is None, report.story()
    assert seen["unfunded"] >= 2
    assert seen["charged"] >= 50


async def apart(self: Any, batch: Batch) -> Any:
    """The mutant: first the phase, then, in a batch of its own, the usage that should have followed it."""
    beside = await self._listener.beside(batch)
    answer = await self._behind.apply(batch)
    if beside:
        await self._behind.apply(Batch(batch.step, beside))
    return answer


CRASHING = Plot(crash_chance=0.02, minutes=20)


def test_metering_outside_the_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering._Listened, "apply", apart)
    caught = next((report for seed in SEEDS if (report := play(seed, CRASHING)).broken), None)
    assert caught is not None, "a crash between a phase and its usage went unseen"
    assert caught.broken is not None
    assert caught.broken[0] == "charges_are_proven", caught.story()


def test_only_the_proof_catches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering._Listened, "apply", apart)
    blind = {name: check for name, check in EVENTUALLY.items() if name != "charges_are_proven"}
    for seed in SEEDS[:2]:
        report = play(seed, CRASHING, eventually=blind)
        assert report.broken is None, report.story()

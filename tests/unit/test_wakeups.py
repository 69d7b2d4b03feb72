"""Announcements become due work: once per owner, at once, and a lost one costs nothing but time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from muster.contracts.store import Batch, Claim
from muster.engine.wakeups import Wakeups
from muster.errors import StoreFull
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock


async def due(store: SqliteStore, clock: ManualClock) -> list[tuple[str, str]]:
    claims: list[Claim] = await store.claim(worker="w", now=clock.now(), lease_ms=1_000, limit=1_000)
    return sorted((claim.kind, claim.id) for claim in claims)


def test_what_is_announced_is_due_under_each_kind_once(tmp_path: Path) -> None:
    async def story() -> None:
        store, clock = SqliteStore.open(tmp_path / "m.db", inline=True), ManualClock()
        wakeups, stop = Wakeups(store, clock, ("cluster", "volume")), asyncio.Event()
        running = asyncio.create_task(wakeups.run(stop))
        for owner in ("b", "a", "b"):
            wakeups.hear(owner)
        for _ in range(10):
            await asyncio.sleep(0)
        assert await due(store, clock) == [("cluster", "a"), ("cluster", "b"), ("volume", "a"), ("volume", "b")]
        stop.set()
        await running
        await store.close()

    asyncio.run(story())


def test_more_owners_than_one_batch_holds(tmp_path: Path) -> None:
    async def story() -> None:
        store, clock = SqliteStore.open(tmp_path / "m.db", inline=True), ManualClock()
        wakeups = Wakeups(store, clock, ("cluster",))
        for n in range(600):
            wakeups.hear(f"c-{n}")
        await wakeups.deliver()
        assert len(await due(store, clock)) == 600
        await store.close()

    asyncio.run(story())


def test_a_full_disk_loses_wakeups_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Full(SqliteStore):
        full = True

        async def apply(self, batch: Batch) -> None:
            if self.full:
                raise StoreFull("no space left")
            await super().apply(batch)

    async def story() -> None:
        store, clock = Full.open(tmp_path / "m.db", inline=True), ManualClock()
        assert isinstance(store, Full)
        wakeups = Wakeups(store, clock, ("cluster",))
        wakeups.hear("a")
        await wakeups.deliver()
        store.full = False
        wakeups.hear("b")
        await wakeups.deliver()
        assert await due(store, clock) == [("cluster", "b")]
        await store.close()

    asyncio.run(story())
    assert "1 wake-ups were lost" in caplog.text

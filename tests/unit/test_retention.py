"""What the house forgets, and what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert
from muster.core import retention
from muster.core.retention import KEY_DAYS, PRUNE_CHUNK, PRUNE_CHUNKS_MAX, Retention
from muster.model.base import DAY
from muster.model.events import Event, IdempotencyKey
from muster.model.hosts import Lease
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True)
    yield store
    asyncio.run(store.close())


def lines(count: int, at: int) -> list[Event]:
    return [
        Event(at=at, kind="volume", resource_id=f"v{n}", type="volume.created", project_id="p", actor="ada")
        for n in range(count)
    ]


def test_old_lines_are_forgotten_in_bounded_chunks(store: SqliteStore) -> None:
    async def story() -> None:
        clock = ManualClock()
        old = PRUNE_CHUNK * 2 + 3
        await store.apply(Batch(Step.ACCOUNT_WRITE, [], lines(old, clock.now() - 30 * DAY - 1)))
        await store.apply(Batch(Step.ACCOUNT_WRITE, [], lines(1, clock.now() - 30 * DAY)))
        assert await Retention(store, clock, event_days=31).prune() == 0
        assert await Retention(store, clock, event_days=30).prune() == old
        assert [event.resource_id for event in await store.events(after=0, limit=10)] == ["v0"]
        assert old < PRUNE_CHUNK * PRUNE_CHUNKS_MAX

    asyncio.run(story())


def test_a_clients_key_is_kept_for_a_week(store: SqliteStore) -> None:
    async def story() -> None:
        clock = ManualClock()
        week = clock.now() - KEY_DAYS * DAY
        for id, at in (("older", week - 1), ("young", week)):
            key = IdempotencyKey(id=id, digest="d", kind="cluster", resource_id="c", created_at=at)
            await store.apply(Batch(Step.CLUSTER_ACCEPT, [Insert(key)]))
        assert await Retention(store, clock).prune() == 1
        assert [key.id for key in await store.find(Find(IdempotencyKey))] == ["young"]

    asyncio.run(story())


def test_the_capacity_log_does_not_grow_for_ever(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CAPACITY_LINES_KEPT", 3)

    async def story() -> None:
        for n in range(9):
            lease = Lease(
                id=f"l{n}", host_id=f"h{n}", slots=1, node_id="n", cluster_id="c", project_id="p", taken_at=0
            )
            await store.apply(Batch(Step.CLUSTER_ACCEPT, [Insert(lease)]))
        assert await Retention(store, ManualClock()).prune() == 5
        assert [line.host_id for line in await store.capacity_log(0, 9)] == ["h5", "h6", "h7", "h8"]

    asyncio.run(story())

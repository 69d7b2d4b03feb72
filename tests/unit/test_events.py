"""Reading the event log by right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.contracts.steps import Step
from muster.contracts.store import Batch
from muster.core.accounts.events import EventReader
from muster.errors import Invalid, NotFound
from muster.model.accounts import SYSTEM, Actor, Role
from muster.model.events import Event
from muster.store.sqlite import SqliteStore

OURS = Actor(role=Role.MEMBER, name="mia", account_id="a", project_id="ours")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True)
    yield store
    asyncio.run(store.close())


async def log(store: SqliteStore, *lines: str, at: int = 0, project_id: str | None = "ours") -> None:
    """Lines like "volume.created v1"."""
    events = []
    for line in lines:
        type, id = line.split()
        kind = type.split(".")[0]
        events.append(
            Event(at=at, kind=kind, resource_id=id, type=type, project_id=project_id, actor="ada", message=line)
        )
    await store.apply(Batch(Step.ACCOUNT_WRITE, [], events))


def said(events: list[Event]) -> list[str]:
    return [event.message for event in events]


def test_a_tenant_reads_its_own_lines_only(store: SqliteStore) -> None:
    async def story() -> None:
        reader = EventReader(store)
        await log(store, "volume.created v1", "cluster.created c1")
        await log(store, "volume.created v2", project_id="theirs")
        await log(store, "account.created a1", project_id=None)
        assert said(await reader.events(OURS)) == ["volume.created v1", "cluster.created c1"]
        assert len(await reader.events(SYSTEM)) == 4
        assert said(await reader.events(SYSTEM, project_id="theirs")) == ["volume.created v2"]
        assert said(await reader.events(OURS, resource_id="v2")) == []
        with pytest.raises(NotFound):
            await reader.events(OURS, project_id="theirs")
        with pytest.raises(Invalid):
            await reader.events(Actor(role=Role.MEMBER, name="nobody"))

    asyncio.run(story())


def test_a_reader_resumes_where_it_was(store: SqliteStore) -> None:
    async def story() -> None:
        reader = EventReader(store)
        await log(store, *(f"volume.created v{n}" for n in range(5)))
        first = await reader.events(OURS, limit=2)
        rest = await reader.events(OURS, after=first[-1].seq)
        assert said(first + rest) == [f"volume.created v{n}" for n in range(5)]
        assert await reader.last(OURS) == rest[-1].seq
        newest = await reader.events(OURS, limit=2, newest_first=True)
        assert said(newest) == ["volume.created v4", "volume.created v3"]
        before = await reader.events(OURS, after=newest[-1].seq, newest_first=True)
        assert said(before) == ["volume.created v2", "volume.created v1", "volume.created v0"]
        assert await reader.events(OURS, kind="cluster") == []
        for bad in ({"after": -1}, {"after": 1 << 63}, {"limit": 0}, {"limit": 1001}):
            with pytest.raises(Invalid):
                await reader.events(OURS, **bad)

    asyncio.run(story())

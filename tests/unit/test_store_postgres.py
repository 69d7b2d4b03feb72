"""What only PostgreSQL must show: writers that take turns, connections that die, texts it cannot keep."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from muster.contracts.store import Find, Insert
from muster.errors import Invalid, Unavailable
from muster.model.clusters import Cluster
from muster.store.open import open_store
from muster.store.postgres import PostgresStore
from muster.store.postgres_apply import encoded
from muster.testing.postgres import postgres_dsn, postgres_server
from muster.testing.store_rig import batch, cluster, event

__all__ = ["postgres_dsn", "postgres_server"]


async def until_a_writer_waits(db: asyncpg.Connection[Any], task: asyncio.Task[None]) -> int | None:
    """The process that waits for its turn to write; None when the task ended without waiting."""
    async with asyncio.timeout(20):
        while not task.done():
            pid = await db.fetchval(
                "SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database"
                " WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"
            )
            if pid is not None:
                return int(pid)
    return None


def test_a_later_number_is_never_seen_before_an_earlier_one(postgres_dsn: str) -> None:
    """A writer that has numbered its event but not committed holds up the next: no reader can step over it."""

    async def story() -> None:
        store = await PostgresStore.open(postgres_dsn)
        slow, watch = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
        turn = slow.transaction()
        await turn.start()
        first = encoded(batch(events=(event("first"),))).decode()
        assert await slow.fetchval("SELECT muster_apply($1::jsonb)", f"[{first}]") == [""]
        second = asyncio.create_task(store.apply(batch(events=(event("second"),))))
        assert await until_a_writer_waits(watch, second) is not None
        assert await store.events(after=0, limit=9) == []
        await turn.commit()
        await second
        assert [one.type for one in await store.events(after=0, limit=9)] == ["first", "second"]
        await asyncio.gather(slow.close(), watch.close(), store.close())

    asyncio.run(story())


def test_a_connection_that_dies_is_unavailable_and_the_next_call_works(postgres_dsn: str) -> None:
    async def story() -> None:
        store = await PostgresStore.open(postgres_dsn)
        slow, watch = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
        turn = slow.transaction()
        await turn.start()
        await slow.execute("SELECT muster_apply('[]')")
        doomed = asyncio.create_task(store.apply(batch(Insert(cluster("c1")))))
        pid = await until_a_writer_waits(watch, doomed)
        await watch.execute("SELECT pg_terminate_backend($1)", pid)
        with pytest.raises(Unavailable, match="database does not answer"):
            await doomed
        await turn.rollback()
        assert await store.head(Cluster, "c1") is None
        await store.apply(batch(Insert(cluster("c1"))))
        assert await store.head(Cluster, "c1") is not None
        await asyncio.gather(slow.close(), watch.close(), store.close())

    asyncio.run(story())


def test_a_text_it_cannot_keep_is_refused_and_its_neighbours_are_not(postgres_dsn: str) -> None:
    async def story() -> None:
        store = await PostgresStore.open(postgres_dsn)
        batches = [batch(Insert(cluster(f"c{n}", because="\0" if n == 2 else ""))) for n in range(5)]
        answers = await asyncio.gather(*map(store.apply, batches), return_exceptions=True)
        assert [type(answer) for answer in answers].count(Invalid) == 1
        assert isinstance(answers[2], Invalid)
        assert [one.id for one in await store.find(Find(Cluster))] == ["c0", "c1", "c3", "c4"]
        await store.close()

    asyncio.run(story())


def test_nobody_there_is_unavailable(tmp_path: Any) -> None:
    with pytest.raises(Unavailable):
        asyncio.run(open_store(f"postgresql://muster@/x?host={tmp_path}&port=5432"))


def test_closing_writes_what_was_submitted(postgres_dsn: str) -> None:
    async def story() -> None:
        store = await PostgresStore.open(postgres_dsn)
        tasks = [asyncio.create_task(store.apply(batch(Insert(cluster(f"c{n}"))))) for n in range(200)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*tasks)
        again = await PostgresStore.open(postgres_dsn)
        assert await again.count(Find(Cluster)) == 200
        await again.close()

    asyncio.run(story())

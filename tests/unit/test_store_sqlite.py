"""What only SQLite must show: group commit, a full disk, kill -9, a file that another process holds."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from muster.contracts.store import Expect, Find, Insert, Remove, Replace
from muster.errors import StoreError, StoreFull, Unavailable, UniqueViolation, VersionMismatch
from muster.model.base import changed
from muster.model.clusters import Cluster
from muster.store import sqlite as sqlite_store
from muster.store.sqlite import SqliteStore
from muster.store.sqlite_writer import Groups, GroupWriter
from muster.testing.store_rig import batch, cluster, event


class PutOff:
    """Names to be added to the accounts at the end of a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.names: list[str] = []

    def settle(self) -> None:
        for name in self.names:
            self.db.execute("INSERT INTO account VALUES (?)", (name,))
        self.forget()

    def forget(self) -> None:
        self.names = []


def test_many_callers_share_few_commits(tmp_path: Path) -> None:
    """Counted by the file itself: SQLite's own change counter moves once per commit that others can see."""

    async def story() -> int:
        store = SqliteStore.open(tmp_path / "m.db")
        watch = sqlite3.connect(tmp_path / "m.db")
        seen = set()
        todo = [store.apply(batch(Insert(cluster(f"c{n}")))) for n in range(300)]
        waiting = asyncio.gather(*todo)
        while not waiting.done():
            seen.add(watch.execute("SELECT count(*) FROM cluster").fetchone()[0])
            await asyncio.sleep(0)
        await waiting
        watch.close()
        assert await store.count(Find(Cluster)) == 300
        await store.close()
        return len(seen)

    assert asyncio.run(story()) < 100


@pytest.mark.parametrize(("flush_seconds", "commits"), [(0.0, [2, 2]), (9.0, [2, 1])], ids=["quick", "slow"])
def test_half_of_those_who_wait_go_first_unless_the_disk_is_slow(
    tmp_path: Path, flush_seconds: float, commits: list[int]
) -> None:
    """The first sixteen go by halves, for nothing is known of the disk; the next sixteen by what was seen of it."""
    db = sqlite3.connect(tmp_path / "m.db", isolation_level=None, check_same_thread=False)
    said: list[str] = []
    now = 0.0

    def ticks() -> float:
        """Rows take no time; a flush takes what this disk takes."""
        nonlocal now
        now += flush_seconds if said[-1:] == ["COMMIT"] else 0.0
        return now

    async def story() -> list[int]:
        writer = GroupWriter(db, PutOff(db), 1_000, ticks)
        db.set_trace_callback(said.append)
        seen = []
        for _ in range(2):
            said.clear()
            await asyncio.gather(*(writer.submit(lambda: db.execute("SELECT 1").fetchone()) for _ in range(32)))
            seen.append(said.count("COMMIT"))
        await writer.close()
        return seen

    assert asyncio.run(story()) == commits


def test_a_beginning_that_must_wait_lets_others_go_on(tmp_path: Path) -> None:
    """Another process is writing: whoever only reads is answered meanwhile, and the batch is written after all."""

    async def story() -> None:
        store = SqliteStore.open(tmp_path / "m.db")
        other = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.apply(batch(Insert(cluster("c1")))))
        for _ in range(20):
            await asyncio.sleep(0)
            assert await store.count(Find(Cluster)) == 0
        assert not waiting.done()
        other.execute("COMMIT")
        other.close()
        await waiting
        assert await store.count(Find(Cluster)) == 1
        await store.close()

    asyncio.run(story())


def test_a_group_gives_each_job_its_own_verdict(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    db.execute("CREATE TABLE account (id TEXT PRIMARY KEY)")

    def add(id: str, later: PutOff | None = None) -> str:
        db.execute("INSERT INTO account VALUES (?)", (id,))
        if later is not None:
            later.names.append(f"after {id}")
        return id

    def bug() -> None:
        add("half", later)
        raise ZeroDivisionError

    later = PutOff(db)
    verdicts = Groups(db, later).run([lambda: add("a"), lambda: add("a"), bug, lambda: add("b", later)])
    assert [verdict.answer for verdict in verdicts] == ["a", None, None, "b"]
    assert isinstance(verdicts[1].error, UniqueViolation)
    assert isinstance(verdicts[2].error, ZeroDivisionError)
    assert db.execute("SELECT id FROM account ORDER BY id").fetchall() == [("a",), ("after b",), ("b",)]
    db.close()


def test_what_is_put_off_is_written_with_its_group_and_counted_once_for_all(tmp_path: Path) -> None:
    """Many at once, one of them refused: numbers without a hole or a double, one line of the log each, in order."""

    async def story() -> None:
        store = SqliteStore.open(tmp_path / "m.db")
        batches = [batch(Insert(cluster(f"c{n}")), events=(event(message=f"c{n}"),)) for n in range(12)]
        batches.insert(5, batch(Insert(cluster("c0")), events=(event(message="refused"),)))
        answers = await asyncio.gather(*map(store.apply, batches), return_exceptions=True)
        assert [type(answer) for answer in answers].count(UniqueViolation) == 1
        numbers = sorted(made.number for made in await store.find(Find(Cluster)))
        assert numbers == list(range(1, 13))
        told = [said.message for said in await store.events(after=0, limit=100)]
        assert told == [f"c{n}" for n in range(12)]
        await store.close()

    asyncio.run(story())


def test_an_expectation_is_looked_up_anew_once_its_row_was_written(tmp_path: Path) -> None:
    async def story() -> None:
        store = SqliteStore.open(tmp_path / "m.db", inline=True)
        first = cluster("c1")
        await store.apply(batch(Insert(first)))
        expects = Expect(Cluster, "c1", first.version)
        with pytest.raises(VersionMismatch):
            await store.apply(batch(expects, Replace(changed(first)), expects))
        assert (await store.get(Cluster, "c1")).version == first.version
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "threaded"])
def test_a_full_disk_refuses_and_leaves_nothing_half_written(tmp_path: Path, inline: bool) -> None:
    async def story() -> None:
        store = SqliteStore.open(tmp_path / "m.db", inline=inline)
        await store.apply(batch(Insert(cluster("first", because="x" * 50_000))))
        writer = store._writer._db
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages + 1}")
        big = [batch(Insert(cluster(f"big{n}", because="x" * 50_000)), events=(event(),)) for n in range(3)]
        small = batch(Remove(Cluster, "first"))
        answers = await asyncio.gather(*map(store.apply, [*big, small]), return_exceptions=True)
        # Alone, each gets its own verdict: making room is possible on a full disk.
        assert [type(answer) for answer in answers] == [StoreFull, StoreFull, StoreFull, dict]
        assert await store.find(Find(Cluster)) == []
        assert await store.events(after=0, limit=9) == []
        await store.apply(batch(Insert(cluster("again", because="x" * 40_000)), events=(event(),)))
        assert await store.last_event() == 1
        await store.close()
        whole = sqlite3.connect(tmp_path / "m.db")
        assert whole.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        whole.close()

    asyncio.run(story())


def test_a_file_held_by_another_process_is_unavailable_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_MS", 20)

    async def story() -> None:
        store = SqliteStore.open(tmp_path / "m.db")
        other = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            await store.apply(batch(Insert(cluster("c1"))))
        assert await store.head(Cluster, "c1") is None
        other.execute("ROLLBACK")
        other.close()
        await store.apply(batch(Insert(cluster("c1"))))
        await store.close()

    asyncio.run(story())


def test_closing_writes_what_was_submitted_and_refuses_the_rest(tmp_path: Path) -> None:
    async def story() -> None:
        store = SqliteStore.open(tmp_path / "m.db")
        tasks = [asyncio.create_task(store.apply(batch(Insert(cluster(f"c{n}"))))) for n in range(50)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*tasks)
        with pytest.raises(StoreError, match="closed"):
            await store.apply(batch(Insert(cluster("late"))))
        again = SqliteStore.open(tmp_path / "m.db")
        assert await again.count(Find(Cluster)) == 50
        await again.close()

    asyncio.run(story())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.db"]


def test_a_caller_that_went_away_does_not_disturb_the_group(tmp_path: Path) -> None:
    async def story() -> None:
        store = SqliteStore.open(tmp_path / "m.db")
        tasks = [asyncio.create_task(store.apply(batch(Insert(cluster(f"c{n}"))))) for n in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers].count(asyncio.CancelledError) == 1
        assert sum(isinstance(answer, dict) for answer in answers) == 9
        await store.close()

    asyncio.run(story())


def test_memory_is_private_and_inline() -> None:
    async def story() -> None:
        store = SqliteStore.open(":memory:", inline=True)
        await store.apply(batch(Insert(cluster("c1"))))
        assert await store.head(Cluster, "c1") is not None
        await store.close()

    asyncio.run(story())


CHILD = """
    import asyncio, sys
    from muster.contracts.store import Insert
    from muster.store.sqlite import SqliteStore
    from muster.testing.store_rig import batch, cluster, event

    async def main():
        store = SqliteStore.open(sys.argv[1])
        async def writer(by):
            for n in range(100_000):
                id = f"{by}.{n}"
                await store.apply(batch(Insert(cluster(id)), events=(event(id=id),)))
                print(id, flush=True)
        await asyncio.gather(*map(writer, range(8)))

    asyncio.run(main())
"""


def test_kill_9_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path / "m.db")], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    answered = [child.stdout.readline().strip() for _ in range(400)]
    child.send_signal(signal.SIGKILL)
    # What it still managed to say counts as said; a line cut in two does not.
    answered += [line.strip() for line in child.stdout if line.endswith("\n")]
    child.wait()
    child.stdout.close()

    async def look() -> tuple[set[str], set[str]]:
        store = SqliteStore.open(tmp_path / "m.db")
        nouns = {one.id for one in await store.find(Find(Cluster))}
        events = {one.resource_id for one in await store.events(after=0, limit=1_000_000)}
        await store.close()
        return nouns, events

    nouns, events = asyncio.run(look())
    assert len(answered) >= 400
    assert set(answered) <= nouns
    assert nouns == events

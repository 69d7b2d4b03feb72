"""Memory in one file: SQLite in WAL mode, read inline, written by one group-commit writer.

Leans on contracts, model and errors, and on the other modules of this room. Keeps every law of contracts/store.py;
muster.testing.store_suite proves it. Two processes may share the file: each write transaction begins IMMEDIATE.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from muster.contracts.store import Batch, CapacityChange, Claim, Find, Head
from muster.model.base import Instant, N, Noun
from muster.model.events import Event
from muster.store.find import SqliteSyntax, count_question, question
from muster.store.logs import events_question
from muster.store.migrate import migrate_sqlite
from muster.store.rows import rows_of, table_rows
from muster.store.schema import TABLES
from muster.store.sqlite_apply import Applier
from muster.store.sqlite_writer import GroupWriter, InlineWriter, Ticks, translated

BUSY_MS: Final = 10_000
"""How long a write waits for another process's transaction."""

CACHE_KIB: Final = 32_768
STATEMENTS_KEPT: Final = 512
CHECKPOINT_PAGES: Final = 4_000
"""Fold the log into the file every 16 MB: seldom enough that a page written often is copied once."""

_SYNTAX = SqliteSyntax()
_EVENTS = rows_of(Event)


def _connect(path: str, *, fsync: bool) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT)
    db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'OFF'}")
    db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    db.execute("PRAGMA temp_store = MEMORY")
    return db


class SqliteStore:
    """`inline`: no thread, each batch committed in its caller. `fsync=False` only where a power cut cannot matter."""

    def __init__(
        self,
        reader: sqlite3.Connection,
        writer: sqlite3.Connection,
        *,
        inline: bool,
        ticks: Ticks = lambda: 0.0,
    ) -> None:
        self._reader = reader
        self._applier = Applier(writer)
        self._writer = (
            InlineWriter(writer, self._applier) if inline else GroupWriter(writer, self._applier, BUSY_MS, ticks)
        )
        self._heads = {
            table.noun: f"SELECT id, version, project_id, created_at FROM {table.name} WHERE id = ?"
            + (" AND gone_at IS NULL" if "gone_at" in table.names else "")
            for table in TABLES.values()
        }
        self._gets = {
            table.noun: f"SELECT {', '.join(table.names)} FROM {table.name} WHERE id = ?" for table in TABLES.values()
        }

    @classmethod
    def open(
        cls, path: str | Path, *, inline: bool = False, fsync: bool = True, ticks: Ticks = lambda: 0.0
    ) -> SqliteStore:
        """Open (and make, and migrate) the file. ":memory:" is private to this store and needs `inline`. `ticks`
        shows how quick the disk is; without, it counts as quick."""
        writer = _connect(str(path), fsync=fsync)
        try:
            migrate_sqlite(writer)
        except sqlite3.Error as error:
            writer.close()
            raise translated(error) from error
        except BaseException:
            writer.close()
            raise
        if str(path) == ":memory:":
            return cls(writer, writer, inline=True)
        reader = _connect(str(path), fsync=fsync)
        reader.execute("PRAGMA query_only = ON")
        return cls(reader, writer, inline=inline, ticks=ticks)

    async def close(self) -> None:
        # The reader first: the last connection to close folds the WAL into the file, so it must be able to write.
        self._reader.close()
        await self._writer.close()

    # Reading: inline, on the loop's own thread.

    async def get(self, noun: type[N], key: str) -> N | None:
        row = self._reader.execute(self._gets[noun], (key,)).fetchone()
        return None if row is None else table_rows(noun)[1].struct(row)

    async def find(self, query: Find[N]) -> list[N]:
        table, rows = table_rows(query.noun)
        sql, parameters = question(query, ", ".join(table.names), _SYNTAX)
        return rows.structs(self._reader.execute(sql, parameters).fetchall())

    async def count(self, query: Find[Any]) -> int:
        return self._number(*count_question(query, _SYNTAX))

    async def head(self, noun: type[Noun], key: str) -> Head | None:
        row = self._reader.execute(self._heads[noun], (key,)).fetchone()
        return None if row is None else Head(*row)

    async def heads(self, query: Find[Any]) -> list[Head]:
        sql, parameters = question(query, "id, version, project_id, created_at", _SYNTAX, only_alive=True)
        return list(map(Head._make, self._reader.execute(sql, parameters).fetchall()))

    async def events(
        self,
        *,
        after: int,
        limit: int,
        project_id: str | None = None,
        kind: str | None = None,
        resource_id: str | None = None,
        newest_first: bool = False,
    ) -> list[Event]:
        sql, parameters = events_question(
            _SYNTAX,
            {"project_id": project_id, "kind": kind, "resource_id": resource_id},
            after=after,
            limit=limit,
            newest_first=newest_first,
        )
        return _EVENTS.structs(self._reader.execute(sql, parameters).fetchall())

    async def last_event(self) -> int:
        return self._number("SELECT coalesce(max(seq), 0) FROM event")

    async def capacity_log(self, after: int, limit: int) -> list[CapacityChange]:
        sql = "SELECT seq, host_id, taken, freed, ends_at FROM capacity_log WHERE seq > ? ORDER BY seq LIMIT ?"
        return list(map(CapacityChange._make, self._reader.execute(sql, (after, limit)).fetchall()))

    async def capacity_seq(self) -> int:
        return self._number("SELECT coalesce(max(seq), 0) FROM capacity_log")

    async def slots_taken(self) -> dict[str, int]:
        return dict(self._reader.execute("SELECT host_id, taken FROM host_slots WHERE taken <> 0").fetchall())

    async def next_due(self) -> Instant | None:
        row = self._reader.execute("SELECT min(ready_at) FROM work").fetchone()
        return None if row[0] is None else int(row[0])

    async def work_backlog(self, now: Instant) -> tuple[int, int]:
        due = self._number("SELECT count(*) FROM work WHERE ready_at <= ?", [now])
        return due, self._number("SELECT count(*) FROM work")

    def _number(self, sql: str, parameters: list[Any] | None = None) -> int:
        return int(self._reader.execute(sql, parameters or ()).fetchone()[0])

    # Writing: everything goes through the one writer.

    async def apply(self, batch: Batch) -> Mapping[str, int]:
        numbers: dict[str, int] = await self._writer.submit(lambda: self._applier.apply(batch))
        return numbers

    async def prune_events(self, before: Instant, limit: int) -> int:
        return int(await self._writer.submit(lambda: self._applier.prune_events(before, limit)))

    async def prune_keys(self, before: Instant, limit: int) -> int:
        return int(await self._writer.submit(lambda: self._applier.prune_keys(before, limit)))

    async def prune_capacity_log(self, keep: int, limit: int) -> int:
        oldest = await self.capacity_seq() - keep
        return int(await self._writer.submit(lambda: self._applier.prune_capacity_log(oldest, limit)))

    async def claim(self, *, worker: str, now: Instant, lease_ms: int, limit: int) -> list[Claim]:
        due = await self.next_due()
        if due is None or due > now:
            return []  # the usual answer, and it costs no transaction
        claims: list[Claim] = await self._writer.submit(lambda: self._applier.claim(worker, now, lease_ms, limit))
        return claims

    async def renew(self, claim: Claim, expires_at: Instant) -> bool:
        return bool(await self._writer.submit(lambda: self._applier.renew(claim, expires_at)))

    async def release(self, claim: Claim, *, due_at: Instant | None, failed: bool) -> None:
        await self._writer.submit(lambda: self._applier.release(claim, due_at, failed))

    async def disown(self, worker: str) -> int:
        return int(await self._writer.submit(lambda: self._applier.disown(worker)))

    async def tokens_above(self, least: int) -> None:
        await self._writer.submit(lambda: self._applier.tokens_above(least))

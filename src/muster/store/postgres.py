"""Memory for several replicas: PostgreSQL 15+, read through a pool, written by one group-commit writer per process.

Leans on contracts, model and errors, and on the other modules of this room. Keeps every law of contracts/store.py by
the same suite as SQLite. Writers of all processes take turns (an advisory lock held for one call), which is what
makes log numbers grow in commit order; docs/decisions says why that is cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import asyncpg

from muster.contracts.store import Batch, CapacityChange, Claim, Find, Head
from muster.errors import Invalid, StoreFull, Unavailable
from muster.model.base import Instant, N, Noun
from muster.model.events import Event
from muster.store.find import PostgresSyntax, count_question, question
from muster.store.logs import events_question
from muster.store.migrate import pending, written_for
from muster.store.postgres_writer import GroupWriter
from muster.store.rows import rows_of, table_rows

CONNECTIONS_MAX: Final = 8
COMMAND_SECONDS_MAX: Final = 30

_SYNTAX = PostgresSyntax()
_EVENTS = rows_of(Event)
_HELD = "kind = $1 AND id = $2 AND token = $3 AND worker IS NOT NULL"
_CLAIM = (
    "WITH ready AS (SELECT kind, id, ready_at FROM work WHERE ready_at <= $1"
    " ORDER BY ready_at, kind, id LIMIT $2 FOR UPDATE SKIP LOCKED)"
    " UPDATE work SET token = nextval('claim_token'), worker = $3, ready_at = $4 FROM ready"
    " WHERE work.kind = ready.kind AND work.id = ready.id"
    " RETURNING ready.ready_at, work.kind, work.id, work.token, work.wakes, work.attempts"
)
_LET_GO = (
    "UPDATE work SET worker = NULL, attempts = CASE WHEN $4 THEN attempts + 1 ELSE 0 END,"
    " due_at = CASE WHEN wakes > $5 THEN due_at ELSE $6 END, ready_at = CASE WHEN wakes > $5 THEN due_at ELSE $6 END"
    f" WHERE {_HELD}"
)

_GONE: Final = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
)


@contextmanager
def told_plainly() -> Iterator[None]:
    """The database's troubles in the house's words."""
    try:
        yield
    except asyncpg.DiskFullError as error:
        raise StoreFull("the database's disk is full; nothing was written") from error
    except asyncpg.UntranslatableCharacterError as error:
        raise Invalid("a text holds a character that cannot be stored", hint="leave out NUL characters") from error
    except _GONE as error:
        raise Unavailable(
            f"the database does not answer: {error or type(error).__name__}", hint="try again in a moment"
        ) from error


async def migrate_postgres(db: asyncpg.Connection[Any]) -> None:
    """Bring the schema up to date, in one transaction: two processes may start at once."""
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(hashtext('muster.migrate'))")
        await db.execute("CREATE TABLE IF NOT EXISTS schema_version (version bigint PRIMARY KEY)")
        known = await db.fetchval("SELECT coalesce(max(version), 0) FROM schema_version")
        for migration in pending(known):
            await db.execute(written_for("postgres", migration.text))
            await db.execute("INSERT INTO schema_version VALUES ($1)", migration.version)


def _touched(status: str) -> int:
    """asyncpg answers with the command's tag: "UPDATE 1"."""
    return int(status.rsplit(" ", 1)[-1])


class PostgresStore:
    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool
        self._writer = GroupWriter(pool)

    @classmethod
    async def open(cls, dsn: str, *, connections: int = CONNECTIONS_MAX) -> PostgresStore:
        """Connect, and make or migrate the schema."""
        with told_plainly():
            pool = await asyncpg.create_pool(
                dsn, min_size=1, max_size=connections, command_timeout=COMMAND_SECONDS_MAX
            )
        try:
            with told_plainly():
                async with pool.acquire() as db:
                    await migrate_postgres(db)  # type: ignore[arg-type]  # a pooled proxy is a connection
        except BaseException:
            await pool.close()
            raise
        return cls(pool)

    async def close(self) -> None:
        await self._writer.close()
        await self._pool.close()

    async def _rows(self, sql: str, *parameters: Any) -> list[Any]:
        with told_plainly():
            return await self._pool.fetch(sql, *parameters)

    async def _value(self, sql: str, *parameters: Any) -> Any:
        with told_plainly():
            return await self._pool.fetchval(sql, *parameters)

    async def _execute(self, sql: str, *parameters: Any) -> int:
        with told_plainly():
            return _touched(await self._pool.execute(sql, *parameters))

    # Reading.

    async def get(self, noun: type[N], key: str) -> N | None:
        found = await self.find(Find(noun, {"id": key}))
        return found[0] if found else None

    async def find(self, query: Find[N]) -> list[N]:
        table, rows = table_rows(query.noun)
        sql, parameters = question(query, ", ".join(table.names), _SYNTAX)
        return rows.structs(await self._rows(sql, *parameters))

    async def count(self, query: Find[Any]) -> int:
        sql, parameters = count_question(query, _SYNTAX)
        return int(await self._value(sql, *parameters))

    async def head(self, noun: type[Noun], key: str) -> Head | None:
        found = await self.heads(Find(noun, {"id": key}))
        return found[0] if found else None

    async def heads(self, query: Find[Any]) -> list[Head]:
        sql, parameters = question(query, "id, version, project_id, created_at", _SYNTAX, only_alive=True)
        return [Head(*row) for row in await self._rows(sql, *parameters)]

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
        return _EVENTS.structs(await self._rows(sql, *parameters))

    async def last_event(self) -> int:
        return int(await self._value("SELECT coalesce(max(seq), 0) FROM event"))

    async def capacity_log(self, after: int, limit: int) -> list[CapacityChange]:
        sql = "SELECT seq, host_id, taken, freed, ends_at FROM capacity_log WHERE seq > $1 ORDER BY seq LIMIT $2"
        return [CapacityChange(*row) for row in await self._rows(sql, after, limit)]

    async def capacity_seq(self) -> int:
        return int(await self._value("SELECT coalesce(max(seq), 0) FROM capacity_log"))

    async def slots_taken(self) -> dict[str, int]:
        rows = await self._rows("SELECT host_id, taken FROM host_slots WHERE taken <> 0")
        return {host_id: int(taken) for host_id, taken in rows}

    async def next_due(self) -> Instant | None:
        due = await self._value("SELECT min(ready_at) FROM work")
        return None if due is None else int(due)

    async def work_backlog(self, now: Instant) -> tuple[int, int]:
        [row] = await self._rows("SELECT count(*) FILTER (WHERE ready_at <= $1), count(*) FROM work", now)
        return int(row[0]), int(row[1])

    # Writing.

    async def apply(self, batch: Batch) -> Mapping[str, int]:
        with told_plainly():
            await self._writer.apply(batch)
        return {}

    async def prune_events(self, before: Instant, limit: int) -> int:
        # Looking only at the first `limit` rows keeps this cheap without an index on time: the log is in time order.
        prune = "DELETE FROM event WHERE at < $1 AND seq IN (SELECT seq FROM event ORDER BY seq LIMIT $2)"
        return await self._execute(prune, before, limit)

    async def prune_keys(self, before: Instant, limit: int) -> int:
        oldest = "SELECT id FROM idempotency_key WHERE created_at < $1 ORDER BY created_at LIMIT $2"
        return await self._execute(f"DELETE FROM idempotency_key WHERE id IN ({oldest})", before, limit)

    async def prune_capacity_log(self, keep: int, limit: int) -> int:
        first = "SELECT seq FROM capacity_log ORDER BY seq LIMIT $2"
        prune = f"DELETE FROM capacity_log WHERE seq < $1 AND seq IN ({first})"
        return await self._execute(prune, await self.capacity_seq() - keep, limit)

    async def claim(self, *, worker: str, now: Instant, lease_ms: int, limit: int) -> list[Claim]:
        expires_at = now + lease_ms
        taken = sorted(await self._rows(_CLAIM, now, limit, worker, expires_at))
        return [Claim(kind, id, token, wakes, attempts, expires_at) for _, kind, id, token, wakes, attempts in taken]

    async def renew(self, claim: Claim, expires_at: Instant) -> bool:
        renew = f"UPDATE work SET ready_at = $4 WHERE {_HELD}"
        return await self._execute(renew, claim.kind, claim.id, claim.token, expires_at) == 1

    async def release(self, claim: Claim, *, due_at: Instant | None, failed: bool) -> None:
        key = (claim.kind, claim.id, claim.token)
        over = f"DELETE FROM work WHERE {_HELD} AND wakes = $4"
        if due_at is None and await self._execute(over, *key, claim.wakes):
            return
        # Woken meanwhile: its due_at is already in the past, for it was due when it was claimed. That stays.
        await self._execute(_LET_GO, *key, failed, claim.wakes, due_at)

    async def disown(self, worker: str) -> int:
        return await self._execute("UPDATE work SET worker = NULL, ready_at = due_at WHERE worker = $1", worker)

    async def tokens_above(self, least: int) -> None:
        # One replica at a time: a sequence set by two could be set back by the slower one.
        raised = "SELECT setval('claim_token', $1) FROM claim_token WHERE last_value < $1"
        with told_plainly():
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("LOCK TABLE work IN SHARE ROW EXCLUSIVE MODE")
                await connection.execute(raised, least)

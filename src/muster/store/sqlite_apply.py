"""A batch as SQLite statements, run inside a transaction that somebody else opened.

Leans on schema and rows. Keeps the laws of `Insert`, `Replace`, `Remove`, `Expect`, `Wake` and of the fence; raises
on the first that does not hold, and leaves undoing to whoever opened the transaction. What nobody can be refused for
(lines of the logs, how far a count went) is put off until `settle`: many batches in one transaction write it once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from muster.contracts.store import Batch, Claim, Expect, Insert, Op, Remove, Replace, Wake
from muster.errors import FenceLost, UniqueViolation, VersionMismatch
from muster.model.base import HOUR, Instant, Noun
from muster.model.capacity import Booking
from muster.model.events import Event
from muster.model.hosts import Host, Lease
from muster.store.rows import Rows, rows_of, table_rows
from muster.store.schema import CELL_RULE, FIXED, SLOT_RULE, TABLES, Table, require_slots

_EVENTS = rows_of(Event)


class _Sql(NamedTuple):
    """The statements of one table, written once."""

    table: Table
    rows: Rows[Any]
    insert: str
    update: str
    updated: tuple[int, ...]  # which columns an update writes
    number_at: int | None


def _sql(table: Table) -> _Sql:
    names = table.names
    # A number is given once, at insert: whoever replaces a row it never read back must not undo that.
    updated = tuple(at for at, name in enumerate(names) if name not in ("id", "number"))
    fixed = "".join(f" AND {name} = ?" for name in FIXED.get(table.noun, ()))
    settings = ", ".join(f"{names[at]} = ?" for at in updated)
    return _Sql(
        table,
        table_rows(table.noun)[1],
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
        f"UPDATE {table.name} SET {settings} WHERE id = ? AND version = ?{fixed}",
        updated,
        names.index("number") if table.numbered else None,
    )


_SQL = {noun: _sql(table) for noun, table in TABLES.items()}
_INSERT_EVENT = (
    "INSERT INTO event (at, kind, resource_id, type, account_id, project_id, actor, cause, message, data)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_LOG = "INSERT INTO capacity_log (host_id, taken, freed, ends_at) VALUES (?, ?, ?, ?)"
_TAKE_SLOTS = (
    "INSERT INTO host_slots VALUES (?, ?)"
    " ON CONFLICT DO UPDATE SET taken = taken | excluded.taken WHERE taken & excluded.taken = 0"
)
_FREE_SLOTS = "UPDATE host_slots SET taken = taken & ~?2 WHERE host_id = ?1"
_TAKE_CELL = "INSERT INTO calendar_cell VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET used = used + excluded.used"
_OVER = (
    "SELECT 1 FROM calendar_cell WHERE line_id = ?1 AND at >= ?2 AND at < ?3"
    " AND used > coalesce((SELECT reservable FROM calendar_line WHERE id = ?1), 0) LIMIT 1"
)
_GIVE_CELLS = "UPDATE calendar_cell SET used = used - ?2 WHERE line_id = ?1 AND at >= ?3 AND at < ?4"
_CLEAN_CELLS = "DELETE FROM calendar_cell WHERE line_id = ? AND at >= ? AND at < ? AND used = 0"
_COUNTED = "SELECT last FROM counter WHERE noun = ?"
_COUNT = "INSERT INTO counter VALUES (?, ?) ON CONFLICT (noun) DO UPDATE SET last = excluded.last"
_WAKE = (
    "INSERT INTO work (kind, id, due_at, ready_at, token, wakes, attempts) VALUES (?, ?, ?3, ?3, 0, 1, 0)"
    " ON CONFLICT (kind, id) DO UPDATE SET wakes = wakes + 1, due_at = min(due_at, excluded.due_at),"
    " ready_at = iif(worker IS NULL, min(due_at, excluded.due_at), ready_at)"
)
_HELD = "kind = ? AND id = ? AND token = ? AND worker IS NOT NULL"


def _runs(ops: Iterable[Op]) -> list[tuple[type[Any], list[Any]]]:
    """New rows of one kind that stand side by side are written together, any other op by itself; in the batch's own
    order. (type of the new nouns, they) or (type of the op, [it])."""
    runs: list[tuple[type[Any], list[Any]]] = []
    last: type[Any] | None = None
    for op in ops:
        if type(op) is Insert:
            noun = op.noun
            if type(noun) is last:
                runs[-1][1].append(noun)
            else:
                last = type(noun)
                runs.append((last, [noun]))
        else:
            last = None
            runs.append((type(op), [op]))
    return runs


class Applier:
    """Runs batches and claims on one connection; the caller opens and ends the transaction, and calls `settle` before
    it commits, or `forget` when it rolls back."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._cursor = db.cursor()
        self._numbers: dict[str, int] = {}
        self._counted: dict[str, int] = {}  # how far each count went in this transaction
        self._matched: dict[tuple[type[Noun], str], int] = {}  # versions that this transaction has seen
        self._events: list[list[Any]] = []
        self._log: list[tuple[str, int, int, Instant | None]] = []
        self._verbs: dict[type[Any], Callable[[Any], None]] = {
            Replace: self._replace,
            Remove: self._remove,
            Expect: self._expect,
            Wake: self._wake,
        }

    def apply(self, batch: Batch) -> dict[str, int]:
        self._numbers = {}
        if batch.fence is not None:
            self._require_held(batch.fence)
        for kind, those in _runs(batch.ops):
            verb = self._verbs.get(kind)
            if verb is None:
                self._insert(_SQL[kind], those)
            else:
                verb(those[0])
        self._events += [_EVENTS.row(event)[1:] for event in batch.events]
        return self._numbers

    def settle(self) -> None:
        """Write what was put off."""
        if self._events:
            self._many(_INSERT_EVENT, self._events)
        if self._log:
            self._many(_LOG, self._log)
        if self._counted:
            self._many(_COUNT, list(self._counted.items()))
        self.forget()

    def forget(self) -> None:
        """The transaction is over, one way or the other."""
        self._events, self._log = [], []
        self._counted, self._matched = {}, {}

    def _many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if len(rows) == 1:
            self._cursor.execute(sql, rows[0])
        else:
            self._cursor.executemany(sql, rows)

    def _require_held(self, fence: Claim) -> None:
        held = f"SELECT 1 FROM work WHERE {_HELD}"
        if not self._cursor.execute(held, (fence.kind, fence.id, fence.token)).fetchall():
            raise FenceLost(f"the claim on {fence.kind} {fence.id} is no longer ours")

    def _insert(self, sql: _Sql, nouns: list[Any]) -> None:
        rows = [sql.rows.row(noun) for noun in nouns]
        if sql.number_at is not None:
            self._give_numbers(sql.table.name, rows, sql.number_at)
            self._numbers.update((noun.id, row[sql.number_at]) for noun, row in zip(nouns, rows, strict=True))
        self._many(sql.insert, rows)
        if sql.table.noun is Lease:
            self._take_slots(nouns)
        elif sql.table.noun is Booking:
            self._take_cells(nouns)
        elif sql.table.noun is Host:
            self._log += [(noun.id, 0, 0, None) for noun in nouns]

    def _give_numbers(self, table: str, rows: list[list[Any]], at: int) -> None:
        for row in rows:
            if row[at]:
                self.count_above(table, row[at])  # a restored backup chooses: the count goes on from there
        wanting = [row for row in rows if not row[at]]
        if wanting:
            first = self.count_on(table, len(wanting)) - len(wanting) + 1
            for number, row in enumerate(wanting, first):
                row[at] = number

    def count_on(self, counter: str, by: int) -> int:
        last = self._count_of(counter) + by
        self._counted[counter] = last
        return last

    def count_above(self, counter: str, least: int) -> None:
        self._counted[counter] = max(self._count_of(counter), least)

    def _count_of(self, counter: str) -> int:
        known = self._counted.get(counter)
        if known is None:
            found = self._cursor.execute(_COUNTED, (counter,)).fetchall()
            known = int(found[0][0]) if found else 0
        return known

    def _take_slots(self, leases: list[Lease]) -> None:
        """A host of which a slot is taken already is not touched: fewer rows than leases, and nothing stands."""
        for lease in leases:
            require_slots(lease.slots)
        self._many(_TAKE_SLOTS, [(lease.host_id, lease.slots) for lease in leases])
        if self._cursor.rowcount != len(leases):
            raise UniqueViolation(SLOT_RULE)
        self._log += [(lease.host_id, lease.slots, 0, lease.ends_at) for lease in leases]

    def _take_cells(self, bookings: list[Booking]) -> None:
        """Every hour counts them; none may then promise more than its line allows."""
        for one in bookings:
            hours = range(one.from_at, one.until_at, HOUR)
            self._cursor.executemany(_TAKE_CELL, [(one.line_id, at, one.hosts) for at in hours])
            if self._cursor.execute(_OVER, (one.line_id, one.from_at, one.until_at)).fetchall():
                raise UniqueViolation(CELL_RULE)

    def _give_cells(self, line_id: str, hosts: int, from_at: Instant, until_at: Instant) -> None:
        self._cursor.execute(_GIVE_CELLS, (line_id, hosts, from_at, until_at))
        self._cursor.execute(_CLEAN_CELLS, (line_id, from_at, until_at))

    def _replace(self, op: Replace) -> None:
        noun = op.noun
        sql = _SQL[type(noun)]
        self._matched.pop((type(noun), noun.id), None)
        row = sql.rows.row(noun)
        values = [row[at] for at in sql.updated]
        values += (noun.id, noun.version - 1)
        values += (getattr(noun, name) for name in FIXED.get(type(noun), ()))
        if self._cursor.execute(sql.update, values).rowcount != 1:
            raise VersionMismatch(sql.table.name, noun.id)
        if isinstance(noun, Host):
            self._log.append((noun.id, 0, 0, None))
        elif isinstance(noun, Lease):
            self._log.append((noun.host_id, noun.slots, 0, noun.ends_at))

    def _remove(self, op: Remove) -> None:
        table = TABLES[op.noun].name
        self._matched.pop((op.noun, op.key), None)
        told = ", ".join(FIXED.get(op.noun, ("id",)))
        guard = "" if op.version is None else " AND version = ?2"
        parameters = (op.key,) if op.version is None else (op.key, op.version)
        gone = self._cursor.execute(
            f"DELETE FROM {table} WHERE id = ?1{guard} RETURNING {told}", parameters
        ).fetchall()
        if not gone:
            raise VersionMismatch(table, op.key)
        if op.noun is Lease:
            host_id, slots = gone[0]
            self._cursor.execute(_FREE_SLOTS, (host_id, slots))
            self._log.append((host_id, 0, slots, None))
        elif op.noun is Booking:
            self._give_cells(*gone[0])
        elif op.noun is Host:
            self._log.append((op.key, 0, 0, None))

    def _expect(self, op: Expect) -> None:
        if self._matched.get((op.noun, op.key)) == op.version:
            return
        table = TABLES[op.noun].name
        found = self._cursor.execute(f"SELECT version FROM {table} WHERE id = ?", (op.key,)).fetchall()
        if not found or found[0][0] != op.version:
            raise VersionMismatch(table, op.key)
        self._matched[op.noun, op.key] = op.version

    def _wake(self, op: Wake) -> None:
        self._cursor.execute(_WAKE, (op.kind, op.id, op.due_at))

    def claim(self, worker: str, now: Instant, lease_ms: int, limit: int) -> list[Claim]:
        ready = "SELECT kind, id, wakes, attempts FROM work WHERE ready_at <= ? ORDER BY ready_at, kind, id LIMIT ?"
        found = self._cursor.execute(ready, (now, limit)).fetchall()
        if not found:
            return []
        expires_at = now + lease_ms
        # One count for all rows, never started again: a row that went and came back still gets a greater token.
        first = self.count_on("claim", len(found)) - len(found) + 1
        claims = [
            Claim(kind, id, token, wakes, attempts, expires_at)
            for token, (kind, id, wakes, attempts) in enumerate(found, first)
        ]
        take = "UPDATE work SET token = ?, worker = ?, ready_at = ? WHERE kind = ? AND id = ?"
        self._many(take, [(claim.token, worker, expires_at, claim.kind, claim.id) for claim in claims])
        return claims

    def renew(self, claim: Claim, expires_at: Instant) -> bool:
        renew = f"UPDATE work SET ready_at = ? WHERE {_HELD}"
        return self._cursor.execute(renew, (expires_at, claim.kind, claim.id, claim.token)).rowcount == 1

    def release(self, claim: Claim, due_at: Instant | None, failed: bool) -> None:
        key = (claim.kind, claim.id, claim.token)
        if due_at is None:
            over = f"DELETE FROM work WHERE {_HELD} AND wakes = ?"
            if self._cursor.execute(over, (*key, claim.wakes)).rowcount:
                return
        # Woken meanwhile: its due_at is already in the past, for it was due when it was claimed. That stays.
        let_go = (
            "UPDATE work SET worker = NULL, attempts = iif(?, attempts + 1, 0),"
            " due_at = iif(wakes > ?, due_at, ?), ready_at = iif(wakes > ?, due_at, ?)"
            f" WHERE {_HELD}"
        )
        self._cursor.execute(let_go, (failed, claim.wakes, due_at, claim.wakes, due_at, *key))

    def disown(self, worker: str) -> int:
        disown = "UPDATE work SET worker = NULL, ready_at = due_at WHERE worker = ?"
        return self._cursor.execute(disown, (worker,)).rowcount

    def tokens_above(self, least: int) -> None:
        self.count_above("claim", least)

    def prune_events(self, before: Instant, limit: int) -> int:
        # Looking only at the first `limit` rows keeps this cheap without an index on time: the log is in time order.
        prune = "DELETE FROM event WHERE at < ? AND seq IN (SELECT seq FROM event ORDER BY seq LIMIT ?)"
        return self._cursor.execute(prune, (before, limit)).rowcount

    def prune_keys(self, before: Instant, limit: int) -> int:
        oldest = "SELECT id FROM idempotency_key WHERE created_at < ? ORDER BY created_at LIMIT ?"
        return self._cursor.execute(f"DELETE FROM idempotency_key WHERE id IN ({oldest})", (before, limit)).rowcount

    def prune_capacity_log(self, oldest: int, limit: int) -> int:
        prune = (
            "DELETE FROM capacity_log WHERE seq < ? AND seq IN (SELECT seq FROM capacity_log ORDER BY seq LIMIT ?)"
        )
        return self._cursor.execute(prune, (oldest, limit)).rowcount

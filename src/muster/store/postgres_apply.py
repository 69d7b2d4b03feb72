"""A batch as a list of guarded statements for the `muster_apply` function of the schema. Pure.

Each statement takes one JSON argument, must touch a known number of rows, and says what it means when it does not.
The function runs a group of such batches in one call: few round trips, and no transaction that a frozen client could
hold open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from muster.contracts.store import Batch, Claim, Expect, Insert, Op, Remove, Replace, Wake
from muster.errors import FenceLost, StoreError, UniqueViolation, VersionMismatch
from muster.model.base import HOUR, Instant, Noun
from muster.model.capacity import Booking
from muster.model.events import Event
from muster.model.hosts import Host, Lease
from muster.store.rows import Rows, rows_of, table_rows
from muster.store.schema import CELL_RULE, FIXED, SLOT_RULE, TABLES, Table, require_slots

_EVENTS: Final = rows_of(Event)
_EVENT_FIELDS: Final = "at, kind, resource_id, type, account_id, project_id, actor, cause, message, data"


class Statement(msgspec.Struct, frozen=True):
    """`refusal` is "version NOUN KEY" or "fence KIND ID", read back by `verdict`."""

    sql: str
    args: Any
    rows: int
    refusal: str = ""


class _Sql(NamedTuple):
    table: Table
    rows: Rows[Any]
    insert: str
    update: str


def _number(table: Table) -> str:
    return f"CASE WHEN number = 0 THEN nextval('{table.name}_numbers') ELSE number END"


def _raise_number(table: Table) -> str:
    return f"SELECT setval('{table.name}_numbers', greatest($1::bigint, last_value)) FROM {table.name}_numbers"


def _sql(table: Table) -> _Sql:
    names = table.names
    values = ", ".join(_number(table) if name == "number" else name for name in names)
    updated = ", ".join(name for name in names if name not in ("id", "number"))
    fixed = "".join(f" AND old.{name} = new.{name}" for name in FIXED.get(table.noun, ()))
    news = ", ".join(f"new.{name}" for name in names if name not in ("id", "number"))
    return _Sql(
        table,
        table_rows(table.noun)[1],
        f"INSERT INTO {table.name} ({', '.join(names)})"
        f" SELECT {values} FROM jsonb_populate_recordset(null::{table.name}, $1)",
        f"UPDATE {table.name} AS old SET ({updated}) = ROW({news})"
        f" FROM jsonb_populate_record(null::{table.name}, $1) AS new"
        f" WHERE old.id = new.id AND old.version = new.version - 1{fixed}",
    )


_SQL: Final = {noun: _sql(table) for noun, table in TABLES.items()}

_TAKE_SLOTS = (
    "INSERT INTO host_slots AS known (host_id, taken)"
    " SELECT host_id, taken FROM jsonb_populate_recordset(null::host_slots, $1)"
    " ON CONFLICT (host_id) DO UPDATE SET taken = known.taken | excluded.taken"
    " WHERE known.taken & excluded.taken = 0"
)
_LOG = (
    "INSERT INTO capacity_log (host_id, taken, freed, ends_at)"
    " SELECT host_id, taken, freed, ends_at FROM jsonb_populate_recordset(null::capacity_log, $1)"
)
_TAKE_CELLS = (
    "INSERT INTO calendar_cell (line_id, at, used) SELECT line_id, at, hosts"
    f" FROM jsonb_populate_record(null::booking, $1), generate_series(from_at, until_at - 1, {HOUR}) AS at"
    " ON CONFLICT (line_id, at) DO UPDATE SET used = calendar_cell.used + excluded.used"
)
_NOT_OVER = (
    "SELECT 1 FROM jsonb_populate_record(null::booking, $1) AS new JOIN calendar_line AS line ON line.id = line_id"
    " WHERE NOT EXISTS (SELECT 1 FROM calendar_cell AS cell WHERE cell.line_id = new.line_id"
    " AND cell.at >= new.from_at AND cell.at < new.until_at AND cell.used > line.reservable)"
)
_GIVE_CELLS = (
    "WITH gone AS (DELETE FROM booking WHERE id = $1 ->> 'key'{guard} RETURNING line_id, hosts, from_at, until_at),"
    " given AS (UPDATE calendar_cell AS cell SET used = used - hosts FROM gone"
    " WHERE cell.line_id = gone.line_id AND at >= from_at AND at < until_at)"
    " SELECT 1 FROM gone"
)
_FREE = (
    "WITH gone AS (DELETE FROM lease WHERE id = $1 ->> 'key'{guard} RETURNING id, host_id, slots),"
    " freed AS (UPDATE host_slots AS known SET taken = taken & ~slots FROM gone WHERE known.host_id = gone.host_id)"
    " INSERT INTO capacity_log (host_id, taken, freed) SELECT host_id, 0, slots FROM gone"
)
_WAKE = (
    "INSERT INTO work (kind, id, due_at, ready_at, token, wakes, attempts)"
    " SELECT kind, id, due_at, due_at, 0, 1, 0 FROM jsonb_populate_record(null::work, $1)"
    " ON CONFLICT (kind, id) DO UPDATE SET wakes = work.wakes + 1, due_at = least(work.due_at, excluded.due_at),"
    " ready_at = CASE WHEN work.worker IS NULL THEN least(work.due_at, excluded.due_at) ELSE work.ready_at END"
)
_FENCE = (
    "SELECT 1 FROM work WHERE kind = $1 ->> 'kind' AND id = $1 ->> 'id' AND token = ($1 ->> 'token')::bigint"
    " AND worker IS NOT NULL FOR UPDATE"
)
_ADD_EVENTS = (
    f"INSERT INTO event ({_EVENT_FIELDS}) SELECT {_EVENT_FIELDS} FROM jsonb_populate_recordset(null::event, $1)"
)


def _take_slots(leases: Sequence[Lease]) -> Iterator[Statement]:
    """No statement may touch a host twice; hosts of which a slot is taken already are not touched at all."""
    rounds: list[dict[str, int]] = []
    for lease in leases:
        require_slots(lease.slots)
        free = next((taken for taken in rounds if lease.host_id not in taken), None)
        if free is None:
            rounds.append(free := {})
        free[lease.host_id] = lease.slots
    for taken in rounds:
        rows = [{"host_id": host_id, "taken": slots} for host_id, slots in taken.items()]
        yield Statement(_TAKE_SLOTS, rows, len(rows), f"unique {SLOT_RULE}")


def _insert(noun: type[Noun], nouns: list[Noun]) -> Iterator[Statement]:
    sql = _SQL[noun]
    rows = [sql.rows.named(one) for one in nouns]
    if sql.table.numbered and (chosen := max(row["number"] for row in rows)):
        # Somebody chose a number (a restored backup does): the count goes on from there.
        yield Statement(_raise_number(sql.table), chosen, 1)
    yield Statement(sql.insert, rows, len(rows))
    if noun is Lease:
        leases = [one for one in nouns if isinstance(one, Lease)]
        yield from _take_slots(leases)
        yield _logged([(one.host_id, one.slots, one.ends_at) for one in leases])
    elif noun is Booking:
        for row in rows:
            yield Statement(_TAKE_CELLS, row, len(range(row["from_at"], row["until_at"], HOUR)))
            yield Statement(_NOT_OVER, row, 1, f"unique {CELL_RULE}")
    elif noun is Host:
        yield _logged([(one.id, 0, None) for one in nouns])


def _logged(changes: list[tuple[str, int, Instant | None]]) -> Statement:
    rows = [{"host_id": host_id, "taken": taken, "freed": 0, "ends_at": end} for host_id, taken, end in changes]
    return Statement(_LOG, rows, len(rows))


def _replace(op: Replace) -> Iterator[Statement]:
    sql = _SQL[type(op.noun)]
    yield Statement(sql.update, sql.rows.named(op.noun), 1, f"version {sql.table.name} {op.noun.id}")
    if isinstance(op.noun, Host):
        yield _logged([(op.noun.id, 0, None)])
    elif isinstance(op.noun, Lease):
        yield _logged([(op.noun.host_id, op.noun.slots, op.noun.ends_at)])


def _remove(op: Remove) -> Iterator[Statement]:
    table = TABLES[op.noun].name
    guard = "" if op.version is None else " AND version = ($1 ->> 'version')::bigint"
    plainly = f"DELETE FROM {table} WHERE id = $1 ->> 'key'{{guard}}"
    text = {Lease: _FREE, Booking: _GIVE_CELLS}.get(op.noun, plainly).format(guard=guard)
    yield Statement(text, {"key": op.key, "version": op.version}, 1, f"version {table} {op.key}")
    if op.noun is Host:
        yield _logged([(op.key, 0, None)])


def _expect(op: Expect) -> Iterator[Statement]:
    table = TABLES[op.noun].name
    text = f"SELECT 1 FROM {table} WHERE id = $1 ->> 'key' AND version = ($1 ->> 'version')::bigint"
    yield Statement(text, {"key": op.key, "version": op.version}, 1, f"version {table} {op.key}")


def _wake(op: Wake) -> Iterator[Statement]:
    yield Statement(_WAKE, {"kind": op.kind, "id": op.id, "due_at": op.due_at}, 1)


_VERBS: Final[dict[type[Any], Callable[[Any], Iterator[Statement]]]] = {
    Replace: _replace,
    Remove: _remove,
    Expect: _expect,
    Wake: _wake,
}


def _kind_of(op: Op) -> tuple[type[Any], type[Any] | None]:
    """Neighbours of the same kind are written together; the order between kinds is the batch's own."""
    return type(op), type(op.noun) if isinstance(op, Insert) else None


def _fence(claim: Claim) -> Statement:
    args = {"kind": claim.kind, "id": claim.id, "token": claim.token}
    return Statement(_FENCE, args, 1, f"fence {claim.kind} {claim.id}")


def statements(batch: Batch) -> Iterator[Statement]:
    if batch.fence is not None:
        yield _fence(batch.fence)
    for (kind, noun), ops in groupby(batch.ops, _kind_of):
        if noun is not None:
            yield from _insert(noun, [op.noun for op in ops if isinstance(op, Insert)])
        else:
            for op in ops:
                yield from _VERBS[kind](op)
    if batch.events:
        yield Statement(_ADD_EVENTS, [_EVENTS.named(event) for event in batch.events], len(batch.events))


_encoder = msgspec.json.Encoder()


def encoded(batch: Batch) -> bytes:
    """The batch as the database's function takes it."""
    return _encoder.encode(list(statements(batch)))


def refusal(verdict: str) -> StoreError | None:
    """What the database's verdict on a batch means; "" is none at all."""
    kind, _, rest = verdict.partition(" ")
    if kind == "version":
        noun, _, key = rest.partition(" ")
        return VersionMismatch(noun, key)
    if kind == "unique":
        return UniqueViolation(rest)
    if kind == "fence":
        return FenceLost(f"the claim on {rest} is no longer ours")
    return None

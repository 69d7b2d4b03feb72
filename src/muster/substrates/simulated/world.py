"""The world's own memory: one SQLite file, shared by all processes of a home, that outlives them.

Leans on the clock it is handed. Keeps the laws of contracts/world.py: every state is computed from stored instants;
dice are hashes of seed and key; a turn is one immediate transaction, so processes take turns, and the fencing token
it saw is kept even when the turn itself is undone.

Synchronous on purpose: a turn touches a few rows and, with synchronous=NORMAL, waits for no disk. Losing the last
moments at a power cut is fine here: the simulated machines lose theirs too.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from muster.contracts.clock import Clock
from muster.contracts.faults import FaultKind
from muster.contracts.substrate import Fence, Owned
from muster.contracts.world import Body, Load, Span
from muster.errors import FencedOff, TryLater
from muster.model.base import HOUR, SECOND, Instant
from muster.substrates.simulated.things import FLAP_SECONDS, State, Thing, Trouble, state_of, troubled

SCHEMA_VERSION: Final = 1
NEWS_KEPT: Final = 1_000
ENDED_KEPT_MS: Final = 1 * HOUR
"""How long a fault is remembered that is over."""
EVERYONE: Final = "*"
_encode: Final = msgspec.json.Encoder().encode

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS thing (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, owner TEXT NOT NULL,
    region TEXT NOT NULL, host_id TEXT NOT NULL, host_name TEXT NOT NULL, slots INTEGER NOT NULL,
    generation INTEGER NOT NULL, wish BLOB NOT NULL, started_at INTEGER NOT NULL, up_at INTEGER NOT NULL,
    doom TEXT NOT NULL, size_gib INTEGER NOT NULL, size_was INTEGER NOT NULL, sized_at INTEGER NOT NULL,
    gone_at INTEGER);
CREATE INDEX IF NOT EXISTS thing_owner ON thing (owner);
CREATE INDEX IF NOT EXISTS thing_host ON thing (host_id) WHERE host_id <> '';
CREATE INDEX IF NOT EXISTS thing_gone ON thing (gone_at) WHERE gone_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS mounted (
    volume TEXT NOT NULL, node TEXT NOT NULL, PRIMARY KEY (volume, node)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS mounted_node ON mounted (node);
CREATE TABLE IF NOT EXISTS fence (owner TEXT PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS note (owner TEXT PRIMARY KEY, page BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS fault (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, target TEXT NOT NULL, host_id TEXT NOT NULL, seconds REAL,
    times INTEGER, remaining INTEGER, delay_seconds REAL NOT NULL, since INTEGER NOT NULL, until INTEGER,
    made_at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS news (seq INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS collision (seq INTEGER PRIMARY KEY AUTOINCREMENT, sentence TEXT NOT NULL);
"""
_THING: Final = ", ".join(Thing._fields)
_SAVE: Final = f"INSERT OR REPLACE INTO thing ({_THING}) VALUES ({', '.join('?' * len(Thing._fields))})"  # noqa: S608
_LOOK: Final = f"SELECT {_THING} FROM thing WHERE key IN (SELECT value FROM json_each(?))"  # noqa: S608


class SimulatedWorld:
    """`time_scale` divides durations drawn from now on; the seed is the world's own, given once at its birth."""

    def __init__(self, db: sqlite3.Connection, clock: Clock, seed: int, time_scale: float) -> None:
        self._db = db
        self._clock = clock
        self._seed = seed
        self._time_scale = time_scale
        self._watchers: list[Callable[[str], None]] = []
        self._instant: Instant | None = None
        self._faults: list[Trouble] | None = None
        self._heard = self._one("SELECT coalesce(max(seq), 0) FROM news")

    @classmethod
    def open(
        cls, path: str, clock: Clock, *, seed: int = 0, time_scale: float = 1.0, busy_seconds: float = 5.0
    ) -> SimulatedWorld:
        """`path` may be ":memory:" for a world that dies with its process."""
        # A server may be built on one thread and served on another; calls never overlap, all come from one loop.
        db = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            seed = _prepare(db, seed)
        except BaseException:
            db.close()
            raise
        return cls(db, clock, seed, time_scale)

    def close(self) -> None:
        self._db.close()

    # time, dice

    def now(self) -> Instant:
        """In a turn always the same: a turn happens at one instant."""
        return self._clock.now() + self._ahead() if self._instant is None else self._instant

    def house_now(self) -> Instant:
        return self._clock.now()

    def house_time(self, at: Instant) -> Instant:
        return at - self._ahead()

    def advance(self, ms: Instant) -> None:
        self._db.execute("UPDATE fact SET value = value + ? WHERE name = 'ahead_ms'", (ms,))

    def _ahead(self) -> Instant:
        return self._one("SELECT value FROM fact WHERE name = 'ahead_ms'")

    def draw(self, span: Span, *key: object) -> Instant:
        part = int.from_bytes(self._hash("dice", *key)[:7]) / (1 << 56)
        seconds = span.least + part * (span.most - span.least)
        return max(1, round(seconds * SECOND / self._time_scale))

    def secret(self, *key: object) -> bytes:
        return self._hash("secret", *key)

    def _hash(self, *key: object) -> bytes:
        return hashlib.blake2b(_encode([self._seed, *map(str, key)]), digest_size=32).digest()

    # turns

    @contextmanager
    def turn(self, fence: Fence) -> Iterator[None]:
        with self.change():
            seen = self._db.execute("SELECT token FROM fence WHERE owner = ?", (fence.owner,)).fetchone()
            if seen is not None and seen[0] > fence.token:
                raise FencedOff(f"token {fence.token} of {fence.owner} is older than {seen[0]}, already seen")
            if seen is None or seen[0] < fence.token:
                self._db.execute("INSERT OR REPLACE INTO fence VALUES (?, ?)", (fence.owner, fence.token))
            self._db.execute("SAVEPOINT work")
            try:
                self._sweep()
                yield
            except BaseException:
                # Whoever called with this token was seen, whatever became of the work.
                self._db.execute("ROLLBACK TO work")
                self._db.execute("COMMIT")
                raise

    @contextmanager
    def change(self) -> Iterator[None]:
        """A whole change that needs no fence: the fault desk's."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise TryLater(f"the simulated world is busy: {error}") from error
        try:
            self._instant = self.now()
            yield
            self._db.execute("COMMIT")
        finally:
            self._instant = self._faults = None
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _sweep(self) -> None:
        """Forget what is gone, and the notes of owners who have nothing left."""
        gone = "DELETE FROM thing WHERE gone_at <= ? RETURNING owner, key"
        rows = self._db.execute(gone, (self.now(),)).fetchall()
        self._db.executemany("DELETE FROM mounted WHERE node = ?", [(row[1],) for row in rows])
        for owner in sorted({row[0] for row in rows}):
            self._db.execute(
                "DELETE FROM note WHERE owner = ?1 AND NOT EXISTS (SELECT 1 FROM thing WHERE owner = ?1)", (owner,)
            )

    # things

    def things(self, keys: Sequence[str]) -> dict[str, Thing]:
        """Those of these keys that are there, in the order asked."""
        rows = self._db.execute(_LOOK, (_encode(list(keys)).decode(),))
        found, now = {thing.key: thing for thing in map(Thing._make, rows)}, self.now()
        return {key: found[key] for key in keys if key in found and not found[key].is_gone(now)}

    def save(self, thing: Thing) -> None:
        """Inside a turn. A thing numbered 0 is new and is given its number."""
        self._db.execute(_SAVE, (thing.number or None, *thing[1:]))

    def look(self, keys: Sequence[str]) -> list[tuple[Thing, State]]:
        """What is there of these keys, as it appears now."""
        now, faults = self.now(), self.faults()
        flap_ms = self.draw(FLAP_SECONDS, "flap")
        found = self.things(keys).values()
        return [(thing, troubled(thing, state_of(thing, now), faults, now, flap_ms)) for thing in found]

    def bodies(self, node_keys: Sequence[str]) -> dict[str, Body]:
        return {
            thing.key: Body(state.power, state.because, thing.up_at, state.changes_at)
            for thing, state in self.look(node_keys)
            if thing.kind == "node"
        }

    def owned(self) -> list[Owned]:
        rows = self._db.execute(
            "SELECT key, kind, owner FROM thing WHERE gone_at IS NULL OR gone_at > ? ORDER BY number", (self.now(),)
        )
        return [Owned(*row) for row in rows]

    def squatter(self, host_id: str, slots: int, key: str) -> str | None:
        """Another node that still holds one of these slots, if there is one."""
        row = self._db.execute(
            "SELECT key FROM thing WHERE host_id = ? AND host_id <> '' AND slots & ? AND key <> ?"
            " AND (gone_at IS NULL OR gone_at > ?)",
            (host_id, slots, key, self.now()),
        ).fetchone()
        return None if row is None else str(row[0])

    def mount(self, node: str, volumes: Sequence[str]) -> None:
        """Inside a turn: the node has exactly these volumes mounted."""
        self._db.execute("DELETE FROM mounted WHERE node = ?", (node,))
        self._db.executemany("INSERT OR IGNORE INTO mounted VALUES (?, ?)", [(volume, node) for volume in volumes])

    def mounters(self, volume: str) -> list[Thing]:
        """Nodes that have this volume mounted."""
        rows = self._db.execute("SELECT node FROM mounted WHERE volume = ?", (volume,)).fetchall()
        return list(self.things([row[0] for row in rows]).values())

    def belongings(self, owner: str) -> list[Thing]:
        rows = self._db.execute(f"SELECT {_THING} FROM thing WHERE owner = ? ORDER BY number", (owner,))  # noqa: S608
        now = self.now()
        return [thing for thing in map(Thing._make, rows) if not thing.is_gone(now)]

    def reboot(self, host_id: str, since: Instant, at: Instant) -> None:
        """Inside a change: nodes that were on the host when it died come back in another boot, up from `at` on."""
        self._db.execute(
            "UPDATE thing SET up_at = ?3 WHERE host_id = ?1 AND host_id <> '' AND started_at <= ?2 AND doom = ''",
            (host_id, since, at),
        )

    def collide(self, sentence: str) -> None:
        with self.change():
            self._db.execute("INSERT INTO collision (sentence) VALUES (?)", (sentence,))

    def collisions(self) -> list[str]:
        """Every time a node was asked for on slots that another still held: what simulations assert empty."""
        return [row[0] for row in self._db.execute("SELECT sentence FROM collision ORDER BY seq")]

    # notes

    def recall(self, owner: str) -> bytes | None:
        row = self._db.execute("SELECT page FROM note WHERE owner = ?", (owner,)).fetchone()
        return None if row is None else bytes(row[0])

    def remember(self, owner: str, page: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (owner, page))

    # faults

    def faults(self) -> list[Trouble]:
        """Those in force, oldest first. In a turn they are read once: only the turn itself can change them."""
        if self._faults is not None:
            return self._faults
        now = self.now()
        rows = self._db.execute("SELECT * FROM fault ORDER BY rowid")
        known = [Trouble(row[0], FaultKind(row[1]), *row[2:]) for row in rows]
        active = [fault for fault in known if fault.active(now)]
        self._faults = active if self._instant is not None else None
        return active

    def add_fault(self, fault: Trouble) -> None:
        self._db.execute("DELETE FROM fault WHERE until <= ?", (self.now() - ENDED_KEPT_MS,))
        self._db.execute("INSERT INTO fault VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", fault)

    def end_fault(self, fault: Trouble) -> bool:
        """Load is remembered for a while: whoever looks for idle nodes asks when it ended."""
        if fault.kind is FaultKind.LOAD:
            return self._db.execute("UPDATE fault SET until = ? WHERE id = ?", (self.now(), fault.id)).rowcount > 0
        return self._db.execute("DELETE FROM fault WHERE id = ?", (fault.id,)).rowcount > 0

    def load(self, owner: str) -> Load:
        now = self.now()
        rows = self._db.execute("SELECT * FROM fault WHERE kind = ? AND target = ?", (FaultKind.LOAD, owner))
        known = [Trouble(row[0], FaultKind(row[1]), *row[2:]) for row in rows]
        ended = [fault.until for fault in known if fault.until is not None and not fault.active(now)]
        return Load(sum(fault.times or 0 for fault in known if fault.active(now)), max(ended, default=0))

    def spend(self, fault: Trouble) -> None:
        """It happened once more; a counted fault that is used up goes."""
        self._faults = None
        self._db.execute("UPDATE fault SET remaining = remaining - 1 WHERE id = ?", (fault.id,))
        self._db.execute("DELETE FROM fault WHERE id = ? AND remaining <= 0", (fault.id,))

    # news

    def watch(self, wake: Callable[[str], None]) -> None:
        self._watchers.append(wake)

    def announce(self, host_id: str) -> None:
        """Inside a change: tell those with something on this host, or everyone, in every process."""
        if host_id:
            select = "SELECT DISTINCT owner FROM thing WHERE host_id = ? AND host_id <> '' ORDER BY owner"
            self._db.execute(f"INSERT INTO news (owner) {select}", (host_id,))
        else:
            self._db.execute("INSERT INTO news (owner) VALUES (?)", (EVERYONE,))
        self._db.execute("DELETE FROM news WHERE seq <= (SELECT max(seq) FROM news) - ?", (NEWS_KEPT,))

    def announce_to(self, owner: str) -> None:
        """Inside a change: tell this one, in every process."""
        self._db.execute("INSERT INTO news (owner) VALUES (?)", (owner,))

    def hear(self) -> None:
        """Wake whoever the news since the last time is about."""
        rows = self._db.execute("SELECT seq, owner FROM news WHERE seq > ? ORDER BY seq", (self._heard,)).fetchall()
        if not rows:
            return
        self._heard = rows[-1][0]
        owners = {row[1] for row in rows}
        if EVERYONE in owners:
            owners = {row[0] for row in self._db.execute("SELECT DISTINCT owner FROM thing")}
        for owner in sorted(owners):
            for wake in self._watchers:
                wake(owner)

    def _one(self, sql: str) -> int:
        row: tuple[Any, ...] = self._db.execute(sql).fetchone()
        return int(row[0])


def _prepare(db: sqlite3.Connection, seed: int) -> int:
    """Make or check the tables; the world's own seed."""
    db.execute("BEGIN IMMEDIATE")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise TryLater(f"this world was written by a newer Muster (schema {version}, we know {SCHEMA_VERSION})")
    for statement in _SCHEMA.split(";")[:-1]:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    db.execute("INSERT OR IGNORE INTO fact VALUES ('seed', ?), ('ahead_ms', 0)", (seed,))
    kept: tuple[int] = db.execute("SELECT value FROM fact WHERE name = 'seed'").fetchone()
    db.execute("COMMIT")
    return kept[0]

"""Memory. No interactive transactions: load a snapshot, decide purely, submit a batch.

*Laws.*
- A batch is applied whole or refused whole (`VersionMismatch`, `UniqueViolation`, `FenceLost`, `StoreFull`).
- When `apply` returns, the batch is durable: kill -9 loses nothing that was answered.
- `Replace` writes only over `noun.version - 1`; whoever meets another version is refused.
- A batch with a fence is refused unless that very claim still holds.
- Logs are read in commit order, without holes: a reader that resumes after `seq` misses nothing.
- A claim is held by one worker until it expires or is released; every claim of a row has a greater token.
- A wake-up during a claim is not lost: `release` sees that `wakes` grew and makes the row due at once.
- No driver call happens while a transaction is open (there is no way to write one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias

import msgspec

from muster.contracts.steps import Step
from muster.model.base import Instant, N, Noun
from muster.model.events import Event

Scalar: TypeAlias = str | int | bool | None


class Claim(NamedTuple):
    """A worker's hold on one piece of work. `token` fences batches and driver calls alike."""

    kind: str
    id: str
    token: int
    wakes: int
    attempts: int
    expires_at: Instant


class Head(NamedTuple):
    """The little that a cached view needs to know of a noun."""

    key: str
    version: int
    project_id: str | None
    created_at: Instant


class Insert(msgspec.Struct, frozen=True):
    """A new row. `number` fields of 0 are given the next integer of that noun by the store.

    Inserting a `Lease` also takes its slots and appends to the capacity log. Inserting a `Booking` also counts its
    hosts in every hour it touches; an hour over its line's `reservable` refuses the batch (rule `calendar_cell`).
    """

    noun: Noun


class Replace(msgspec.Struct, frozen=True):
    """The next value of a row: `noun.version` must be one above what is stored.

    Replacing a `Host` or a `Lease` also appends to the capacity log. A lease's slots and a booking's hours stay.
    """

    noun: Noun


class Remove(msgspec.Struct, frozen=True):
    """Delete a row. `version` None means whatever is there; otherwise it must match. An absent row is refused.

    Removing a `Lease` also gives its slots back and appends to the capacity log; removing a `Booking` its hours.
    """

    noun: type[Noun]
    key: str
    version: int | None = None


class Expect(msgspec.Struct, frozen=True):
    """Refuse the batch unless this row still has this version. Writes nothing."""

    noun: type[Noun]
    key: str
    version: int


class Wake(msgspec.Struct, frozen=True):
    """Make (kind, id) due no later than `due_at`; the row of work is made if there is none."""

    kind: str
    id: str
    due_at: Instant


Op: TypeAlias = Insert | Replace | Remove | Expect | Wake


class Batch(msgspec.Struct, frozen=True):
    """What is to become true, all of it or none. `step` names the failpoint around its commit."""

    step: Step
    ops: Sequence[Op]
    events: Sequence[Event] = ()
    fence: Claim | None = None


class Find(msgspec.Struct, Generic[N], frozen=True):
    """A question: rows whose fields equal these (None = is null), or are one of these.

    Ordered by (`order`, id); `after` is the (order value, id) of the last row seen: keyset paging.
    """

    noun: type[N]
    equals: Mapping[str, Scalar] = {}
    one_of: Mapping[str, Sequence[Scalar]] = {}
    order: str = "id"
    descending: bool = False
    after: tuple[Scalar, str] | None = None
    limit: int | None = None


class CapacityChange(NamedTuple):
    """A line of the capacity log. `taken` and `freed` are slot masks; both 0 means: read the host again.

    `ends_at` is when what was taken will be given back, if that is known; a later line may say it anew.
    """

    seq: int
    host_id: str
    taken: int
    freed: int
    ends_at: Instant | None = None


class Store(Protocol):
    async def get(self, noun: type[N], key: str) -> N | None: ...

    async def find(self, query: Find[N]) -> list[N]: ...

    async def count(self, query: Find[Any]) -> int: ...

    async def head(self, noun: type[Noun], key: str) -> Head | None:
        """Only of nouns with project_id and created_at; None when absent or `gone_at` is set."""

    async def heads(self, query: Find[Any]) -> list[Head]: ...

    async def apply(self, batch: Batch) -> Mapping[str, int]:
        """Durable when it returns. What comes back: id -> number given, as far as it is known without reading."""

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
        """Events with seq > `after` in commit order; with `newest_first` those with seq < `after` (0 = from the end),
        newest first."""

    async def last_event(self) -> int:
        """The greatest seq a reader may rely on now."""

    async def prune_events(self, before: Instant, limit: int) -> int:
        """Forget events older than `before`; how many went."""

    async def prune_keys(self, before: Instant, limit: int) -> int:
        """Forget idempotency keys older than `before`; how many went."""

    async def prune_capacity_log(self, keep: int, limit: int) -> int:
        """Forget lines that are more than `keep` behind the last; how many went. The last line always stays."""

    async def capacity_log(self, after: int, limit: int) -> list[CapacityChange]: ...

    async def capacity_seq(self) -> int: ...

    async def slots_taken(self) -> dict[str, int]:
        """host id -> mask of slots under lease, for every host with any."""

    async def claim(self, *, worker: str, now: Instant, lease_ms: int, limit: int) -> list[Claim]:
        """Take up to `limit` due, unclaimed (or expired) pieces of work, longest due first."""

    async def renew(self, claim: Claim, expires_at: Instant) -> bool:
        """Keep holding; False when the claim is no longer ours."""

    async def release(self, claim: Claim, *, due_at: Instant | None, failed: bool) -> None:
        """Let go; due again at `due_at` (None = the work is over and its row goes, unless woken meanwhile).
        `failed` counts an attempt, otherwise attempts start at 0 again. Of a lost claim: nothing happens."""

    async def disown(self, worker: str) -> int:
        """Let go of all that this worker holds, because it is known to have ended; how much that was. Each piece is
        due as it was when it was taken: whoever claims it next has a greater token."""

    async def tokens_above(self, least: int) -> None:
        """No claim from now on has a token of `least` or below. For a store that is younger than what it forgot: one
        made anew, or restored from a copy, whose drivers have seen greater tokens than it remembers giving."""

    async def next_due(self) -> Instant | None:
        """When the earliest unclaimed work is due, or a claim expires."""

    async def work_backlog(self, now: Instant) -> tuple[int, int]:
        """(rows due now, rows in all): for metrics."""

    async def close(self) -> None: ...

"""A history as an outsider sees it; an invariant is a question about that, answered with a sentence when broken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.contracts.store import Store
from muster.contracts.substrate import Substrate
from muster.core.capacity.index import Stock
from muster.model.base import Instant


@dataclass
class Ledger:
    """What the users of a history were told, so that the house can be held to it."""

    created: dict[str, str] = field(default_factory=dict)  # cluster id -> idempotency key of its create
    by_key: dict[str, str] = field(default_factory=dict)  # idempotency key -> cluster id
    deleted: set[str] = field(default_factory=set)  # ids whose deletion was answered
    secrets: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)  # contradictions seen by users themselves
    events_read: int = 0  # the log is long; each line is read once
    hurt: list[Instant] = field(default_factory=list)  # when something was broken on purpose, by whomever


@dataclass(frozen=True)
class Outside:
    """A history as an outsider sees it at one instant."""

    store: Store
    substrate: Substrate
    collisions: Callable[[], list[str]]
    ledger: Ledger
    now: Instant
    stale_views: Callable[[], Awaitable[list[str]]]
    summaries: Callable[[], Awaitable[list[list[Stock]]]]
    failures: Callable[[], int]


Broken: TypeAlias = str | None
Invariant: TypeAlias = Callable[[Outside], Awaitable[Broken]]

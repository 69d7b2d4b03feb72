"""Who of those that wait may start now: EASY backfilling on known ends. Pure.

The first in the queue is promised the earliest instant at which enough hosts will be free; whoever behind it fits
now may start if it is over by then, or keeps off the hosts that were promised, in the order they came: shortest first
would serve the many better and the large worse. A gang that would be torn over several leaves may wait a little while
when one leaf is about to be free, for its whole life is spent on what its start gave it.

Leans on the placement index. *Laws.* Nobody who starts delays the first; the index decides where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import Ask, Placement
from muster.model.base import HOUR, Instant

DEPTH_MAX: Final = 400
"""How many of those behind the first are looked at."""


class Patience(NamedTuple):
    """How long a gang waits for a leaf of its own: a share of its length, in all at most so long; 0 = not at all."""

    share: float = 0.0
    most: Instant = 4 * HOUR


class Tried(Enum):
    STARTED = auto()
    PATIENT = auto()  # there is room, but it waits for better
    NO_ROOM = auto()


class Waiting(NamedTuple):
    key: int
    ask: Ask
    length: Instant
    since: Instant = 0


class Start(NamedTuple):
    key: int
    placement: Placement


class Promised(NamedTuple):
    """What the first in the queue was told: from when, and on which hosts."""

    at: Instant
    hosts: frozenset[str]


def starters(
    queue: Sequence[Waiting],
    index: CapacityIndex,
    now: Instant,
    take: Callable[[Waiting, Placement], None],
    patience: Patience = Patience(),
) -> list[Start]:
    """Those that start now, in order; `take` makes each true in the index before the next is weighed."""
    started: list[Start] = []
    at = 0
    while at < len(queue) and _try(queue[at], index, now, take, started, patience) is not Tried.NO_ROOM:
        at += 1
    if at >= len(queue):
        return started
    first = queue[at]
    behind = queue[at + 1 : at + 1 + DEPTH_MAX]
    promised: Promised | None = None
    hopeless: set[tuple[int, int, bool]] = set()
    room: dict[tuple[int, int], bool] = {}  # of each shape, whether it fits at all; forgotten when somebody starts
    for one in behind:
        ask = one.ask
        shape = (ask.gpus_per_node, ask.nodes)
        fits = room.get(shape)
        if fits is None:
            fits = room[shape] = ask.nodes <= index.free_nodes(ask.region, ask.gpu_type, ask.gpus_per_node)
        if not fits:
            continue
        promised = promised or _promise(first, index, now)
        over_by_then = now + one.length <= promised.at
        if (*shape, over_by_then) in hopeless:
            continue
        asked = one if over_by_then else one._replace(ask=ask._replace(avoid=promised.hosts))
        match _try(asked, index, now, take, started, patience):
            case Tried.STARTED:
                room.clear()
            case Tried.NO_ROOM:
                hopeless.add((*shape, over_by_then))
            case Tried.PATIENT:
                room[shape] = False  # its like would be torn too
    return started


def _try(
    one: Waiting,
    index: CapacityIndex,
    now: Instant,
    take: Callable[[Waiting, Placement], None],
    started: list[Start],
    patience: Patience,
) -> Tried:
    ask = one.ask._replace(at=now, ends_at=now + one.length)
    answer = index.place(ask)
    if not isinstance(answer, Placement):
        return Tried.NO_ROOM
    if _torn(one, answer, index, now, patience):
        return Tried.PATIENT
    take(one, answer)
    started.append(Start(one.key, answer))
    return Tried.STARTED


def _torn(one: Waiting, answer: Placement, index: CapacityIndex, now: Instant, patience: Patience) -> bool:
    """Whether it had better wait: over several leaves now, and a leaf that would hold it all is about to be free."""
    if not patience.share or one.ask.nodes < 2:
        return False
    if now - one.since > patience.most or index.leaves_of(answer.workers) == 1:
        return False
    return index.leaf_free_by(one.ask, now + min(patience.most, round(one.length * patience.share)))


def _promise(first: Waiting, index: CapacityIndex, now: Instant) -> Promised:
    """The earliest instant at which the first fits by known ends, and hosts that will do, the latest of them."""
    releases = index.releases(first.ask, now)
    if first.ask.nodes > len(releases):
        return Promised(1 << 60, frozenset())
    at = releases[first.ask.nodes - 1][0]
    fitting = [host for end, host in releases if end <= at]
    return Promised(at, frozenset(fitting[-first.ask.nodes :]))

"""Who of those that wait may start now: backfilling on known ends, and leaves held for gangs. Pure.

The first few that find no room are promised the earliest instant at which enough hosts will be free. Whoever behind
them fits now may start if it is over by then, or keeps off the hosts that were promised: the shortest first, which
serves the many and costs those nothing who were promised theirs. A gang that would be torn over several leaves waits
when one leaf will soon be free, for its whole life is spent on what its start gave it; that leaf is held for it as
hosts are for the others.

Leans on the placement index. *Laws.* Nobody who starts delays those promised before it, or takes a leaf from a gang
ahead of it; a gang waits for a leaf only while one is held for it, and only so far ahead; the index decides where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import Ask, Placement, Refusal
from muster.model.base import HOUR, Instant

DEPTH_MAX: Final = 400
"""How many of those behind the first are looked at."""
PROMISED_MAX: Final = 8
"""How many that found no room are promised hosts: with one alone, the large behind it are overtaken by all."""
LEAVES_HELD_MAX: Final = 32
"""How many gangs may wait for a leaf at a time; the next start torn."""
OVERDUE_MAX: Final = HOUR
"""What should have been given back is still about to be, for so long; after that nobody knows."""
UNKNOWN: Final[Instant] = 1 << 60
"""When something is that nobody knows the time of."""


class Patience(NamedTuple):
    """How far ahead a leaf may be free for a gang to wait for it (0 = it never waits), and how long after it asked it
    may still wait for one."""

    ahead: Instant = 4 * HOUR
    in_all: Instant = 48 * HOUR


class Waiting(NamedTuple):
    key: int
    ask: Ask
    length: Instant  # UNKNOWN = until it is given back
    since: Instant = 0


class Start(NamedTuple):
    key: int
    placement: Placement


class Promised(NamedTuple):
    """What somebody who waits was told: from when, and on which hosts; others could have the `open` ones now."""

    at: Instant
    hosts: frozenset[str]
    open: frozenset[str]


_length = attrgetter("length")
Take = Callable[[Waiting, Placement], None]
Place = Callable[[Ask], Placement | Refusal]


def starters(
    queue: Sequence[Waiting],
    index: CapacityIndex,
    now: Instant,
    take: Take,
    patience: Patience = Patience(),
    place: Place | None = None,
) -> list[Start]:
    """Those that start now, of a queue for one region and GPU type; `take` makes each true in the index before the
    next is weighed. `place` may know of more that stands against somebody than the index does."""
    turn = _Turn(index, now, take, patience, place or index.place)
    at = 0
    while at < len(queue) and len(turn.refused) < PROMISED_MAX and not turn.over:
        turn.weigh(queue[at])
        at += 1
    for one in sorted(queue[at : at + DEPTH_MAX], key=_length) if not turn.over else ():
        if turn.fits.get((one.ask.gpus_per_node, one.ask.nodes), True):
            turn.weigh(one)
            if turn.over:
                break
    return turn.started


class _Turn:
    """One walk along the queue."""

    def __init__(self, index: CapacityIndex, now: Instant, take: Take, patience: Patience, place: Place) -> None:
        self.index, self.now, self.take, self.patience, self.place = index, now, take, patience, place
        self.started: list[Start] = []
        self.refused: list[Waiting] = []  # the first that found no room
        self.told = 0  # so many of them were promised hosts: nobody asks while nobody behind them fits
        self.nothing_left = False
        self.promises: list[Promised] = []
        self.leaves_held = 0
        self.fits: dict[tuple[int, int], bool] = {}  # by shape, whether it fits at all; forgotten when one starts
        self.released: dict[int, list[tuple[Instant, str]]] = {}  # by GPUs a node, when hosts come free
        self.hopeless: set[tuple[int, int, int]] = set()  # shape and the promises that stand against it

    @property
    def over(self) -> bool:
        """Nothing is left that anybody could be given."""
        return self.nothing_left and bool(self.refused)

    def weigh(self, one: Waiting) -> None:
        ask = one.ask
        shape = (ask.gpus_per_node, ask.nodes)
        fits = self.fits.get(shape)
        if fits is None:
            free = self.index.free_nodes(ask.region, ask.gpu_type, ask.gpus_per_node)
            fits = self.fits[shape] = ask.nodes <= free
            self.nothing_left = not free and not self.index.free_nodes(ask.region, ask.gpu_type, 1)
        if not fits:
            self._refuse(one)
            return
        while self.told < len(self.refused):
            self.promises.append(self._promise(self.refused[self.told]))
            self.told += 1
        end = self.now + one.length
        barred = sum(1 << n for n, promise in enumerate(self.promises) if promise.at < end)
        if (*shape, barred) not in self.hopeless:
            against = [promise for promise in self.promises if promise.at < end]
            self._try(one, against, (*shape, barred))

    def _try(self, one: Waiting, against: Sequence[Promised], shape: tuple[int, int, int]) -> None:
        avoid = one.ask.avoid.union(*(promise.open for promise in against))
        ends_at = self.now + one.length if one.length < UNKNOWN else None
        answer = self.place(one.ask._replace(at=self.now, ends_at=ends_at, avoid=avoid))
        if not isinstance(answer, Placement):
            self.hopeless.add(shape)
            self._refuse(one)
            return
        leaf = self._leaf_ahead(one, answer)
        if leaf is not None:
            self.promises.append(leaf)
            self.leaves_held += 1
            return
        self.take(one, answer)
        self.started.append(Start(one.key, answer))
        self.fits.clear()
        self.released.clear()

    def _refuse(self, one: Waiting) -> None:
        if len(self.refused) < PROMISED_MAX:
            self.refused.append(one)

    def _leaf_ahead(self, one: Waiting, answer: Placement) -> Promised | None:
        """The leaf it had better wait for: over several leaves now, and one that would hold it all is about to be."""
        if one.ask.nodes < 2 or self.leaves_held >= LEAVES_HELD_MAX or not self.patience.ahead:
            return None
        if self.now - one.since > self.patience.in_all or self.index.leaves_of(answer.workers) == 1:
            return None
        within = (self.now - OVERDUE_MAX, self.now + self.patience.ahead)
        found = self.index.leaf_ready(one.ask, within, self._promised_hosts())
        return None if found is None else self._promised(max(self.now, found[0]), found[1])

    def _promise(self, first: Waiting) -> Promised:
        """The earliest instant at which the first fits by known ends, and hosts that will do, the latest of them."""
        nodes, taken, long_ago = first.ask.nodes, self._promised_hosts(), self.now - OVERDUE_MAX
        hosts: list[str] = []
        at = UNKNOWN
        for end, host in self._releases(first.ask):
            if end > at:
                break
            if 0 < end <= long_ago or host in taken:
                continue
            hosts.append(host)
            if len(hosts) == nodes:
                if end == 0:
                    break  # it is not hosts that it lacks
                at = max(self.now, end)
        return self._promised(at, hosts[-nodes:]) if at < UNKNOWN else Promised(at, frozenset(), frozenset())

    def _releases(self, ask: Ask) -> list[tuple[Instant, str]]:
        if ask.gpus_per_node not in self.released:
            self.released[ask.gpus_per_node] = self.index.releases(ask)
        return self.released[ask.gpus_per_node]

    def _promised_hosts(self) -> frozenset[str]:
        return frozenset[str]().union(*(promise.hosts for promise in self.promises))

    def _promised(self, at: Instant, hosts: Sequence[str]) -> Promised:
        return Promised(at, frozenset(hosts), frozenset(host for host in hosts if self.index.any_free(host)))

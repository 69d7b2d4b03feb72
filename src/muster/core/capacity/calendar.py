"""The calendar: how many whole hosts are held, promised and left, hour by hour. Pure.

One `Line` per region, GPU type, size of host and pool. Hosts are counted, never named: on identical whole hosts, a
count that fits at every instant can be bound to hosts when its window begins, and binding late never fails. A host
that carries slices counts as held while it does.

*Laws.* Time is cut into cells of an hour; whatever touches a cell holds it all. At no cell are more hosts held and
promised than there are, and where anything is promised the spares are neither: only repairs of what was promised may
have them. Windows together promise at most the reservable share. What is held without a known end is held for ever.
Costs: a check looks at the cells of its window, the earliest start at those of a year.

Leans on nothing. The grid is a hint like the placement index: the database has the last word (calendar_cell).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from muster.model.base import DAY, HOUR, Instant

CELL: Final = HOUR
HORIZON_DAYS: Final = 400
"""How far ahead a promise may reach: a year, and the notice to extend it."""
HORIZON: Final = HORIZON_DAYS * DAY // CELL
SHARE_PERCENT: Final = 50
"""Of the hosts of a line, how many windows may promise when the operator says nothing else."""
SPARE_OF: Final = 32
"""One host in so many, or part of so many, is kept back beside promises when the operator says nothing else."""
FOREVER: Final = 1 << 60


def first_cell(at: Instant) -> int:
    return at // CELL


def end_cell(at: Instant) -> int:
    """The first cell that `at` as an end leaves alone."""
    return -(-at // CELL)


class Promise(NamedTuple):
    """Hosts promised over cells [start, end). `bound`: their hosts are leased already, and counted as held."""

    hosts: int
    start: int
    end: int
    bound: bool = False


class Room(NamedTuple):
    """What one cell still gives: to windows, and to whoever comes and stays."""

    cell: int
    reservable: int
    free: int


class Line:
    """The counts of one line of the calendar. Cells before `origin` are past and forgotten."""

    __slots__ = (
        "_dirty",
        "_load",
        "_promised",
        "_spares",
        "_until",
        "forever",
        "origin",
        "promises",
        "share",
    )

    def __init__(self, *, origin: int = 0, share_percent: int = SHARE_PERCENT, spares: int | None = None) -> None:
        self.origin = origin
        self.share = share_percent
        self._spares = spares
        self.forever = 0  # usable hosts held without a known end
        self.promises: dict[str, Promise] = {}
        self._until: dict[str, int] = {}  # usable host -> the cell its hold ends at; 0 = free
        self._load: list[int] = []  # held with a known end, or promised and not bound
        self._promised: list[int] = []  # promised, bound or not
        self._dirty: dict[int, int] = {}  # end cell -> holds more or less until then, not in the load yet

    # ---- what there is

    @property
    def total(self) -> int:
        return len(self._until)

    @property
    def spares(self) -> int:
        """Hosts kept back for the failures of others: where there are two, a single failure never costs a promise."""
        if self._spares is not None:
            return self._spares
        return -(-self.total // SPARE_OF) if self.total > 1 else 0

    def set_policy(self, share_percent: int, spares: int | None) -> None:
        self.share, self._spares = share_percent, spares

    @property
    def reservable(self) -> int:
        """Hosts that windows may promise together at any instant."""
        return min(self.total * self.share // 100, max(0, self.total - self.spares))

    def set_host(self, host_id: str, until: int = 0) -> None:
        """A usable host, held until this cell (0 = free, FOREVER = no end known)."""
        old = self._until.get(host_id, 0)
        self._until[host_id] = until
        if old != until:
            self._hold(old, -1)
            self._hold(until, 1)

    def drop_host(self, host_id: str) -> None:
        """Gone, dead or cordoned: it no longer counts, held or not."""
        self._hold(self._until.pop(host_id, 0), -1)

    def drop_hosts(self) -> None:
        for host_id in list(self._until):
            self.drop_host(host_id)

    def _hold(self, until: int, change: int) -> None:
        if until >= FOREVER:
            self.forever += change
        elif until > self.origin:
            self._dirty[until] = self._dirty.get(until, 0) + change

    # ---- promises

    def put(self, id: str, promise: Promise) -> None:
        self.drop(id)
        self.promises[id] = promise
        self._count(promise, 1)

    def drop(self, id: str) -> None:
        known = self.promises.pop(id, None)
        if known is not None:
            self._count(known, -1)

    def _count(self, promise: Promise, sign: int) -> None:
        self._add(self._promised, promise.start, promise.end, sign * promise.hosts)
        if not promise.bound:
            self._add(self._load, promise.start, promise.end, sign * promise.hosts)

    def _add(self, grid: list[int], start: int, end: int, change: int) -> None:
        start, end = max(0, start - self.origin), end - self.origin
        if end > len(grid):
            grid.extend([0] * (end - len(grid)))
        if end > start:
            grid[start:end] = [count + change for count in grid[start:end]]

    def _settle(self) -> None:
        """Let the load know what became of holds; a gang that ends together is one change."""
        for until, change in self._dirty.items():
            if change:
                self._add(self._load, self.origin, until, change)
        self._dirty.clear()

    def forget_before(self, cell: int) -> None:
        """What is past is no part of any decision."""
        past = cell - self.origin
        if past <= 0:
            return
        self._settle()
        del self._load[:past], self._promised[:past]
        self.origin = cell

    # ---- decisions: nothing below changes what is promised

    def room(self, start: int, end: int, *, spare: bool = False) -> int:
        """How many hosts could be held throughout [start, end) without breaking a promise. Where nothing is promised
        nothing is kept back, nor from who repairs what was (`spare`)."""
        kept = 0 if spare or not self.promised(start, end) else self.spares
        return self._left(start, end) - kept

    def _left(self, start: int, end: int) -> int:
        """How many hosts are neither held nor promised throughout [start, end), spares among them."""
        if self._dirty:
            self._settle()
        load = self._load[max(0, start - self.origin) : max(0, end - self.origin)]
        return self.total - self.forever - max(load, default=0)

    def promised(self, start: int, end: int) -> int:
        """How many hosts windows promise together, where within [start, end) they promise most."""
        return max(self._promised[max(0, start - self.origin) : max(0, end - self.origin)], default=0)

    def reservable_room(self, start: int, end: int) -> int:
        """How many hosts a window over [start, end) could be promised."""
        return min(self.reservable - self.promised(start, end), self._left(start, end) - self.spares)

    def earliest(self, hosts: int, cells: int, start: int, latest: int | None = None) -> int | None:
        """The first cell from `start` on at which a window of so many cells could begin; None when by `latest` (or
        within the horizon) there is none."""
        if self._dirty:
            self._settle()
        begin = start
        last = start + HORIZON if latest is None else latest
        most_load, most_promised = self.total - self.spares - self.forever - hosts, self.reservable - hosts
        if most_load < 0 or most_promised < 0:
            return None
        for cell, load, promised in self._counts(start, last + cells):
            if load > most_load or promised > most_promised:
                begin = cell + 1
                if begin > last:
                    return None
            elif cell + 1 - begin >= cells:
                return begin
        return begin  # beyond the grid nothing is promised yet

    def earliest_room(self, hosts: int, start: int, cells: int | None = None) -> int | None:
        """The first cell from which on so many hosts could be held, for so many cells or (None) for ever; None when
        nobody knows. As in `room`: beside no promise at all, or with the spares left alone."""
        most = self.total - self.forever - hosts
        if most < 0:
            return None
        known = self.origin + max(len(self._load), len(self._promised))
        counts = list(self._counts(start, known))
        alone = _first_run([load <= most and not promised for _, load, promised in counts], cells)
        beside = _first_run([load <= most - self.spares for _, load, _ in counts], cells)
        return start + min(alone, beside)

    def rooms(self, start: int, end: int) -> Iterator[Room]:
        """Cell by cell, what is left."""
        if self._dirty:
            self._settle()
        free = self.total - self.forever
        for cell in range(start, end):
            at = cell - self.origin
            load = self._load[at] if 0 <= at < len(self._load) else 0
            promised = self._promised[at] if 0 <= at < len(self._promised) else 0
            left = free - load - (self.spares if promised else 0)
            yield Room(cell, max(0, min(self.reservable - promised, free - load - self.spares)), max(0, left))

    def _counts(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(cell, load, promised) as far as either grid reaches."""
        if self._dirty:
            self._settle()
        first = max(0, start - self.origin)
        load, promised = self._load[first : end - self.origin], self._promised[first : end - self.origin]
        short = len(load) - len(promised)
        promised.extend([0] * short)
        load.extend([0] * -short)
        return zip(range(first + self.origin, end), load, promised, strict=False)


def _first_run(fits: list[bool], cells: int | None) -> int:
    """Where so many fit one after the other, or (None) all that come; beyond the end everything does."""
    begin = 0
    for at, fitting in enumerate(fits):
        if not fitting:
            begin = at + 1
        elif cells is not None and at + 1 - begin >= cells:
            break
    return begin

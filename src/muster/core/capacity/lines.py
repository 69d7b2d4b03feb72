"""The calendar as the database has it: its lines, the bookings on them, and the guard against promises on old counts.

Leans on the store, the pure calendar and the placement index. *Laws.* Whoever takes whole hosts of a line, and
whoever books on it, holds the line's version against the batch: they read it (`Expect`) while nothing was ever booked
there, everybody writes it (`Replace`) from the first booking on. So of two who decided on the same count one is
refused, looks again and decides anew. Our own guards are believed to succeed one after the other, as grants are.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from muster.contracts.steps import Step
from muster.contracts.store import Batch, Expect, Find, Insert, Op, Replace, Store
from muster.core.capacity.calendar import Line, Promise, end_cell, first_cell
from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import LineKey
from muster.errors import UniqueViolation, VersionMismatch
from muster.model.base import changed
from muster.model.capacity import Booking, CalendarLine

BOOKINGS_PER_READ: Final = 2_000


class KnownLine:
    """A line as we believe it to be: its row, and its counts once anything was booked on it."""

    def __init__(self, row: CalendarLine) -> None:
        self.row = row
        self.grid = Line(share_percent=row.share_percent, spares=row.spares)
        self.read_revision = -1  # of the bookings as we know them


class Lines:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, KnownLine] = {}
        self._doubtful: set[str] = set()

    def get(self, key: LineKey) -> KnownLine | None:
        """What is believed of a line, unless that is in doubt."""
        return None if key.id in self._doubtful else self._known.get(key.id)

    async def known(self, key: LineKey, index: CapacityIndex, *, fresh: bool = False) -> KnownLine:
        """The line, read (and made) if need be; `fresh` asks the database whether it moved on."""
        line = self._known.get(key.id)
        if line is None or fresh or key.id in self._doubtful:
            line = await self._read(key, index)
        return line

    def doubt(self, keys: Iterable[LineKey]) -> None:
        """A batch that held these lines was refused, or nobody knows how it ended: read them before the next use."""
        for key in keys:
            self._doubtful.add(key.id)
            if key.id in self._known:
                self._known[key.id].read_revision = -1

    def guard(self, keys: Iterable[LineKey]) -> list[Op]:
        """Holds these lines against the batch it goes into."""
        ops: list[Op] = []
        for key in keys:
            line = self._known[key.id]
            if not line.row.guarded:
                ops.append(Expect(CalendarLine, line.row.id, line.row.version))
                continue
            line.row = changed(line.row)
            ops.append(Replace(line.row))
        return ops

    def write(self, key: LineKey) -> Op:
        """The line moves on, whether anything is booked on it or not."""
        line = self._known[key.id]
        line.row = changed(line.row)
        return Replace(line.row)

    def booking_guard(self, key: LineKey, *, least: int = 0) -> Op:
        """The line with what may be reserved on it as counted now, held against a batch that books. `least` is what
        was promised when there were more hosts: a promise that is only moved is not refused for it."""
        line = self._known[key.id]
        reservable = max(line.grid.reservable, least)
        line.row = changed(line.row, reservable=reservable, revision=line.row.revision + 1)
        line.read_revision = line.row.revision
        return Replace(line.row)

    def put(self, booking: Booking) -> None:
        """Believed from now on; of a line that was not read yet nothing is believed, and it will be read whole."""
        line = self._known.get(booking.line_id)
        if line is not None:
            line.grid.put(booking.id, promise_of(booking))

    def drop(self, booking: Booking) -> None:
        line = self._known.get(booking.line_id)
        if line is not None:
            line.grid.drop(booking.id)

    async def open_for_booking(self, key: LineKey, index: CapacityIndex) -> KnownLine:
        """From the first booking on everybody's guard is a write, so that no count is shared unseen. That must be
        true before the count that decides the first booking is taken."""
        line = await self.known(key, index, fresh=True)
        while not line.row.guarded:
            with suppress(VersionMismatch):  # then somebody else opened it
                await self._store.apply(Batch(Step.CALENDAR_WRITE, [Replace(changed(line.row, guarded=True))]))
            line = await self.known(key, index, fresh=True)
        return line

    # ---- reading

    async def _read(self, key: LineKey, index: CapacityIndex) -> KnownLine:
        self._doubtful.discard(key.id)
        row = await self._store.get(CalendarLine, key.id) or await self._made(key)
        line = self._known.get(key.id)
        if line is None:
            line = self._known[key.id] = KnownLine(row)
        line.row = row
        line.grid.set_policy(row.share_percent, row.spares)
        if row.guarded and not index.watches(key):
            index.watch(key, line.grid)
        if row.guarded and line.read_revision != row.revision:
            await self._read_bookings(line)
        return line

    async def _made(self, key: LineKey) -> CalendarLine:
        row = CalendarLine(id=key.id, region=key.region, gpu_type=key.gpu_type, slots=key.slots, created_at=0)
        with suppress(UniqueViolation):  # then another replica was first
            await self._store.apply(Batch(Step.CALENDAR_WRITE, [Insert(row)]))
        return await self._store.get(CalendarLine, key.id) or row

    async def _read_bookings(self, line: KnownLine) -> None:
        """All that is booked on it now; the row is read first, so that what changes meanwhile is read again."""
        found: dict[str, Promise] = {}
        query = Find(Booking, equals={"line_id": line.row.id}, limit=BOOKINGS_PER_READ)
        while bookings := await self._store.find(query):
            found |= {booking.id: promise_of(booking) for booking in bookings}
            query = Find(
                Booking,
                equals={"line_id": line.row.id},
                after=(bookings[-1].id, bookings[-1].id),
                limit=BOOKINGS_PER_READ,
            )
        for gone in line.grid.promises.keys() - found.keys():
            line.grid.drop(gone)
        for id, promise in found.items():
            if line.grid.promises.get(id) != promise:
                line.grid.put(id, promise)
        line.read_revision = line.row.revision


def promise_of(booking: Booking) -> Promise:
    return Promise(booking.hosts, first_cell(booking.from_at), end_cell(booking.until_at), booking.bound)

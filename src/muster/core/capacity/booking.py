"""Giving a promise: the count that allows it, the batch that makes it true, and the way out when it cannot be given.

Leans on the capacity service and its lines. *Laws.* A promise is believed given the moment it is decided, and read
again from the database when the batch that should have made it true was refused. A refusal names what is nearest:
less of it, the same elsewhere, or later.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from msgspec.structs import replace

from muster.contracts.clock import Entropy
from muster.contracts.store import Insert, Op, Remove
from muster.core.capacity.calendar import CELL, HORIZON, Line, end_cell, first_cell
from muster.core.capacity.placement import LineKey
from muster.core.capacity.service import Capacity
from muster.core.moments import iso, said_at
from muster.errors import Invalid, NeverFits, OutOfStock, Unsupported
from muster.model.base import Instant
from muster.model.capacity import Booking


class WindowAsk(NamedTuple):
    """So many whole hosts, held from one instant to another."""

    key: LineKey
    hosts: int
    from_at: Instant
    until_at: Instant

    @property
    def gpus(self) -> int:
        return self.hosts * self.key.slots

    @property
    def cells(self) -> int:
        return end_cell(self.until_at) - first_cell(self.from_at)


class Alternative(NamedTuple):
    """What could be had instead: `kind` is smaller, elsewhere or later."""

    kind: str
    region: str
    gpus: int
    starts_at: Instant
    ends_at: Instant

    def told(self) -> dict[str, Any]:
        return self._asdict() | {"starts_at": iso(self.starts_at), "ends_at": iso(self.ends_at)}

    def words(self) -> str:
        when = f"from {said_at(self.starts_at)}"
        if self.kind == "smaller":
            return f"{self.gpus} GPUs are free in {self.region} {when}"
        if self.kind == "elsewhere":
            return f"{self.region} has {self.gpus} GPUs {when}"
        return f"{self.gpus} GPUs are free in {self.region} {when} until {said_at(self.ends_at)}"


class Booked(NamedTuple):
    """A promise decided: what its batch must hold. Ends in that batch being applied, or in `Booker.lost`."""

    booking: Booking
    ops: list[Op]


class Booker:
    def __init__(self, entropy: Entropy, capacity: Capacity) -> None:
        self._entropy = entropy
        self._capacity = capacity

    async def key(self, region: str, gpu_type: str, gpus_per_node: int) -> LineKey:
        """The line of whole hosts with so many GPUs; promises are not given on slices of a host."""
        await self._capacity.sync()
        found = self._capacity.whole_host_key(region, gpu_type, gpus_per_node)
        if found is None:
            raise Unsupported(
                f"reservations are for whole hosts; no host in {region} has exactly {gpus_per_node} {gpu_type}",
                field="gpus",
                hint="ask for whole hosts, or on demand",
            )
        return found

    async def book(
        self,
        ask: WindowAsk,
        reservation_id: str,
        *,
        now: Instant,
        bound: bool = False,
        instead: Booking | None = None,
    ) -> Booked:
        """Promise it, or refuse with what is nearest. `instead` of a booking of as many hosts, which goes in the same
        batch: its hours are promised already, and its hosts may be held, so only what is new is asked for."""
        check_window(ask, now)
        line = await self._capacity.open_for_booking(ask.key)
        line.grid.forget_before(first_cell(now))
        room = min((line.grid.reservable_room(*span) for span in _new_cells(ask, instead)), default=ask.hosts)
        if ask.hosts > room:
            await self._refuse(ask, line.grid, room, now)
        booking = Booking(
            id=self._entropy.uuid(),
            line_id=ask.key.id,
            reservation_id=reservation_id,
            hosts=ask.hosts,
            from_at=first_cell(ask.from_at) * CELL,
            until_at=end_cell(ask.until_at) * CELL,
            bound=bound,
        )
        gone: list[Op] = []
        if instead is not None:
            self._capacity.lines.drop(instead)
            gone = [Remove(Booking, instead.id)]
        # Counted as promised until its hosts are taken, whatever is written: nobody else may have them meanwhile.
        self._capacity.lines.put(replace(booking, bound=False) if instead is None else booking)
        least = 0 if instead is None else line.grid.promised(first_cell(ask.from_at), end_cell(ask.until_at))
        return Booked(booking, [*gone, self._capacity.lines.booking_guard(ask.key, least=least), Insert(booking)])

    async def unbook(self, booking: Booking, key: LineKey) -> list[Op]:
        """The promise is over: what the batch that says so must hold."""
        await self._capacity.open_for_booking(key)
        self._capacity.lines.drop(booking)
        return [Remove(Booking, booking.id), self._capacity.lines.booking_guard(key)]

    def lost(self, key: LineKey) -> None:
        """The batch was refused, or nobody knows how it ended."""
        self._capacity.lines.doubt([key])

    async def earliest(self, key: LineKey, hosts: int, cells: int, at: Instant) -> Instant | None:
        """When so many hosts could first be had for so many hours, looking a year ahead; at the earliest at once."""
        line = await self._capacity.look_at(key)
        line.grid.forget_before(first_cell(at))
        found = line.grid.earliest(hosts, cells, first_cell(at))
        return None if found is None else max(at, found * CELL)

    # ---- refusals

    async def _refuse(self, ask: WindowAsk, grid: Line, room: int, now: Instant) -> NoReturn:
        alternatives = await self._alternatives(ask, grid, room, now)
        details: dict[str, Any] = {
            "region": ask.key.region,
            "gpu_type": ask.key.gpu_type,
            "asked_gpus": ask.gpus,
            "free_gpus": max(0, room) * ask.key.slots,
            "reservable_gpus": grid.reservable * ask.key.slots,
            "alternatives": [one.told() for one in alternatives],
        }
        hint = "; or ".join(one.words() for one in alternatives)
        if ask.hosts > grid.reservable and not alternatives:
            raise NeverFits(
                f"{ask.gpus} {ask.key.gpu_type} were asked; at most {grid.reservable * ask.key.slots} of "
                f"{ask.key.region}'s may be reserved",
                field="gpus",
                hint="ask for fewer, or on demand",
                details=details,
            )
        raise OutOfStock(
            f"{ask.gpus} {ask.key.gpu_type} were asked in {ask.key.region} from {said_at(ask.from_at)} until "
            f"{said_at(ask.until_at)}; {max(0, room) * ask.key.slots} are left then",
            hint=hint or "ask for fewer, or on demand",
            details=details,
        )

    async def _alternatives(self, ask: WindowAsk, grid: Line, room: int, now: Instant) -> list[Alternative]:
        length = ask.until_at - ask.from_at
        found: list[Alternative] = []
        if room > 0:
            found.append(
                Alternative("smaller", ask.key.region, room * ask.key.slots, ask.from_at, ask.from_at + length)
            )
        for key in self._capacity.line_keys():
            if key.gpu_type == ask.key.gpu_type and key.slots == ask.key.slots and key != ask.key:
                other = (await self._capacity.look_at(key)).grid
                if other.reservable_room(first_cell(ask.from_at), end_cell(ask.until_at)) >= ask.hosts:
                    found.append(Alternative("elsewhere", key.region, ask.gpus, ask.from_at, ask.until_at))
                    break
        later = grid.earliest(ask.hosts, ask.cells, first_cell(ask.from_at))
        if later is not None:
            start = max(now, later * CELL)
            found.append(Alternative("later", ask.key.region, ask.gpus, start, start + length))
        return found


def _new_cells(ask: WindowAsk, instead: Booking | None) -> list[tuple[int, int]]:
    """The cells of a window that are not promised to it yet."""
    first, end = first_cell(ask.from_at), end_cell(ask.until_at)
    if instead is None:
        return [(first, end)]
    had_first, had_end = first_cell(instead.from_at), end_cell(instead.until_at)
    spans = ((first, min(end, had_first)), (max(first, had_end), end))
    return [(start, stop) for start, stop in spans if stop > start]


def check_window(ask: WindowAsk, now: Instant) -> None:
    if ask.hosts < 1:
        raise Invalid("at least one host must be asked for", field="gpus")
    if ask.until_at <= ask.from_at:
        raise Invalid("it would end before it began", field="ends_at")
    if ask.until_at <= now:
        raise Invalid("it would be over already", field="ends_at")
    if end_cell(ask.until_at) > first_cell(now) + HORIZON:
        raise Invalid(
            f"promises reach {HORIZON * CELL // 86_400_000} days ahead",
            field="ends_at",
            hint="ask for an earlier end",
        )

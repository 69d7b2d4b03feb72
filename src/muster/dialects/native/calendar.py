"""Capacity in time on the native wire: availability, quotes, reservations, and how much of a line may be promised."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.contracts.http import Call, Reply
from muster.core.capacity.reservations import AVAILABILITY_DAYS, ReserveAsk
from muster.core.house import House
from muster.dialects.native import wire
from muster.dialects.native.asking import if_match, number, once, paging, read, text
from muster.dialects.native.replies import answer, listing, page_reply
from muster.dialects.native.translate import instant, shown
from muster.dialects.native.views import Stamp, View
from muster.errors import Invalid
from muster.model import capacity as model
from muster.model.base import DAY, HOUR, Instant
from muster.model.capacity import ReservationKind, ReservationState

DAYS_MAX = 365


class Ask(wire.Body, frozen=True, kw_only=True):
    """So many GPUs for so long. Without `starts_at` as early as can be, without `region` wherever that is first.

    How long is said by `days` or `hours`, or by `ends_at` together with `starts_at`.
    """

    gpu_type: wire.Word
    gpus: wire.Gpus
    gpus_per_node: Annotated[int, Meta(ge=1, le=64)] = 8
    region: wire.Word = ""
    days: Annotated[float, Meta(gt=0, le=DAYS_MAX)] | None = None
    hours: Annotated[float, Meta(gt=0, le=DAYS_MAX * 24)] | None = None
    starts_at: wire.Moment | None = None
    ends_at: wire.Moment | None = None
    project_id: wire.Id | None = None


class Extension(wire.Body, frozen=True, kw_only=True):
    ends_at: wire.Moment


class Policy(wire.Body, frozen=True, kw_only=True):
    """What is left out stays."""

    share_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    spares: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None


class Free(View, frozen=True, kw_only=True):
    """One day: GPUs that could be had throughout it, by reservation and on demand."""

    region: str
    gpu_type: str
    gpus_per_node: int
    at: Stamp
    reservable_gpus: int
    on_demand_gpus: int
    total_gpus: int


class Reservation(View, frozen=True, kw_only=True):
    id: str
    version: int
    project_id: str
    account_id: str
    kind: ReservationKind
    state: ReservationState
    region: str
    gpu_type: str
    gpus_per_node: int
    gpus: int
    hosts: int
    cluster_id: str | None
    starts_at: Stamp
    ends_at: Stamp
    expires_at: Stamp | None
    price_micro: int | None
    currency: str
    because: str
    created_at: Stamp
    updated_at: Stamp


class Line(View, frozen=True, kw_only=True):
    """Hosts counted together: what windows may promise of them."""

    id: str
    version: int
    region: str
    gpu_type: str
    slots: int
    share_percent: int
    spares: int | None


class Calendar:
    def __init__(self, house: House) -> None:
        self._reservations = house.reservations
        self._clock = house.clock

    async def availability(self, call: Call) -> Reply:
        rows = await self._reservations.availability(
            region=text(call, "region"),
            gpu_type=text(call, "gpu_type"),
            days=number(call, "days") or AVAILABILITY_DAYS,
        )
        return listing(shown(row, Free) for row in rows)

    async def quote(self, call: Call) -> Reply:
        said = read(call, Ask)
        made = await self._reservations.quote(
            call.actor, self._ask(said), project_id=said.project_id, once=once(call, said, "quote")
        )
        return _told(made, 201, location=f"quotes/{made.id}")

    async def reserve(self, call: Call) -> Reply:
        said = read(call, Ask)
        made = await self._reservations.reserve(
            call.actor, self._ask(said), project_id=said.project_id, once=once(call, said, "reservation")
        )
        return _told(made, 201, location=f"reservations/{made.id}")

    def _ask(self, said: Ask) -> ReserveAsk:
        starts_at = instant(said.starts_at)
        return ReserveAsk(
            gpu_type=said.gpu_type,
            gpus=said.gpus,
            lasts_ms=_length(said, starts_at),
            region=said.region,
            gpus_per_node=said.gpus_per_node,
            starts_at=starts_at,
        )

    async def list(self, call: Call) -> Reply:
        page = await self._reservations.reservations(call.actor, project_id=text(call, "project_id"), **paging(call))
        return page_reply(page, Reservation)

    async def get(self, call: Call) -> Reply:
        return _told(await self._reservations.reservation(call.actor, call.params["id"]))

    async def extend(self, call: Call) -> Reply:
        ends_at = instant(read(call, Extension).ends_at) or 0
        return _told(
            await self._reservations.extend(call.actor, call.params["id"], ends_at, if_version=if_match(call))
        )

    async def cancel(self, call: Call) -> Reply:
        return _told(await self._reservations.cancel(call.actor, call.params["id"], if_version=if_match(call)))

    async def lines(self, call: Call) -> Reply:
        return listing(shown(line, Line) for line in await self._reservations.lines(call.actor))

    async def set_policy(self, call: Call) -> Reply:
        said = read(call, Policy)
        line = await self._reservations.set_policy(
            call.actor,
            call.params["id"],
            share_percent=said.share_percent,
            spares=said.spares,
            if_version=if_match(call),
        )
        return answer(shown(line, Line), tag=line.version)


def _length(said: Ask, starts_at: Instant | None) -> Instant:
    if said.days is not None:
        return round(said.days * DAY)
    if said.hours is not None:
        return round(said.hours * HOUR)
    ends_at = instant(said.ends_at)
    if ends_at is None or starts_at is None:
        raise Invalid("say how long: days, hours, or starts_at and ends_at", field="days")
    return ends_at - starts_at


def _told(reservation: model.Reservation, status: int = 200, location: str | None = None) -> Reply:
    return answer(shown(reservation, Reservation), status=status, tag=reservation.version, location=location)

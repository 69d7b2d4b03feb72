"""Capacity in time: the calendar's lines, what is booked on them, and the reservations behind the bookings."""

from __future__ import annotations

from enum import StrEnum

from muster.model.base import Instant, Noun


class CalendarLine(Noun, frozen=True, kw_only=True):
    """Whole hosts of one region, GPU type, size and pool, counted together; `id` names all four.

    Whoever takes hosts of a line holds its version against the batch, so that no promise is given on an old count.
    """

    region: str
    gpu_type: str
    slots: int
    share_percent: int = 50  # of its hosts, how many windows may promise
    spares: int | None = None  # hosts kept back for the failures of others; None = one in thirty-two, rounded up
    reservable: int = 0  # hosts the database lets windows promise at any instant, as last counted
    revision: int = 0  # raised with every change of what is booked on it
    guarded: bool = False  # something was booked on it at least once
    created_at: Instant


class Booking(Noun, frozen=True, kw_only=True):
    """Hosts promised over whole hours. Where and when never changes: another promise is another booking.

    The store explodes it into rows of `calendar_cell(line_id, at)` and refuses whatever would make one of them
    promise more than its line's `reservable`.
    """

    line_id: str
    reservation_id: str
    hosts: int
    from_at: Instant
    until_at: Instant
    bound: bool = False  # its hosts are leased


class ReservationKind(StrEnum):
    QUOTE = "quote"  # a price and a start, held for some minutes
    WINDOW = "window"  # from a start to an end
    TERM = "term"  # so long from ready on


class ReservationState(StrEnum):
    HELD = "held"  # a quote somebody may still accept
    BOOKED = "booked"  # promised; its time has not come, or nobody has drawn from it
    ACTIVE = "active"  # a cluster has its hosts
    ENDED = "ended"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


OPEN_STATES = (ReservationState.HELD, ReservationState.BOOKED, ReservationState.ACTIVE)


class Reservation(Noun, frozen=True, kw_only=True):
    account_id: str
    project_id: str
    kind: ReservationKind
    state: ReservationState
    open: bool = True  # in one of OPEN_STATES: holds a booking
    region: str
    gpu_type: str
    gpus_per_node: int
    gpus: int
    hosts: int
    line_id: str
    booking_id: str
    cluster_id: str | None = None
    starts_at: Instant  # when it can be used
    ends_at: Instant
    expires_at: Instant | None = None  # of a quote: until when it can be accepted
    price_micro: int | None = None  # of the whole, None when nothing is priced
    currency: str = ""
    because: str = ""
    created_by: str = ""
    created_at: Instant
    updated_at: Instant

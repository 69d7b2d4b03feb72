"""What must be true of every promise in a history: reckoned from rows, beside the calendar, not with its sums.

Hosts are counted by enrolment, dead or alive: what is promised on a count may not exceed it, and a host that died
since is bad luck, not a promise too many.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from muster.contracts.store import Find, Store
from muster.core.capacity.placement import LineKey
from muster.model.base import HOUR, Instant
from muster.model.capacity import Booking, CalendarLine, Reservation
from muster.model.clusters import Billing, Cluster
from muster.model.hosts import ANY_TIME, Host, Lease
from muster.model.phases import Phase
from muster.testing.simulation.outside import Broken, Outside

FOREVER: Final = 1 << 60


class Sheet:
    """One line of the calendar as its rows say: hosts enrolled, what is leased of them, what is booked."""

    def __init__(self, line: CalendarLine) -> None:
        self.line = line
        self.hosts: set[str] = set()
        self.bookings: list[tuple[Booking, str | None]] = []  # and the cluster that has it
        self.leased: dict[str, dict[str, Instant]] = defaultdict(dict)  # cluster -> host -> until when

    def instants(self, now: Instant) -> list[Instant]:
        """Where a count can be highest: now, and wherever a booking begins."""
        return sorted({now, *(booking.from_at for booking, _ in self.bookings if booking.from_at > now)})

    def promised(self, at: Instant) -> int:
        return sum(booking.hosts for booking, _ in self.bookings if booking.from_at <= at < booking.until_at)

    def load(self, at: Instant) -> int:
        """Hosts held or promised at this instant; of a promised cluster whichever is more."""
        held = {id: {host for host, until in hosts.items() if until > at} for id, hosts in self.leased.items()}
        booked: dict[str | None, int] = defaultdict(int)
        for booking, cluster_id in self.bookings:
            booked[cluster_id] += booking.hosts if booking.from_at <= at < booking.until_at else 0
        standing = booked.pop(None, 0)
        own = sum(max(hosts, len(held.get(id or "", ()))) for id, hosts in booked.items())
        others: set[str] = set().union(*(hosts for id, hosts in held.items() if id not in booked))
        return len(others) + own + standing


async def sheets(store: Store, now: Instant) -> list[Sheet]:
    """What is lent until it is asked back stands against no promise, and is not counted."""
    found = {line.id: Sheet(line) for line in await store.find(Find(CalendarLine, equals={"guarded": True}))}
    of_host: dict[str, Sheet] = {}
    for host in await store.find(Find(Host)):
        sheet = found.get(LineKey(host.region, host.gpu_type, host.slots, host.pool_id or "").id)
        if sheet is not None:
            of_host[host.id] = sheet
            sheet.hosts.add(host.id)
    owners = {one.booking_id: one.cluster_id for one in await store.find(Find(Reservation, equals={"open": True}))}
    for booking in await store.find(Find(Booking)):
        found[booking.line_id].bookings.append((booking, owners.get(booking.id)))
    for lease in await store.find(Find(Lease)):
        if lease.host_id in of_host and lease.ends_at != ANY_TIME:
            _hold(of_host[lease.host_id], lease, now)
    return list(found.values())


def _hold(sheet: Sheet, lease: Lease, now: Instant) -> None:
    """What is held past its end is held now, and for no one knows how long: this hour."""
    ends_at = FOREVER if lease.ends_at is None else max(lease.ends_at, now + 1)
    hosts = sheet.leased[lease.cluster_id]
    hosts[lease.host_id] = max(hosts.get(lease.host_id, 0), -(-ends_at // HOUR) * HOUR)


async def promises_fit(outside: Outside) -> Broken:
    """At no instant are more hosts held and promised together than there are."""
    for sheet in await sheets(outside.store, outside.now):
        for at in sheet.instants(outside.now):
            if sheet.load(at) > len(sheet.hosts):
                return f"{sheet.line.id} has {len(sheet.hosts)} hosts and owes {sheet.load(at)} at {at}"
    return None


async def windows_within_share(outside: Outside) -> Broken:
    """At no instant do windows together promise more than the share that may be reserved."""
    for sheet in await sheets(outside.store, outside.now):
        most = len(sheet.hosts) * sheet.line.share_percent // 100
        for at in sheet.instants(outside.now):
            if sheet.promised(at) > most:
                return f"{sheet.line.id} may promise {most} hosts, and {sheet.promised(at)} are at {at}"
    return None


async def bound_in_time(outside: Outside) -> Broken:
    """No window's hosts are taken before it begins."""
    bookings = {booking.id: booking for booking in await outside.store.find(Find(Booking))}
    begins = {
        one.cluster_id: bookings[one.booking_id].from_at
        for one in await outside.store.find(Find(Reservation, equals={"open": True}))
        if one.booking_id in bookings
    }
    for cluster in await outside.store.find(Find(Cluster)):
        if cluster.spec.billing is not Billing.SCHEDULED:
            continue
        begins_at = max(cluster.spec.begins_at or 0, begins.get(cluster.id, 0))
        early = [
            moved.at for moved in cluster.status.history if moved.phase == Phase.NETWORK and moved.at < begins_at
        ]
        if early:
            return f"cluster {cluster.name} took its hosts at {early[0]}, and its window begins at {begins_at}"
    return None


async def bookings_match_reservations(outside: Outside) -> Broken:
    """Every open reservation has its booking, and no booking outlives its reservation."""
    bookings = {booking.id: booking for booking in await outside.store.find(Find(Booking))}
    for reservation in await outside.store.find(Find(Reservation, equals={"open": True})):
        booking = bookings.pop(reservation.booking_id, None)
        if booking is None or booking.hosts != reservation.hosts:
            return f"reservation {reservation.id} is {reservation.state} and booked as {booking}"
    return f"booking {next(iter(bookings))} belongs to no open reservation" if bookings else None


async def ready_by_its_start(outside: Outside) -> Broken:
    """Who was accepted in time is ready by its start; judged up to where something was first broken on purpose."""
    unhurt_until = min(outside.ledger.hurt, default=FOREVER)
    for cluster in await outside.store.find(Find(Cluster)):
        starts_at, begins_at = cluster.spec.starts_at or 0, cluster.spec.begins_at or 0
        in_time = cluster.spec.billing is Billing.SCHEDULED and begins_at > cluster.created_at
        wanted = cluster.delete_wished_at is None or cluster.delete_wished_at > starts_at
        if not in_time or not wanted or not starts_at < min(outside.now, unhurt_until):
            continue
        if (cluster.status.first_ready_at or FOREVER) > starts_at:
            return f"cluster {cluster.name} was to be ready by {starts_at} and was {cluster.status.first_ready_at}"
    return None

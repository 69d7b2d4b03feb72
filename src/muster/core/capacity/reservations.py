"""The use cases of capacity in time: when could I have it, a quote, a reservation, its extension and its end.

Leans on the booker, the catalogue and the accounts. *Laws.* What is promised is written, with its booking and its
event, in one batch; a quote holds what it promises until it expires; foreign reservations do not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from muster.contracts.clock import Clock, Entropy
from muster.contracts.metering import FREE, Agreement, Purse, Want
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Op, Replace, Store, Wake
from muster.core.accounts.audit import audit
from muster.core.accounts.rights import own_project, require_operator, require_sees, require_write
from muster.core.capacity.booking import Booked, Booker, WindowAsk
from muster.core.capacity.calendar import CELL, first_cell
from muster.core.capacity.placement import LineKey
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import CatalogService
from muster.core.guarded import first_made, guarded, require_version, submit
from muster.core.idempotency import Once
from muster.core.moments import said_at, said_for
from muster.core.paging import Page, page_of
from muster.errors import Invalid, NotFound, OutOfStock, QuotaExceeded, StoreError, UniqueViolation, WrongPhase
from muster.model.accounts import Actor, Project
from muster.model.base import DAY, HOUR, MINUTE, Instant, changed
from muster.model.capacity import Booking, CalendarLine, Reservation, ReservationKind, ReservationState
from muster.model.clusters import Cluster
from muster.model.phases import Phase

QUOTE_HELD: Final = 10 * MINUTE
LEAD_SAMPLE: Final = 50
LEAD_LEAST: Final = 1 * MINUTE
LEAD_UNMEASURED: Final = 10 * MINUTE
AVAILABILITY_DAYS: Final = 60
AVAILABILITY_DAYS_MAX: Final = 365


class ReserveAsk(NamedTuple):
    """`starts_at` None = as early as can be. `lasts_ms` is how long it is to serve."""

    gpu_type: str
    gpus: int
    lasts_ms: Instant
    region: str = ""  # "" = wherever it can begin first
    gpus_per_node: int = 8
    starts_at: Instant | None = None


class Free(NamedTuple):
    """One day of one shape in one region: hosts and GPUs that can be had throughout it."""

    region: str
    gpu_type: str
    gpus_per_node: int
    at: Instant
    reservable_gpus: int
    on_demand_gpus: int
    total_gpus: int


class Reservations:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        catalog: CatalogService,
        capacity: Capacity,
        purse: Purse = FREE,
    ) -> None:
        self._purse = purse
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._catalog = catalog
        self._capacity = capacity
        self.booker = Booker(entropy, capacity)

    # ---- when could I have it?

    async def availability(
        self, *, region: str | None = None, gpu_type: str | None = None, days: int = AVAILABILITY_DAYS
    ) -> list[Free]:
        """Day by day from now on, what could be had throughout each."""
        if not 1 <= days <= AVAILABILITY_DAYS_MAX:
            raise Invalid(f"days must be between 1 and {AVAILABILITY_DAYS_MAX}", field="days")
        await self._capacity.sync()
        rows: list[Free] = []
        for key in self._capacity.line_keys():
            if region in (None, key.region) and gpu_type in (None, key.gpu_type):
                rows += await self._days(key, days)
        return rows

    async def _days(self, key: LineKey, days: int) -> list[Free]:
        now = self._clock.now()
        line = await self._capacity.look_at(key)
        line.grid.forget_before(first_cell(now))
        total = line.grid.total * key.slots
        rows = []
        for day in range(now // DAY, now // DAY + days):
            first, end = max(first_cell(now), day * DAY // CELL), (day + 1) * DAY // CELL
            reservable, free = line.grid.reservable_room(first, end), line.grid.room(first, end)
            slots = key.slots
            rows.append(
                Free(*key[:2], slots, max(now, day * DAY), max(0, reservable) * slots, max(0, free) * slots, total)
            )
        return rows

    # ---- promises

    async def quote(
        self, actor: Actor, ask: ReserveAsk, *, project_id: str | None = None, once: Once | None = None
    ) -> Reservation:
        """The earliest start and its price, held for some minutes."""
        return await self._retried(lambda: self._reserve(actor, ask, project_id, ReservationKind.QUOTE, once))

    async def reserve(
        self, actor: Actor, ask: ReserveAsk, *, project_id: str | None = None, once: Once | None = None
    ) -> Reservation:
        return await self._retried(lambda: self._reserve(actor, ask, project_id, ReservationKind.WINDOW, once))

    async def _reserve(
        self, actor: Actor, ask: ReserveAsk, project_id: str | None, kind: ReservationKind, once: Once | None
    ) -> Reservation:
        project = await self._project(actor, project_id, ask.gpus)
        first = await first_made(self._store, Reservation, once, project.id)
        if first is not None:
            return first
        window, starts_at = await self._window(ask)
        now = self._clock.now()
        reservation, booked = await self.promised(actor, project, kind, window, starts_at, now)
        due = reservation.expires_at or reservation.ends_at
        ops: list[Op] = [*booked.ops, Insert(reservation), Wake("reservation", reservation.id, due)]
        if once is not None:
            ops.append(Insert(once.record(project.id, "reservation", reservation.id, now)))
        if kind is not ReservationKind.QUOTE:
            ops += await self._paid(actor, project, reservation)
        what = "quoted" if kind is ReservationKind.QUOTE else "reserved"
        event = audit(actor, "reservation", what, reservation, at=now, message=described(reservation))
        await self._submit(window.key, Batch(Step.RESERVATION_ACCEPT, ops, [event]))
        return reservation

    async def _paid(
        self, actor: Actor, project: Project, reservation: Reservation, extended_from: Instant | None = None
    ) -> Sequence[Op]:
        """A window held for a tenant is paid for with its promise, drawn from or not; so is each extension."""
        catalog = await self._catalog.current()
        shape = catalog.instance_type_for(reservation.gpu_type, reservation.gpus_per_node)
        whole = extended_from is None
        agreement = Agreement(
            id=reservation.id if whole else f"{reservation.id}.{reservation.version}",
            resource_id=reservation.id,
            want=Want(shape.id if shape else "", reservation.region, reservation.hosts, "scheduled"),
            starts_at=reservation.starts_at if extended_from is None else extended_from,
            ends_at=reservation.ends_at,
            micro=reservation.price_micro if whole else None,
            memo=f"reserved {described(reservation)}",
        )
        try:
            return await self._purse.agree(project, agreement, actor.name)
        except BaseException:
            self.booker.lost(key_of(reservation))
            raise

    async def promised(
        self,
        actor: Actor,
        project: Project,
        kind: ReservationKind,
        window: WindowAsk,
        starts_at: Instant,
        now: Instant,
        *,
        cluster_id: str | None = None,
        bound: bool = False,
    ) -> tuple[Reservation, Booked]:
        """A reservation and its booking, decided; whoever asked writes both."""
        reservation = await self._new(actor, project, kind, window, starts_at, now)
        booked = await self.booker.book(window, reservation.id, now=now, bound=bound)
        state = ReservationState.ACTIVE if bound else reservation.state
        return replace(reservation, booking_id=booked.booking.id, cluster_id=cluster_id, state=state), booked

    async def lead(self) -> Instant:
        """How long before its start a cluster's provisioning begins: what nine in ten of the last needed, a quarter
        more for the tenth, and a minute in which those who were there before leave."""
        recent = await self._store.find(Find(Cluster, order="created_at", descending=True, limit=LEAD_SAMPLE))
        times = sorted(filter(None, map(provisioning_time, recent)))
        return times[len(times) * 9 // 10] * 5 // 4 + LEAD_LEAST if times else LEAD_UNMEASURED

    async def _project(self, actor: Actor, project_id: str | None, gpus: int) -> Project:
        require_write(actor)
        project = await self._store.get(Project, own_project(actor, project_id))
        if project is None:
            raise NotFound(f"there is no project {project_id}")
        if project.gpu_quota is not None and gpus > project.gpu_quota:
            raise QuotaExceeded(
                f"project {project.name} may hold {project.gpu_quota} GPUs; {gpus} were asked",
                field="gpus",
                hint="ask for fewer, or have the operator raise the quota",
            )
        return project

    async def _window(self, ask: ReserveAsk) -> tuple[WindowAsk, Instant]:
        """What to book for this ask: where it was asked, or where it can begin first."""
        hosts, rest = divmod(ask.gpus, ask.gpus_per_node)
        if rest or hosts < 1:
            raise Invalid(f"gpus must be a positive multiple of {ask.gpus_per_node}", field="gpus")
        if ask.lasts_ms <= 0:
            raise Invalid("it must last some time", field="days")
        keys, now, lead = await self._keys(ask), self._clock.now(), await self.lead()
        if ask.starts_at is not None:
            starts_at = max(ask.starts_at, now)
            begins_at = max(now, starts_at - lead)
            return WindowAsk(keys[0], hosts, begins_at, starts_at + ask.lasts_ms), starts_at
        starts = [(await self._earliest(key, hosts, ask.lasts_ms + lead), key) for key in keys]
        known = [(at, key) for at, key in starts if at is not None]
        if not known:
            return WindowAsk(keys[0], hosts, now, now + ask.lasts_ms), now  # refused with what is nearest
        first, key = min(known)
        # One that begins at once is ready when it is; one that begins later has the time it needs to be ready.
        starts_at = first if first <= now else first + lead
        return WindowAsk(key, hosts, first, starts_at + ask.lasts_ms), starts_at

    async def _keys(self, ask: ReserveAsk) -> list[LineKey]:
        if ask.region:
            return [await self.booker.key(ask.region, ask.gpu_type, ask.gpus_per_node)]
        await self._capacity.sync()
        found = [k for k in self._capacity.line_keys() if (k.gpu_type, k.slots) == (ask.gpu_type, ask.gpus_per_node)]
        if not found:
            raise Invalid(f"no region has hosts with {ask.gpus_per_node} {ask.gpu_type}", field="gpu_type")
        return found

    async def _earliest(self, key: LineKey, hosts: int, lasts_ms: Instant) -> Instant | None:
        now = self._clock.now()
        # A start within the hour touches one hour more than its length says.
        return await self.booker.earliest(key, hosts, -(-lasts_ms // CELL) + (1 if now % CELL else 0), now)

    async def _new(
        self, actor: Actor, project: Project, kind: ReservationKind, ask: WindowAsk, starts_at: Instant, now: Instant
    ) -> Reservation:
        quote = kind is ReservationKind.QUOTE
        price, currency = await self._price(ask, starts_at, now)
        return Reservation(
            id=self._entropy.uuid(),
            account_id=project.account_id,
            project_id=project.id,
            kind=kind,
            state=ReservationState.HELD if quote else ReservationState.BOOKED,
            region=ask.key.region,
            gpu_type=ask.key.gpu_type,
            gpus_per_node=ask.key.slots,
            gpus=ask.gpus,
            hosts=ask.hosts,
            line_id=ask.key.id,
            booking_id="",
            starts_at=starts_at,
            ends_at=ask.until_at,
            expires_at=now + QUOTE_HELD if quote else None,
            price_micro=price,
            currency=currency,
            created_by=actor.member_id or actor.key_id or actor.name,
            created_at=now,
            updated_at=now,
        )

    async def _price(self, ask: WindowAsk, starts_at: Instant, now: Instant) -> tuple[int | None, str]:
        """Of the whole, at today's prices: committed days first, then plain."""
        catalog = await self._catalog.current()
        shape = catalog.instance_type_for(ask.key.gpu_type, ask.key.slots)
        if shape is None:
            return None, ""
        days = (ask.until_at - starts_at) // DAY
        for billing, committed in (("scheduled", days), ("reserved", days), ("reserved", 0), ("on_demand", 0)):
            price = catalog.price_of(shape.id, ask.key.region, billing, now, committed)
            if price is not None and price.unit == "term" and committed * DAY == ask.until_at - starts_at:
                return price.micro * ask.hosts, price.currency
            if price is not None and price.unit == "node_hour":
                return price.micro * ask.hosts * (ask.until_at - starts_at) // HOUR, price.currency
        return None, ""

    # ---- the operator's policy

    async def lines(self, actor: Actor) -> list[CalendarLine]:
        require_operator(actor)
        await self._capacity.sync()
        return [(await self._capacity.look_at(key)).row for key in self._capacity.line_keys()]

    async def set_policy(
        self, actor: Actor, id: str, *, share_percent: int | None, spares: int | None, if_version: int | None = None
    ) -> CalendarLine:
        """How much of a line may be promised. What is promised already stays promised."""
        require_operator(actor)
        return await guarded(lambda: self._set_policy(actor, id, share_percent, spares, if_version))

    async def _set_policy(
        self, actor: Actor, id: str, share: int | None, spares: int | None, if_version: int | None
    ) -> CalendarLine:
        line = await self._store.get(CalendarLine, id)
        if line is None:
            raise NotFound(f"there is no line {id} in the calendar")
        require_version(line, if_version)
        after = changed(
            line,
            share_percent=line.share_percent if share is None else share,
            spares=line.spares if spares is None else spares,
        )
        words = f"{after.share_percent} % of {id} may be reserved"
        event = audit(actor, "calendar", "policy", after, at=self._clock.now(), message=words)
        self._capacity.lines.doubt([LineKey(line.region, line.gpu_type, line.slots)])
        await submit(self._store, Batch(Step.CALENDAR_WRITE, [Replace(after)], [event]))
        return after

    # ---- changes

    async def extend(self, actor: Actor, id: str, ends_at: Instant, *, if_version: int | None = None) -> Reservation:
        """Give it another end; a later one must be free."""
        return await self._retried(lambda: self._extend(actor, id, ends_at, if_version))

    async def _extend(self, actor: Actor, id: str, ends_at: Instant, if_version: int | None) -> Reservation:
        reservation = await self._mine(actor, id, if_version)
        if reservation.cluster_id is not None:
            raise WrongPhase("a cluster runs on it", hint="set the cluster's ends_at instead")
        if reservation.state is not ReservationState.BOOKED:
            raise WrongPhase(f"a reservation that is {reservation.state} has no end to move")
        now = self._clock.now()
        moved, ops = await self.moved(reservation, ends_at, now)
        if ends_at > reservation.ends_at:
            project = await self._project(actor, reservation.project_id, reservation.gpus)
            ops += await self._paid(actor, project, moved, reservation.ends_at)
        event = audit(actor, "reservation", "extended", moved, at=now, message=described(moved))
        ops = [*ops, Wake("reservation", id, ends_at)]
        await self._submit(key_of(reservation), Batch(Step.RESERVATION_ACCEPT, ops, [event]))
        return moved

    async def moved(self, reservation: Reservation, ends_at: Instant, now: Instant) -> tuple[Reservation, list[Op]]:
        """The reservation with another end, and what its batch must hold."""
        old = await self._booking(reservation)
        window = WindowAsk(key_of(reservation), reservation.hosts, max(old.from_at, now), ends_at)
        booked = await self.booker.book(window, reservation.id, now=now, bound=old.bound, instead=old)
        after = changed(reservation, ends_at=ends_at, booking_id=booked.booking.id, updated_at=now)
        return after, [*booked.ops, Replace(after)]

    async def cancel(self, actor: Actor, id: str, *, if_version: int | None = None) -> Reservation:
        return await self._retried(lambda: self._cancel(actor, id, if_version))

    async def _cancel(self, actor: Actor, id: str, if_version: int | None) -> Reservation:
        reservation = await self._mine(actor, id, if_version)
        if not reservation.open:
            return reservation
        if reservation.cluster_id is not None:
            raise WrongPhase("a cluster draws from it", hint="delete the cluster; its reservation ends with it")
        now = self._clock.now()
        after, ops = await self.over(reservation, ReservationState.CANCELLED, "its owner cancelled it", now)
        event = audit(actor, "reservation", "cancelled", after, at=now, message=described(after))
        await self._submit(key_of(reservation), Batch(Step.RESERVATION_ACCEPT, ops, [event]))
        return after

    async def over(
        self, reservation: Reservation, state: ReservationState, because: str, now: Instant
    ) -> tuple[Reservation, list[Op]]:
        """The reservation at its end, its hours given back, and what the batch that says so must hold."""
        gone = await self.booker.unbook(await self._booking(reservation), key_of(reservation))
        after = changed(reservation, state=state, open=False, because=because, updated_at=now)
        return after, [*gone, Replace(after)]

    # ---- reading

    async def reservation(self, actor: Actor, id: str) -> Reservation:
        found = await self._store.get(Reservation, id)
        if found is None:
            raise NotFound(f"there is no reservation {id}")
        require_sees(actor, found.project_id, "reservation", id)
        return found

    async def reservations(
        self,
        actor: Actor,
        *,
        project_id: str | None = None,
        kinds: Sequence[ReservationKind] = (),
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Reservation]:
        equals: dict[str, str | None] = {}
        if project_id is not None or not actor.is_operator:
            equals["project_id"] = own_project(actor, project_id)
        if len(kinds) == 1:
            equals["kind"] = kinds[0]
        return await page_of(self._store, Reservation, equals, cursor=cursor, limit=limit, descending=True)

    async def of_cluster(self, cluster_id: str) -> Reservation | None:
        found = await self._store.find(Find(Reservation, equals={"cluster_id": cluster_id}))
        return found[0] if found else None

    # ---- the small print

    async def _mine(self, actor: Actor, id: str, if_version: int | None) -> Reservation:
        reservation = await self.reservation(actor, id)
        require_write(actor)
        require_version(reservation, if_version)
        return reservation

    async def _booking(self, reservation: Reservation) -> Booking:
        booking = await self._store.get(Booking, reservation.booking_id)
        if booking is None:
            raise WrongPhase(f"reservation {reservation.id} is {reservation.state} and holds nothing")
        return booking

    async def _submit(self, key: LineKey, batch: Batch) -> None:
        try:
            await submit(self._store, batch)
        except BaseException:
            self.booker.lost(key)
            raise

    async def _retried(self, work: Callable[[], Awaitable[Reservation]]) -> Reservation:
        """Decided anew when the calendar moved on, or when the database counts an hour fuller than we did."""
        try:
            return await guarded(work)
        except UniqueViolation:
            pass
        try:
            return await guarded(work)
        except StoreError as refused:
            raise OutOfStock("others were faster", hint="ask once more") from refused


def key_of(reservation: Reservation) -> LineKey:
    return LineKey(reservation.region, reservation.gpu_type, reservation.gpus_per_node)


def provisioning_time(cluster: Cluster) -> Instant | None:
    """From setting out to ready, if it got there."""
    ready_at = cluster.status.first_ready_at
    set_out = next((moved.at for moved in cluster.status.history if moved.phase == Phase.NETWORK), None)
    return None if ready_at is None or set_out is None else ready_at - set_out


def described(reservation: Reservation) -> str:
    return (
        f"{reservation.gpus} {reservation.gpu_type} in {reservation.region} from {said_at(reservation.starts_at)} "
        f"for {said_for(reservation.ends_at - reservation.starts_at)}"
    )

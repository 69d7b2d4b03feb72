"""A cluster's place in the calendar: booked when it is accepted, bound when it has its hosts, given back at the end.

Leans on the reservations of the capacity room. *Law.* What is booked, bound or let go is written in the same batch as
the cluster's own change, so that a promise and its cluster are never apart.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from msgspec.structs import replace

from muster.contracts.clock import Clock, Entropy
from muster.contracts.store import Find, Insert, Op, Replace, Store, Wake
from muster.core.capacity.booking import WindowAsk
from muster.core.capacity.placement import Ask, LineKey, Placement
from muster.core.capacity.refusals import when_free
from muster.core.capacity.reservations import Reservations, key_of
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import CatalogService
from muster.core.clusters.commands import CreateCluster
from muster.core.clusters.reseat import promised_workers
from muster.core.clusters.terms import PROVISION_LIMIT
from muster.errors import Invalid, NotFound, WrongPhase
from muster.model.accounts import Actor, Project
from muster.model.base import Instant, changed
from muster.model.capacity import Booking, Reservation, ReservationKind, ReservationState
from muster.model.clusters import Billing, Cluster, ClusterSpec
from muster.model.hosts import ANY_TIME, Host, Lease


class Window(NamedTuple):
    """What goes into the accepting batch: the promise behind a cluster."""

    reservation: Reservation
    booking: Booking
    ops: list[Op]

    @property
    def key(self) -> LineKey:
        return key_of(self.reservation)


def unbound(window: Window | None) -> Window | None:
    """The promise behind a cluster that waits for its hosts: nobody else may have them meanwhile."""
    if window is None or not window.booking.bound:
        return window
    booking = replace(window.booking, bound=False)
    reservation = replace(window.reservation, state=ReservationState.BOOKED)
    instead = {id(window.booking): Insert(booking), id(window.reservation): Insert(reservation)}
    ops = [instead.get(id(op.noun), op) if isinstance(op, Insert) else op for op in window.ops]
    return Window(reservation, booking, ops)


NOTHING = Placement((), ())
"""Where a cluster sits whose time has not come."""


class Windows:
    def __init__(
        self, store: Store, clock: Clock, entropy: Entropy, catalog: CatalogService, capacity: Capacity
    ) -> None:
        self._store = store
        self._clock = clock
        self._capacity = capacity
        self._reservations = Reservations(store, clock, entropy, catalog, capacity)

    async def accepted(self, project: Project, command: CreateCluster) -> tuple[Reservation, CreateCluster]:
        """The quote or reservation that a create draws from, and the command in its words."""
        found = await self._store.get(Reservation, command.quote_id)
        if found is None or found.project_id != project.id:
            raise NotFound(f"there is no quote or reservation {command.quote_id}")
        if not found.open or found.cluster_id is not None:
            state = "taken" if found.open else str(found.state)
            raise WrongPhase(f"this {found.kind} is {state}", field="quote_id", hint="ask for a new quote")
        asked = (command.gpu_type, command.gpus, command.region or found.region)
        if asked != (found.gpu_type, found.gpus, found.region):
            words = f"it is for {found.gpus} {found.gpu_type} in {found.region}"
            raise Invalid(words, field="quote_id", hint="ask for exactly that")
        return found, replace(
            command,
            region=found.region,
            gpus_per_node=found.gpus_per_node,
            billing=Billing.SCHEDULED,
            starts_at=found.starts_at,
            ends_at=found.ends_at,
            duration_days=None,
        )

    async def begins_at(self, starts_at: Instant | None, drawn: Reservation | None) -> Instant | None:
        """When provisioning must begin for it to be ready by its start; not before what it draws from begins."""
        if starts_at is None:
            return None
        promised_from = 0 if drawn is None else (await self._booking(drawn)).from_at
        return max(self._clock.now(), promised_from, starts_at - await self._reservations.lead())

    async def of_new(
        self, actor: Actor, project: Project, cluster: Cluster, gpus: int, drawn: Reservation | None
    ) -> Window | None:
        """The promise that a new cluster's term needs: the one it draws from, a new one, or none."""
        if drawn is not None:
            return await self.drawn(drawn, cluster)
        if cluster.spec.billing is Billing.ON_DEMAND:
            return None
        return await self.booked(actor, project, cluster, gpus)

    async def booked(self, actor: Actor, project: Project, cluster: Cluster, gpus: int) -> Window:
        spec = cluster.spec
        now, key = cluster.created_at, await self._reservations.booker.key(spec.region, spec.gpu_type, gpus)
        if spec.billing is Billing.RESERVED:
            until = now + PROVISION_LIMIT + (spec.duration_ms or 0)
            hosts = promised_workers(spec)
            ask, starts_at, kind = WindowAsk(key, hosts, now, until), now, ReservationKind.TERM
        else:
            starts_at, kind = spec.starts_at or now, ReservationKind.WINDOW
            ask = WindowAsk(key, spec.workers, spec.begins_at or starts_at, spec.ends_at or starts_at)
        bound = kind is ReservationKind.TERM
        reservation, booked = await self._reservations.promised(
            actor, project, kind, ask, starts_at, now, cluster_id=cluster.id, bound=bound
        )
        ops: list[Op] = [*booked.ops, Insert(reservation), Wake("reservation", reservation.id, reservation.ends_at)]
        return Window(reservation, booked.booking, ops)

    async def drawn(self, reservation: Reservation, cluster: Cluster) -> Window:
        """A quote or reservation becomes this cluster's."""
        booking = await self._booking(reservation)
        kind = ReservationKind.WINDOW
        after = changed(
            reservation,
            kind=kind,
            state=ReservationState.BOOKED,
            cluster_id=cluster.id,
            expires_at=None,
            updated_at=cluster.created_at,
        )
        wake = Wake("reservation", after.id, after.ends_at)
        return Window(after, booking, [Replace(after), wake])

    def accepting(self, window: Window | None) -> list[Op]:
        """What the accepting batch must hold. Hosts that are taken by now count as held, no longer as promised."""
        if window is None:
            return []
        self._capacity.lines.put(window.booking)
        return window.ops

    def lost(self, window: Window | None) -> None:
        """The accepting batch was refused, or nobody knows how it ended."""
        if window is not None:
            self._reservations.booker.lost(window.key)

    async def estimate(self, cluster: Cluster, ask: Ask) -> str:
        """When one that waits could have its hosts, in words, and why not before."""
        if cluster.spec.billing is not Billing.ON_DEMAND:
            return ""
        key = self._capacity.whole_host_key(ask.region, ask.gpu_type, ask.gpus_per_node)
        if key is not None:
            await self._capacity.look_at(key)  # what others were promised meanwhile counts
        later = self._capacity.later(ask)
        if later == ask.at:
            return ""  # it is its turn that it waits for, which the refusal says
        return f"; {when_free(later, ask.at)}"

    # ---- while it lives

    async def of(self, cluster: Cluster) -> Reservation | None:
        if cluster.spec.billing is Billing.ON_DEMAND:
            return None
        found = await self._reservations.of_cluster(cluster.id)
        return found if found is not None and found.open else None

    async def bind_ops(self, cluster: Cluster, bound: bool) -> list[Op]:
        """Its hosts are taken, or given back for a while; what the batch that says so must hold."""
        reservation = await self.of(cluster)
        if reservation is None:
            return []
        booking = await self._booking(reservation)
        if booking.bound == bound:
            return []
        booking = changed(booking, bound=bound)
        self._capacity.lines.put(booking)
        state = ReservationState.ACTIVE if bound else ReservationState.BOOKED
        return [Replace(booking), Replace(changed(reservation, state=state, updated_at=self._clock.now()))]

    async def end_ops(self, cluster: Cluster) -> list[Op]:
        """Nobody needs its promise any more: have it looked at."""
        reservation = await self.of(cluster)
        return [] if reservation is None else [Wake("reservation", reservation.id, self._clock.now())]

    def doubt(self, cluster: Cluster) -> None:
        """A batch that may have moved its promise, or its end, was refused: read the line again."""
        here = (cluster.region, cluster.spec.gpu_type)
        self._capacity.lines.doubt(key for key in self._capacity.line_keys() if key[:2] == here)

    async def moved_ops(self, cluster: Cluster, spec: ClusterSpec) -> list[Op]:
        """Another end: the promise follows it, and so does what is known of its hosts."""
        if spec.ends_at is None or spec.ends_at == cluster.ends_at:
            return []
        if spec.ends_at <= self._clock.now():
            raise Invalid("its end would be over already", field="ends_at", hint="delete it instead")
        if cluster.ends_at is None and cluster.spec.duration_ms is not None:
            raise WrongPhase("its term begins when it is first ready", field="ends_at", hint="move its end then")
        reservation = await self.of(cluster)
        ops: list[Op] = []
        if reservation is not None:
            _, ops = await self._reservations.moved(reservation, spec.ends_at, self._clock.now())
        leases = await self._store.find(Find(Lease, equals={"cluster_id": cluster.id}))
        own = [lease for lease in leases if lease.ends_at != ANY_TIME]
        guard = await self._held_longer(cluster, own, spec.ends_at)
        moved = [Replace(changed(lease, ends_at=spec.ends_at)) for lease in own]
        return [*(ops or guard), *moved]  # a promise that moves guards its line itself

    async def _held_longer(self, cluster: Cluster, leases: list[Lease], until: Instant) -> list[Op]:
        """What it holds it may hold for longer only where nobody else was promised it."""
        if cluster.ends_at is None or until <= cluster.ends_at:
            return []
        ids = sorted({lease.host_id for lease in leases})
        hosts = await self._store.find(Find(Host, one_of={"id": ids})) if ids else []
        lines = Counter(
            LineKey(host.region, host.gpu_type, host.slots, host.pool_id or "") for host in hosts if host.gpu_type
        )
        return await self._capacity.kept(lines, cluster.ends_at, until)

    async def _booking(self, reservation: Reservation) -> Booking:
        booking = await self._store.get(Booking, reservation.booking_id)
        if booking is None:
            raise WrongPhase(f"reservation {reservation.id} is {reservation.state} and holds nothing")
        return booking

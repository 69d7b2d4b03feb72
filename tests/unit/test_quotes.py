"""Reservations and quotes on a real store: what is promised is held, by this replica and by the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from muster.clock import SeededEntropy
from muster.contracts.reconciler import Gone, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Remove, Replace
from muster.core.accounts.service import AccountService
from muster.core.capacity.placement import Ask, Placement
from muster.core.capacity.reconcile import ReservationReconciler
from muster.core.capacity.reservations import QUOTE_HELD, Reservations, ReserveAsk
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import CatalogService
from muster.core.demo import demo_catalog
from muster.core.hosts.service import HostService, HostSpec
from muster.core.moments import iso
from muster.errors import Forbidden, Invalid, NotFound, OutOfStock, UniqueViolation, VersionMismatch, WrongPhase
from muster.model.accounts import SYSTEM, Actor, Role
from muster.model.base import DAY, HOUR, changed
from muster.model.capacity import Booking, Reservation, ReservationState
from muster.model.hosts import Lease
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock

GPU, REGION, OTHER = "H100_SXM", "Delhi", "Chennai"


class Replica:
    """One process's view of the shared store."""

    def __init__(self, store: SqliteStore, clock: ManualClock, seed: int) -> None:
        self.entropy = SeededEntropy(seed)
        self.store, self.clock = store, clock
        self.catalog = CatalogService(store, clock)
        self.capacity = Capacity(store)
        self.reservations = Reservations(store, clock, self.entropy, self.catalog, self.capacity)
        self.reconciler = ReservationReconciler(store, clock, self.reservations)

    async def take(self, hosts: int, ends_at: int | None = None) -> list[Lease]:
        """An on-demand ask, as the cluster service makes it."""
        placement = await self.capacity.place(Ask(REGION, GPU, 8, hosts, ends_at=ends_at, at=self.clock.now()))
        leases = self.leases(placement, ends_at)
        try:
            inserts = [Insert(lease) for lease in leases]
            await self.store.apply(Batch(Step.CLUSTER_ACCEPT, [*inserts, *self.capacity.guard(placement)]))
        except BaseException:
            self.capacity.give_back(placement)
            raise
        return leases

    def leases(self, placement: Placement, ends_at: int | None) -> list[Lease]:
        return [
            Lease(
                id=self.entropy.uuid(),
                host_id=grant.host_id,
                slots=grant.slots,
                node_id="n",
                cluster_id="c",
                project_id="p",
                taken_at=0,
                ends_at=ends_at,
            )
            for grant in placement.workers
        ]


class Cast:
    def __init__(self, store: SqliteStore) -> None:
        self.store, self.clock = store, ManualClock()
        self.here, self.there = Replica(store, self.clock, 1), Replica(store, self.clock, 2)
        self.tenant = SYSTEM

    async def furnish(self, hosts: int = 8, elsewhere: int = 0) -> None:
        await self.here.catalog.put_all(SYSTEM, demo_catalog(0))
        accounts = AccountService(self.store, self.clock, self.here.entropy)
        account = await accounts.create_account(SYSTEM, name="acme")
        project = await accounts.create_project(SYSTEM, account_id=account.id, name="lab")
        self.tenant = Actor(role=Role.ADMIN, name="ann", account_id=account.id, project_id=project.id)
        specs = [
            HostSpec(name=f"{region}-{n}", region=region, gpu_type=GPU, slots=8, cpus=192, memory_gib=2048)
            for region, count in ((REGION, hosts), (OTHER, elsewhere))
            for n in range(count)
        ]
        await HostService(self.store, self.clock, self.here.entropy).import_hosts(SYSTEM, specs)

    def ask(self, gpus: int, days: float = 1, *, after_days: float | None = 0, region: str = REGION) -> ReserveAsk:
        start = None if after_days is None else self.clock.now() + round(after_days * DAY)
        return ReserveAsk(GPU, gpus, round(days * DAY), region, 8, start)

    async def reserve(self, gpus: int, days: float = 1, after_days: float | None = 0) -> Reservation:
        return await self.here.reservations.reserve(self.tenant, self.ask(gpus, days, after_days=after_days))


Story = Callable[[Cast], Awaitable[None]]


def play(tmp_path: Path, story: Story, hosts: int = 8, elsewhere: int = 0) -> None:
    async def whole() -> None:
        store = SqliteStore.open(tmp_path / "m.db", inline=True)
        try:
            cast = Cast(store)
            await cast.furnish(hosts, elsewhere)
            await story(cast)
        finally:
            await store.close()

    asyncio.run(whole())


def test_a_window_is_promised_up_to_the_reservable_share(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.reserve(32, days=5, after_days=3)
        assert (made.hosts, made.state) == (4, ReservationState.BOOKED)
        with pytest.raises(OutOfStock) as refused:
            await cast.reserve(8, days=1, after_days=4)
        assert "32" not in refused.value.message
        later = refused.value.details["alternatives"][-1]
        assert later["kind"] == "later"
        assert later["starts_at"] >= iso(made.ends_at)
        assert "from" in (refused.value.hint or "")

    play(tmp_path, story)


def test_a_refusal_names_less_and_elsewhere(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        await cast.reserve(24)
        with pytest.raises(OutOfStock) as refused:
            await cast.reserve(16)
        kinds = {one["kind"]: one for one in refused.value.details["alternatives"]}
        assert kinds["smaller"]["gpus"] == 8
        assert kinds["elsewhere"]["region"] == OTHER
        assert kinds["later"]["gpus"] == 16
        assert (refused.value.hint or "").count("; or ") == 2

    play(tmp_path, story, elsewhere=8)


def test_on_demand_never_eats_a_promise_on_any_replica(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        # Of nine hosts one is kept back beside a promise.
        await cast.there.take(1)  # before anything is booked, so that both know the line as free
        await cast.reserve(32, days=2, after_days=10)
        with pytest.raises((OutOfStock, VersionMismatch)):
            await cast.there.take(4)
        with pytest.raises(OutOfStock, match="promised"):
            await cast.there.take(4)
        assert len(await cast.there.take(3)) == 3
        with pytest.raises((UniqueViolation, VersionMismatch)):
            await cast.here.take(1)  # it has not heard of the three yet: the database has
        with pytest.raises(OutOfStock, match="promised"):
            await cast.here.take(1)

    play(tmp_path, story, hosts=9)


def test_an_ask_that_ends_before_the_window_may_have_the_hosts(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        await cast.reserve(32, days=2, after_days=10)
        now = cast.clock.now()
        assert len(await cast.here.take(8, ends_at=now + 9 * DAY)) == 8

    play(tmp_path, story)


def test_on_demand_is_told_what_promises_leave_now_and_later(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.reserve(32, days=2, after_days=10)
        booking = (await cast.store.find(Find(Booking)))[0]
        await cast.here.take(3, ends_at=cast.clock.now() + DAY)
        with pytest.raises(OutOfStock, match="5 of 8 are free") as refused:
            await cast.here.take(6)
        assert refused.value.details["smaller"] == {
            "nodes": 3,
            "gpus": 24,
        }  # of five that are free one is promised, one a spare
        assert refused.value.details["later"] == iso(booking.until_at)
        assert booking.until_at >= made.ends_at
        assert "quote" in (refused.value.hint or "")

    play(tmp_path, story)


def test_on_demand_with_an_end_may_be_had_before_the_window(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        await cast.reserve(32, days=2, after_days=10)
        soon = cast.clock.now() + DAY
        await cast.here.take(8, ends_at=soon)
        with pytest.raises(OutOfStock) as refused:
            await cast.here.take(8, ends_at=cast.clock.now() + 3 * DAY)
        assert refused.value.details["smaller"] is None
        assert iso(soon) <= refused.value.details["later"] < iso(soon + HOUR)

    play(tmp_path, story)


def test_known_ends_make_room_for_windows_behind_them(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        await cast.here.take(8, ends_at=cast.clock.now() + 2 * DAY)
        with pytest.raises(OutOfStock):
            await cast.reserve(8, after_days=1)
        assert (await cast.reserve(32, after_days=2.1)).hosts == 4  # provisioning begins some minutes ahead
        # A replica that reads the fleet anew comes to the same.
        fresh = Replica(cast.store, cast.clock, 9)
        quote = await fresh.reservations.quote(cast.tenant, cast.ask(8, after_days=None))
        assert quote.starts_at >= cast.clock.now() + 3 * DAY

    play(tmp_path, story)


def test_without_an_end_what_is_held_is_held_for_ever(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        leases = await cast.here.take(6)
        with pytest.raises(OutOfStock):
            await cast.reserve(24, after_days=300)
        await cast.store.apply(Batch(Step.NODES_FREE, [Remove(Lease, lease.id) for lease in leases]))
        assert (await cast.reserve(24, after_days=300)).hosts == 3

    play(tmp_path, story)


def test_a_quote_holds_and_then_expires(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        quote = await cast.here.reservations.quote(cast.tenant, cast.ask(32, days=5, after_days=None))
        assert quote.state is ReservationState.HELD
        assert quote.starts_at == cast.clock.now()
        assert quote.price_micro
        assert quote.currency == "USD"
        with pytest.raises(OutOfStock):
            await cast.reserve(8)
        [claim] = await cast.store.claim(worker="w", now=cast.clock.now() + QUOTE_HELD, lease_ms=1_000, limit=9)
        outcome = await cast.there.reconciler.reconcile(quote.id, claim)
        assert isinstance(outcome, Wait)
        assert outcome.until == quote.expires_at
        cast.clock.advance(QUOTE_HELD / 1000)
        assert isinstance(await cast.there.reconciler.reconcile(quote.id, claim), Gone)
        after = await cast.here.reservations.reservation(cast.tenant, quote.id)
        assert after.state is ReservationState.EXPIRED
        assert (await cast.reserve(32)).hosts == 4

    play(tmp_path, story)


def test_without_a_region_the_quote_is_where_it_begins_first(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        await cast.reserve(32, days=5)
        quote = await cast.here.reservations.quote(cast.tenant, cast.ask(16, after_days=None, region=""))
        assert (quote.region, quote.starts_at) == (OTHER, cast.clock.now())

    play(tmp_path, story, elsewhere=8)


def test_extended_shortened_and_cancelled(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        service = cast.here.reservations
        first = await cast.reserve(32, days=2, after_days=1)
        second = await cast.reserve(32, days=2, after_days=5)
        longer = await service.extend(cast.tenant, first.id, first.ends_at + DAY)
        assert longer.ends_at == first.ends_at + DAY
        with pytest.raises(OutOfStock):
            await service.extend(cast.tenant, first.id, second.starts_at + DAY)
        assert (await service.reservation(cast.tenant, first.id)).ends_at == longer.ends_at
        await service.cancel(cast.tenant, second.id)
        assert (await service.extend(cast.tenant, first.id, second.starts_at + DAY)).version == 3
        assert len(await cast.store.find(Find(Booking))) == 1
        with pytest.raises(WrongPhase):
            await service.extend(cast.tenant, second.id, second.ends_at + DAY)

    play(tmp_path, story)


def test_availability_day_by_day(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        await cast.reserve(32, days=0.5, after_days=3.2)
        days = await cast.there.reservations.availability(region=REGION, days=6)
        assert [day.reservable_gpus for day in days] == [32, 32, 32, 0, 32, 32]
        assert [day.on_demand_gpus for day in days] == [
            64,
            64,
            64,
            24,
            64,
            64,
        ]  # beside a promise one host is kept back

    play(tmp_path, story)


def test_two_replicas_at_once_give_no_promise_twice(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        replicas = [cast.here, cast.there]
        answers = await asyncio.gather(
            *(replicas[n % 2].reservations.reserve(cast.tenant, cast.ask(8, after_days=1)) for n in range(8)),
            return_exceptions=True,
        )
        made = [one for one in answers if isinstance(one, Reservation)]
        assert len(made) == 4, answers
        assert all(isinstance(one, OutOfStock) for one in answers if not isinstance(one, Reservation))

    play(tmp_path, story)


def test_the_database_refuses_an_hour_over_the_limit_whatever_we_believe(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.reserve(32, after_days=1)
        booking = (await cast.store.find(Find(Booking)))[0]
        rogue = Booking(
            id="rogue",
            line_id=made.line_id,
            reservation_id="r",
            hosts=1,
            from_at=booking.until_at - HOUR,
            until_at=booking.until_at + HOUR,
        )
        with pytest.raises(UniqueViolation) as refused:
            await cast.store.apply(Batch(Step.RESERVATION_ACCEPT, [Insert(rogue)]))
        assert refused.value.rule == "calendar_cell"
        with pytest.raises(VersionMismatch):
            await cast.store.apply(Batch(Step.RESERVATION_ACCEPT, [Replace(changed(booking, hosts=1))]))
        await cast.store.apply(Batch(Step.RESERVATION_ACCEPT, [Remove(Booking, booking.id), Insert(rogue)]))

    play(tmp_path, story)


def test_the_operator_sets_the_share(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.reserve(32, after_days=1)
        service = cast.there.reservations
        assert [line.share_percent for line in await service.lines(SYSTEM)] == [50]
        await service.set_policy(SYSTEM, made.line_id, share_percent=100, spares=0)
        with pytest.raises(Forbidden):
            await service.set_policy(cast.tenant, made.line_id, share_percent=1, spares=0)
        assert (await cast.reserve(32, after_days=1)).hosts == 4

    play(tmp_path, story)


@pytest.mark.parametrize(
    "change", [{"gpus": 12}, {"lasts_ms": 0}, {"starts_at": -1, "lasts_ms": 500 * DAY}, {"gpu_type": "ABACUS"}]
)
def test_nonsense_is_refused_in_words(tmp_path: Path, change: dict[str, int]) -> None:
    async def story(cast: Cast) -> None:
        with pytest.raises(Invalid):
            await cast.here.reservations.reserve(
                cast.tenant, cast.ask(8, region="" if "gpu_type" in change else REGION)._replace(**change)
            )

    play(tmp_path, story)


def test_others_see_nothing(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.reserve(8)
        stranger = Actor(role=Role.ADMIN, name="eve", account_id="a", project_id="p")
        with pytest.raises(NotFound):
            await cast.here.reservations.cancel(stranger, made.id)

    play(tmp_path, story)


def test_a_process_that_has_read_no_line_yet_believes_nothing_of_it(tmp_path: Path) -> None:
    """Who has just started and is asked to draw from a promise knows the promise, not yet the line it is on."""

    async def story(cast: Cast) -> None:
        made = await cast.reserve(32)
        [booking] = await cast.store.find(Find(Booking))
        fresh = Replica(cast.store, cast.clock, 9)
        fresh.capacity.lines.put(booking)
        fresh.capacity.lines.drop(booking)
        with pytest.raises(OutOfStock):
            await fresh.reservations.reserve(cast.tenant, cast.ask(8))
        assert made.hosts == 4

    play(tmp_path, story)

"""Clusters in time, with the real engine under the virtual clock: reserved, scheduled, quoted, queued, extended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.contracts.faults import Fault, FaultKind
from muster.contracts.store import Find
from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.reservations import ReserveAsk
from muster.core.clusters.commands import UpdateCluster
from muster.core.moments import iso, said_at
from muster.errors import Invalid, NeverFits, NotFound, OutOfStock, WrongPhase
from muster.model.accounts import SYSTEM
from muster.model.base import DAY, HOUR, MINUTE
from muster.model.billing import Usage
from muster.model.capacity import Booking, ReservationState
from muster.model.clusters import Billing
from muster.model.hosts import Host, Lease
from muster.model.phases import Phase
from muster.testing.simulation.cast import GPU, REGION, Cast, play

WITH_SPARE = 9  # hosts of which eight can be had beside a promise: one is kept back for repairs


def test_a_scheduled_cluster_is_ready_by_its_start_and_goes_at_its_end(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        first = await cast.until(await cast.create("first"), Phase.READY)  # so that provisioning was measured
        now = cast.clock.now()
        starts_at, ends_at = now + 5 * HOUR, now + 8 * HOUR
        made = await cast.create("night", 32, billing=Billing.SCHEDULED, starts_at=starts_at, ends_at=ends_at)
        assert made.phase is Phase.SCHEDULED
        assert not await cast.leases(made)
        assert (await cast.look(first)).phase is Phase.READY
        ready = await cast.until(made, Phase.READY, hours=6)
        assert ready.status.first_ready_at is not None
        assert starts_at - HOUR <= ready.status.first_ready_at <= starts_at
        assert {lease.ends_at for lease in await cast.leases(made)} == {ends_at}
        assert (await cast.reservation(made)).state is ReservationState.ACTIVE
        gone = await cast.until(made, Phase.GONE, hours=6)
        assert ends_at <= (gone.gone_at or 0) <= ends_at + 10 * MINUTE
        events = await cast.house.store.events(after=0, limit=500, resource_id=made.id)
        notices = [event for event in events if event.type == "cluster.ending"]
        assert len(notices) == 1
        assert notices[0].at < ends_at
        await cast.clock.sleep(120)
        assert (await cast.reservation(made)).state is ReservationState.ENDED
        assert not await cast.house.store.find(Find(Booking))

    play(tmp_path, story)


def test_a_window_without_a_start_begins_at_once(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        now = cast.clock.now()
        made = await cast.create("now", 32, billing=Billing.SCHEDULED, ends_at=now + 5 * HOUR)
        again = await cast.create("now", 32, billing=Billing.SCHEDULED, ends_at=now + 5 * HOUR)
        assert again.id == made.id
        await cast.until(made, Phase.READY, hours=1)
        assert (await cast.reservation(made)).starts_at == made.created_at
        await cast.until(made, Phase.GONE, hours=6)

    play(tmp_path, story)


def test_what_is_scheduled_is_kept_from_on_demand(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        now = cast.clock.now()
        made = await cast.create(
            "later", 32, billing=Billing.SCHEDULED, starts_at=now + 5 * HOUR, ends_at=now + 8 * HOUR
        )
        with pytest.raises(OutOfStock, match="promised"):
            await cast.create("greedy", 40)
        brief = await cast.create("brief", 64, ends_at=now + 2 * HOUR)
        await cast.until(brief, Phase.READY)
        await cast.until(brief, Phase.GONE)
        await cast.create("modest", 32)
        await cast.until(made, Phase.READY, hours=5)

    play(tmp_path, story, hosts=WITH_SPARE)


def test_reserved_lasts_so_long_from_ready_gives_the_rest_back_and_is_extended(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.create("term", 16, billing=Billing.RESERVED, duration_days=0.25)
        ready = await cast.until(made, Phase.READY)
        assert ready.ends_at == (ready.status.first_ready_at or 0) + 6 * HOUR
        await cast.clock.sleep(700)
        assert (await cast.reservation(made)).ends_at == ready.ends_at
        longer = (ready.ends_at or 0) + HOUR
        await cast.house.clusters.update(cast.tenant, made.id, UpdateCluster(ends_at=longer))
        assert (await cast.reservation(made)).ends_at == longer
        assert {lease.ends_at for lease in await cast.leases(made)} == {longer}
        with pytest.raises(Invalid):
            await cast.house.clusters.update(cast.tenant, made.id, UpdateCluster(ends_at=longer + 999 * DAY))
        gone = await cast.until(made, Phase.GONE, hours=9)
        assert longer <= (gone.gone_at or 0) <= longer + 10 * MINUTE

    play(tmp_path, story)


def test_a_quote_becomes_a_cluster_by_its_id(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        ask = ReserveAsk(GPU, 32, 6 * HOUR, REGION)
        quote = await cast.house.reservations.quote(cast.tenant, ask)
        with pytest.raises(OutOfStock):
            await cast.house.reservations.quote(cast.tenant, ask._replace(starts_at=cast.clock.now()))
        made = await cast.create("quoted", 32, quote_id=quote.id)
        assert (await cast.create("quoted", 32, quote_id=quote.id)).id == made.id
        assert (await cast.reservation(made)).id == quote.id
        with pytest.raises(WrongPhase, match="taken"):
            await cast.create("again", 32, quote_id=quote.id)
        ready = await cast.until(made, Phase.READY)
        assert ready.ends_at == quote.ends_at
        with pytest.raises(NotFound):
            await cast.create("stranger", 32, quote_id="no-such-quote")

    play(tmp_path, story)


def test_deleting_gives_the_window_back(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        now = cast.clock.now()
        times = {"billing": Billing.SCHEDULED, "starts_at": now + DAY, "ends_at": now + 2 * DAY}
        made = await cast.create("window", 32, **times)
        with pytest.raises(OutOfStock):
            await cast.create("other", 32, **times)
        await cast.house.clusters.delete(cast.tenant, made.id)
        await cast.until(made, Phase.GONE)
        await cast.clock.sleep(5)
        other = await cast.create("other", 32, **times)
        assert other.phase is Phase.SCHEDULED

    play(tmp_path, story)


def test_who_waits_is_told_when_and_why_and_gets_it(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        now = cast.clock.now()
        brief = await cast.create("brief", 64, ends_at=now + 2 * HOUR)
        with pytest.raises(OutOfStock) as refused:
            await cast.create("waiting", 16)
        assert refused.value.details["later"] == iso(now + 2 * HOUR)
        waits = await cast.create("waiting", 16, queue=True)
        assert waits.phase is Phase.QUEUED
        words = f"0 of 8 are free in {REGION}; as things stand from {said_at(now + 2 * HOUR)}"
        assert waits.because.endswith(words)
        await cast.clock.sleep(30)
        told = await cast.look(waits)
        assert told.status.waiting_for.endswith(words)
        await cast.until(brief, Phase.GONE, hours=8)
        await cast.until(waits, Phase.READY)

    play(tmp_path, story)


def test_who_waits_first_is_not_overtaken_by_whoever_would_delay_it(tmp_path: Path) -> None:
    """A host is free after one hour, four after two: the first in line needs all five, the next one, for long."""

    async def story(cast: Cast) -> None:
        now = cast.clock.now()
        soon = await cast.create("soon", 8, ends_at=now + HOUR)
        later = await cast.create("later", 32, ends_at=now + 2 * HOUR)
        await cast.create("last", 24, ends_at=now + 12 * HOUR)
        large = await cast.create("large", 40, queue=True)
        small = await cast.create("small", 8, queue=True)
        await cast.until(soon, Phase.GONE, hours=8)
        await cast.clock.sleep(60)
        assert (await cast.look(small)).phase is Phase.QUEUED
        assert "wait longer" in (await cast.look(small)).status.waiting_for
        await cast.until(later, Phase.GONE, hours=8)
        await cast.until(large, Phase.READY)
        assert (await cast.look(small)).phase is Phase.QUEUED

    play(tmp_path, story)


def test_when_placement_refuses_all_the_service_does_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of the replay's test: both ask the same function."""
    plain = CapacityIndex.place

    async def story(cast: Cast) -> None:
        await cast.create("before", 8)
        monkeypatch.setattr(CapacityIndex, "place", lambda index, ask: plain(index, ask._replace(nodes=10_000)))
        with pytest.raises(NeverFits):
            await cast.create("after", 8)

    play(tmp_path, story)


def test_paused_and_resumed_a_reserved_cluster_keeps_its_place(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.create("term", 32, billing=Billing.RESERVED, duration_days=2)
        await cast.until(made, Phase.READY)
        await cast.house.clusters.pause(cast.tenant, made.id)
        await cast.until(made, Phase.PAUSED)
        while await cast.leases(made):
            await cast.clock.sleep(5)
        with pytest.raises(OutOfStock, match="promised"):
            await cast.create("greedy", 40)
        await cast.create("modest", 32)
        await cast.house.clusters.resume(cast.tenant, made.id)
        await cast.until(made, Phase.READY)

    play(tmp_path, story, hosts=WITH_SPARE)


def test_an_end_is_moved_only_where_it_is_known_and_paid_for(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        later = UpdateCluster(ends_at=cast.clock.now() + 9 * DAY)
        made = await cast.create("made", billing=Billing.RESERVED, duration_days=1)
        with pytest.raises(WrongPhase, match="first ready"):
            await cast.house.clusters.update(cast.tenant, made.id, later)
        ready = await cast.until(made, Phase.READY)
        with pytest.raises(Invalid, match="two wishes"):
            await cast.house.clusters.update(cast.tenant, made.id, replace(later, gpus=24))
        assert (await cast.look(made)).spec == ready.spec

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"billing": Billing.RESERVED}, "duration_days"),
        ({"billing": Billing.RESERVED, "duration_days": 9_999}, "duration_days"),
        ({"billing": Billing.SCHEDULED}, "ends_at"),
        ({"billing": Billing.SCHEDULED, "starts_at": 5}, "starts_at"),
        ({"starts_at": 5}, "starts_at"),
        ({"ends_at": 5}, "ends_at"),
    ],
)
def test_times_that_make_no_sense_are_refused(tmp_path: Path, fields: dict[str, Any], field: str) -> None:
    async def story(cast: Cast) -> None:
        with pytest.raises(Invalid) as refused:
            await cast.create("odd", **fields)
        assert refused.value.field == field

    play(tmp_path, story)


def test_the_engine_is_real(tmp_path: Path) -> None:
    """Two on the same hosts, one after the other: the second begins when the first has gone."""

    async def story(cast: Cast) -> None:
        now = cast.clock.now()
        a = await cast.create("a", 32, billing=Billing.SCHEDULED, starts_at=now + HOUR, ends_at=now + 3 * HOUR)
        b = await cast.create("b", 32, billing=Billing.SCHEDULED, starts_at=now + 5 * HOUR, ends_at=now + 7 * HOUR)
        await cast.create("c", 32)
        await asyncio.gather(cast.until(a, Phase.READY, hours=3), cast.until(b, Phase.READY, hours=6))

    play(tmp_path, story, hosts=WITH_SPARE)


def test_reserved_in_part_the_rest_is_on_demand(tmp_path: Path) -> None:
    """The reserved half is a promise; what is above it gives way to others' promises and is metered."""

    async def story(cast: Cast) -> None:
        made = await cast.create("half", 32, billing=Billing.RESERVED, duration_days=2, reserved_gpus=16)
        assert (await cast.reservation(made)).hosts == 2
        await cast.until(made, Phase.READY)
        usages = await cast.house.store.find(Find(Usage, equals={"resource_id": made.id, "closed_at": None}))
        assert {(usage.billing, usage.quantity) for usage in usages} == {("reserved", 2), ("on_demand", 2)}
        with pytest.raises(Invalid, match="reserved"):
            await cast.house.clusters.update(cast.tenant, made.id, UpdateCluster(gpus=8))
        await cast.house.clusters.pause(cast.tenant, made.id)
        while await cast.leases(made):
            await cast.clock.sleep(5)
        now = cast.clock.now()
        await cast.create("window", 16, billing=Billing.SCHEDULED, starts_at=now + DAY, ends_at=now + 2 * DAY)
        await cast.create("others", 32)
        back = await cast.house.clusters.resume(cast.tenant, made.id)
        assert back.spec.workers == 2, "what was promised to it, and no more is free"
        await cast.until(made, Phase.READY)
        assert (await cast.house.billing.verify(SYSTEM)).holds

    play(tmp_path, story, hosts=WITH_SPARE)


@pytest.mark.parametrize(
    "fields",
    [
        {"reserved_gpus": 8},
        {"billing": Billing.RESERVED, "duration_days": 1, "reserved_gpus": 4},
        {"billing": Billing.RESERVED, "duration_days": 1, "reserved_gpus": 24},
    ],
)
def test_a_part_that_makes_no_sense_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    async def story(cast: Cast) -> None:
        with pytest.raises(Invalid) as refused:
            await cast.create("odd", **fields)
        assert refused.value.field == "reserved_gpus"

    play(tmp_path, story)


def test_growth_never_eats_into_a_promise(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        grows = await cast.until(await cast.create("grows", 16), Phase.READY)
        now = cast.clock.now()
        window = await cast.create(
            "window", 32, billing=Billing.SCHEDULED, starts_at=now + 5 * HOUR, ends_at=now + 8 * HOUR
        )
        with pytest.raises(OutOfStock, match="promised"):
            await cast.house.clusters.update(cast.tenant, grows.id, UpdateCluster(gpus=40))
        await cast.house.clusters.update(cast.tenant, grows.id, UpdateCluster(gpus=32))
        await cast.until(window, Phase.READY, hours=5)

    play(tmp_path, story, hosts=WITH_SPARE)


def test_who_stays_longer_does_not_eat_into_a_promise(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        now = cast.clock.now()
        brief = await cast.until(await cast.create("brief", 40, ends_at=now + 3 * HOUR), Phase.READY)
        window = await cast.create(
            "window", 32, billing=Billing.SCHEDULED, starts_at=now + 5 * HOUR, ends_at=now + 8 * HOUR
        )
        with pytest.raises(OutOfStock, match="promised"):
            await cast.house.clusters.update(cast.tenant, brief.id, UpdateCluster(ends_at=now + 6 * HOUR))
        await cast.house.clusters.update(cast.tenant, brief.id, UpdateCluster(ends_at=now + 4 * HOUR))
        await cast.until(window, Phase.READY, hours=5)

    play(tmp_path, story)


def test_a_single_failure_is_made_up_from_the_spares(tmp_path: Path) -> None:
    """Spares are kept from everybody but the repairs of what was promised."""

    async def story(cast: Cast) -> None:
        made = await cast.create("term", 32, billing=Billing.RESERVED, duration_days=2, failover=True)
        line = (await cast.reservation(made)).line_id
        await cast.house.reservations.set_policy(SYSTEM, line, share_percent=50, spares=1)
        await cast.until(made, Phase.READY)
        with pytest.raises(OutOfStock, match="promised"):
            await cast.create("greedy", 32)
        await cast.create("others", 24)
        host = next(lease.host_id for lease in await cast.leases(made) if lease.slots.bit_count() == 8)
        await cast.image.desk.inject(Fault(kind=FaultKind.HOST_DEATH, target=host))
        await cast.until(made, Phase.DEGRADED)
        await cast.until(made, Phase.READY)
        assert host not in {lease.host_id for lease in await cast.leases(made)}

    play(tmp_path, story)


async def fill(cast: Cast) -> int:
    """On-demand takes whatever it is given, host by host. How many that were."""
    for taken in range(99):
        try:
            await cast.create(f"filler-{taken}", 8)
        except OutOfStock:
            return taken
    raise AssertionError("there is no end to it")


def test_on_a_small_full_fleet_a_single_failure_costs_no_running_promise(tmp_path: Path) -> None:
    """Nobody set a policy: what is kept back by itself makes up for the host that died."""

    async def story(cast: Cast) -> None:
        made = await cast.create("term", 32, billing=Billing.RESERVED, duration_days=2, failover=True)
        await cast.until(made, Phase.READY)
        assert await fill(cast) == 3
        host = next(lease.host_id for lease in await cast.leases(made) if lease.slots.bit_count() == 8)
        await cast.image.desk.inject(Fault(kind=FaultKind.HOST_DEATH, target=host))
        await cast.until(made, Phase.DEGRADED)
        await cast.until(made, Phase.READY)
        assert host not in {lease.host_id for lease in await cast.leases(made)}

    play(tmp_path, story)


def test_on_a_small_full_fleet_a_single_failure_costs_no_window_to_come(tmp_path: Path) -> None:
    """One of the idle hosts that the window would have had dies before it begins."""

    async def story(cast: Cast) -> None:
        starts_at = cast.clock.now() + 5 * HOUR
        window = await cast.create(
            "window", 32, billing=Billing.SCHEDULED, starts_at=starts_at, ends_at=starts_at + 3 * HOUR, failover=True
        )
        assert await fill(cast) == 3
        leased = {lease.host_id for lease in await cast.house.store.find(Find(Lease))}
        idle = [host for host in await cast.house.store.find(Find(Host)) if host.id not in leased]
        await cast.image.desk.inject(Fault(kind=FaultKind.HOST_DEATH, target=idle[0].id))
        ready = await cast.until(window, Phase.READY, hours=6)
        assert (ready.status.first_ready_at or 0) <= starts_at
        assert idle[0].id not in {lease.host_id for lease in await cast.leases(window)}

    play(tmp_path, story)


def test_an_extension_asks_only_for_what_is_new(tmp_path: Path) -> None:
    """With every host taken, a cluster that has its own may stay as long as nobody else was promised them."""

    async def story(cast: Cast) -> None:
        made = await cast.create("term", 32, billing=Billing.RESERVED, duration_days=0.25)
        await cast.create("others", 32)
        ready = await cast.until(made, Phase.READY)
        await cast.clock.sleep(700)
        assert (await cast.reservation(made)).ends_at == ready.ends_at
        assert {lease.ends_at for lease in await cast.leases(made)} == {ready.ends_at}
        longer = (ready.ends_at or 0) + DAY
        await cast.house.clusters.update(cast.tenant, made.id, UpdateCluster(ends_at=longer))
        assert (await cast.reservation(made)).ends_at == longer

    play(tmp_path, story, hosts=WITH_SPARE)

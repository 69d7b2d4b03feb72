"""The capacity service: an index that follows the database, and a database that has the last word."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.clock import SeededEntropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Remove
from muster.core.capacity import service as capacity_service
from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import Ask, Grant, Placement, Refusal
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import CatalogService
from muster.core.demo import demo_catalog
from muster.core.hosts.service import HostService, HostSpec
from muster.core.moments import iso, said_at
from muster.errors import NeverFits, OutOfStock, Unavailable, UniqueViolation
from muster.model.accounts import SYSTEM
from muster.model.base import HOUR
from muster.model.hosts import Host, HostHealth, HostRole, Lease
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock

WHOLE = Ask("Delhi", "H100_SXM", 8, 1)
NOW = 1000 * HOUR


def gpu_host(n: int, region: str = "Delhi") -> HostSpec:
    return HostSpec(
        name=f"{region.lower()}-{n}", region=region, gpu_type="H100_SXM", slots=8, cpus=192, memory_gib=2048
    )


def control_host(n: int) -> HostSpec:
    return HostSpec(name=f"control-{n}", region="Delhi", role=HostRole.CONTROL, slots=4, cpus=64, memory_gib=256)


class Fleet:
    """A store with hosts, and two replicas of the index on it."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        clock = ManualClock()
        self.entropy = SeededEntropy(1)
        self.hosts = HostService(store, clock, self.entropy)
        self.here = Capacity(store)
        self.there = Capacity(store)
        asyncio.run(CatalogService(store, clock).put_all(SYSTEM, demo_catalog(0)))

    async def enrol(self, *specs: HostSpec) -> list[Host]:
        return await self.hosts.import_hosts(SYSTEM, specs)

    async def lease(self, placement: Placement) -> list[Lease]:
        """What a service does with a placement: every grant a lease, in one batch."""
        leases = [
            Lease(
                id=self.entropy.uuid(),
                host_id=host_id,
                slots=slots,
                node_id="n",
                cluster_id="c",
                project_id="p",
                taken_at=1,
            )
            for host_id, slots, _ in placement.workers + placement.control
        ]
        await self.store.apply(Batch(Step.CLUSTER_ACCEPT, [Insert(lease) for lease in leases]))
        return leases

    async def free(self, lease: Lease) -> None:
        await self.store.apply(Batch(Step.NODES_FREE, [Remove(Lease, lease.id)]))

    async def believed(self, capacity: Capacity) -> int:
        await capacity.sync()
        (row,) = [
            s for s in capacity.summary() if (s.region, s.gpu_type, s.gpus_per_node) == ("Delhi", "H100_SXM", 1)
        ]
        return row.free_nodes


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True, fsync=False)
    yield Fleet(store)
    asyncio.run(store.close())


def test_a_grant_is_believed_taken_before_it_is_written(fleet: Fleet) -> None:
    async def story() -> None:
        await fleet.enrol(gpu_host(0), gpu_host(1))
        first, second = await fleet.here.place(WHOLE), await fleet.here.place(WHOLE)
        assert first.workers[0].host_id != second.workers[0].host_id
        with pytest.raises(OutOfStock):
            await fleet.here.place(WHOLE)
        fleet.here.give_back(first)
        assert await fleet.here.place(WHOLE) == first

    asyncio.run(story())


def test_what_was_given_back_though_it_was_written_is_found_out(fleet: Fleet) -> None:
    """A caller that was cancelled cannot know whether its batch went through; the database does."""

    async def story() -> None:
        await fleet.enrol(gpu_host(0))
        placement = await fleet.here.place(WHOLE)
        await fleet.lease(placement)
        await fleet.here.sync()
        fleet.here.give_back(placement)
        with pytest.raises(OutOfStock):
            await fleet.here.place(WHOLE)

    asyncio.run(story())


def test_a_replica_follows_what_another_takes_frees_and_enrols(fleet: Fleet) -> None:
    async def story() -> None:
        await fleet.enrol(gpu_host(0))
        assert [await fleet.believed(fleet.here), await fleet.believed(fleet.there)] == [8, 8]
        (lease,) = await fleet.lease(await fleet.there.place(WHOLE._replace(gpus_per_node=2)))
        assert [await fleet.believed(fleet.here), await fleet.believed(fleet.there)] == [6, 6]
        (host,) = await fleet.enrol(gpu_host(1))
        await fleet.lease(await fleet.there.place(WHOLE))
        assert [await fleet.believed(fleet.here), await fleet.believed(fleet.there)] == [6, 6]
        await fleet.free(lease)
        assert [await fleet.believed(fleet.here), await fleet.believed(fleet.there)] == [8, 8]
        await fleet.hosts.cordon(SYSTEM, "delhi-0", "fan")
        assert await fleet.believed(fleet.here) == 0
        await fleet.hosts.uncordon(SYSTEM, "delhi-0")
        await fleet.hosts.mark_health(host.id, HostHealth.DEAD, "silent")
        assert await fleet.believed(fleet.here) == 8

    asyncio.run(story())


def test_an_index_far_behind_reads_the_fleet_anew(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_service, "LINES_PER_READ", 5)
    monkeypatch.setattr(capacity_service, "LINES_BEHIND_MAX", 12)
    monkeypatch.setattr(capacity_service, "HOSTS_PER_READ", 3)

    async def story() -> None:
        await fleet.enrol(gpu_host(0))
        assert await fleet.believed(fleet.here) == 8
        await fleet.enrol(*(gpu_host(n) for n in range(1, 9)))  # a few lines behind: followed
        await fleet.lease(await fleet.there.place(WHOLE._replace(nodes=2)))
        assert await fleet.believed(fleet.here) == 7 * 8
        await fleet.enrol(*(gpu_host(n) for n in range(9, 40)))  # many: read anew
        await fleet.lease(await fleet.there.place(WHOLE._replace(nodes=3)))
        assert await fleet.believed(fleet.here) == 35 * 8

    asyncio.run(story())


def test_an_index_whose_next_lines_were_forgotten_reads_the_fleet_anew(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity_service, "LINES_BEHIND_MAX", 12)

    async def story() -> None:
        await fleet.enrol(gpu_host(0))
        assert await fleet.believed(fleet.here) == 8
        await fleet.enrol(*(gpu_host(n) for n in range(1, 40)))
        assert await fleet.store.prune_capacity_log(5, 1_000) > 30
        assert await fleet.believed(fleet.here) == 40 * 8

    asyncio.run(story())


@pytest.mark.parametrize("gpus", [8, 2])
def test_two_replicas_fill_the_fleet_to_the_last_slot_and_nothing_is_given_twice(fleet: Fleet, gpus: int) -> None:
    """Neither tells the other before it writes: the database refuses, the refused look again, and all is sold."""
    ask = WHOLE._replace(gpus_per_node=gpus)
    won: list[Lease] = []

    async def sell(capacity: Capacity) -> None:
        while True:
            try:
                placement = await capacity.place(ask)
            except OutOfStock:
                return
            await asyncio.sleep(0)  # the other replica places meanwhile, on what it believes
            try:
                won.extend(await fleet.lease(placement))
            except UniqueViolation as refused:
                refusals.append(refused.rule)
                await capacity.refused(placement)

    async def story() -> None:
        await fleet.enrol(*(gpu_host(n) for n in range(12)))
        await asyncio.gather(*(sell(capacity) for capacity in (fleet.here, fleet.there) * 3))

    refusals: list[str] = []
    asyncio.run(story())
    slots = [(lease.host_id, slot) for lease in won for slot in range(8) if lease.slots >> slot & 1]
    assert len(slots) == len(set(slots)) == 12 * 8
    assert set(refusals) == {"lease_slot"}, "the replicas never met: this test shows nothing"
    assert asyncio.run(fleet.store.count(Find(Lease))) == 12 * 8 // gpus


def test_what_can_never_fit_is_told_apart_from_what_does_not_fit_now(fleet: Fleet) -> None:
    async def story() -> None:
        await fleet.enrol(gpu_host(0), gpu_host(1), gpu_host(0, "Chennai"), control_host(0))
        await fleet.here.fits_ever(WHOLE._replace(nodes=2, control=4))
        for never in (
            WHOLE._replace(nodes=3),
            WHOLE._replace(gpus_per_node=16),
            WHOLE._replace(gpu_type="L40_PCIE"),
            WHOLE._replace(control=5),
        ):
            with pytest.raises(NeverFits):
                await fleet.here.fits_ever(never)
            with pytest.raises(NeverFits):
                await fleet.here.place(never)
        await fleet.here.place(WHOLE)
        await fleet.here.fits_ever(WHOLE._replace(nodes=2))
        with pytest.raises(OutOfStock):
            await fleet.here.place(WHOLE._replace(nodes=2))

    asyncio.run(story())


def test_a_host_enrolled_a_moment_ago_is_not_overlooked(fleet: Fleet) -> None:
    async def story() -> None:
        await fleet.here.ready()
        await fleet.enrol(gpu_host(0))
        await fleet.here.fits_ever(WHOLE)

    asyncio.run(story())


def test_cordoned_hosts_may_serve_again_but_dead_ones_are_not_counted_on(fleet: Fleet) -> None:
    async def story() -> None:
        cordoned, dead = await fleet.enrol(gpu_host(0), gpu_host(1))
        await fleet.hosts.cordon(SYSTEM, cordoned.id, "fan")
        await fleet.hosts.mark_health(dead.id, HostHealth.DEAD, "silent")
        await fleet.here.fits_ever(WHOLE)
        with pytest.raises(OutOfStock):
            await fleet.here.place(WHOLE)
        with pytest.raises(NeverFits):
            await fleet.here.fits_ever(WHOLE._replace(nodes=2))

    asyncio.run(story())


def test_a_refusal_says_what_is_nearest(fleet: Fleet) -> None:
    async def story() -> OutOfStock:
        await fleet.enrol(*(gpu_host(n) for n in range(3)), gpu_host(0, "Chennai"), gpu_host(1, "Chennai"))
        await fleet.here.place(WHOLE)
        with pytest.raises(OutOfStock) as refused:
            await fleet.here.place(WHOLE._replace(nodes=3))
        return refused.value

    error = asyncio.run(story())
    assert error.message == "3 nodes of 8 x H100_SXM asked for; 2 of 3 are free in Delhi"
    assert error.hint is not None
    assert error.hint.startswith("Chennai has 2 such nodes free; or ask for at most 2 nodes (16 GPUs) here")
    assert error.details["elsewhere"] == [{"region": "Chennai", "free_nodes": 2}]
    assert (error.details["free_nodes"], error.details["total_nodes"]) == (2, 3)
    assert error.details["smaller"] == {"nodes": 2, "gpus": 16}
    assert error.details["later"] is None
    assert error.hint.endswith("nobody knows when, for what is held has no end (a new cluster may queue for it)")


def refused(fleet: Fleet, *held: tuple[int, int, int | None], ask: Ask) -> OutOfStock:
    """What one is told who comes to two hosts when (nodes, GPUs each, until when) of them are held."""

    async def story() -> OutOfStock:
        await fleet.enrol(gpu_host(0), gpu_host(1))
        for nodes, gpus, ends_at in held:
            await fleet.here.place(WHOLE._replace(nodes=nodes, gpus_per_node=gpus, at=NOW, ends_at=ends_at))
        with pytest.raises(OutOfStock) as told:
            await fleet.here.place(ask)
        return told.value

    return asyncio.run(story())


def test_a_refusal_says_from_when_all_of_it_could_be_had(fleet: Fleet) -> None:
    ask = WHOLE._replace(nodes=2, at=NOW)
    error = refused(fleet, (1, 8, NOW + 2 * HOUR), (1, 8, NOW + 5 * HOUR), ask=ask)
    assert error.details["later"] == iso(NOW + 5 * HOUR)
    assert error.details["smaller"] is None
    assert error.hint == (
        f"wait for all of it here: as things stand from {said_at(NOW + 5 * HOUR)} "
        "(a new cluster may queue for it, a quote promises its start)"
    )


def test_slices_are_counted_host_by_host_as_they_come_free(fleet: Fleet) -> None:
    """Two of four GPUs each: the first host has half of it free at three, the other half at four."""
    held = [(2, 4, None), (1, 4, NOW + 3 * HOUR), (1, 2, NOW + 4 * HOUR), (1, 2, NOW + 3 * HOUR)]
    error = refused(fleet, *held, ask=WHOLE._replace(gpus_per_node=4, nodes=2, at=NOW))
    assert error.details["later"] == iso(NOW + 4 * HOUR)
    assert "quote" not in (error.hint or "")  # for nobody is promised a part of a host


def test_an_end_that_passed_long_ago_is_no_end(fleet: Fleet) -> None:
    ask = WHOLE._replace(nodes=2)
    error = refused(fleet, (1, 8, NOW + HOUR), ask=ask._replace(at=NOW + 2 * HOUR - 1))
    assert error.details["later"] == iso(NOW + 2 * HOUR - 1)
    assert "as things stand at any moment" in (error.hint or "")
    with pytest.raises(OutOfStock) as told:
        asyncio.run(fleet.here.place(ask._replace(at=NOW + 2 * HOUR)))
    assert told.value.details["later"] is None


def test_what_never_fits_has_no_later(fleet: Fleet) -> None:
    async def story() -> NeverFits:
        await fleet.enrol(gpu_host(0), gpu_host(1))
        await fleet.here.place(WHOLE._replace(at=NOW, ends_at=NOW + HOUR))
        with pytest.raises(NeverFits) as told:
            await fleet.here.fits_ever(WHOLE._replace(nodes=3, at=NOW))
        return told.value

    error = asyncio.run(story())
    assert (error.details["smaller"], error.details["later"]) == ({"nodes": 1, "gpus": 8}, None)
    assert error.hint == "ask for at most 2 nodes (16 GPUs) here"


def test_missing_control_slices_are_named(fleet: Fleet) -> None:
    async def story() -> None:
        await fleet.enrol(*(gpu_host(n) for n in range(3)), control_host(0))
        await fleet.here.place(WHOLE._replace(control=3))
        with pytest.raises(OutOfStock, match="2 control slices are needed; 1 are free in Delhi"):
            await fleet.here.place(WHOLE._replace(control=2))

    asyncio.run(story())


def test_a_repair_does_not_land_where_it_came_from(fleet: Fleet) -> None:
    async def story() -> None:
        first, second = await fleet.enrol(gpu_host(0), gpu_host(1))
        placement = await fleet.here.place(WHOLE._replace(avoid=frozenset({first.id})))
        assert placement.workers == (Grant(second.id, 0xFF, second.name),)
        with pytest.raises(OutOfStock):
            await fleet.here.place(WHOLE._replace(avoid=frozenset({first.id})))

    asyncio.run(story())


def test_the_summary_counts_every_shape_and_no_control_host(fleet: Fleet) -> None:
    async def story() -> None:
        with pytest.raises(Unavailable):
            fleet.here.summary()
        await fleet.enrol(gpu_host(0), gpu_host(1), gpu_host(0, "Chennai"), control_host(0))
        await fleet.here.place(WHOLE._replace(gpus_per_node=1))
        assert [tuple(row) for row in fleet.here.summary()] == [
            ("Chennai", "H100_SXM", 1, 8, 8),
            ("Chennai", "H100_SXM", 2, 4, 4),
            ("Chennai", "H100_SXM", 4, 2, 2),
            ("Chennai", "H100_SXM", 8, 1, 1),
            ("Delhi", "H100_SXM", 1, 15, 16),
            ("Delhi", "H100_SXM", 2, 7, 8),
            ("Delhi", "H100_SXM", 4, 3, 4),
            ("Delhi", "H100_SXM", 8, 1, 2),
        ]
        assert fleet.here.regions_by_free("H100_SXM", 4) == [("Delhi", 3), ("Chennai", 2)]

    asyncio.run(story())


def test_callers_who_wait_together_share_one_reading(fleet: Fleet) -> None:
    """Each knows what was committed before it asked; nobody reads the log once per caller."""

    class Counted(SqliteStore):
        readings = 0

        async def capacity_log(self, after: int, limit: int):  # type: ignore[no-untyped-def]
            Counted.readings += 1
            await asyncio.sleep(0)
            return await super().capacity_log(after, limit)

    async def story(store: SqliteStore) -> None:
        capacity = Capacity(store)
        await capacity.ready()
        Counted.readings = 0
        await asyncio.gather(*(capacity.sync() for _ in range(50)))
        assert Counted.readings <= 2

    store = Counted.open(":memory:", inline=True)
    asyncio.run(story(store))
    asyncio.run(store.close())


def test_slots_of_a_host_not_heard_of_yet_do_no_harm() -> None:
    index = CapacityIndex()
    index.take([Grant("unknown", 1)])
    index.free("unknown", 1)
    index.drop_host("unknown")
    assert len(index) == 0
    assert "unknown" not in index


def _host(name: str, slots: int) -> Host:
    return Host(
        id=name,
        name=name,
        region="r",
        gpu_type="g",
        slots=slots,
        cpus=1,
        memory_gib=1,
        substrate="simulated",
        created_at=0,
    )


def test_what_the_log_tells_us_of_our_own_grants_is_known_and_nothing_else() -> None:
    index = CapacityIndex()
    index.set_host(_host("h", 8))
    index.take([Grant("h", 0b11)])
    index.take([Grant("h", 0b100)], ends_at=9)
    assert index.knows("h", 0b100, 9)
    assert not index.knows("h", 0b100, None), "its end was taken back"
    assert not index.knows("h", 0b100, 10), "it was extended"
    assert not index.knows("h", 0b1000, None), "another replica took it"
    assert not index.knows("unknown", 1, None)


def test_a_size_of_host_that_comes_or_goes_is_noticed_by_the_next_decision() -> None:
    index = CapacityIndex()
    ask = Ask("r", "g", 4, 1)
    index.set_host(_host("small", 4))
    assert index.place(ask).workers[0].host_id == "small"
    index.drop_host("small")
    assert isinstance(index.place(ask), Refusal)
    index.set_host(_host("large", 8))
    assert index.place(ask).workers[0].host_id == "large"

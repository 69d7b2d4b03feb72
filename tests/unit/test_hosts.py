"""Hosts: enrolled by name, changed by importing again, set aside, never pulled from under a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.clock import SeededEntropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert
from muster.core.catalog.service import CatalogService
from muster.core.demo import demo_catalog, demo_fleet, demo_hosts
from muster.core.hosts.service import EVENTS_PER_BATCH_MAX, HOSTS_PER_BATCH, HostService, HostSpec
from muster.errors import Forbidden, Invalid, NotFound, Protected
from muster.model.accounts import SYSTEM, Actor, Role
from muster.model.events import Event
from muster.model.hosts import Host, HostHealth, HostRole, Lease
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock

ADMIN = Actor(role=Role.ADMIN, name="ada", account_id="a", project_id="p")
SPEC = HostSpec(name="gpu-1", region="Delhi", gpu_type="H100_SXM", slots=8, cpus=192, memory_gib=2048)


class Desk:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.service = HostService(store, self.clock, SeededEntropy(1), "simulated")
        asyncio.run(CatalogService(store, self.clock).put_all(SYSTEM, demo_catalog(0)))

    def imported(self, *specs: HostSpec) -> list[Host]:
        return asyncio.run(self.service.import_hosts(SYSTEM, specs))

    def lease(self, host: Host, slots: int) -> None:
        lease = Lease(id="l", host_id=host.id, slots=slots, node_id="n", cluster_id="c", project_id="p", taken_at=1)
        asyncio.run(self.store.apply(Batch(Step.CLUSTER_ACCEPT, [Insert(lease)])))

    def events(self) -> list[Event]:
        return asyncio.run(self.store.events(after=0, limit=1_000, kind="host"))

    def known(self) -> list[Host]:
        return asyncio.run(self.store.find(Find(Host)))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True, fsync=False)
    yield Desk(store)
    asyncio.run(store.close())


def test_an_import_enrols_and_a_second_one_changes_only_what_differs(desk: Desk) -> None:
    (first,) = desk.imported(SPEC)
    assert (first.name, first.substrate, first.usable, first.version) == ("gpu-1", "simulated", True, 1)
    (same,) = desk.imported(SPEC)
    assert same == first
    (second,) = desk.imported(replace(SPEC, leaf="leaf-7", memory_gib=4096))
    assert (second.id, second.leaf, second.memory_gib, second.version) == (first.id, "leaf-7", 4096, 2)
    assert desk.known() == [second]
    assert [event.type for event in desk.events()] == ["host.enrolled", "host.changed"]
    assert desk.events()[0].message == "gpu-1: 8 x H100_SXM in Delhi, pod-0, leaf-0"


def test_a_change_of_a_cordoned_host_leaves_it_cordoned(desk: Desk) -> None:
    desk.imported(SPEC)
    asyncio.run(desk.service.cordon(SYSTEM, "gpu-1", "fan"))
    (host,) = desk.imported(replace(SPEC, cpus=96))
    assert (host.cordoned, host.cordon_reason, host.cpus) == (True, "fan", 96)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (replace(SPEC, name="two words"), "name"),
        (replace(SPEC, name=""), "name"),
        (replace(SPEC, region="Atlantis"), "region"),
        (replace(SPEC, gpu_type="ABACUS"), "gpu_type"),
        (replace(SPEC, gpu_type=""), "gpu_type"),
        (replace(SPEC, role=HostRole.CONTROL), "gpu_type"),
        (replace(SPEC, slots=0), "slots"),
        (replace(SPEC, slots=63), "slots"),
        (replace(SPEC, cpus=0), "cpus"),
    ],
)
def test_a_host_that_makes_no_sense_is_refused_and_nothing_is_written(desk: Desk, spec: HostSpec, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        desk.imported(replace(SPEC, name="good"), spec)
    assert refused.value.field == field
    assert desk.known() == []


def test_a_name_stands_once_in_an_import(desk: Desk) -> None:
    with pytest.raises(Invalid, match="twice"):
        desk.imported(SPEC, SPEC)


def test_a_host_never_shrinks_below_what_is_leased(desk: Desk) -> None:
    (host,) = desk.imported(SPEC)
    desk.lease(host, 0b0110)
    with pytest.raises(Protected, match="slot 2 is leased"):
        desk.imported(replace(SPEC, slots=2))
    (smaller,) = desk.imported(replace(SPEC, slots=3))
    assert smaller.slots == 3


@pytest.mark.parametrize("change", [{"region": "Chennai"}, {"gpu_type": "H200_SXM"}])
def test_a_leased_host_stays_what_was_leased(desk: Desk, change: dict[str, str]) -> None:
    (host,) = desk.imported(SPEC)
    desk.lease(host, 0b1)
    with pytest.raises(Protected) as refused:
        desk.imported(replace(SPEC, **change))
    assert refused.value.field == next(iter(change))
    assert desk.known() == [host]


def test_cordon_and_uncordon_by_name_or_id_leave_their_reason_behind(desk: Desk) -> None:
    (host,) = desk.imported(SPEC)
    cordoned = asyncio.run(desk.service.cordon(SYSTEM, "gpu-1", " a fan is loud "))
    assert (cordoned.usable, cordoned.cordon_reason) == (False, "a fan is loud")
    again = asyncio.run(desk.service.cordon(SYSTEM, host.id, "a fan is loud"))
    assert again == cordoned
    well = asyncio.run(desk.service.uncordon(SYSTEM, host.id))
    assert (well.usable, well.cordon_reason) == (True, "")
    assert [event.type for event in desk.events()] == ["host.enrolled", "host.cordoned", "host.uncordoned"]
    assert desk.events()[1].message == "gpu-1: a fan is loud"
    with pytest.raises(Invalid):
        asyncio.run(desk.service.cordon(SYSTEM, host.id, "  "))
    with pytest.raises(NotFound):
        asyncio.run(desk.service.cordon(SYSTEM, "gpu-2", "because"))


def test_what_the_system_saw_is_written_once(desk: Desk) -> None:
    (host,) = desk.imported(SPEC)
    for _ in range(2):
        dead = asyncio.run(desk.service.mark_health(host.id, HostHealth.DEAD, "no answer for 60 s"))
        assert (dead.health, dead.version) == (HostHealth.DEAD, 2)
    asyncio.run(desk.service.mark_health(host.id, HostHealth.OK, "answers again"))
    assert [(e.type, e.actor) for e in desk.events()[1:]] == [("host.dead", "system"), ("host.well", "system")]


def test_only_the_operator_sees_hosts(desk: Desk) -> None:
    desk.imported(SPEC)
    service = desk.service
    for call in (
        service.hosts(ADMIN),
        service.host(ADMIN, "gpu-1"),
        service.import_hosts(ADMIN, [SPEC]),
        service.import_fleet(ADMIN, [SPEC]),
        service.cordon(ADMIN, "gpu-1", "mine"),
        service.uncordon(ADMIN, "gpu-1"),
    ):
        with pytest.raises(Forbidden):
            asyncio.run(call)


def test_hosts_come_in_pages_by_region_and_role(desk: Desk) -> None:
    desk.imported(*demo_fleet(28))
    found: list[Host] = []
    cursor = None
    while True:
        page = asyncio.run(desk.service.hosts(SYSTEM, region="Delhi", role=HostRole.GPU, cursor=cursor, limit=3))
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(host.gpu_type for host in found) == sorted({host.gpu_type for host in found})
    assert len(found) == 7


def test_a_large_fleet_comes_in_batches_with_one_event_each(desk: Desk) -> None:
    hosts = HOSTS_PER_BATCH + EVENTS_PER_BATCH_MAX
    count = asyncio.run(desk.service.import_fleet(SYSTEM, demo_hosts(hosts)))
    assert count == len(desk.known()) > hosts
    events = desk.events()
    assert len(events) == 2
    assert sum(event.data["hosts"] for event in events) == count
    assert asyncio.run(desk.service.import_fleet(SYSTEM, demo_hosts(hosts))) == count
    assert len(desk.events()) == 2

"""The catalogue: lookups, edits seen at once here and soon elsewhere, and nothing removed from under its users."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.contracts.steps import Step
from muster.contracts.store import Batch, Insert
from muster.core.catalog.service import Catalog, CatalogService
from muster.core.demo import demo_catalog
from muster.errors import CallError, Forbidden, Invalid, NotFound, Protected, Stale
from muster.model.accounts import SYSTEM, Actor, Role
from muster.model.base import Noun
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region
from muster.model.clusters import Cluster, ClusterSpec, ClusterType
from muster.model.hosts import Host
from muster.model.phases import Phase
from muster.store.sqlite import SqliteStore
from muster.testing.clock import BIRTHDAY, ManualClock

ADMIN = Actor(role=Role.ADMIN, name="ada", account_id="a", project_id="p")


class Desk:
    """Two services on one store: two processes, as far as the catalogue is concerned."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.service = CatalogService(store, self.clock)
        self.other = CatalogService(store, self.clock)
        asyncio.run(self.service.put_all(SYSTEM, demo_catalog(self.clock.now())))

    def current(self) -> Catalog:
        return asyncio.run(self.service.current())

    def put(self, noun: Noun, **kwargs: int) -> Noun:
        return asyncio.run(self.service.put(SYSTEM, noun, **kwargs))

    def remove(self, noun: type[Noun], id: str) -> None:
        asyncio.run(self.service.remove(SYSTEM, noun, id))

    def insert(self, noun: Noun) -> None:
        asyncio.run(self.store.apply(Batch(Step.CATALOG_WRITE, [Insert(noun)])))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True, fsync=False)
    yield Desk(store)
    asyncio.run(store.close())


def a_cluster(catalog: Catalog, **fields: object) -> Cluster:
    image = catalog.newest_image("Delhi")
    assert image is not None
    spec = ClusterSpec(
        type=ClusterType.SLURM,
        region="Delhi",
        gpu_type="H100_SXM",
        instance_type="8xH100_SXM",
        workers=1,
        image_id=image.id,
    )
    cluster = Cluster(
        id="c",
        account_id="a",
        project_id="p",
        name="c",
        live_name="c",
        region="Delhi",
        phase=Phase.READY,
        phase_since=1,
        spec=spec,
        digest="",
        created_at=1,
        updated_at=1,
    )
    return replace(cluster, **fields)


def test_lookups(desk: Desk) -> None:
    catalog = desk.current()
    shape = catalog.instance_type_for("H100_SXM", 4)
    assert shape is not None
    assert shape.id == "4xH100_SXM"
    assert catalog.instance_type_for("H100_SXM", 3) is None
    assert {image.region for image in catalog.images_in("Delhi")} == {"Delhi"}
    assert catalog.images_in("nowhere") == ()
    newest = catalog.newest_image("Delhi")
    assert newest is not None
    assert (newest.cuda_version, newest.driver_version, newest.flavour) == ("13.0", "580", "base")
    assert catalog.newest_image("nowhere") is None


def test_an_image_by_its_versions_is_the_older_system_unless_one_is_named(desk: Desk) -> None:
    catalog = desk.current()
    bare, named = (catalog.image_for("Delhi", "12.8", "570", os) for os in (None, "ubuntu-24.04"))
    assert bare is not None
    assert named is not None
    assert (bare.os, named.os) == ("ubuntu-22.04", "ubuntu-24.04")
    assert catalog.image_for("Delhi", "12.8", "999") is None
    assert catalog.image_for("Delhi", "12.8", "570", "debian-12") is None


def test_newer_is_decided_by_number_not_by_letter(desk: Desk) -> None:
    newest = Image(id="i", region="Delhi", os="ubuntu-24.04", cuda_version="13.10", driver_version="1000")
    desk.put(newest)
    found = desk.current().newest_image("Delhi")
    assert found is not None
    assert found.id == "i"


def test_the_price_is_the_last_whose_time_had_come(desk: Desk) -> None:
    known = desk.current().price_of("8xH100_SXM", "Delhi", "on_demand", desk.clock.now())
    assert known is not None
    desk.put(replace(known, id="later", number=0, micro=1, valid_from=BIRTHDAY + 1_000))
    catalog = desk.current()
    before, after = (catalog.price_of("8xH100_SXM", "Delhi", "on_demand", BIRTHDAY + at) for at in (999, 1_000))
    assert before is not None
    assert after is not None
    assert (before.micro, after.micro) == (known.micro, 1)
    assert catalog.price_of("8xH100_SXM", "Delhi", "on_demand", BIRTHDAY - 1) is None
    term = catalog.price_of("8xH100_SXM", "Delhi", "reserved", BIRTHDAY, committed_days=30)
    assert term is not None
    assert term.unit == "term"


def test_an_edit_is_seen_here_at_once_and_elsewhere_within_two_seconds(desk: Desk) -> None:
    before = asyncio.run(desk.other.current())
    desk.put(Region(id="Pune"))
    assert "Pune" in desk.current().regions
    assert asyncio.run(desk.other.current()) is before
    desk.clock.advance(2)
    assert "Pune" in asyncio.run(desk.other.current()).regions


def test_nothing_is_read_again_when_nothing_was_edited(desk: Desk) -> None:
    before = desk.current()
    desk.clock.advance(60)
    assert desk.current() is before


def test_putting_again_is_the_next_version_under_the_same_number(desk: Desk) -> None:
    first = desk.current().regions["Delhi"]
    second = desk.put(Region(id="Delhi", title="New Delhi"))
    assert isinstance(second, Region)
    assert (second.version, second.number, second.title) == (first.version + 1, first.number, "New Delhi")
    with pytest.raises(Stale):
        desk.put(Region(id="Delhi", title="Old Delhi"), if_version=first.version)
    with pytest.raises(NotFound):
        desk.put(Region(id="Atlantis"), if_version=1)


def test_every_edit_is_an_event_with_its_actor(desk: Desk) -> None:
    desk.put(Region(id="Pune"))
    desk.remove(Region, "Pune")
    events = asyncio.run(desk.store.events(after=0, limit=10, kind="catalog"))
    assert [event.type for event in events] == ["catalog.written", "catalog.written", "catalog.removed"]
    assert {event.actor for event in events} == {"system"}
    assert events[-1].message == "region Pune removed"


@pytest.mark.parametrize(
    ("noun", "field"),
    [
        (Region(id="no spaces"), "id"),
        (InstanceType(id="x", gpu_type="NONE", gpus=1, cpus=1, memory_gib=1, scratch_gib=0), "gpu_type"),
        (InstanceType(id="x", gpu_type="H100_SXM", gpus=0, cpus=1, memory_gib=1, scratch_gib=0), "gpus"),
        (InstanceType(id="x", gpu_type="H100_SXM", gpus=8, cpus=1, memory_gib=1, scratch_gib=0), "gpus"),
        (Image(id="x", region="none", os="u", cuda_version="1", driver_version="1"), "region"),
        (Image(id="x", region="Delhi", os="u", cuda_version="latest", driver_version="1"), "cuda_version"),
        (Image(id="x", region="Delhi", os="u", cuda_version="1", driver_version="1", flavour="soup"), "flavour"),
        (Price(id="x", item="none", region="Delhi", micro=1, valid_from=0), "item"),
        (Price(id="x", item="volume", region="Delhi", micro=-1, valid_from=0), "micro"),
        (Price(id="x", item="volume", region="Delhi", micro=1, currency="dollar", valid_from=0), "currency"),
        (GpuType(id="x", title="x", memory_gib=0), "memory_gib"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused_with_its_field(desk: Desk, noun: Noun, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        desk.put(noun)
    assert refused.value.field == field


def test_only_the_operator_edits(desk: Desk) -> None:
    with pytest.raises(Forbidden):
        asyncio.run(desk.service.put(ADMIN, Region(id="Pune")))
    with pytest.raises(Forbidden):
        asyncio.run(desk.service.remove(ADMIN, Region, "Delhi"))


def refused(desk: Desk, noun: type[Noun], id: str) -> CallError:
    with pytest.raises(CallError) as error:
        desk.remove(noun, id)
    return error.value


def test_what_is_in_use_stays(desk: Desk) -> None:
    catalog = desk.current()
    cluster = a_cluster(catalog)
    desk.insert(cluster)
    for noun, id in ((InstanceType, "8xH100_SXM"), (Image, cluster.spec.image_id)):
        error = refused(desk, noun, id)
        assert isinstance(error, Protected)
        assert error.message.endswith("is in use by 1 clusters")
    region = refused(desk, Region, "Delhi")
    assert region.message == "region Delhi is in use by 13 images and 1 clusters"
    assert "4 instance types" in refused(desk, GpuType, "L40_PCIE").message


def test_what_nobody_uses_any_more_goes(desk: Desk) -> None:
    desk.insert(a_cluster(desk.current(), gone_at=2, live_name=None))
    desk.remove(InstanceType, "8xH100_SXM")
    assert "8xH100_SXM" not in desk.current().instance_types
    assert isinstance(refused(desk, InstanceType, "8xH100_SXM"), NotFound)
    assert isinstance(refused(desk, Host, "h"), NotFound)


def test_a_gpu_type_with_hosts_stays(desk: Desk) -> None:
    desk.put(GpuType(id="OURS", title="", memory_gib=24))
    host = Host(
        id="h", name="h", region="Delhi", gpu_type="OURS", slots=4, cpus=8, memory_gib=64, substrate="s", created_at=1
    )
    desk.insert(host)
    assert refused(desk, GpuType, "OURS").message == "gpu type OURS is in use by 1 hosts"

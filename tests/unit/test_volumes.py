"""The volume service against a real store and catalogue: what is accepted, repeated, refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.clock import SeededEntropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Remove, Replace
from muster.core.catalog.service import CatalogService
from muster.core.idempotency import REPEAT_WINDOW, Once
from muster.core.volumes.service import VolumeService
from muster.core.volumes.wishes import SIZE_GIB_MAX
from muster.errors import (
    CallError,
    Forbidden,
    IdempotencyMismatch,
    Invalid,
    NameTaken,
    NotFound,
    Protected,
    Stale,
    WrongPhase,
)
from muster.model.accounts import SYSTEM, Account, Actor, Project, Role
from muster.model.base import SECOND, changed
from muster.model.catalog import Region
from muster.model.clusters import Cluster, ClusterSpec, ClusterType
from muster.model.events import Request, RequestState
from muster.model.phases import Phase, VolumePhase
from muster.model.volumes import Attachment, Volume
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock

ADMIN = Actor(role=Role.ADMIN, name="ada", account_id="a", project_id="ours", key_id="k")
MEMBER = Actor(role=Role.MEMBER, name="mia", account_id="a", project_id="ours")
STRANGER = Actor(role=Role.ADMIN, name="eve", account_id="a", project_id="theirs")


class Desk:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.service = VolumeService(store, self.clock, SeededEntropy(1), CatalogService(store, self.clock))
        rows = [
            Account(id="a", name="a", created_at=1),
            Project(id="ours", account_id="a", name="ours", slug="ours", created_at=1),
            Project(id="theirs", account_id="a", name="theirs", slug="theirs", created_at=1),
            Region(id="eu-1"),
            Region(id="eu-2"),
        ]
        asyncio.run(store.apply(Batch(Step.ACCOUNT_WRITE, [Insert(row) for row in rows])))

    async def create(self, name: str = "data", actor: Actor = ADMIN, **more: object) -> Volume:
        wish = {"region": "eu-1", "size_gib": 100} | more
        return await self.service.create(actor, name=name, **wish)  # type: ignore[arg-type]

    async def made(self, volume: Volume) -> Volume:
        """As the reconciler would leave it."""
        ready = changed(volume, phase=VolumePhase.AVAILABLE, actual_gib=volume.size_gib)
        await self.store.apply(Batch(Step.VOLUME_RECORD, [Replace(ready)]))
        for request in await self.requests(volume.id):
            done = changed(request, state=RequestState.COMPLETED)
            await self.store.apply(Batch(Step.VOLUME_RECORD, [Replace(done)]))
        return ready

    async def requests(self, id: str) -> list[Request]:
        return await self.store.find(Find(Request, equals={"resource_id": id}, order="created_at"))

    async def due(self) -> set[tuple[str, str]]:
        claims = await self.store.claim(worker="w", now=self.clock.now(), lease_ms=1, limit=100)
        return {(claim.kind, claim.id) for claim in claims}

    async def mount(self, volume: Volume) -> Attachment:
        spec = ClusterSpec(
            type=ClusterType.SLURM, region="eu-1", gpu_type="H", instance_type="8xH", workers=1, image_id=""
        )
        cluster = Cluster(
            id="c1",
            account_id="a",
            project_id="ours",
            name="c1",
            live_name="c1",
            region="eu-1",
            phase=Phase.READY,
            phase_since=1,
            spec=spec,
            digest="",
            created_at=1,
            updated_at=1,
        )
        mount = Attachment(
            id="m1", volume_id=volume.id, cluster_id="c1", project_id="ours", mount_path="/home", created_at=1
        )
        await self.store.apply(Batch(Step.CLUSTER_ACCEPT, [Insert(cluster), Insert(mount)]))
        return mount


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True)
    yield Desk(store)
    asyncio.run(store.close())


def test_a_create_is_written_with_its_request_its_work_and_its_line(desk: Desk) -> None:
    async def story() -> None:
        volume = await desk.create(" data ", flavour="pfs")
        assert (volume.name, volume.live_name, volume.flavour, volume.number) == ("data", "data", "pfs", 1)
        assert (volume.phase, volume.account_id, volume.created_by) == (VolumePhase.PROVISIONING, "a", "ada")
        [request] = await desk.requests(volume.id)
        assert (request.operation, request.generation, request.state) == ("create", 1, RequestState.PENDING)
        assert await desk.due() == {("volume", volume.id)}
        [event] = await desk.store.events(after=0, limit=10)
        assert (event.type, event.actor, event.cause) == ("volume.created", "ada", "key k")
        assert event.data == {"size_gib": 100, "request_id": request.id}

    asyncio.run(story())


def test_the_same_create_again_is_the_first_one_for_ten_minutes(desk: Desk) -> None:
    async def story() -> None:
        first = await desk.create()
        desk.clock.advance(REPEAT_WINDOW / SECOND - 1)
        assert await desk.create() == first
        for other in ({"size_gib": 200}, {"region": "eu-2"}, {"flavour": "sfs"}):
            with pytest.raises(NameTaken) as taken:
                await desk.create(**other)
            assert taken.value.field == "name"
        desk.clock.advance(1)
        with pytest.raises(NameTaken):
            await desk.create()
        assert (await desk.create(actor=STRANGER)).id != first.id
        assert len(await desk.requests(first.id)) == 1

    asyncio.run(story())


def test_a_clients_own_key_is_kept_longer_than_that(desk: Desk) -> None:
    async def story() -> None:
        once = Once("key", "digest")
        first = await desk.create(once=once)
        desk.clock.advance(24 * 3600)
        assert await desk.create(once=once) == first
        with pytest.raises(IdempotencyMismatch):
            await desk.create("other", once=Once("key", "another digest"))
        assert (await desk.create(actor=STRANGER, once=Once("key", "mine"))).project_id == "theirs"

    asyncio.run(story())


def test_two_at_once_with_one_key_make_one_volume(desk: Desk) -> None:
    """The other call commits between our look and our write."""

    async def story() -> None:
        once = Once("key", "digest")
        raced: list[Volume] = []

        class Busy:
            def __getattr__(self, name: str) -> object:
                return getattr(desk.store, name)

            async def apply(self, batch: Batch) -> None:
                if not raced:
                    raced.append(await desk.create("one", once=once))
                await desk.store.apply(batch)

        catalog = CatalogService(desk.store, desk.clock)
        slow = VolumeService(Busy(), desk.clock, SeededEntropy(2), catalog)  # type: ignore[arg-type]
        mine = await slow.create(ADMIN, name="another", region="eu-1", size_gib=100, once=once)
        assert mine == raced[0]
        assert await desk.store.count(Find(Volume)) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"size_gib": 0}, "size_gib"),
        ({"size_gib": -5}, "size_gib"),
        ({"size_gib": SIZE_GIB_MAX + 1}, "size_gib"),
        ({"flavour": "chocolate"}, "flavour"),
        ({"region": "atlantis"}, "region"),
        ({"region": ""}, "region"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
    ],
)
def test_nonsense_names_its_field(desk: Desk, wish: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        asyncio.run(desk.create(**wish))  # type: ignore[arg-type]
    assert refused.value.field == field


def test_foreign_and_read_only_hands_are_kept_off(desk: Desk) -> None:
    async def story() -> None:
        volume = await desk.create()
        service = desk.service
        for foreign in (
            service.volume(STRANGER, volume.id),
            service.grow(STRANGER, volume.id, 200),
            service.delete(STRANGER, volume.id),
            service.attachments(STRANGER, volume.id),
            service.volumes(STRANGER, "ours"),
            desk.create("x", actor=STRANGER, project_id="ours"),
            desk.create("x", actor=SYSTEM, project_id="no-such"),
            service.volume(SYSTEM, "no-such"),
        ):
            with pytest.raises(NotFound):
                await foreign
        for forbidden in (
            desk.create("x", actor=MEMBER),
            service.grow(MEMBER, volume.id, 200),
            service.delete(MEMBER, volume.id),
        ):
            with pytest.raises(Forbidden):
                await forbidden
        assert await service.volume(MEMBER, volume.id) == volume
        assert (await service.volumes(STRANGER)).items == []
        assert (await service.volumes(SYSTEM)).items == [volume]
        with pytest.raises(Invalid):
            await desk.create("x", actor=SYSTEM)

    asyncio.run(story())


def test_growing_is_a_new_generation_with_its_own_request(desk: Desk) -> None:
    async def story() -> None:
        volume = await desk.made(await desk.create())
        await desk.mount(volume)
        desk.clock.advance(1)
        grown = await desk.service.grow(ADMIN, volume.id, 200, if_version=volume.version)
        assert (grown.size_gib, grown.actual_gib, grown.generation) == (200, 100, 2)
        assert [r.operation for r in await desk.requests(volume.id)] == ["create", "grow"]
        assert await desk.service.grow(ADMIN, volume.id, 200) == grown
        assert len(await desk.requests(volume.id)) == 2
        cluster = await desk.store.get(Cluster, "c1")
        assert cluster is not None
        assert cluster.version == 2, "the cluster's view shows the size"
        with pytest.raises(Invalid, match="shrinks"):
            await desk.service.grow(ADMIN, volume.id, 150)
        with pytest.raises(Stale):
            await desk.service.grow(ADMIN, volume.id, 300, if_version=volume.version)
        with pytest.raises(Invalid):
            await desk.service.grow(ADMIN, volume.id, SIZE_GIB_MAX + 1)

    asyncio.run(story())


def test_a_size_that_was_refused_may_be_asked_for_again(desk: Desk) -> None:
    async def story() -> None:
        volume = await desk.made(await desk.create())
        grown = await desk.service.grow(ADMIN, volume.id, 200)
        for request in await desk.requests(volume.id):
            failed = changed(request, state=RequestState.FAILED)
            await desk.store.apply(Batch(Step.VOLUME_RECORD, [Replace(failed)]))
        again = await desk.service.grow(ADMIN, volume.id, 200)
        assert again.generation == grown.generation + 1
        assert len(await desk.requests(volume.id)) == 3

    asyncio.run(story())


def test_deleting_frees_the_name_at_once_and_twice_is_once(desk: Desk) -> None:
    async def story() -> None:
        volume = await desk.made(await desk.create())
        with pytest.raises(Stale):
            await desk.service.delete(ADMIN, volume.id, if_version=99)
        ended = await desk.service.delete(ADMIN, volume.id, if_version=volume.version)
        assert (ended.delete_wished_at, ended.live_name) == (desk.clock.now(), None)
        assert ended.phase is VolumePhase.AVAILABLE, "the phase is the reconciler's to move"
        assert await desk.service.delete(ADMIN, volume.id) == ended
        assert [r.operation for r in await desk.requests(volume.id)].count("delete") == 1
        successor = await desk.create()
        assert successor.id != volume.id
        with pytest.raises(WrongPhase):
            await desk.service.grow(ADMIN, volume.id, 500)
        listed = await desk.service.volumes(ADMIN, name="data")
        assert {v.id for v in listed.items} == {volume.id, successor.id}

    asyncio.run(story())


def test_a_mounted_volume_stays(desk: Desk) -> None:
    async def story() -> None:
        volume = await desk.create()
        mount = await desk.mount(volume)
        assert await desk.service.attachments(ADMIN, volume.id) == [mount]
        with pytest.raises(Protected) as refused:
            await desk.service.delete(ADMIN, volume.id)
        assert refused.value.details == {"cluster_ids": ["c1"]}
        await desk.store.apply(Batch(Step.CLUSTER_GONE, [Remove(Attachment, mount.id)]))
        assert (await desk.service.delete(ADMIN, volume.id)).delete_wished_at is not None

    asyncio.run(story())


def test_a_volume_may_go_after_a_cluster_that_is_going(desk: Desk) -> None:
    """Terraform ends both in one breath: the cluster, and at once the volume it has mounted."""

    async def story() -> None:
        volume = await desk.made(await desk.create())
        mount = await desk.mount(volume)
        cluster = await desk.store.get(Cluster, "c1")
        assert cluster is not None
        going = changed(cluster, delete_wished_at=5, live_name=None)
        await desk.store.apply(Batch(Step.CLUSTER_WISH, [Replace(going)]))
        ended = await desk.service.delete(ADMIN, volume.id)
        assert (ended.delete_wished_at, ended.phase) == (desk.clock.now(), VolumePhase.AVAILABLE)
        assert await desk.service.attachments(ADMIN, volume.id) == [mount], "it is the cluster's to let go"
        told = await desk.store.get(Cluster, "c1")
        assert told is not None
        assert told.version == going.version + 1, "the cluster's view shows that its volume goes"

    asyncio.run(story())


def test_the_gone_are_not_found_and_not_listed(desk: Desk) -> None:
    async def story() -> None:
        volume = await desk.create()
        await desk.store.apply(
            Batch(Step.VOLUME_RECORD, [Replace(changed(volume, live_name=None, gone_at=5, phase=VolumePhase.GONE))])
        )
        for call in (
            desk.service.volume(ADMIN, volume.id),
            desk.service.delete(ADMIN, volume.id),
            desk.service.grow(ADMIN, volume.id, 200),
        ):
            with pytest.raises(NotFound):
                await call
        assert (await desk.service.volumes(ADMIN)).items == []

    asyncio.run(story())


def test_lists_come_in_pages_without_holes(desk: Desk) -> None:
    async def story() -> None:
        for n in range(5):
            await desk.create(f"v{n}")
        seen: list[str] = []
        cursor = None
        while True:
            page = await desk.service.volumes(ADMIN, limit=2, cursor=cursor)
            seen += [volume.name for volume in page.items]
            if (cursor := page.next_cursor) is None:
                break
        assert sorted(seen) == [f"v{n}" for n in range(5)]
        with pytest.raises(CallError):
            await desk.service.volumes(ADMIN, cursor="nonsense")

    asyncio.run(story())


def test_a_wish_is_made_anew_when_the_reconciler_was_quicker(desk: Desk) -> None:
    async def story() -> None:
        volume = await desk.create()
        raced: list[int] = []

        class Busy:
            def __getattr__(self, name: str) -> object:
                return getattr(desk.store, name)

            async def apply(self, batch: Batch) -> None:
                if len(raced) < 3:
                    raced.append(1)
                    now = await desk.service.volume(ADMIN, volume.id)
                    await desk.store.apply(Batch(Step.VOLUME_RECORD, [Replace(changed(now, because="busy"))]))
                await desk.store.apply(batch)

        catalog = CatalogService(desk.store, desk.clock)
        slow = VolumeService(Busy(), desk.clock, SeededEntropy(3), catalog)  # type: ignore[arg-type]
        grown = await slow.grow(ADMIN, volume.id, 200)
        assert (grown.size_gib, grown.because, grown.version) == (200, "busy", 5)

    asyncio.run(story())


def test_a_protected_volume_stays_until_the_protection_is_lifted(desk: Desk) -> None:
    async def told() -> None:
        volume = await desk.made(await desk.create(deletion_protection=True))
        with pytest.raises(Protected):
            await desk.service.delete(ADMIN, volume.id)
        lifted = await desk.service.edit(ADMIN, volume.id, deletion_protection=False)
        assert not lifted.deletion_protection
        assert (await desk.service.delete(ADMIN, volume.id)).delete_wished_at is not None

    asyncio.run(told())


def test_a_volume_is_renamed_unless_the_name_is_taken(desk: Desk) -> None:
    async def told() -> None:
        volume = await desk.create("one")
        await desk.create("two")
        renamed = await desk.service.edit(ADMIN, volume.id, name="three")
        assert (renamed.name, renamed.live_name, renamed.generation) == ("three", "three", volume.generation)
        assert await desk.service.edit(ADMIN, volume.id, name="three") == renamed
        with pytest.raises(NameTaken):
            await desk.service.edit(ADMIN, volume.id, name="two")
        with pytest.raises(Forbidden):
            await desk.service.edit(MEMBER, volume.id, name="four")
        with pytest.raises(NotFound):
            await desk.service.edit(STRANGER, volume.id, name="four")

    asyncio.run(told())

"""Clusters at the door: admission in one order, one create one cluster, wishes that are refused in words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from muster import app, settings
from muster.contracts.orchestrator import Orchestrator
from muster.contracts.store import Find
from muster.core.clusters.admission import check_features, check_image
from muster.core.clusters.commands import CreateCluster, MountWish, NewVolume, UpdateCluster
from muster.core.house import House
from muster.core.idempotency import Once
from muster.errors import (
    CallError,
    Forbidden,
    IdempotencyMismatch,
    Invalid,
    NameTaken,
    NeverFits,
    NotFound,
    OutOfStock,
    Protected,
    QuotaExceeded,
    Stale,
    Unsupported,
    WrongPhase,
)
from muster.model.accounts import SYSTEM, Actor, Role
from muster.model.clusters import Cluster, ClusterConfig, ClusterType, Node, Scripts
from muster.model.events import Request
from muster.model.hosts import Lease
from muster.model.phases import Phase
from muster.orchestrators.none import NoOrchestrator

DEMO = CreateCluster(name="demo", type=ClusterType.SLURM, region="Delhi", gpu_type="B200_SXM", gpus=8)


def tell(tmp_path: Path, story: Callable[[House, Actor], Awaitable[None]]) -> None:
    """The story, in a house without an engine: nothing moves by itself."""

    async def run() -> None:
        flags = {"home": str(tmp_path), "fleet": "simulated", "hosts": "64", "port": "0", "role": "api"}
        async with AsyncExitStack() as closing:
            running = await app.assemble(settings.read(flags, {}), closing)
            await running.house.capacity.ready()
            tenant = await running.house.accounts.authenticate((tmp_path / "tenant.key").read_text().strip())
            await story(running.house, tenant)

    asyncio.run(run())


def wish(**fields: Any) -> CreateCluster:
    import msgspec

    return msgspec.structs.replace(DEMO, **fields)


def test_a_create_is_one_batch_of_everything(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        cluster = await house.clusters.create(tenant, wish(gpus=16))
        nodes = await house.store.find(Find(Node, equals={"cluster_id": cluster.id}))
        leases = await house.store.find(Find(Lease, equals={"cluster_id": cluster.id}))
        [request] = await house.store.find(Find(Request, equals={"resource_id": cluster.id}))
        assert sorted(node.name for node in nodes) == ["controller", "login", "worker-0", "worker-1"]
        assert {node.lease_id for node in nodes} == {lease.id for lease in leases}
        assert sum(lease.slots.bit_count() for lease in leases) == 16 + 2
        assert request.operation == "create"
        assert cluster.number > 0
        events = await house.store.events(after=0, limit=10, resource_id=cluster.id)
        assert [event.type for event in events] == ["cluster.created"]

    tell(tmp_path, story)


def test_the_same_create_again_is_the_first_answer(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        first = await house.clusters.create(tenant, DEMO)
        assert (await house.clusters.create(tenant, DEMO)).id == first.id
        with pytest.raises(NameTaken):
            await house.clusters.create(tenant, wish(gpus=16))
        once = Once("key-1", "digest")
        second = await house.clusters.create(tenant, wish(name="other"), once)
        assert (await house.clusters.create(tenant, wish(name="other"), once)).id == second.id
        with pytest.raises(IdempotencyMismatch):
            await house.clusters.create(tenant, wish(name="third"), Once("key-1", "another digest"))
        assert await house.store.count(Find(Cluster)) == 2

    tell(tmp_path, story)


def test_many_at_once_make_one(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        made = await asyncio.gather(*(house.clusters.create(tenant, DEMO) for _ in range(12)))
        assert len({cluster.id for cluster in made}) == 1
        assert await house.store.count(Find(Lease)) == 3

    tell(tmp_path, story)


def test_a_name_comes_before_room_and_quota(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        await house.clusters.create(tenant, DEMO)
        with pytest.raises(NameTaken):
            await house.clusters.create(tenant, wish(gpus=8 * 4000))
        with pytest.raises(NeverFits):
            await house.clusters.create(tenant, wish(name="x", gpus=8 * 4000))
        assert tenant.project_id
        await house.accounts.update_project(SYSTEM, tenant.project_id, gpu_quota=8)
        with pytest.raises(NeverFits):
            await house.clusters.create(tenant, wish(name="x", gpus=8 * 4000))
        with pytest.raises(QuotaExceeded) as refused:
            await house.clusters.create(tenant, wish(name="x"))
        assert refused.value.details == {"quota": 8, "held": 8, "asked": 8, "left": 0}

    tell(tmp_path, story)


def test_a_quota_holds_under_concurrent_creates(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        assert tenant.project_id
        await house.accounts.update_project(SYSTEM, tenant.project_id, gpu_quota=16)
        tries = [
            house.clusters.create(tenant, wish(name=f"c{n}", region="us-central-8", gpu_type="H100_SXM"))
            for n in range(5)
        ]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(answer, Cluster) for answer in answers) == 2
        assert {type(answer) for answer in answers} <= {Cluster, QuotaExceeded, Stale}, answers

    tell(tmp_path, story)


def test_out_of_stock_says_what_is_nearest(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        rows = {(row.region, row.gpu_type, row.gpus_per_node): row for row in house.capacity.summary()}
        total = rows["Delhi", "B200_SXM", 8].total_nodes
        await house.clusters.create(tenant, wish(gpus=8 * total))
        with pytest.raises(OutOfStock) as refused:
            await house.clusters.create(tenant, wish(name="late"))
        assert refused.value.details["free_nodes"] == 0
        assert refused.value.details["elsewhere"]
        assert "free" in (refused.value.hint or "")

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({"name": " "}, Invalid, "name"),
        ({"name": "a/b"}, Invalid, "name"),
        ({"gpu_type": "GTX"}, Invalid, "gpu_type"),
        ({"gpus": 0}, Invalid, "gpus"),
        ({"gpus": 12}, Invalid, "gpus"),
        ({"gpus": 16, "gpus_per_node": 3}, Invalid, "gpus"),
        ({"region": "Mars"}, Invalid, "region"),
        ({"image_id": "nothing"}, Invalid, "image_id"),
        ({"billing": "reserved"}, CallError, None),
        ({"ends_at": 1}, Invalid, "ends_at"),
        ({"ends_at": 253_402_300_799_000}, Invalid, "ends_at"),  # year 9999: the calendar counts hours until then
        ({"region": "", "image_id": "nothing"}, Invalid, "image_id"),
        ({"config": ClusterConfig(shm_gib=0)}, Invalid, "config.shm_gib"),
        ({"config": ClusterConfig(load_balancer="f5")}, Invalid, "config.load_balancer"),
        ({"config": ClusterConfig(scripts=Scripts(worker_prolog="echo"))}, Invalid, "config.scripts.worker_prolog"),
        ({"mounts": (MountWish(volume_id="v", path="relative"),)}, Invalid, "mounts"),
        ({"mounts": (MountWish(volume_id="v", path="/etc/x"),)}, Invalid, "mounts"),
        ({"mounts": (MountWish(),)}, Invalid, "mounts"),
        ({"mounts": (MountWish(volume_id="unknown"),)}, NotFound, None),
        ({"security_group_ids": ("unknown",)}, NotFound, None),
        ({"ssh_key_ids": ("unknown",)}, NotFound, None),
        ({"ssh_keys": ("not a key",)}, Invalid, "public_key"),
    ],
)
def test_bad_wishes_are_refused_and_nothing_is_held(
    tmp_path: Path, fields: dict[str, Any], error: type[CallError], field: str | None
) -> None:
    async def story(house: House, tenant: Actor) -> None:
        with pytest.raises(error) as refused:
            await house.clusters.create(tenant, wish(**fields))
        if field is not None:
            assert refused.value.field == field
        assert await house.store.count(Find(Lease)) == 0
        free = {row.free_nodes == row.total_nodes for row in house.capacity.summary() if row.gpus_per_node == 8}
        assert free == {True}

    tell(tmp_path, story)


def test_slurm_scripts_on_kubernetes_are_refused_not_ignored(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        scripts = ClusterConfig(scripts=Scripts(worker_prolog="#!/bin/sh\n"))
        with pytest.raises(Unsupported):
            await house.clusters.create(tenant, wish(type=ClusterType.KUBERNETES, config=scripts))

    tell(tmp_path, story)


class _TwoImages(NoOrchestrator):
    async def images(self, type: ClusterType) -> frozenset[str] | None:
        return frozenset({"nemo", "bare"})


class _NotSaidNow(NoOrchestrator):
    async def images(self, type: ClusterType) -> frozenset[str] | None:
        return None


def test_an_unknown_image_is_refused_with_the_names_there_are() -> None:
    async def asked(name: str, orchestrator: Orchestrator) -> tuple[str, str] | None:
        try:
            await check_image(ClusterType.SLURM, name, orchestrator)
        except Invalid as refused:
            return refused.message, refused.hint or ""
        return None

    async def told() -> None:
        assert await asked("nemo", _TwoImages()) is None
        assert await asked("", NoOrchestrator()) is None, "the fleet's own has no name"
        assert await asked("nowhere", _NotSaidNow()) is None, "whoever makes the nodes will tell"
        assert await asked("nowhere", _TwoImages()) == ("this fleet has no image 'nowhere'", "one of bare, nemo")
        refusal = await asked("nowhere", NoOrchestrator())
        assert refusal is not None
        assert "none beside the fleet's own" in refusal[1]

    asyncio.run(told())


def test_without_a_fleet_the_refusal_says_so() -> None:
    with pytest.raises(Unsupported) as refused:
        check_features(ClusterType.SLURM, ClusterConfig(), NoOrchestrator())
    assert refused.value.hint == "there is none behind this server (--fleet none)"


def test_members_look_and_strangers_see_nothing(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        cluster = await house.clusters.create(tenant, DEMO)
        member = Actor(role=Role.MEMBER, name="m", account_id=tenant.account_id, project_id=tenant.project_id)
        stranger = Actor(role=Role.ADMIN, name="s", account_id="a", project_id="p")
        assert (await house.clusters.cluster(member, cluster.id)).id == cluster.id
        with pytest.raises(Forbidden):
            await house.clusters.delete(member, cluster.id)
        with pytest.raises(NotFound):
            await house.clusters.delete(stranger, cluster.id)
        with pytest.raises(NotFound):
            await house.clusters.rendered(stranger, cluster.id, "x", lambda view: b"secret")
        views, _ = await house.clusters.views(stranger)
        assert views == []

    tell(tmp_path, story)


def test_wishes_that_make_no_sense_now_are_refused(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        cluster = await house.clusters.create(tenant, wish(deletion_protection=True))
        with pytest.raises(WrongPhase):
            await house.clusters.update(tenant, cluster.id, UpdateCluster(gpus=16))
        with pytest.raises(WrongPhase):
            await house.clusters.pause(tenant, cluster.id)
        with pytest.raises(Protected):
            await house.clusters.delete(tenant, cluster.id)
        with pytest.raises(Stale):
            await house.clusters.update(tenant, cluster.id, UpdateCluster(failover=True), if_version=99)
        with pytest.raises(Invalid):
            await house.clusters.update(tenant, cluster.id, UpdateCluster(ends_at=253_402_300_799_000))
        freed = await house.clusters.update(tenant, cluster.id, UpdateCluster(deletion_protection=False))
        assert freed.generation == 2
        gone = await house.clusters.delete(tenant, cluster.id)
        assert gone.live_name is None
        assert (await house.clusters.delete(tenant, cluster.id)).version == gone.version
        again = await house.clusters.create(tenant, DEMO)
        assert again.id != cluster.id
        with pytest.raises(WrongPhase):
            await house.clusters.update(tenant, cluster.id, UpdateCluster(failover=True))

    tell(tmp_path, story)


def test_a_volume_can_be_made_with_its_cluster(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        new = NewVolume(name="data", size_gib=100, dies_with_cluster=True)
        cluster = await house.clusters.create(tenant, wish(mounts=(MountWish(new=new),)))
        view = await house.clusters.view(tenant, cluster.id)
        [(attachment, volume)] = view.mounts
        assert attachment.mount_path == "/home"
        assert attachment.dies_with_cluster
        assert (volume.name, volume.region, volume.size_gib) == ("data", "Delhi", 100)
        with pytest.raises(NameTaken):
            await house.clusters.create(tenant, wish(name="two", mounts=(MountWish(new=new),)))
        assert await house.store.count(Find(Cluster)) == 1

    tell(tmp_path, story)


def test_without_a_region_a_cluster_goes_where_its_volume_address_or_image_is(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        volume = await house.volumes.create(tenant, name="data", size_gib=100, region="Chennai")
        address = await house.access.reserve_ip(tenant, region="us-central-4")
        image = next(i for i in (await house.catalog.current()).images.values() if i.region == "Delhi")
        anywhere = await house.clusters.create(tenant, wish(region=""))
        assert anywhere.region == "us-central-8"
        ties = {
            "Chennai": {"mounts": (MountWish(volume_id=volume.id),)},
            "us-central-4": {"reserved_ip_id": address.id},
            "Delhi": {"image_id": image.id},
        }
        for region, tie in ties.items():
            made = await house.clusters.create(tenant, wish(name=region, region="", **tie))
            assert made.region == region

    tell(tmp_path, story)


def test_an_explanation_says_what_it_waits_for(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        cluster = await house.clusters.create(tenant, DEMO)
        told = await house.clusters.explain(tenant, cluster.id)
        assert (told.phase, told.because) == (Phase.NETWORK, "accepted")
        assert told.nodes == {"pending": 3}
        assert [step.type for step in told.steps] == ["cluster.created"]

    tell(tmp_path, story)

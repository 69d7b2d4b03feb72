"""What TIR's wire needed of the core: restarts in place, addresses that come and go, things by their numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from muster import app, settings
from muster.core.clusters.boots import EVERYONE, WORKERS
from muster.core.clusters.commands import CreateCluster, UpdateCluster
from muster.core.house import House
from muster.errors import Invalid, NotFound, Protected, WrongPhase
from muster.model.access import ReservedIp, SshKey
from muster.model.accounts import SYSTEM, Actor, Project
from muster.model.clusters import Cluster, ClusterType, NodeRole
from muster.model.phases import SERVING, NodePhase

DEMO = CreateCluster(name="demo", type=ClusterType.SLURM, region="Delhi", gpu_type="H100_SXM", gpus=16)
PATIENCE_SECONDS = 30.0

Story = Callable[[House, Actor], Awaitable[None]]


def tell(tmp_path: Path, story: Story, *, moving: bool = False) -> None:
    """The story, in a house whose engine turns if it is to."""

    async def run() -> None:
        flags = {"home": str(tmp_path), "fleet": "simulated", "hosts": "64", "port": "0", "time_scale": "1000"}
        async with AsyncExitStack() as closing:
            running = await app.assemble(settings.read({**flags, "role": "all"}, {}), closing)
            tenant = await running.house.accounts.authenticate((tmp_path / "tenant.key").read_text().strip())
            assert running.engine is not None
            stop = asyncio.Event()
            turning = [asyncio.create_task(running.engine.run(stop))] if moving else []
            try:
                await story(running.house, tenant)
            finally:
                stop.set()
                await asyncio.gather(*turning)

    asyncio.run(run())


async def settled(house: House, actor: Actor, id: str) -> Cluster:
    """Until the last wish is wholly true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            cluster = await house.clusters.cluster(actor, id)
            if cluster.phase in SERVING and cluster.status.observed_generation == cluster.generation:
                return cluster
            await asyncio.sleep(0.01)


async def boots(house: House, actor: Actor, id: str) -> dict[NodeRole, set[int]]:
    view = await house.clusters.view(actor, id)
    assert all(node.phase is NodePhase.RUNNING for node in view.nodes)
    return {role: {node.generation for node in view.nodes if node.role is role} for role in NodeRole}


def test_a_restart_boots_exactly_whom_it_names(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        cluster = await house.clusters.create(tenant, DEMO)
        with pytest.raises(WrongPhase):
            await house.clusters.restart(tenant, cluster.id, WORKERS)
        await settled(house, tenant, cluster.id)
        before = {node.id for node in (await house.clusters.view(tenant, cluster.id)).nodes}
        await house.clusters.restart(tenant, cluster.id, WORKERS)
        await settled(house, tenant, cluster.id)
        one, two = {1}, {2}
        assert await boots(house, tenant, cluster.id) == {
            NodeRole.CONTROLLER: one,
            NodeRole.LOGIN: one,
            NodeRole.WORKER: two,
        }
        await house.clusters.restart(tenant, cluster.id, EVERYONE)
        await settled(house, tenant, cluster.id)
        assert await boots(house, tenant, cluster.id) == {
            NodeRole.CONTROLLER: two,
            NodeRole.LOGIN: two,
            NodeRole.WORKER: {3},
        }
        assert {node.id for node in (await house.clusters.view(tenant, cluster.id)).nodes} == before

    tell(tmp_path, story, moving=True)


def test_a_new_image_is_booted_and_a_new_worker_boots_only_once(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        cluster = await house.clusters.create(tenant, DEMO)
        await settled(house, tenant, cluster.id)
        images = (await house.catalog.current()).images_in("Delhi")
        other = next(image for image in images if image.id != cluster.spec.image_id)
        await house.clusters.update(tenant, cluster.id, UpdateCluster(image_id=other.id))
        await settled(house, tenant, cluster.id)
        assert set().union(*(await boots(house, tenant, cluster.id)).values()) == {2}
        await house.clusters.change(
            tenant, cluster.id, lambda view: UpdateCluster(gpus=(view.cluster.spec.workers + 1) * 8)
        )
        await settled(house, tenant, cluster.id)
        assert (await boots(house, tenant, cluster.id))[NodeRole.WORKER] == {1, 2}
        roomier = msgspec.structs.replace(cluster.spec.config, shm_gib=64)
        await house.clusters.update(tenant, cluster.id, UpdateCluster(config=roomier))
        await settled(house, tenant, cluster.id)
        after = await boots(house, tenant, cluster.id)
        assert after == {NodeRole.CONTROLLER: {2}, NodeRole.LOGIN: {2}, NodeRole.WORKER: {2, 3}}

    tell(tmp_path, story, moving=True)


def test_an_image_changed_on_the_way_up_is_the_one_it_serves_with(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        cluster = await house.clusters.create(tenant, DEMO)
        images = (await house.catalog.current()).images_in("Delhi")
        other = next(image for image in images if image.id != cluster.spec.image_id)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if (await house.clusters.view(tenant, cluster.id)).nodes[0].address:
                    break
                await asyncio.sleep(0.001)
        await house.clusters.update(tenant, cluster.id, UpdateCluster(image_id=other.id))
        await settled(house, tenant, cluster.id)
        view = await house.clusters.view(tenant, cluster.id)
        assert all(node.mending.boot == 1 for node in view.nodes)

    tell(tmp_path, story, moving=True)


def test_an_address_comes_and_goes(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        cluster = await house.clusters.create(tenant, DEMO)
        here, second = [await house.access.reserve_ip(tenant, region="Delhi") for _ in range(2)]
        there = await house.access.reserve_ip(tenant, region="Chennai")
        with pytest.raises(Invalid):
            await house.clusters.attach_ip(tenant, cluster.id, there.id)
        attached = await house.clusters.attach_ip(tenant, cluster.id, here.id)
        assert attached.spec.reserved_ip_id == here.id
        again = await house.clusters.attach_ip(tenant, cluster.id, here.id)
        assert again.version == attached.version
        with pytest.raises(Protected):
            await house.clusters.attach_ip(tenant, cluster.id, second.id)
        with pytest.raises(NotFound):
            await house.clusters.detach_ip(tenant, cluster.id, second.id)
        assert (await house.clusters.detach_ip(tenant, cluster.id, here.id)).spec.reserved_ip_id is None
        assert (await house.access.reserved_ip(tenant, here.id)).cluster_id is None

    tell(tmp_path, story)


def test_numbers_lead_to_ones_own_things_only(tmp_path: Path) -> None:
    async def story(house: House, tenant: Actor) -> None:
        account = await house.accounts.create_account(SYSTEM, name="other", postpaid=True)
        project = await house.accounts.create_project(SYSTEM, name="other", account_id=account.id)
        theirs = await house.access.reserve_ip(SYSTEM, region="Delhi", project_id=project.id)
        mine = await house.access.reserve_ip(tenant, region="Delhi")
        assert await house.numbers.find(tenant, ReservedIp, mine.number) == mine
        assert await house.numbers.find(SYSTEM, ReservedIp, theirs.number) == theirs
        for noun, number in ((ReservedIp, theirs.number), (Project, project.number), (SshKey, 1), (Cluster, 2**80)):
            with pytest.raises(NotFound):
                await house.numbers.find(tenant, noun, number)

    tell(tmp_path, story)

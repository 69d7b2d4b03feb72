"""Hosts set apart: who may see and draw from them, and that nobody else ever gets one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.contracts.faults import Fault, FaultKind
from muster.contracts.store import Find
from muster.core.billing.verify import verify
from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import Ask, Placement
from muster.core.capacity.pools import PoolWish
from muster.core.capacity.reservations import ReserveAsk
from muster.core.clusters.commands import UpdateCluster
from muster.errors import Forbidden, Invalid, NameTaken, NeverFits, NotFound, OutOfStock, Protected
from muster.model.accounts import SYSTEM, Actor, Role
from muster.model.base import DAY
from muster.model.billing import Usage
from muster.model.clusters import Billing, Cluster, Node, NodeRole, Share
from muster.model.hosts import Host, Pool
from muster.model.phases import NodePhase, Phase
from muster.testing.simulation.cast import GPU, REGION, Cast, play

WISH = PoolWish("apart", REGION, GPU)


async def set_apart(cast: Cast, *names: str, count: int = 0) -> Pool:
    wish = WISH._replace(project_id=cast.tenant.project_id)
    pool = await cast.house.pools.create(SYSTEM, wish)
    return await cast.house.pools.add(SYSTEM, pool.id, names, count)


async def free(cast: Cast) -> int:
    await cast.house.capacity.sync()
    return sum(stock.free_nodes for stock in cast.house.capacity.summary() if stock.gpus_per_node == 8)


def host(n: int, pool_id: str | None) -> Host:
    return Host(
        id=f"h{n:02}",
        name=f"h{n}",
        region=REGION,
        gpu_type=GPU,
        slots=8,
        cpus=1,
        memory_gib=1,
        substrate="s",
        created_at=0,
        pool_id=pool_id,
    )


@settings(max_examples=200, deadline=None)
@given(
    homes=st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=8),
    own=st.integers(0, 4),
    drawn=st.integers(0, 4),
    gpus=st.sampled_from([1, 4, 8]),
)
def test_placement_never_crosses_a_pool(homes: list[str | None], own: int, drawn: int, gpus: int) -> None:
    index = CapacityIndex()
    for n, home in enumerate(homes):
        index.set_host(host(n, home), 0)
    placed = index.place(Ask(REGION, GPU, gpus, own, pool_id="a", pool_nodes=drawn))
    home_of = {f"h{n:02}": home for n, home in enumerate(homes)}
    each = 8 // gpus
    fits = own <= homes.count(None) * each and drawn <= homes.count("a") * each
    assert isinstance(placed, Placement) == fits
    if isinstance(placed, Placement):
        assert {home_of[grant.host_id] for grant in placed.workers} <= {None}
        assert {home_of[grant.host_id] for grant in placed.pooled} <= {"a"}
        assert (len(placed.workers), len(placed.pooled)) == (own, drawn)
    assert sum(stock.total_nodes for stock in index.summary() if stock.gpus_per_node == 8) == homes.count(None)


def test_hosts_set_apart_are_in_nobodys_count(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        assert await free(cast) == 8
        pool = await set_apart(cast, "h-0", "h-1")
        assert await free(cast) == 6
        assert await cast.house.pools.stock(pool) == (16, 16)
        with pytest.raises(NeverFits):
            await cast.create("all", 56)
        await cast.house.pools.remove(SYSTEM, pool.id, "h-1")
        assert await free(cast) == 7
        made = await cast.create("all", 56)
        await cast.until(made, Phase.READY)
        apart = await cast.house.hosts.hosts(SYSTEM, pool_id=pool.id)
        assert [found.name for found in apart.items] == ["h-0"]

    play(tmp_path, story)


def test_a_host_in_use_or_promised_does_not_join(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        await cast.until(await cast.create("busy", 8), Phase.READY)
        pool = await cast.house.pools.create(SYSTEM, WISH._replace(project_id=cast.tenant.project_id))
        with pytest.raises(Protected, match="in use"):
            await cast.house.pools.add(SYSTEM, pool.id, [f"h-{n}" for n in range(8)])
        ask = ReserveAsk(gpu_type=GPU, gpus=24, lasts_ms=DAY, region=REGION, starts_at=cast.clock.now() + DAY)
        await cast.house.reservations.reserve(cast.tenant, ask)
        with pytest.raises((Protected, OutOfStock)):
            await cast.house.pools.add(SYSTEM, pool.id, (), 5)
        await cast.house.pools.add(SYSTEM, pool.id, (), 2)
        assert await cast.house.pools.stock(pool) == (16, 16)

    play(tmp_path, story)


def test_pools_are_made_named_and_ended_by_the_operator(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        pools, mine = cast.house.pools, WISH._replace(account_id=cast.tenant.account_id)
        with pytest.raises(Forbidden):
            await pools.create(cast.tenant, mine)
        with pytest.raises(Invalid):
            await pools.create(SYSTEM, WISH)
        with pytest.raises(Invalid):
            await pools.create(SYSTEM, mine._replace(region="Atlantis"))
        with pytest.raises(NotFound):
            await pools.create(SYSTEM, mine._replace(project_id="nobodys"))
        pool = await pools.create(SYSTEM, mine)
        with pytest.raises(NameTaken):
            await pools.create(SYSTEM, mine)
        await pools.add(SYSTEM, pool.id, ["h-0"])
        await pools.add(SYSTEM, pool.id, ["h-0"])
        other = await pools.create(SYSTEM, mine._replace(name="other"))
        with pytest.raises(Protected, match="another pool"):
            await pools.add(SYSTEM, other.id, ["h-0"])
        with pytest.raises(Invalid):
            await pools.add(SYSTEM, other.id, ["c"])
        with pytest.raises(Invalid):
            await pools.add(SYSTEM, other.id, [])
        with pytest.raises(Protected, match="1 hosts"):
            await pools.delete(SYSTEM, pool.id)
        await pools.remove(SYSTEM, pool.id, "h-0")
        await pools.delete(SYSTEM, pool.id)
        with pytest.raises(NotFound):
            await pools.pool(SYSTEM, pool.id)

    play(tmp_path, story)


def test_a_strangers_pool_does_not_exist(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        pools = cast.house.pools
        stranger = Actor(role=Role.ADMIN, name="eve", account_id="other", project_id="p")
        cousin = Actor(role=Role.ADMIN, name="bob", account_id=cast.tenant.account_id, project_id="p")
        pool = await set_apart(cast, "h-0")
        for actor, sees in ((SYSTEM, True), (cast.tenant, True), (stranger, False), (cousin, False)):
            assert ([found.id for found in (await pools.pools(actor)).items] == [pool.id]) is sees
        for call in (pools.pool(stranger, pool.id), pools.delete(cousin, pool.id), pools.add(stranger, pool.id, [])):
            with pytest.raises(NotFound):
                await call
        with pytest.raises(Forbidden):
            await pools.delete(cast.tenant, pool.id)

    play(tmp_path, story)


# --- drawing from one -----------------------------------------------------------------------------------------------


async def where(cast: Cast, cluster: Cluster) -> list[tuple[Share, str]]:
    """Its workers: their share, and the host each is on."""
    live = await cast.house.store.find(Find(Node, equals={"cluster_id": cluster.id, "gone_at": None}))
    workers = [node for node in live if node.role is NodeRole.WORKER and node.phase is NodePhase.RUNNING]
    return sorted((node.share, node.host_name) for node in workers)


async def until_at(cast: Cast, cluster: Cluster, own: int, pooled: int) -> list[str]:
    """So many of each; the hosts of those from the pool."""
    found: list[tuple[Share, str]] = []
    for _ in range(200):
        found = await where(cast, cluster)
        shares = [share for share, _ in found]
        if (shares.count(Share.OWN), shares.count(Share.POOL)) == (own, pooled):
            return [host for share, host in found if share is Share.POOL]
        await cast.clock.sleep(10)
    raise AssertionError(found)


def test_a_cluster_draws_from_its_pool_and_from_everybodys(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        pool = await set_apart(cast, "h-6", "h-7")
        made = await cast.create("mixed", 24, pool_id=pool.id, pool_gpus=8)
        await cast.until(made, Phase.READY)
        hosts = await until_at(cast, made, own=2, pooled=1)
        assert set(hosts) <= {"h-6", "h-7"}
        assert await cast.house.pools.stock(pool) == (8, 16)
        used = await cast.house.store.find(Find(Usage, equals={"resource_id": made.id, "closed_at": None}))
        assert sorted((usage.billing, usage.quantity) for usage in used) == [("on_demand", 2), ("pool", 1)]

        await cast.house.clusters.update(cast.tenant, made.id, UpdateCluster(pool_gpus=16))
        assert set(await until_at(cast, made, own=1, pooled=2)) == {"h-6", "h-7"}
        with pytest.raises(Invalid):
            await cast.house.clusters.update(cast.tenant, made.id, UpdateCluster(pool_gpus=32))
        await cast.house.clusters.update(cast.tenant, made.id, UpdateCluster(gpus=8))
        assert len(await until_at(cast, made, own=0, pooled=1)) == 1
        await cast.house.clusters.update(cast.tenant, made.id, UpdateCluster(gpus=16, pool_gpus=0))
        await until_at(cast, made, own=2, pooled=0)
        assert await cast.house.pools.stock(pool) == (16, 16)
        assert (await verify(cast.house.store)).problems == []

    play(tmp_path, story)


def test_all_of_it_comes_from_the_pool_unless_said(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        pool = await set_apart(cast, "h-6", "h-7")
        made = await cast.create("drawn", 16, pool_id=pool.id)
        assert (made.region, made.spec.pool_workers) == (REGION, 2)
        with pytest.raises(OutOfStock, match="0 GPUs of it are free"):
            await cast.create("late", 8, pool_id=pool.id)
        with pytest.raises(NeverFits, match="ever has"):
            await cast.create("huge", 24, pool_id=pool.id)
        await cast.until(made, Phase.READY)

    play(tmp_path, story)


def test_a_dead_host_of_a_pool_is_replaced_from_the_pool(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        pool = await set_apart(cast, "h-6", "h-7")
        made = await cast.create("drawn", 16, pool_id=pool.id, pool_gpus=8, failover=True)
        await cast.until(made, Phase.READY)
        [first] = await until_at(cast, made, own=1, pooled=1)
        await cast.image.desk.inject(Fault(kind=FaultKind.HOST_DEATH, target=first))
        for _ in range(200):
            pooled = [host for share, host in await where(cast, made) if share is Share.POOL]
            if pooled and pooled != [first]:
                break
            await cast.clock.sleep(10)
        assert pooled == [{"h-6": "h-7", "h-7": "h-6"}[first]]

    play(tmp_path, story)


def test_what_a_pool_gave_is_found_again_after_a_pause(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        pool = await set_apart(cast, "h-6", "h-7")
        made = await cast.create("drawn", 16, pool_id=pool.id, pool_gpus=8)
        await cast.until(made, Phase.READY)
        await cast.house.clusters.pause(cast.tenant, made.id)
        await cast.until(made, Phase.PAUSED)
        for _ in range(60):
            if not await cast.leases(made):
                break
            await cast.clock.sleep(5)
        assert await cast.house.pools.stock(pool) == (16, 16)
        await cast.house.clusters.resume(cast.tenant, made.id)
        await cast.until(made, Phase.READY)
        assert set(await until_at(cast, made, own=1, pooled=1)) <= {"h-6", "h-7"}

    play(tmp_path, story)


def test_what_cannot_be_drawn_is_refused_in_words(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        pool = await set_apart(cast, "h-7")
        foreign = await cast.house.accounts.create_account(SYSTEM, name="others", postpaid=True)
        theirs = await cast.house.pools.create(SYSTEM, WISH._replace(name="theirs", account_id=foreign.id))
        for id in (theirs.id, "nothing"):
            with pytest.raises(NotFound, match="there is no pool"):
                await cast.create("x", 8, pool_id=id)
        with pytest.raises(Invalid, match="goes with pool_id"):
            await cast.create("x", 8, pool_gpus=8)
        with pytest.raises(Invalid, match="no more than gpus"):
            await cast.create("x", 8, pool_id=pool.id, pool_gpus=16)
        with pytest.raises(Invalid, match="on demand"):
            await cast.create("x", 8, pool_id=pool.id, billing=Billing.RESERVED, duration_days=2)
        plain = await cast.create("plain", 8)
        await cast.until(plain, Phase.READY)
        with pytest.raises(Invalid, match="without a pool"):
            await cast.house.clusters.update(cast.tenant, plain.id, UpdateCluster(pool_gpus=8))

    play(tmp_path, story)

"""Hosts set apart: who may see and draw from them, and that nobody else ever gets one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import Ask, Placement
from muster.core.capacity.pools import PoolWish
from muster.core.capacity.reservations import ReserveAsk
from muster.errors import Forbidden, Invalid, NameTaken, NeverFits, NotFound, OutOfStock, Protected
from muster.model.accounts import SYSTEM, Actor, Role
from muster.model.base import DAY
from muster.model.hosts import Host, Pool
from muster.model.phases import Phase
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

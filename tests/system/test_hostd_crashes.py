"""kill -9 of hostd at every durable step of a cluster's life: the next hostd finishes the work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.contracts.substrate import Fence, Power, VolumeWish
from muster.errors import DriverError
from muster.model.clusters import Mount
from muster.testing.local import Fleet, fabric_wish, node_wish, residue

pytestmark = pytest.mark.usefixtures("machine")
OURS = Fence("alpha", 1)
STEPS_AT_MOST = 200

VOLUME = VolumeWish(key="data", region="here", size_gib=1)
FIRST = [node_wish(f"node-{number}", fabric="alpha", name=f"node-{number}", gpus=1) for number in (1, 2)]
MOUNTED = [replace(wish, mounts=(Mount(volume_id="data", path="/data"),)) for wish in FIRST]
THIRD = node_wish("node-3", fabric="alpha", name="node-3", gpus=1)
KEYS = ["alpha", "node-1", "node-2", "node-3"]


async def _create(fleet: Fleet) -> None:
    await fleet.substrate.ensure([VOLUME], Fence("data", 1))
    await fleet.substrate.ensure([fabric_wish("alpha"), *FIRST], OURS)
    await fleet.until(["data", "alpha", "node-1", "node-2"], Power.UP)


async def _change(fleet: Fleet) -> None:
    """One node more, one booted anew, a volume attached."""
    await fleet.substrate.ensure([*MOUNTED, THIRD], OURS)
    await fleet.until(["node-1", "node-2", "node-3"], Power.UP)
    for node in ("node-1", "node-2"):
        await _reachable(fleet, node)


async def _remove(fleet: Fleet) -> None:
    await fleet.substrate.ensure_absent(KEYS, OURS)
    await fleet.until_absent(KEYS)
    await fleet.substrate.ensure_absent(["data"], Fence("data", 1))
    await fleet.until_absent(["data"])


async def _nothing_owned(fleet: Fleet) -> None:
    assert await fleet.substrate.owned() == []


async def _reachable(fleet: Fleet, node: str) -> None:
    """It runs, its volume is there, and its neighbour answers."""
    for _ in range(200):
        ran = await fleet.substrate.run(node, ["sh", "-c", "touch /data/x && grep -q ' /data ' /proc/mounts"])
        if ran.code == 0:
            break
        await asyncio.sleep(0.02)
    assert ran.code == 0, ran
    assert (await fleet.substrate.run(node, ["ping", "-c1", "-W2", "10.77.0.3"])).code == 0


async def _despite_death(fleet: Fleet, work: Callable[[Fleet], Awaitable[None]]) -> None:
    """What the reconciler does: on any trouble look again and ask again; on hostd's death, start it."""
    for _ in range(20):
        try:
            await asyncio.wait_for(work(fleet), 30)
            return
        except (DriverError, AssertionError, TimeoutError):
            await asyncio.sleep(0.02)
            if fleet.died:
                await fleet.start()
    raise AssertionError("never finished")


@pytest.mark.parametrize("part", range(4))
def test_every_durable_step(tmp_path: Path, part: int) -> None:
    """Four parts, so that they may run side by side; together every step until one is not reached any more."""

    async def told() -> None:
        for step in range(1 + part, STEPS_AT_MOST, 4):
            home = tmp_path / str(step)
            home.mkdir()
            if not await _one_life(home, step):
                return
        raise AssertionError("more steps than expected: raise STEPS_AT_MOST")

    asyncio.run(told())


async def _one_life(home: Path, step: int) -> bool:
    fleet = Fleet(home)
    await fleet.start(die_at_step=step)
    try:
        for work in (_create, _change, _remove):
            await _despite_death(fleet, work)
        await _despite_death(fleet, _nothing_owned)
    finally:
        await fleet.stop()
    reached = fleet.restarted
    left = residue(home, fleet.home_id)
    assert not left, f"step {step} left behind: {left}"
    return reached

"""The simulated world's memory: it outlives processes, takes turns, and throws the same dice in any order."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from muster.contracts.substrate import FabricWish, Fence, Power
from muster.contracts.world import Span
from muster.errors import FencedOff, NoneLeft, TryLater
from muster.model.base import MINUTE, SECOND
from muster.model.phases import CLUSTER_LIMITS, NODE_LIMITS, VOLUME_LIMITS, NodePhase, Phase, VolumePhase
from muster.orchestrators.simulated import pages
from muster.substrates.simulated import SimulatedSubstrate, SimulatedWorld, things
from muster.testing.clock import ManualClock
from muster.testing.simulated import REGION, SimulatedRig

OURS = Fence("owner-a", 1)

VICTIM = """
import asyncio, os, signal, sys
from muster.clock import RealClock
from muster.contracts.substrate import FabricWish, Fence
from muster.substrates.simulated import SimulatedSubstrate, SimulatedWorld

world = SimulatedWorld.open(sys.argv[1], RealClock(), seed=int(sys.argv[2]))
substrate = SimulatedSubstrate(world, RealClock())
asyncio.run(substrate.ensure([FabricWish(key=sys.argv[3], region="r")], Fence("owner-" + sys.argv[3], 3)))
os.kill(os.getpid(), signal.SIGKILL)
"""


def in_memory(*, seed: int = 1, time_scale: float = 1.0) -> SimulatedWorld:
    return SimulatedWorld.open(":memory:", ManualClock(), seed=seed, time_scale=time_scale)


def test_many_processes_are_born_into_one_world_and_killed_without_losing_it(tmp_path: Path) -> None:
    file = tmp_path / "world.db"
    victims = [
        subprocess.Popen([sys.executable, "-c", VICTIM, str(file), str(n), f"net-{n}"], stderr=subprocess.PIPE)
        for n in range(4)
    ]
    for victim in victims:
        _, errors = victim.communicate(timeout=60)
        assert victim.returncode == -signal.SIGKILL, errors.decode()
    rig = SimulatedRig(file)
    try:
        assert {thing.key for thing in rig.world.owned()} == {f"net-{n}" for n in range(4)}
        with pytest.raises(FencedOff):
            asyncio.run(rig.substrate.ensure_absent(["net-0"], Fence("owner-net-0", 2)))
    finally:
        rig.close()


def test_the_seed_is_given_once(tmp_path: Path) -> None:
    file, span = str(tmp_path / "world.db"), Span(0, 1_000)
    first = SimulatedWorld.open(file, ManualClock(), seed=7)
    again = SimulatedWorld.open(file, ManualClock(), seed=8)
    other = in_memory(seed=8)
    assert first.draw(span, "x") == again.draw(span, "x") != other.draw(span, "x")
    assert first.secret("x") == again.secret("x") != other.secret("x")
    for world in (first, again, other):
        world.close()


def test_dice_do_not_depend_on_the_order_of_calls() -> None:
    span, keys = Span(1, 100), [("boot", f"node-{n}", 1) for n in range(50)]
    one, two = in_memory(), in_memory()
    forwards = {key: one.draw(span, *key) for key in keys}
    backwards = {key: two.draw(span, *key) for key in reversed(keys)}
    assert forwards == backwards
    assert len(set(forwards.values())) > 40
    assert all(SECOND <= ms <= 100 * SECOND for ms in forwards.values())
    one.close()
    two.close()


def test_the_time_scale_divides_durations() -> None:
    slow, quick = in_memory(), in_memory(time_scale=20)
    assert quick.draw(Span(60, 150), "k") == pytest.approx(slow.draw(Span(60, 150), "k") / 20, abs=1)
    assert quick.draw(Span(0, 0), "k") == 1, "even the quickest thing takes an instant, so that it is seen to start"
    slow.close()
    quick.close()


@pytest.mark.parametrize(
    ("spans", "limit"),
    [
        ([things.FABRIC_UP], CLUSTER_LIMITS[Phase.NETWORK]),
        ([things.VOLUME_UP], CLUSTER_LIMITS[Phase.STORAGE]),
        ([things.CONTROL_BOOT], CLUSTER_LIMITS[Phase.CONTROL]),
        ([things.WORKER_BOOT], CLUSTER_LIMITS[Phase.WORKERS]),
        ([pages.JOIN, pages.RECONFIGURE], CLUSTER_LIMITS[Phase.DRIVERS]),
        ([pages.TEST], CLUSTER_LIMITS[Phase.TESTING]),
        ([pages.DRAIN, things.POWER_OFF, things.FABRIC_DOWN], CLUSTER_LIMITS[Phase.DELETING]),
        ([things.POWER_OFF, things.WORKER_BOOT], NODE_LIMITS[NodePhase.BOOTING]),
        ([things.POWER_OFF], NODE_LIMITS[NodePhase.LEAVING]),
        ([things.VOLUME_UP, things.GROW], VOLUME_LIMITS[VolumePhase.PROVISIONING]),
        ([things.VOLUME_DOWN], VOLUME_LIMITS[VolumePhase.DELETING]),
    ],
)
def test_nothing_healthy_comes_near_a_time_limit(spans: list[Span], limit: int | None) -> None:
    assert limit is not None
    assert sum(span.most for span in spans) * SECOND < limit / 4


def test_a_token_is_remembered_even_when_the_turn_is_undone(tmp_path: Path) -> None:
    rig = SimulatedRig(tmp_path / "world.db")

    async def story() -> None:
        await rig.substrate.ensure([FabricWish(key="net", region=REGION)], OURS)
        await rig.run_out()
        with pytest.raises(NoneLeft):
            await rig.substrate.ensure([rig.node("node-1", fabric="net")], Fence("owner-a", 9))
        with pytest.raises(FencedOff):
            await rig.substrate.ensure([FabricWish(key="net", region=REGION)], Fence("owner-a", 8))

    asyncio.run(story())
    rig.close()


def test_a_refused_ensure_changes_nothing(tmp_path: Path) -> None:
    """Whole or undone: the good wishes beside the bad one are not half granted."""
    rig = SimulatedRig(tmp_path / "world.db")

    async def story() -> None:
        await rig.substrate.ensure([FabricWish(key="net", region=REGION)], OURS)
        good, bad = rig.node("node-1", fabric="net"), rig.node("node-2", fabric="no-such-net", host=1)
        with pytest.raises(TryLater, match="no-such-net"):
            await rig.substrate.ensure([good, bad], OURS)
        assert [thing.key for thing in await rig.substrate.owned()] == ["net"]

    asyncio.run(story())
    rig.close()


def test_two_nodes_on_one_slot_are_refused_and_noted(tmp_path: Path) -> None:
    rig = SimulatedRig(tmp_path / "world.db")

    async def story() -> None:
        await rig.substrate.ensure([FabricWish(key="net", region=REGION), rig.node("node-1", fabric="net")], OURS)
        await rig.substrate.ensure([FabricWish(key="net-b", region=REGION)], Fence("owner-b", 1))
        rival = rig.node("node-2", fabric="net-b")
        with pytest.raises(TryLater, match="node-1 still holds"):
            await rig.substrate.ensure([rival], Fence("owner-b", 1))
        assert len(rig.world.collisions()) == 1
        await rig.substrate.ensure_absent(["node-1"], OURS)
        with pytest.raises(TryLater):
            await rig.substrate.ensure([rival], Fence("owner-b", 1))
        assert len(rig.world.collisions()) == 2, "asked to go is not yet gone"
        rig.clock.advance(things.POWER_OFF.most)
        await rig.substrate.ensure([rival], Fence("owner-b", 1))
        assert len(rig.world.collisions()) == 2

    asyncio.run(story())
    rig.close()


def test_what_is_leaned_on_stays_until_nobody_does(tmp_path: Path) -> None:
    rig = SimulatedRig(tmp_path / "world.db")

    async def story() -> None:
        await rig.substrate.ensure([FabricWish(key="net", region=REGION), rig.node("node-1", fabric="net")], OURS)
        with pytest.raises(TryLater, match="still used by node node-1"):
            await rig.substrate.ensure_absent(["net"], OURS)
        await rig.substrate.ensure_absent(["net", "node-1"], OURS)
        seen = await rig.substrate.observe(["net", "node-1"])
        assert {thing.power for thing in seen.values()} == {Power.STOPPING}
        assert (seen["net"].look_again_at or 0) >= (seen["node-1"].look_again_at or 0)

    asyncio.run(story())
    rig.close()


def test_notes_go_with_their_owners_last_thing(tmp_path: Path) -> None:
    rig = SimulatedRig(tmp_path / "world.db")

    async def story() -> None:
        await rig.substrate.ensure([FabricWish(key="net", region=REGION)], OURS)
        with rig.world.turn(OURS):
            rig.world.remember("owner-a", b"page")
        assert rig.world.recall("owner-a") == b"page"
        await rig.substrate.ensure_absent(["net"], OURS)
        rig.clock.advance(60)
        await rig.substrate.ensure([FabricWish(key="other", region=REGION)], Fence("owner-b", 1))
        assert rig.world.recall("owner-a") is None

    asyncio.run(story())
    rig.close()


def test_a_busy_world_says_try_later(tmp_path: Path) -> None:
    world = SimulatedWorld.open(str(tmp_path / "world.db"), ManualClock(), busy_seconds=0)
    substrate = SimulatedSubstrate(world, ManualClock())
    rival = sqlite3.connect(tmp_path / "world.db", isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    with pytest.raises(TryLater, match="busy"):
        asyncio.run(substrate.ensure([FabricWish(key="net", region=REGION)], OURS))
    rival.execute("ROLLBACK")
    rival.close()
    asyncio.run(substrate.ensure([FabricWish(key="net", region=REGION)], OURS))
    world.close()


def test_a_world_of_a_newer_muster_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "world.db"
    SimulatedWorld.open(str(file), ManualClock()).close()
    newer = sqlite3.connect(file)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(TryLater, match="newer Muster"):
        SimulatedWorld.open(str(file), ManualClock())


def test_addresses_are_unique_among_the_living(tmp_path: Path) -> None:
    rig = SimulatedRig(tmp_path / "world.db")

    async def story() -> set[str]:
        await rig.substrate.ensure([FabricWish(key="net", region=REGION)], OURS)
        for host in range(300):
            await rig.substrate.ensure([rig.node(f"n-{host}", fabric="net", host=host)], OURS)
        rig.clock.advance(5 * MINUTE / SECOND)
        seen = await rig.substrate.observe([f"n-{host}" for host in range(300)])
        return {node.address for node in seen.values()}

    addresses = asyncio.run(story())
    assert len(addresses) == 300
    assert all(part.isdigit() and int(part) < 256 for address in addresses for part in address.split("."))
    rig.close()

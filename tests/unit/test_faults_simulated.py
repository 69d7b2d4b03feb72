"""Trouble on demand: each kind of fault does what it says, to whom it says, for as long as it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from muster.clock import SeededEntropy
from muster.contracts.faults import Fault, FaultKind
from muster.contracts.substrate import FabricWish, Fence, Power, VolumeWish
from muster.errors import Invalid, NoneLeft, UnknownOutcome
from muster.model.base import SECOND
from muster.substrates.simulated import SimulatedFaultDesk, SimulatedSubstrate
from muster.testing.simulated import REGION, FakePlaces, SimulatedRig

OURS = Fence("owner-a", 1)
Story = Callable[[SimulatedRig], Awaitable[None]]


def tell(tmp_path: Path, story: Story) -> None:
    rig = SimulatedRig(tmp_path / "world.db")
    try:
        asyncio.run(story(rig))  # type: ignore[arg-type]
    finally:
        rig.close()


async def begin(rig: SimulatedRig, key: str = "node-1", host: int = 0) -> None:
    wishes = [FabricWish(key="net", region=REGION), rig.node(key, fabric="net", host=host)]
    await rig.substrate.ensure(wishes, OURS)


async def power(rig: SimulatedRig, key: str = "node-1") -> Power:
    return (await rig.substrate.observe([key]))[key].power


def test_a_dead_host_is_dead_until_cleared(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await begin(rig)
        rig.clock.advance(200)
        fault = await rig.desk.inject(Fault(kind=FaultKind.HOST_DEATH, target="host-0"))
        assert (fault.target, fault.host_id) == ("gpu-0", "host-0")
        seen = (await rig.substrate.observe(["node-1"]))["node-1"]
        assert seen.power is Power.DEAD
        assert "gpu-0" in seen.because
        rig.clock.advance(1_000_000)
        assert await power(rig) is Power.DEAD
        assert await rig.desk.faults() == [fault]
        assert await rig.desk.clear(fault.id)
        assert not await rig.desk.clear(fault.id)
        assert await rig.desk.faults() == []
        assert await power(rig) is Power.UP

    tell(tmp_path, story)


def test_load_is_in_the_queue_until_cleared_and_its_end_is_remembered(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        first = await rig.desk.inject(Fault(kind=FaultKind.LOAD, target="owner-a", count=8))
        await rig.desk.inject(Fault(kind=FaultKind.LOAD, target="owner-a", count=4, seconds=60))
        assert rig.world.load("owner-a") == (12, 0)
        assert rig.world.load("owner-b") == (0, 0)
        rig.clock.advance(90)
        assert rig.world.load("owner-a") == (8, rig.world.now() - 30 * SECOND)
        assert await rig.desk.clear(first.id)
        assert await rig.desk.faults() == []
        assert not await rig.desk.clear(first.id)
        assert rig.world.load("owner-a") == (0, rig.world.now())

    tell(tmp_path, story)


def test_a_slow_boot_takes_ten_times_as_long(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await begin(rig)
        usual = (await rig.substrate.observe(["node-1"]))["node-1"].look_again_at
        assert usual is not None
        await rig.substrate.ensure_absent(["node-1"], OURS)
        rig.clock.advance(60)
        await rig.inject(FaultKind.SLOW_BOOT, 0)
        born = rig.now()
        await begin(rig)
        slow = (await rig.substrate.observe(["node-1"]))["node-1"].look_again_at
        assert slow is not None
        assert slow - born == 10 * (usual - born + 60 * SECOND)

    tell(tmp_path, story)


def test_only_so_many_boots_fail(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await rig.desk.inject(Fault(kind=FaultKind.FAILED_BOOT, target="gpu-0", count=2))
        await rig.substrate.ensure([FabricWish(key="net", region=REGION)], OURS)
        for slot in range(3):
            await rig.substrate.ensure([rig.node(f"n-{slot}", fabric="net", slot=slot)], OURS)
        await rig.substrate.ensure([rig.node("elsewhere", fabric="net", host=1)], OURS)
        assert await rig.desk.faults() == []
        rig.clock.advance(200)
        seen = await rig.substrate.observe(["n-0", "n-1", "n-2", "elsewhere"])
        assert [node.power for node in seen.values()] == [Power.FAILED, Power.FAILED, Power.UP, Power.UP]
        assert "failed boot" in seen["n-0"].because

    tell(tmp_path, story)


def test_a_lost_reply_does_the_work_once(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await rig.lose_reply(0)
        await begin(rig, "elsewhere", host=1)
        with pytest.raises(UnknownOutcome):
            await begin(rig)
        assert await power(rig) is Power.STARTING
        await begin(rig)
        assert await rig.desk.faults() == []

    tell(tmp_path, story)


def test_a_flapping_host_is_unknown_and_up_in_turn(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await begin(rig)
        rig.clock.advance(200)
        end = rig.now() + 100 * SECOND
        await rig.inject(FaultKind.FLAP, 0, seconds=100)
        turns = []
        while True:
            seen = (await rig.substrate.observe(["node-1"]))["node-1"]
            turns.append(seen.power)
            if seen.look_again_at is None:
                break
            rig.clock.advance_to(seen.look_again_at - 1)
            assert await power(rig) is turns[-1]
            rig.clock.advance_to(seen.look_again_at)
        assert turns == [Power.UNKNOWN, Power.UP] * 3 + [Power.UNKNOWN, Power.UP]
        assert rig.now() == end
        assert await rig.desk.faults() == []

    tell(tmp_path, story)


def test_a_stock_out_is_about_what_is_new_in_its_region(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await begin(rig)
        await rig.desk.inject(Fault(kind=FaultKind.STOCK_OUT, target=REGION, seconds=60))
        with pytest.raises(NoneLeft):
            await begin(rig, "node-2", host=1)
        with pytest.raises(NoneLeft):
            await rig.substrate.ensure([VolumeWish(key="vol", region=REGION, size_gib=1)], OURS)
        await rig.substrate.ensure([VolumeWish(key="far", region="Delhi", size_gib=1)], OURS)
        await begin(rig)
        rig.clock.advance(60)
        await begin(rig, "node-2", host=1)

    tell(tmp_path, story)


def test_advance_moves_the_world_and_keeps_hints_in_the_houses_time(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await begin(rig)
        before = (await rig.substrate.observe(["node-1"]))["node-1"].look_again_at
        assert before is not None
        told = await rig.desk.inject(Fault(kind=FaultKind.ADVANCE, seconds=20))
        assert told.id
        assert (await rig.substrate.observe(["node-1"]))["node-1"].look_again_at == before - 20 * SECOND
        assert rig.now() == rig.world.now() - 20 * SECOND, "the house's clock stays real"
        await rig.desk.inject(Fault(kind=FaultKind.ADVANCE, seconds=7_200))
        assert await power(rig) is Power.UP
        assert await rig.desk.faults() == [], "over as soon as it happened"

    tell(tmp_path, story)


def test_every_process_feels_a_fault_and_its_end(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await begin(rig)
        rig.clock.advance(200)
        engine = await rig.reopen()
        fault = await rig.inject(FaultKind.HOST_DEATH, 0)
        assert (await engine.observe(["node-1"]))["node-1"].power is Power.DEAD
        await rig.desk.clear(fault.id)
        assert (await engine.observe(["node-1"]))["node-1"].power is Power.UP
        await rig.desk.inject(Fault(kind=FaultKind.ADVANCE, seconds=60))
        await engine.ensure([VolumeWish(key="vol", region=REGION, size_gib=1)], OURS)
        hint = (await rig.substrate.observe(["vol"]))["vol"].look_again_at
        assert hint is not None
        assert rig.now() < hint <= rig.now() + 20 * SECOND

    tell(tmp_path, story)


def test_faults_wake_those_they_hurt_in_every_process(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await begin(rig)
        other = VolumeWish(key="vol", region=REGION, size_gib=1)
        await rig.substrate.ensure([other], Fence("owner-b", 1))
        engine = await rig.reopen()
        woken: list[str] = []
        engine.watch(woken.append)
        stop = asyncio.Event()
        listening = asyncio.create_task(engine.listen(stop))
        await rig.inject(FaultKind.HOST_DEATH, 0)
        await _turns(5)
        assert woken == ["owner-a"]
        await rig.inject(FaultKind.HOST_DEATH, 2)
        await _turns(5)
        assert woken == ["owner-a"], "nobody has anything on that host"
        woken.clear()
        await rig.desk.inject(Fault(kind=FaultKind.ADVANCE, seconds=5))
        await _turns(5)
        assert woken == ["owner-a", "owner-b"]
        stop.set()
        await listening

    tell(tmp_path, story)


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_wire_faults_are_counted_out(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        assert rig.desk.wire_fault() is None
        await rig.desk.inject(Fault(kind=FaultKind.HTTP_429, count=2))
        found = [rig.desk.wire_fault() for _ in range(3)]
        assert [fault.status for fault in found if fault] == [429, 429]
        assert found[2] is None
        await rig.desk.inject(Fault(kind=FaultKind.HTTP_500))
        first = rig.desk.wire_fault()
        assert first is not None
        assert (first.status, first.delay_seconds) == (500, 0.0)
        assert rig.desk.wire_fault() is None

    tell(tmp_path, story)


def test_wire_faults_last_for_their_seconds(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await rig.desk.inject(Fault(kind=FaultKind.SLOW_REPLY, seconds=10, delay_seconds=0.25))
        for _ in range(50):
            fault = rig.desk.wire_fault()
            assert fault is not None
            assert (fault.status, fault.delay_seconds) == (0, 0.25)
        rig.clock.advance(10)
        assert rig.desk.wire_fault() is None

    tell(tmp_path, story)


def test_a_wire_fault_of_another_process_is_felt_soon(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        other = SimulatedFaultDesk(rig.open_world(), SeededEntropy(2), FakePlaces())
        assert other.wire_fault() is None
        await rig.desk.inject(Fault(kind=FaultKind.HTTP_500, count=1))
        rig.clock.advance(0.5)
        assert other.wire_fault() is not None
        assert rig.desk.wire_fault() is None, "the one count was spent there"

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        (Fault(kind=FaultKind.HOST_DEATH), "target"),
        (Fault(kind=FaultKind.HOST_DEATH, target="gpu-99"), "target"),
        (Fault(kind=FaultKind.STOCK_OUT, target="Atlantis"), "target"),
        (Fault(kind=FaultKind.STOCK_OUT), "target"),
        (Fault(kind=FaultKind.HTTP_429, target="gpu-0"), "target"),
        (Fault(kind=FaultKind.ADVANCE), "seconds"),
        (Fault(kind=FaultKind.ADVANCE, seconds=-1), "seconds"),
        (Fault(kind=FaultKind.FLAP, target="gpu-0", seconds=0), "seconds"),
        (Fault(kind=FaultKind.FLAP, target="gpu-0", seconds=float("nan")), "seconds"),
        (Fault(kind=FaultKind.HOST_DEATH, target="gpu-0", count=2), "count"),
        (Fault(kind=FaultKind.FAILED_BOOT, target="gpu-0", count=0), "count"),
        (Fault(kind=FaultKind.SLOW_REPLY, delay_seconds=-1), "delay_seconds"),
        (Fault(kind=FaultKind.LOAD, count=8), "target"),
        (Fault(kind=FaultKind.LOAD, target="cluster-1"), "count"),
    ],
)
def test_faults_that_make_no_sense_are_refused(tmp_path: Path, fault: Fault, field: str) -> None:
    async def story(rig: SimulatedRig) -> None:
        with pytest.raises(Invalid) as refused:
            await rig.desk.inject(fault)
        assert refused.value.field == field
        assert await rig.desk.faults() == []

    tell(tmp_path, story)


def test_faults_outlive_the_process(tmp_path: Path) -> None:
    async def story(rig: SimulatedRig) -> None:
        await begin(rig)
        rig.clock.advance(200)
        await rig.inject(FaultKind.HOST_DEATH, 0)
        reborn = SimulatedSubstrate(rig.open_world(), rig.clock)
        assert (await reborn.observe(["node-1"]))["node-1"].power is Power.DEAD

    tell(tmp_path, story)

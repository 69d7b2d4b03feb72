"""The simulated fleet on a clock that stands still: a rig for the contract suites and for unit tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from muster.clock import SeededEntropy
from muster.contracts.faults import Fault, FaultKind, Place
from muster.contracts.substrate import NodeWish
from muster.model.base import Instant
from muster.substrates.simulated import SimulatedFaultDesk, SimulatedSubstrate, SimulatedWorld
from muster.testing.clock import ManualClock
from muster.testing.laws import Capability

REGION: Final = "us-central-8"
SETTLE_SECONDS: Final = 2.0


class FakePlaces:
    """Three hosts in one region, known by id and by name."""

    async def host(self, id_or_name: str) -> Place | None:
        for n in range(3):
            if id_or_name in (f"host-{n}", f"gpu-{n}"):
                return Place(f"host-{n}", f"gpu-{n}")
        return None

    async def region(self, name: str) -> bool:
        return name == REGION


class SimulatedRig:
    """World, substrate and desk over one file. `reopen` is what another process of the same home would have."""

    capabilities = frozenset(
        {
            Capability.CAN_KILL_HOST,
            Capability.CAN_LOSE_REPLY,
            Capability.CAN_HIDE_HOST,
            Capability.CAN_FAIL_BOOT,
            Capability.CAN_RUN_OUT,
            Capability.CAN_REOPEN,
            Capability.ANNOUNCES,
            Capability.VIRTUAL_TIME,
        }
    )
    region = REGION

    def __init__(self, file: Path, *, seed: int = 1, time_scale: float = 1.0) -> None:
        self.clock = ManualClock()
        self._file = file
        self._seed = seed
        self._time_scale = time_scale
        self._worlds: list[SimulatedWorld] = []
        self.world = self.open_world()
        self.substrate = SimulatedSubstrate(self.world, self.clock)
        self.desk = SimulatedFaultDesk(self.world, SeededEntropy(seed), FakePlaces())

    def open_world(self) -> SimulatedWorld:
        world = SimulatedWorld.open(str(self._file), self.clock, seed=self._seed, time_scale=self._time_scale)
        self._worlds.append(world)
        return world

    def close(self) -> None:
        for world in self._worlds:
            world.close()

    def now(self) -> Instant:
        return self.clock.now()

    async def settle(self) -> None:
        self.clock.advance(SETTLE_SECONDS)

    async def advance_to(self, at: Instant) -> None:
        self.clock.advance_to(at)

    def node(self, key: str, *, fabric: str, host: int = 0, slot: int = 0) -> NodeWish:
        return NodeWish(
            key=key,
            fabric=fabric,
            host_id=f"host-{host}",
            host_name=f"gpu-{host}",
            region=REGION,
            name=f"w-{host}-{slot}",
            role="worker",
            slots=1 << slot,
            gpu_type="H100_SXM",
            gpus=1,
            cpus=8,
            memory_gib=64,
        )

    async def reopen(self) -> SimulatedSubstrate:
        return SimulatedSubstrate(self.open_world(), self.clock)

    async def kill_host(self, host: int) -> None:
        await self.inject(FaultKind.HOST_DEATH, host)

    async def hide_host(self, host: int) -> None:
        await self.inject(FaultKind.FLAP, host)

    async def lose_reply(self, host: int) -> None:
        await self.inject(FaultKind.LOST_REPLY, host)

    async def fail_boot(self, host: int) -> None:
        await self.inject(FaultKind.FAILED_BOOT, host)

    async def run_out(self) -> None:
        await self.desk.inject(Fault(kind=FaultKind.STOCK_OUT, target=REGION))

    async def inject(self, kind: FaultKind, host: int, *, seconds: float | None = None) -> Fault:
        return await self.desk.inject(Fault(kind=kind, target=f"gpu-{host}", seconds=seconds))


@asynccontextmanager
async def simulated_rig(file: Path) -> AsyncIterator[SimulatedRig]:
    rig = SimulatedRig(file)
    try:
        yield rig
    finally:
        rig.close()

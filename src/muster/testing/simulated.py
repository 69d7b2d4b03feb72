"""The simulated fleet on a clock that stands still: a rig for the contract suites and for unit tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from muster.clock import SeededEntropy
from muster.contracts.faults import Fault, FaultKind, Place
from muster.contracts.orchestrator import Member, Target
from muster.contracts.substrate import FabricWish, Fence, NodeWish, Power
from muster.model.base import Instant
from muster.model.clusters import ClusterSpec, ClusterType
from muster.orchestrators.simulated import SimulatedOrchestrator
from muster.substrates.simulated import SimulatedFaultDesk, SimulatedSubstrate, SimulatedWorld
from muster.testing.clock import ManualClock
from muster.testing.laws import Capability, until

REGION: Final = "us-central-8"
SETTLE_SECONDS: Final = 2.0


class FakePlaces:
    """Three hosts in one region, known by id and by name; and clusters, all of them."""

    async def host(self, id_or_name: str) -> Place | None:
        for n in range(3):
            if id_or_name in (f"host-{n}", f"gpu-{n}"):
                return Place(f"host-{n}", f"gpu-{n}")
        return None

    async def region(self, name: str) -> bool:
        return name == REGION

    async def cluster(self, id: str) -> bool:
        return True


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


class SimulatedOrchestratorRig(SimulatedRig):
    """The same, with an orchestrator and clusters of powered-up nodes for it."""

    capabilities = SimulatedRig.capabilities | {
        Capability.REFUSES_UNDRAINED_EXPEL,
        Capability.HAS_KUBECONFIG,
        Capability.HAS_QUEUE,
    }

    def __init__(self, file: Path, type: ClusterType) -> None:
        super().__init__(file)
        self.type = type
        self.orchestrator = SimulatedOrchestrator(self.world, self.clock)
        self._clusters: list[str] = []

    async def target(self, workers: int, *, generation: int = 1, cluster: str = "cluster-1") -> Target:
        wishes = [self._member(cluster, "controller", 0)]
        wishes += [self._member(cluster, "worker", n) for n in range(workers)]
        fence = Fence(cluster, 1)
        await self.substrate.ensure([FabricWish(key=cluster, region=REGION), *wishes], fence)
        keys = [wish.key for wish in wishes]

        async def up() -> bool:
            seen = await self.substrate.observe(keys)
            return all(seen[key].power is Power.UP for key in keys)

        await until(self, up, f"nodes of {cluster} up")
        seen = await self.substrate.observe(keys)
        members = tuple(_told(wish, seen[wish.key].address) for wish in wishes)
        spec = ClusterSpec(
            type=self.type,
            region=REGION,
            gpu_type="H100_SXM",
            instance_type="1xH100_SXM",
            workers=workers,
            image_id="image-1",
        )
        return Target(
            cluster_id=cluster,
            name=f"the {cluster}",
            project_id="p",
            generation=generation,
            spec=spec,
            members=members,
        )

    def _member(self, cluster: str, role: str, n: int) -> NodeWish:
        """Workers of one cluster on a host each, so that one can be hurt alone; clusters side by side by slot."""
        if cluster not in self._clusters:
            self._clusters.append(cluster)
        slot = self._clusters.index(cluster)
        wish = self.node(f"{cluster}-{role}-{n}", fabric=cluster, host=n, slot=slot)
        if role == "worker":
            return replace(wish, name=f"w-{n}")
        return replace(
            wish, host_id="control-0", host_name="control-0", name="controller", role=role, gpu_type="", gpus=0
        )

    async def submit(self, target: Target, gpus: int) -> None:
        await self.desk.inject(Fault(kind=FaultKind.LOAD, target=target.cluster_id, count=gpus))

    async def cancel_all(self, target: Target) -> None:
        for fault in await self.desk.faults():
            await self.desk.clear(fault.id)

    async def kill_node(self, node_id: str) -> None:
        await self.kill_host(int(node_id.rsplit("-", 1)[1]))

    async def hide_node(self, node_id: str) -> None:
        await self.hide_host(int(node_id.rsplit("-", 1)[1]))


def _told(wish: NodeWish, address: str) -> Member:
    return Member(
        node_id=wish.key,
        name=wish.name,
        role=wish.role,
        address=address,
        generation=wish.generation,
        gpu_type=wish.gpu_type,
        gpus=wish.gpus,
        cpus=wish.cpus,
        memory_gib=wish.memory_gib,
    )


@asynccontextmanager
async def simulated_orchestrator_rig(file: Path, type: ClusterType) -> AsyncIterator[SimulatedOrchestratorRig]:
    rig = SimulatedOrchestratorRig(file, type)
    try:
        yield rig
    finally:
        rig.close()


@asynccontextmanager
async def simulated_rig(file: Path) -> AsyncIterator[SimulatedRig]:
    rig = SimulatedRig(file)
    try:
        yield rig
    finally:
        rig.close()

"""A Slurm cluster on a real local fleet, driven through the contracts alone, as the reconciler would drive it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from msgspec.structs import replace

from muster.clock import RealClock
from muster.contracts.hands import Ran
from muster.contracts.orchestrator import Member, Progress, Standing, Target
from muster.contracts.substrate import FabricWish, Fence, NodeWish, Power
from muster.hostd.state import NodeRecord
from muster.model.access import Rule
from muster.model.clusters import Autoscale, ClusterConfig, ClusterSpec, ClusterType, Mount
from muster.orchestrators.slurm import SlurmOrchestrator
from muster.testing.local import PATIENCE_SECONDS, Fleet, node_wish

SECRET = b"the secret of a home that exists only in tests"
GPUS = 2


class SlurmCluster:
    def __init__(self, running: Fleet, id: str, orchestrator: SlurmOrchestrator) -> None:
        self.fleet = running
        self.id = id
        self.orchestrator = orchestrator
        self.config = ClusterConfig()
        self.keys: tuple[str, ...] = ()
        self.rules: tuple[Rule, ...] | None = None
        self.mounts: tuple[Mount, ...] = ()
        self.workers: list[str] = []
        self.generation = 0
        self.boots: dict[str, int] = {}
        self.shm_gib = 16
        self.control: tuple[str, ...] = ("controller", "login")
        self.autoscale: Autoscale | None = None

    @property
    def fence(self) -> Fence:
        return Fence(self.id, 1)

    def key(self, name: str) -> str:
        return f"{self.id}-{name}"

    def wishes(self) -> list[NodeWish]:
        control = [node_wish(self.key(role), fabric=self.id, name=role, role=role) for role in self.control]
        workers = [node_wish(self.key(name), fabric=self.id, name=name, gpus=GPUS) for name in self.workers]
        return [
            replace(
                wish,
                mounts=self.mounts,
                generation=self.boots.get(wish.name, 1),
                shm_gib=self.shm_gib if wish.gpus else 0,
                rootfs=self.config.slurm_image,
            )
            for wish in (*control, *workers)
        ]

    async def power_up(self) -> Target:
        """Fabric and nodes as wished, and the target they make."""
        wishes = self.wishes()
        fabric = FabricWish(key=self.id, region="here", rules=self.rules)
        await self.fleet.substrate.ensure([fabric, *wishes], self.fence)
        found = await self.fleet.until([wish.key for wish in wishes], Power.UP)
        return self.target({wish.key: found[wish.key].address for wish in wishes})

    def target(self, addresses: dict[str, str]) -> Target:
        spec = ClusterSpec(
            type=ClusterType.SLURM,
            region="here",
            gpu_type="H100_SXM",
            instance_type=f"{GPUS}xH100_SXM",
            workers=len(self.workers),
            image_id="image",
            autoscale=self.autoscale,
            config=self.config,
        )
        return Target(
            cluster_id=self.id,
            name=self.id,
            project_id="project",
            generation=self.generation,
            spec=spec,
            members=tuple(_member(wish, addresses[wish.key]) for wish in self.wishes()),
            authorized_keys=self.keys,
        )

    async def converge(self, workers: int | None = None) -> Progress:
        """The cluster as wished, at rest."""
        if workers is not None:
            self.workers = [f"worker-{number}" for number in range(workers)]
        self.generation += 1
        target = await self.power_up()
        return await self.converge_to(target)

    async def converge_to(self, target: Target) -> Progress:
        for _ in range(int(PATIENCE_SECONDS / 0.02)):
            progress = await self.orchestrator.converge(target, self.fence)
            if progress.done:
                return progress
            await asyncio.sleep(0.02)
        raise AssertionError("never converged")

    async def now(self) -> Target:
        """The target of the present wish, whatever state its nodes are in."""
        found = await self.fleet.substrate.observe([wish.key for wish in self.wishes()])
        return self.target({key: seen.address for key, seen in found.items()})

    async def standing(self, name: str) -> Standing:
        return (await self.orchestrator.observe(await self.now()))[self.key(name)]

    async def until_standing(self, name: str, *wanted: Standing) -> None:
        seen = Standing.UNKNOWN
        for _ in range(int(PATIENCE_SECONDS / 0.05)):
            seen = await self.standing(name)
            if seen in wanted:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{name} never {wanted}: {seen}")

    async def run(self, name: str, argv: Sequence[str] | str, *, user: str = "ubuntu", seconds: float = 30) -> Ran:
        command = ["bash", "-lc", argv] if isinstance(argv, str) else argv
        return await self.fleet.substrate.run(self.key(name), command, user=user, seconds=seconds)

    async def says(self, name: str, command: str, *, user: str = "ubuntu", seconds: float = 30) -> str:
        ran = await self.run(name, command, user=user, seconds=seconds)
        assert ran.code == 0, f"{command}: {ran}"
        return ran.out.strip()

    def init_of(self, name: str) -> int:
        path = self.fleet.home / "hostd" / "nodes" / self.key(name) / "record.json"
        record = msgspec.json.decode(path.read_bytes(), type=NodeRecord)
        assert record.init is not None
        return record.init.pid

    def kill_init(self, name: str) -> None:
        os.kill(self.init_of(name), signal.SIGKILL)

    async def remove(self) -> None:
        keys = [self.id, *(wish.key for wish in self.wishes())]
        await self.fleet.substrate.ensure_absent(keys, self.fence)
        await self.fleet.until_absent(keys)


def _member(wish: NodeWish, address: str) -> Member:
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
async def slurm(running: Fleet) -> AsyncIterator[SlurmOrchestrator]:
    orchestrator = SlurmOrchestrator(running.substrate, RealClock(), SECRET)
    try:
        yield orchestrator
    finally:
        await orchestrator.close()

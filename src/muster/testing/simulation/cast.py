"""One tenant with a few hosts, the real engine and the virtual clock: for stories of what clusters do by themselves.

Leans on the same process image as the histories; nothing goes wrong here unless the story says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from muster.clock import SeededEntropy
from muster.contracts.steps import Step
from muster.contracts.store import Find
from muster.core.clusters.commands import CreateCluster
from muster.core.demo import demo_catalog
from muster.core.hosts.service import HostSpec
from muster.engine.engine import Pace
from muster.model.accounts import SYSTEM, Actor, Role
from muster.model.capacity import Reservation
from muster.model.clusters import Cluster, ClusterType
from muster.model.hosts import HostRole, Lease
from muster.model.phases import Phase
from muster.substrates.simulated.world import SimulatedWorld
from muster.testing.simulation.image import Files, Image
from muster.testing.simulation.loop import VirtualClock, VirtualLoop

REGION, GPU = "us-central-8", "H100_SXM"
PACE = Pace(full_pass_ms=600_000, look_again_ms=300_000, idle_ms=20_000)  # days pass here, and nobody hurries


class NoFailpoints:
    """Nothing goes wrong by itself."""

    async def before(self, step: Step) -> None:
        return None

    async def after(self, step: Step) -> None:
        return None


class Cast:
    def __init__(self, image: Image[NoFailpoints], clock: VirtualClock) -> None:
        self.image, self.clock, self.house = image, clock, image.house
        self.tenant = SYSTEM

    async def furnish(self, hosts: int = 8) -> None:
        house = self.house
        await house.catalog.put_all(SYSTEM, demo_catalog(0))
        account = await house.accounts.create_account(SYSTEM, name="acme", postpaid=True)
        project = await house.accounts.create_project(SYSTEM, account_id=account.id, name="lab")
        self.tenant = Actor(role=Role.ADMIN, name="ann", account_id=account.id, project_id=project.id)
        specs = [
            HostSpec(name=f"h-{n}", region=REGION, gpu_type=GPU, slots=8, cpus=192, memory_gib=2048)
            for n in range(hosts)
        ]
        control = HostSpec(name="c", region=REGION, role=HostRole.CONTROL, slots=32, cpus=64, memory_gib=256)
        await house.hosts.import_hosts(SYSTEM, [*specs, control])

    async def create(self, name: str, gpus: int = 16, **fields: Any) -> Cluster:
        command = CreateCluster(
            name=name,
            region=REGION,
            gpu_type=GPU,
            gpus=gpus,
            use_saved_keys=False,
            **{"type": ClusterType.SLURM, **fields},
        )
        return await self.house.clusters.create(self.tenant, command)

    async def look(self, cluster: Cluster) -> Cluster:
        found = await self.house.store.get(Cluster, cluster.id)
        assert found is not None
        return found

    async def until(self, cluster: Cluster, *phases: Phase, hours: float = 3) -> Cluster:
        for _ in range(round(hours * 360)):
            found = await self.look(cluster)
            if found.phase in phases:
                return found
            await self.clock.sleep(10)
        raise AssertionError(f"still {found.phase}: {found.because}; {found.status.waiting_for}")

    async def reservation(self, cluster: Cluster) -> Reservation:
        [found] = await self.house.store.find(Find(Reservation, equals={"cluster_id": cluster.id}))
        return found

    async def leases(self, cluster: Cluster) -> list[Lease]:
        return await self.house.store.find(Find(Lease, equals={"cluster_id": cluster.id}))


def play(tmp_path: Path, story: Callable[[Cast], Awaitable[None]], hosts: int = 8) -> None:
    loop = VirtualLoop()
    clock = VirtualClock(loop)

    async def whole() -> None:
        entropy = SeededEntropy(1)
        world = SimulatedWorld.open(":memory:", clock, seed=1, time_scale=1.0)
        image = Image(Files(tmp_path / "m.db", world), clock, entropy, NoFailpoints(), pace=PACE, api=False)
        cast = Cast(image, clock)
        try:
            await cast.furnish(hosts)
            image.start()
            await story(cast)
        finally:
            await image.drop()
            world.close()

    try:
        loop.run_until_complete(whole())
    finally:
        loop.close()

"""The Slurm orchestrator keeps its contract's laws with real daemons on real nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from muster.contracts.orchestrator import Orchestrator, Target
from muster.model.clusters import ClusterType
from muster.orchestrators.slurm import SlurmOrchestrator
from muster.testing.laws import Capability
from muster.testing.local import Fleet, fleet
from muster.testing.local_slurm import SlurmCluster, slurm
from muster.testing.orchestrator_suite import OrchestratorSuite


class SlurmRig:
    capabilities = frozenset(
        {
            Capability.CAN_KILL_HOST,
            Capability.CAN_HIDE_HOST,
            Capability.REFUSES_UNDRAINED_EXPEL,
            Capability.HAS_QUEUE,
        }
    )
    type = ClusterType.SLURM

    def __init__(self, running: Fleet, orchestrator: SlurmOrchestrator) -> None:
        self._running = running
        self._orchestrator = orchestrator
        self._cluster = SlurmCluster(running, "cluster-1", orchestrator)

    @property
    def orchestrator(self) -> Orchestrator:
        return self._orchestrator

    async def settle(self) -> None:
        await asyncio.sleep(0.02)

    async def target(self, workers: int, *, generation: int = 1, cluster: str = "cluster-1") -> Target:
        if cluster != self._cluster.id:
            self._cluster = SlurmCluster(self._running, cluster, self._orchestrator)
        self._cluster.workers = [f"worker-{number}" for number in range(workers)]
        self._cluster.generation = generation
        return await self._cluster.power_up()

    async def submit(self, target: Target, gpus: int) -> None:
        await self._cluster.says("login", f"sbatch --gpus={gpus} --wrap 'sleep 600'")

    async def cancel_all(self, target: Target) -> None:
        await self._cluster.says("login", "scancel -u ubuntu")

    async def kill_node(self, node_id: str) -> None:
        self._cluster.kill_init(node_id.removeprefix(f"{self._cluster.id}-"))

    async def hide_node(self, node_id: str) -> None:
        await self._running.substrate.cut_link(node_id)


class TestSlurm(OrchestratorSuite):
    @pytest.fixture
    def rigs(self, machine: None, tmp_path: Path) -> Callable[[], AbstractAsyncContextManager[SlurmRig]]:
        @asynccontextmanager
        async def rig() -> AsyncIterator[SlurmRig]:
            async with fleet(tmp_path) as running, slurm(running) as orchestrator:
                yield SlurmRig(running, orchestrator)

        return rig

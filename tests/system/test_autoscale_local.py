"""A real Slurm cluster follows its own queue: GPU jobs grow it, others do not, idleness shrinks it, work goes on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.contracts.orchestrator import Standing
from muster.model.clusters import Autoscale
from muster.testing.local import PATIENCE_SECONDS, fleet, residue
from muster.testing.local_server import LocalServer
from muster.testing.local_slurm import SlurmCluster, slurm

pytestmark = pytest.mark.usefixtures("machine")
HASTY = ("--autoscale-idle-seconds", "6", "--autoscale-cool-down-seconds", "2")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    made = LocalServer(tmp_path, flags=HASTY)
    made.up()
    try:
        yield made
    finally:
        made.down()
        assert residue(made.home, made.home_id) == []


def until(look: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    ends = time.monotonic() + 2 * PATIENCE_SECONDS
    while not good(seen := look()):
        assert time.monotonic() < ends, seen
        time.sleep(0.3)
    return seen


class Demo:
    """The cluster as its owner sees it, through Muster and through Slurm."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        server.muster("cluster", "create", "demo", "--gpus", "8", "--autoscale-max", "24", "--wait")

    def ssh(self, *words: str) -> str:
        return self._server.muster("ssh", "demo", *words).strip()

    def submit(self, *words: str) -> str:
        return self.ssh("sbatch", "--parsable", *words)

    def state(self, job: str) -> str:
        return self.ssh("squeue", "-h", "-j", job, "-o", "%T:%N")

    def shown(self) -> dict[str, Any]:
        return dict(json.loads(self._server.muster("cluster", "show", "demo", "-o", "json")))

    def workers(self) -> list[str]:
        nodes = self.shown()["nodes"]
        return [node["name"] for node in nodes if node["role"] == "worker" and node["phase"] == "running"]


@pytest.mark.parametrize("most", [4, 0])
def test_another_limit_costs_no_running_job(tmp_path: Path, most: int) -> None:
    """Slurm is told of nodes that may come; told otherwise, it forgets neither those that are there nor GPUs."""

    async def story() -> None:
        async with fleet(tmp_path) as running, slurm(running) as orchestrator:
            cluster = SlurmCluster(running, "alpha", orchestrator)
            cluster.autoscale = None if most else Autoscale(max_workers=3)
            await cluster.converge(1)
            await cluster.until_standing("worker-0", Standing.IDLE)
            job = await cluster.says("login", "sbatch --parsable --gpus=1 --wrap 'sleep 600'")
            await cluster.until_standing("worker-0", Standing.BUSY)
            cluster.autoscale = Autoscale(max_workers=most) if most else None
            assert not (await cluster.converge()).failed
            assert await cluster.says("login", f"squeue -h -j {job} -o %T:%N") == "RUNNING:worker-0"
            wider = await cluster.run("login", "sbatch --gpus=4 --wrap true")
            assert (wider.code == 0) == bool(most), "what could never run is refused, what could one day waits"
            assert await cluster.says("login", "srun --gpus=1 sh -c 'echo $CUDA_VISIBLE_DEVICES'") in ("0", "1")

    asyncio.run(story())


def test_jobs_grow_it_and_idleness_shrinks_it(server: LocalServer) -> None:
    demo = Demo(server)
    idler = demo.submit("-N3", "--wrap='sleep 1'")  # of CPUs alone, on more nodes than there are
    held = demo.submit("-N3", "--gpus-per-node=8", "--hold", "--wrap='sleep 1'")
    wide = demo.submit("--gpus=16", "--wrap='sleep 5'")
    until(lambda: demo.state(wide), lambda seen: seen.startswith("RUNNING"))
    assert demo.shown()["autoscale"] == {"max_gpus": 24, "gpus": 16}, "neither the CPU job nor the held one counts"
    assert demo.workers() == ["worker-0", "worker-1"]
    demo.ssh("scancel", idler, held)

    long = demo.submit("-w", "worker-1", "--gpus=1", "--wrap='sleep 600'")
    until(lambda: demo.state(long), lambda seen: seen == "RUNNING:worker-1")
    until(demo.workers, lambda seen: seen == ["worker-1"])
    assert demo.state(long) == "RUNNING:worker-1", "who leaves is the idle one, although the other came for a while"
    assert demo.shown()["autoscale"]["gpus"] == 8

    again = demo.submit("-N2", "--gpus-per-node=4", "--wrap='sleep 1'")
    until(demo.workers, lambda seen: len(seen) == 2)
    until(lambda: demo.state(again), lambda seen: not seen.startswith("PENDING"))
    until(demo.workers, lambda seen: seen == ["worker-1"])
    assert demo.state(long) == "RUNNING:worker-1"

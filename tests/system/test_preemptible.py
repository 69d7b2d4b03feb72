"""A node under running jobs is taken back on a real Slurm cluster: told, cut short at the end, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.contracts.orchestrator import Standing
from muster.sdk.client import Client
from muster.testing.local import PATIENCE_SECONDS, fleet, residue
from muster.testing.local_server import LocalServer
from muster.testing.local_slurm import SlurmCluster, slurm

pytestmark = pytest.mark.usefixtures("machine")

AWARE = """#!/bin/bash
trap 'echo caught >> aware.log' TERM
echo began ${SLURM_RESTART_COUNT:-0} $(hostname) >> aware.log
while true; do sleep 0.2 & wait $!; done
"""
UNAWARE = """#!/bin/bash
echo began ${SLURM_RESTART_COUNT:-0} $(hostname) >> unaware.log
sleep 600
"""


async def until_says(cluster: SlurmCluster, file: str, word: str) -> str:
    said = ""
    for _ in range(int(PATIENCE_SECONDS / 0.1)):
        said = (await cluster.run("login", f"cat {file}")).out
        if word in said:
            return said
        await asyncio.sleep(0.1)
    raise AssertionError(f"{file} never says {word}: {said}; {await cluster.says('login', 'scontrol show job')}")


def test_jobs_are_told_then_cut_short_and_run_again_elsewhere(tmp_path: Path) -> None:
    async def told() -> None:
        async with fleet(tmp_path) as running, slurm(running) as orchestrator:
            cluster = SlurmCluster(running, "alpha", orchestrator)
            await cluster.converge(2)
            kept, lent = cluster.key("worker-0"), cluster.key("worker-1")
            target = await cluster.now()
            await orchestrator.drain(target, [kept], "so that all work lands on the other", cluster.fence)
            for name, script in (("aware", AWARE), ("unaware", UNAWARE)):
                await cluster.says("login", f"cat > {name}.sh <<'END'\n{script}END")
                await cluster.says("login", f"sbatch -o /dev/null {name}.sh")
                await until_says(cluster, f"{name}.log", "began 0 worker-1")
            await orchestrator.admit(target, [kept], cluster.fence)

            await orchestrator.warn(target, [lent], "others need its host", cluster.fence)
            await until_says(cluster, "aware.log", "caught")
            assert await cluster.standing("worker-1") is Standing.DRAINING, "who catches the signal has its notice"
            assert "worker-1" not in await cluster.says("login", "sinfo -h -t idle,mix -N -o %N")

            await orchestrator.evict(target, [lent], cluster.fence)
            await cluster.until_standing("worker-1", Standing.DOWN, Standing.DRAINED)
            cluster.workers = ["worker-0"]
            cluster.generation += 1
            await orchestrator.expel(await cluster.now(), [lent], cluster.fence)
            await until_says(cluster, "aware.log", "began 1 worker-0")
            await until_says(cluster, "unaware.log", "began 1 worker-0")

    asyncio.run(told())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    made = LocalServer(tmp_path, hosts=8, flags=["--preemption-notice-seconds", "15"])
    made.up()
    try:
        yield made
    finally:
        made.down()
        assert residue(made.home, made.home_id) == []


def until(look: Callable[[], Any], so: Callable[[Any], bool]) -> Any:
    for _ in range(int(PATIENCE_SECONDS / 0.2)):
        seen = look()
        if so(seen):
            return seen
        time.sleep(0.2)
    raise AssertionError(f"never so: {seen}")


def test_a_lent_worker_is_given_back_under_a_job_that_runs_again(server: LocalServer) -> None:
    """All that is idle in the region is lent; then somebody else needs it."""

    with server.client() as client:
        _told(server, client)


def _told(server: LocalServer, client: Client) -> None:
    def shown(name: str) -> Any:
        return client.clusters.find(name)

    server.muster("cluster", "create", "guest", "--gpus", "8", "--preemptible", "8", "--wait")
    guest = until(lambda: shown("guest"), lambda seen: seen["preemptible"]["allocated"] == 8)
    free = next(
        room["free_nodes"]
        for room in json.loads(server.muster("capacity", "-o", "json"))
        if (room["region"], room["gpu_type"], room["gpus_per_node"]) == (guest["region"], guest["gpu_type"], 8)
    )
    server.muster("ssh", "guest", f"cat > aware.sh <<'END'\n{AWARE}END")
    server.muster("ssh", "guest", "sbatch -o /dev/null -w worker-1 aware.sh")
    until(lambda: server.call("ssh", "guest", "cat aware.log").stdout, lambda said: "began 0 worker-1" in said)

    size = str((free + 1) * 8)
    server.muster("cluster", "create", "needy", "--gpus", size, "--region", guest["region"])
    because = shown("needy")["because"]
    assert "8 preemptible GPUs are being given back by" in because
    warned = until(lambda: shown("guest"), lambda seen: any(node["reclaim_at"] for node in seen["nodes"]))
    assert [node["name"] for node in warned["nodes"] if node["reclaim_at"]] == ["worker-1"]
    until(lambda: shown("needy"), lambda seen: seen["phase"] == "ready")
    log = server.muster("ssh", "guest", "cat aware.log")
    assert "caught" in log
    job = server.muster("ssh", "guest", "scontrol show job -o")
    assert "Restarts=1" in job
    assert "JobState=PENDING" in job
    told = json.loads(server.muster("event", "list", "--limit", "500", "-o", "json"))
    assert "node.reclaim_notice" in {event["type"] for event in told}
    server.muster("cluster", "delete", "needy", "--yes", "--wait")
    until(lambda: shown("guest"), lambda seen: seen["preemptible"]["allocated"] == 8)
    until(lambda: server.muster("ssh", "guest", "cat aware.log"), lambda said: "began 1 worker-1" in said)

"""The two commands of the README on a real local fleet: up, a cluster, ssh into it, down, and a clean machine."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.testing.local import residue
from muster.testing.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    made = LocalServer(tmp_path)
    made.up()
    try:
        yield made
    finally:
        made.down()
        assert residue(made.home, made.home_id) == []


def test_up_create_ssh_resize_and_down(server: LocalServer) -> None:
    status = Path(f"/proc/{server.pid}/status").read_text()
    uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
    assert "0" not in uids, "whoever hears strangers is not root"
    assert "CapEff:\t0000000000000000" in status
    server.muster("cluster", "create", "demo", "--type", "slurm", "--gpus", "16", "--wait")
    said = server.muster("ssh", "demo", "srun", "-N2", "--gpus=16", "hostname")
    assert sorted(said.split()) == ["worker-0", "worker-1"]
    shown = json.loads(server.muster("cluster", "show", "demo", "-o", "json"))
    assert shown["phase"] == "ready"
    assert shown["simulated"] is False
    real = {result["test"] for result in shown["tests"] if not result.get("simulated")}
    assert real == {"munge", "srun", "gpus", "shm", "storage"}
    server.muster("cluster", "resize", "demo", "24", "--wait")
    assert len(server.muster("ssh", "demo", "srun", "-N3", "hostname").split()) == 3


def test_clusters_run_on_while_muster_is_killed(server: LocalServer) -> None:
    server.muster("cluster", "create", "demo", "--type", "slurm", "--gpus", "8", "--wait")
    job = server.muster("ssh", "demo", "sbatch", "--parsable", "--wrap='sleep 600'").strip()
    server.kill()
    server.up()
    assert f"{job}:RUNNING" in server.muster("ssh", "demo", "squeue", "-h", "-o", "%i:%T")


def test_a_dead_node_degrades_the_cluster_and_slurm_knows(server: LocalServer) -> None:
    server.muster("cluster", "create", "demo", "--type", "slurm", "--gpus", "16", "--wait")
    shown = json.loads(server.muster("cluster", "show", "demo", "-o", "json"))
    victim = next(node for node in shown["nodes"] if node["name"] == "worker-1")
    record = json.loads((server.home / "hostd" / "nodes" / victim["id"] / "record.json").read_bytes())
    os.kill(record["init"]["pid"], signal.SIGKILL)
    for _ in range(600):
        shown = json.loads(server.muster("cluster", "show", "demo", "-o", "json"))
        if shown["phase"] == "degraded":
            break
        time.sleep(0.1)
    assert shown["phase"] == "degraded"
    states = dict(line.split() for line in server.muster("ssh", "demo", "sinfo", "-hNo", "'%N %T'").splitlines())
    assert states == {"worker-0": "idle", "worker-1": "down"}

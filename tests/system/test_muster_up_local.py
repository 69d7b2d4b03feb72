"""The two commands of the README on a real local fleet: up, a cluster, ssh into it, down, and a clean machine."""

from __future__ import annotations

import json
import os
import pwd
import signal
import stat
import time
from pathlib import Path

import pytest

from muster.hostd.traces import hostds
from muster.testing.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("machine")


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
    for pid in hostds(server.home):
        os.kill(pid, signal.SIGKILL)  # and all the same `muster down --all` leaves the machine clean


def test_a_home_is_taken_over_and_never_widened(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    mine = home / "mine"
    mine.write_text("of whoever was here before\n")
    mine.chmod(0o600)
    made = LocalServer(tmp_path)
    made.up()
    try:
        whose = pwd.getpwnam("muster").pw_uid
        assert {path: _owner_and_mode(path) for path in (home, mine, home / "hostd")} == {
            home: (whose, 0o700),
            mine: (whose, 0o600),
            home / "hostd": (0, 0o700),
        }
        open_to_others = [path for path in home.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o077]
        outside = [path for path in open_to_others if (home / "hostd") not in path.parents]
        assert [path for path in outside if path.name not in ("hostd.log", "hostd.sock")] == []
    finally:
        made.down()


def _owner_and_mode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, stat.S_IMODE(found.st_mode)


def test_what_a_new_memory_does_not_know_is_removed(server: LocalServer) -> None:
    """A start adopts the wanted and removes the rest of its own home: here the server lost all it had written."""
    server.muster("cluster", "create", "demo", "--type", "slurm", "--gpus", "8", "--wait")
    server.kill()
    for file in server.home.glob("muster.db*"):
        file.unlink()
    server.up()
    for _ in range(600):
        if not list((server.home / "hostd" / "nodes").iterdir()):
            break
        time.sleep(0.1)
    assert list((server.home / "hostd" / "nodes").iterdir()) == []
    assert server.muster("doctor") == "nothing\n"


def test_clusters_run_on_while_muster_is_killed(server: LocalServer) -> None:
    server.muster("cluster", "create", "demo", "--type", "slurm", "--gpus", "8", "--wait")
    job = server.muster("ssh", "demo", "sbatch", "--parsable", "--wrap='sleep 600'").strip()
    running = f"{job}:RUNNING"
    for _ in range(600):
        if running in server.muster("ssh", "demo", "squeue", "-h", "-o", "%i:%T"):
            break
        time.sleep(0.1)
    server.kill()
    server.up()
    assert running in server.muster("ssh", "demo", "squeue", "-h", "-o", "%i:%T")


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

"""The two commands of the README on a real local fleet: up, a cluster, ssh into it, down, and a clean machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.testing.local import cache, residue

pytestmark = pytest.mark.usefixtures("machine")
MUSTER = [sys.executable, "-m", "muster.cli.main"]


class Server:
    """`muster up --fleet local` as a user starts it, and the command line beside it."""

    def __init__(self, home: Path, config: Path) -> None:
        self.home = home
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")},
            "MUSTER_HOME": str(home),
            "MUSTER_CACHE": str(cache()),
            "XDG_CONFIG_HOME": str(config),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        log = (self.home.parent / "up.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [*MUSTER, "up", "--fleet", "local", "--port", "0", "--hosts", "16"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        for _ in range(600):
            if (self.home / "run" / "server.json").exists():
                return
            assert self.process.poll() is None, (self.home.parent / "up.log").read_text()
            time.sleep(0.05)
        raise AssertionError((self.home.parent / "up.log").read_text())

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        (self.home / "run" / "server.json").unlink(missing_ok=True)

    def muster(self, *words: str, seconds: float = 90) -> str:
        done = subprocess.run(
            [*MUSTER, *words], env=self._environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout

    @property
    def home_id(self) -> str:
        return (self.home / "hostd" / "home-id").read_text().strip()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    home = tmp_path / "home"
    made = Server(home, tmp_path / "config")
    made.up()
    try:
        yield made
    finally:
        made.muster("down", "--all", "--yes", seconds=120)
        assert made.process is not None
        made.process.wait(30)
        home_id = made.home_id
        for _ in range(300):  # hostd leaves once nobody has needed it for some seconds
            if not residue(home, home_id):
                break
            time.sleep(0.1)
        assert residue(home, home_id) == []


def test_up_create_ssh_resize_and_down(server: Server) -> None:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
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


def test_clusters_run_on_while_muster_is_killed(server: Server) -> None:
    server.muster("cluster", "create", "demo", "--type", "slurm", "--gpus", "8", "--wait")
    job = server.muster("ssh", "demo", "sbatch", "--parsable", "--wrap='sleep 600'").strip()
    server.kill()
    server.up()
    assert job in server.muster("ssh", "demo", "squeue", "-h", "-o", "%i:%T")
    assert "RUNNING" in server.muster("ssh", "demo", "squeue", "-h", "-o", "%i:%T")

"""`tp` on real Slurm nodes: ssh, storage that keeps its files, and jobs that really run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from muster.testing.local import cache, residue, why_not

from .conftest import ID, TP, Tenant

MUSTER = [sys.executable, "-m", "muster.cli.main"]
TRAIN = '''
"""A line fitted to points by gradient descent, each node on its half of them, gradients summed over TCP."""
import json, os, socket, subprocess, sys, time

rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
names = subprocess.check_output(["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]], text=True)
head = (names.split()[0], 29500)
if rank == 0:
    door = socket.create_server(("", head[1]))
    peers = [door.accept()[0].makefile("rw") for _ in range(size - 1)]
else:
    for _ in range(200):
        try:
            peers = [socket.create_connection(head, 2).makefile("rw")]
            break
        except OSError:
            time.sleep(0.1)

def summed(values):
    if rank == 0:
        for peer in peers:
            values = [a + b for a, b in zip(values, json.loads(peer.readline()))]
        for peer in peers:
            print(json.dumps(values), file=peer, flush=True)
        return values
    print(json.dumps(values), file=peers[0], flush=True)
    return json.loads(peers[0].readline())

points = [(x / 50, 3 * x / 50 + 1) for x in range(100)][rank::size]
a = b = 0.0
for step in range(300):
    wrong = [(a * x + b - y, x) for x, y in points]
    da, db = summed([sum(e * x for e, x in wrong) / 50, sum(e for e, _ in wrong) / 50])
    a, b = a - 0.3 * da, b - 0.3 * db
print(f"rank {rank} on {socket.gethostname()}: a={a:.2f} b={b:.2f} venv={'VIRTUAL_ENV' in os.environ}", flush=True)
if rank == 0:
    os.makedirs("out", exist_ok=True)
    json.dump({"a": a, "b": b, "ignored": os.path.exists("scratch/big")}, open("out/model.json", "w"))
'''
CONFIG = 'commands = ["srun python train.py"]\noutputs = ["out/*.json"]\nignore = ["scratch"]\n'


class Fleet:
    """A server on real nodes, as `muster up --fleet local` makes it."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self._log = directory / "up.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        self._environment = {
            **clean,
            "MUSTER_HOME": str(self.home),
            "MUSTER_CACHE": str(cache()),
            "XDG_CONFIG_HOME": str(directory / "config"),
        }

    def up(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*MUSTER, "up", "--fleet", "local", "--port", "0", "--hosts", "16"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        for _ in range(1200):
            if (self.home / "run" / "server.json").exists():
                return
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.05)
        raise AssertionError(self._log.read_text())

    def down(self) -> None:
        subprocess.run(
            [*MUSTER, "down", "--all", "--yes"], env=self._environment, capture_output=True, timeout=120, check=True
        )
        self._process.wait(30)
        home_id = (self.home / "hostd" / "home-id").read_text().strip()
        for _ in range(300):
            if not residue(self.home, home_id):
                return
            time.sleep(0.1)
        raise AssertionError(residue(self.home, home_id))


class Person(Tenant):
    """A tenant with an SSH key and a configuration of its own, so that nothing is left in anybody's home."""

    def environ(self) -> dict[str, str]:
        return {**super().environ(), "PATH": f"{self.home / 'bin'}:/usr/bin:/bin"}

    def furnish(self) -> str:
        """Makes the key; the path of its public half."""
        key = self.home / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        config = self.home / "ssh_config"
        config.write_text(f"IdentityFile {key}\nUserKnownHostsFile {self.home / 'known_hosts'}\nLogLevel ERROR\n")
        (self.home / "bin").mkdir()
        ssh = self.home / "bin" / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n')
        ssh.chmod(0o755)
        return f"{key}.pub"


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    if not TP.exists():
        pytest.skip("needs tensorpool 0.0.9: ./check compat makes its environment")
    if missing := why_not():
        pytest.skip(missing)
    if shutil.which("rsync") is None:
        pytest.skip("needs rsync: apt-get install rsync")
    directory = tmp_path_factory.mktemp("real")
    fleet = Fleet(directory)
    fleet.up()
    try:
        url = json.loads((fleet.home / "run" / "server.json").read_text())["url"]
        key = (fleet.home / "tenant.key").read_text().strip()
        (directory / "person").mkdir()
        yield Person(url, key, "", directory / "person", httpx.Client())
    finally:
        fleet.down()


def test_a_day_with_tp(person: Person) -> None:
    public = person.furnish()
    cluster = person.cluster("1xH100", "-n", "2", "-i", public, "--name", "real")
    nodes = person.good("GET", f"/cluster/info/{cluster}")["cluster"]["instances"]
    assert [person.tp("ssh", node["instance_id"], "hostname").split()[-1] for node in nodes] == [
        node["name"] for node in nodes
    ]
    _storage_keeps_its_files(person, cluster, nodes[0]["instance_id"])
    _jobs_run(person, cluster)


def _storage_keeps_its_files(person: Person, cluster: str, node: str) -> None:
    found = ID.search(person.tp("storage", "create", "1", "--wait"))
    assert found
    storage = found[0]
    person.tp("cluster", "attach", cluster, storage, "--wait")
    _eventually(person, node, f"findmnt -n /mnt/{storage} >/dev/null && echo there", "there")
    person.tp("ssh", node, f"sudo sh -c 'echo kept > /mnt/{storage}/file'")
    person.tp("cluster", "detach", cluster, storage, "--wait")
    _eventually(person, node, f"findmnt -n /mnt/{storage} >/dev/null || echo gone", "gone")
    person.tp("cluster", "attach", cluster, storage, "--wait")
    _eventually(person, node, f"cat /mnt/{storage}/file", "kept")
    person.tp("cluster", "detach", cluster, storage, "--wait")
    person.tp("storage", "destroy", storage, "--no-input", "--wait")


def _eventually(person: Person, node: str, command: str, wanted: str) -> None:
    said = ""
    for _ in range(20):
        said = subprocess.run(
            [str(TP), "ssh", node, command], env=person.environ(), capture_output=True, text=True, check=False
        ).stdout
        if said.split()[-1:] == [wanted]:
            return
    raise AssertionError(f"{command}: {said!r}")


def _jobs_run(person: Person, cluster: str) -> None:
    project = person.home / "project"
    (project / "scratch").mkdir(parents=True)
    (project / "scratch" / "big").write_text("not needed there")
    (project / "train.py").write_text(TRAIN)
    (project / "job.tp.toml").write_text(CONFIG)
    (project / "sleep.tp.toml").write_text('commands = ["echo asleep", "sleep 600"]\n')
    home, person.home = person.home, project
    tp_home = {"PATH": f"{home / 'bin'}:/usr/bin:/bin"}
    person.environ = lambda: {**Tenant.environ(person), **tp_home}  # type: ignore[method-assign]
    job = _pushed(person, "job.tp.toml", cluster)
    heard = person.tp("job", "listen", job)
    assert heard.count("a=3.00 b=1.00 venv=True") == 2, heard
    assert "worker-1" in heard
    person.tp("job", "pull", job)
    model = json.loads((project / "out" / "model.json").read_text())
    assert (round(model["a"], 2), round(model["b"], 2), model["ignored"]) == (3.0, 1.0, False)
    sleeper = _pushed(person, "sleep.tp.toml", cluster)
    for _ in range(60):
        if person.good("GET", f"/job/info/{sleeper}")["job_info"]["status"] == "running":
            break
        time.sleep(0.25)
    person.tp("job", "pull", sleeper)
    assert (project / sleeper / "train.py").exists(), "a live job's directory comes by rsync"
    person.tp("job", "cancel", sleeper, "--no-input", "--wait")
    last = _pushed(person, "job.tp.toml", cluster, "--teardown")
    person.tp("job", "listen", last)
    for _ in range(240):
        if person.ask("GET", f"/cluster/info/{cluster}").status_code == 404:
            break
        time.sleep(0.25)
    else:
        raise AssertionError(person.tp("cluster", "info", cluster))
    assert "a=3.00" in person.tp("job", "listen", job), "what a job said outlives its cluster"
    assert set(person.good("GET", f"/job/pull/{last}")["download_map"]) == {"out/model.json", f"job-{last}.log"}


def _pushed(person: Person, config: str, cluster: str, *words: str) -> str:
    told = person.tp("job", "push", config, cluster, *words)
    found = ID.search(told[told.index("Job ") :])
    assert found, told
    return found[0]

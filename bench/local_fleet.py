"""Real clusters beside a bare start of the same daemons, interleaved in one run: ratios, acceptance apart, memory.

What is compared: from the accepted call to every daemon up and every worker idle, then `srun` over all of them. Bare
nodes pass no acceptance test, so the time Muster spends on it is told apart.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.bare_nodes import Bare, srun
from bench.harness import http
from muster.hostd.rootfs import rootfs_path
from muster.testing.local import cache, why_not
from muster.testing.local_server import LocalServer

SIZES = (2, 8, 32)
GOAL = 1.5
AT_ONCE = 10
WAIT_SECONDS = 120


class Timed(NamedTuple):
    started: float  # from accepted to all daemons up, and srun over all nodes
    acceptance: float
    memory_mb: float  # charged to the cluster's group, per node


class House:
    """A server on a home of its own, and its API."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        url = json.loads((server.home / "run" / "server.json").read_text())["url"]
        self._clusters = f"{url}/muster/v1/clusters"
        self._key = (server.home / "tenant.key").read_text().strip()

    def create(self, name: str, workers: int) -> str:
        body = {"name": name, "type": "slurm", "gpu_type": "H100_SXM", "gpus": 8 * workers}
        status, made = http("POST", self._clusters, self._key, body)
        assert status == 201, made
        return str(made["id"])

    def ready(self, id: str) -> dict[str, Any]:
        status, seen = http("GET", f"{self._clusters}/{id}?wait=25", self._key)
        until = time.perf_counter() + WAIT_SECONDS
        while status == 200 and seen["phase"] != "ready" and time.perf_counter() < until:
            status, seen = http("GET", f"{self._clusters}/{id}?wait=25", self._key)
        assert status == 200, seen
        assert seen["phase"] == "ready", f"{seen['phase']}: {seen['because']}"
        return dict(seen)

    def delete(self, id: str) -> None:
        http("DELETE", f"{self._clusters}/{id}", self._key)
        while http("GET", f"{self._clusters}/{id}", self._key)[0] != 404:
            time.sleep(0.05)

    def login(self, seen: dict[str, Any]) -> int:
        node = next(node for node in seen["nodes"] if node["role"] == "login")
        record = json.loads((self.server.home / "hostd" / "nodes" / node["id"] / "record.json").read_bytes())
        return int(record["init"]["pid"])


def local(rounds: int) -> bool:
    because = why_not()
    if because:
        print(f"local: not measured: {because}")
        return True
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        server = LocalServer(Path(directory), hosts=256)
        server.up()
        try:
            house = House(server)
            met = [_beside(house, workers, rounds) for workers in SIZES]
            _at_once(house)
        finally:
            server.down()
    return all(met)


def _beside(house: House, workers: int, rounds: int) -> bool:
    bare, ours = [], []
    for number in range(rounds):
        bare.append(_bare(workers))
        ours.append(_ours(house, f"c{workers}-{number}", workers))
    reference, started = statistics.median(bare), statistics.median(timed.started for timed in ours)
    ok = started / reference <= GOAL
    print(
        f"local: {workers} workers: {started:.2f} s beside {reference:.2f} s bare: {started / reference:.2f} "
        f"(goal {GOAL}) {'met' if ok else 'MISSED'}; "
        f"acceptance {statistics.median(timed.acceptance for timed in ours):.2f} s more; "
        f"{statistics.median(timed.memory_mb for timed in ours):.0f} MB a node",
        flush=True,
    )
    return ok


def _bare(workers: int) -> float:
    bare = Bare(rootfs_path(cache()), workers)
    try:
        return bare.start()
    finally:
        bare.stop()


def _ours(house: House, name: str, workers: int) -> Timed:
    id = house.create(name, workers)
    seen = house.ready(id)
    at = {move["phase"]: _seconds(move["at"]) for move in seen["history"]}
    took = srun(house.login(seen), workers)
    memory = _charged_mb(house.server.home_id) / (workers + 2)
    house.delete(id)
    up, ready = at["testing"] - _seconds(seen["created_at"]), at["ready"] - at["testing"]
    return Timed(up + took, ready, memory)


def _at_once(house: House) -> None:
    began = time.perf_counter()
    ids = [house.create(f"many-{number}", 2) for number in range(AT_ONCE)]
    for id in ids:
        house.ready(id)
    print(f"local: {AT_ONCE} clusters of 2 workers at once: all ready after {time.perf_counter() - began:.1f} s")
    for id in ids:
        house.delete(id)


def _seconds(instant: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(instant.replace("Z", "+00:00")).timestamp()


def _charged_mb(home_id: str) -> float:
    """All memory of this home's nodes, files they wrote and cached included; one cluster runs at a time."""
    files = ("memory/muster-{}/memory.usage_in_bytes", "muster-{}/memory.current")
    found = [Path("/sys/fs/cgroup") / file.format(home_id) for file in files]
    return sum(int(path.read_text()) for path in found if path.exists()) / (1 << 20)

"""bench/run: Muster beside the bare reference, in turn, interleaved; medians, ratios, CPU per request, memory.

bench/run                    everything (about six minutes)
bench/run web                get, list and create through the native API
bench/run together           the same through Together's wire
bench/run start              first answer and memory at rest
bench/run fleet              10,000 hosts with 2,000 clusters: memory, and how long a full pass takes
bench/run place              placement decisions among 100,000 hosts
bench/run local              real clusters on this machine beside a bare start of the same daemons (root)
bench/run trace TRACE.csv    waiting and placing beside common schedulers, on a trace that you have (trace --help)
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench import trace
from bench.harness import Result, Server, cpu_seconds, creating, free_port, http, measure, memory_mb
from bench.local_fleet import local

REFERENCE_KEY = "reference-key"
RUNS = ("web", "together", "start", "fleet", "place", "local")
GOALS = {"get one": 0.5, "list of 100": 0.5, "create": 0.3}
CREATE = {"type": "slurm", "region": "us-central-8", "gpu_type": "H100_SXM", "gpus": 8}
TOGETHER_CREATE = {
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 8,
    "billing_type": "ON_DEMAND",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
}
SPREAD = (*["us-central-8"] * 6, *["us-central-4"] * 2, "Delhi", "Chennai")
"""Where the clusters of a whole fleet go: about as its hosts are spread."""
REFERENCE_CREATE = {"region": "region-1", "gpu_type": "H100_SXM", "num_gpus": 8, "cluster_type": "KUBERNETES"}


class Door(NamedTuple):
    """One way in: where clusters are, and what a create says and is answered."""

    title: str
    path: str
    create: dict[str, Any]
    name_field: str
    id_field: str
    status: int
    list_query: str


NATIVE = Door("web", "/muster/v1/clusters", CREATE, "name", "id", 201, "?limit=100")
TOGETHER = Door("together", "/v1/compute/clusters", TOGETHER_CREATE, "cluster_name", "cluster_id", 200, "")


def reference(directory: Path) -> tuple[Server, str]:
    port = free_port()
    command = [
        sys.executable, "-m", "uvicorn", "bench.reference:app", "--host", "127.0.0.1", "--port", str(port),
        "--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    return Server(command, f"{url}/v1/clusters", env={"BENCH_DB": str(directory / "reference.db")}), url


def muster(home: Path, *flags: str) -> tuple[Server, str, str, str]:
    port = free_port()
    command = [
        sys.executable, "-m", "muster.cli.main", "up", "--home", str(home), "--port", str(port),
        "--fleet", "simulated", "--limits", "off", *flags,
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    server = Server(command, f"{url}/healthz", seconds=300)
    wait_ready(url)
    return server, url, (home / "tenant.key").read_text().strip(), (home / "operator.key").read_text().strip()


def wait_ready(url: str) -> None:
    for _ in range(3000):
        if http("GET", f"{url}/readyz", "")[0] == 200:
            return
        time.sleep(0.1)
    raise RuntimeError("muster was never ready")


def web(door: Door, rounds: int, seconds: int) -> bool:
    print(f"{door.title}: 16 connections, {rounds} rounds of {seconds} s each, interleaved, medians", flush=True)
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        home = Path(directory)
        theirs, their_url = reference(home)
        ours, our_url, key, operator = muster(home / "home", "--hosts", "200000")
        with theirs, ours:
            first = seed_documents(door, their_url, our_url, key)
            keys = (key, another_key(our_url, operator))
            table = interleaved(door, theirs, their_url, ours, our_url, keys, first, rounds, seconds)
            ok = told(table)
            print(f"engine: {engine_share(ours, our_url)}")
    return ok


def another_key(url: str, operator: str) -> str:
    """Of a project of its own, for what is created while others list: not every wire has pages."""
    native = f"{url}/muster/v1"
    _, account = http("POST", f"{native}/accounts", operator, {"name": "maker", "postpaid": True})
    _, project = http("POST", f"{native}/projects", operator, {"name": "maker", "account_id": account["id"]})
    _, key = http("POST", f"{native}/keys", operator, {"name": "m", "role": "admin", "project_id": project["id"]})
    return str(key["secret"])


def seed_documents(door: Door, their_url: str, our_url: str, key: str) -> tuple[str, str]:
    """A hundred clusters each; the id of one."""
    theirs = ours = ""
    for number in range(100):
        status, made = http(
            "POST", f"{their_url}/v1/clusters", REFERENCE_KEY, {**REFERENCE_CREATE, "cluster_name": "x"}
        )
        assert status == 201, made
        theirs = made["cluster_id"]
        body = {**door.create, door.name_field: f"seed-{number}"}
        status, made = http("POST", our_url + door.path, key, body)
        assert status == door.status, made
        ours = made[door.id_field]
    return theirs, ours


def interleaved(
    door: Door,
    theirs: Server,
    their_url: str,
    ours: Server,
    our_url: str,
    keys: tuple[str, str],
    first: tuple[str, str],
    rounds: int,
    seconds: int,
) -> dict[str, list[tuple[Result, Result]]]:
    base = our_url + door.path
    reader, maker = keys
    table: dict[str, list[tuple[Result, Result]]] = {goal: [] for goal in GOALS}
    for turn in range(rounds):
        table["get one"].append(
            (
                measure(theirs, ours, f"{their_url}/v1/clusters/{first[0]}", REFERENCE_KEY, seconds=seconds),
                measure(ours, theirs, f"{base}/{first[1]}", reader, seconds=seconds),
            )
        )
        table["list of 100"].append(
            (
                measure(theirs, ours, f"{their_url}/v1/clusters?limit=100", REFERENCE_KEY, seconds=seconds),
                measure(ours, theirs, base + door.list_query, reader, seconds=seconds),
            )
        )
        tag = f"b{os.getpid()}-{turn}"
        table["create"].append(
            (
                measure(
                    theirs,
                    ours,
                    f"{their_url}/v1/clusters",
                    REFERENCE_KEY,
                    lua=creating("/v1/clusters", REFERENCE_CREATE, "cluster_name", tag),
                    seconds=seconds,
                ),
                measure(
                    ours,
                    theirs,
                    base,
                    maker,
                    lua=creating(door.path, door.create, door.name_field, tag),
                    seconds=seconds,
                ),
            )
        )
    return table


def told(table: dict[str, list[tuple[Result, Result]]]) -> bool:
    ok = True
    rates = f"{'':14}{'reference/s':>12}{'muster/s':>10}{'ratio':>8}{'goal':>6}"
    print(f"{rates}{'ref µs':>9}{'muster µs':>11}{'p99 ms':>8}{'bad':>5}")
    for name, rounds in table.items():
        ratio = statistics.median(ours.rps / theirs.rps for theirs, ours in rounds)
        theirs_rps = statistics.median(theirs.rps for theirs, _ in rounds)
        ours_rps = statistics.median(ours.rps for _, ours in rounds)
        theirs_cpu = statistics.median(theirs.cpu_us for theirs, _ in rounds)
        ours_cpu = statistics.median(ours.cpu_us for _, ours in rounds)
        p99 = statistics.median(ours.p99_ms for _, ours in rounds)
        bad = sum(ours.bad for _, ours in rounds)
        met = ratio >= GOALS[name] and bad == 0
        ok = ok and met
        print(
            f"{name:14}{theirs_rps:12.0f}{ours_rps:10.0f}{ratio:8.2f}{GOALS[name]:6.1f}{theirs_cpu:9.0f}{ours_cpu:11.0f}"
            f"{p99:8.1f}{bad:5d}  {'met' if met else 'MISSED'}",
            flush=True,
        )
    return ok


def engine_share(server: Server, url: str) -> str:
    """What the engine had to do meanwhile, from the server's own metrics."""
    import urllib.request

    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    said = dict(line.rsplit(" ", 1) for line in lines if line.startswith("muster_engine_"))
    busy, steps = float(said["muster_engine_busy_seconds_total"]), float(said["muster_engine_steps_total"])
    cpu = cpu_seconds(server.process.pid)
    return (
        f"{busy:.1f} s of the server's {cpu:.1f} s CPU ({busy / cpu:.0%}), {steps:.0f} steps, "
        f"{float(said['muster_engine_failures_total']):.0f} failures, {said['muster_engine_due']} pieces of work due"
    )


def start() -> bool:
    """From process start to the first answer, on a home that exists; and memory at rest."""
    seconds, sizes = [], []
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        home = Path(directory) / "home"
        first = True
        for _ in range(6):
            server, _, _, _ = muster(home)
            with server:
                time.sleep(2)
                if not first:
                    seconds.append(server.first_answer_seconds)
                    sizes.append(memory_mb(server.process.pid))
            first = False
    answer, size = statistics.median(seconds), statistics.median(sizes)
    ok = answer <= 1.5 and size <= 120
    print(
        f"start: first answer after {answer:.2f} s (goal 1.5), {size:.0f} MB at rest (goal 120)"
        f" {'met' if ok else 'MISSED'}"
    )
    return ok


def fleet() -> bool:
    """10,000 hosts, 2,000 clusters brought to ready, then one full pass."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        server, url, key, operator = muster(Path(directory) / "home", "--hosts", "10000", "--time-scale", "1000")
        with server:
            made = 0
            while made < 2000:
                body = {**CREATE, "name": f"c{made}", "region": SPREAD[made % len(SPREAD)]}
                status, answer = http("POST", f"{url}/muster/v1/clusters", key, body)
                assert status == 201, answer
                made += 1
            began = time.perf_counter()
            while (waiting := not_ready(url, operator)) and time.perf_counter() - began < 600:
                print(f"  {waiting} clusters on their way", flush=True)
                time.sleep(5)
            settled = time.perf_counter() - began
            spent = cpu_seconds(server.process.pid)
            time.sleep(25)  # every settled cluster is looked at once in twenty seconds: that is a full pass
            spent = cpu_seconds(server.process.pid) - spent
            size = memory_mb(server.process.pid)
    ok = size <= 1024 and not waiting
    print(
        f"fleet: 10,000 hosts, 2,000 clusters: {size:.0f} MB (goal 1024), "
        f"ready {settled:.0f} s after the last create, "
        f"{spent / 25 * 20:.1f} s CPU to look at every cluster once, each 20 s {'met' if ok else 'MISSED'}"
    )
    return ok


def not_ready(url: str, operator: str) -> int:
    import re
    import urllib.request

    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    phases = re.findall(r'muster_clusters\{phase="(\w+)"\} ([\d.]+)', text)
    return int(sum(float(count) for phase, count in phases if phase != "ready"))


def place() -> bool:
    return subprocess.run([sys.executable, "bench/placement.py"], check=False).returncode == 0


def main() -> int:
    if sys.argv[1:2] == ["trace"]:  # needs a trace, so it is no part of everything
        trace.main(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(
        prog="bench/run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="*", choices=[[], *RUNS], help="default: everything")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    asked = parser.parse_args()
    what = asked.what or RUNS
    runs: dict[str, Any] = {
        "web": lambda: web(NATIVE, asked.rounds, asked.seconds),
        "together": lambda: web(TOGETHER, asked.rounds, asked.seconds),
        "start": start,
        "fleet": fleet,
        "place": place,
        "local": lambda: local(max(1, asked.rounds // 2)),
    }
    met = [runs[name]() for name in what]  # all of them, also after a miss
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())

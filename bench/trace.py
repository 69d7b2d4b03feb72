"""A trace through `muster replay`'s own functions, beside the plainest scheduler there is, in the same run.

    .venv/bin/python bench/trace.py TRACE.csv[.gz] --hosts 80 [--from-day 20]

The baseline: first come, first served, on the first hosts that fit; nobody overtakes.
"""

from __future__ import annotations

import argparse
import heapq
import time
from pathlib import Path

from muster.core.replay.figures import figures
from muster.core.replay.play import play
from muster.core.replay.trace import HOST_GPUS, Job, read_trace, regular_fleet


def first_come(jobs: list[Job], hosts: int) -> float:
    """The mean wait in hours."""
    free = [HOST_GPUS] * hosts
    running: list[tuple[int, int, int]] = []  # (end, host, GPUs)
    now, waited = 0, 0
    for job in jobs:
        now = max(now, job.at)
        while True:
            while running and running[0][0] <= now:
                _, host, gpus = heapq.heappop(running)
                free[host] += gpus
            fitting = [host for host in range(hosts) if free[host] >= job.gpus_per_node][: job.nodes]
            if len(fitting) == job.nodes:
                break
            now = running[0][0]
        for host in fitting:
            free[host] -= job.gpus_per_node
            heapq.heappush(running, (now + job.length, host, job.gpus_per_node))
        waited += now - job.at
    return waited / len(jobs) / 3_600_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--hosts", type=int, default=80)
    parser.add_argument("--from-day", type=float, default=0)
    options = parser.parse_args()
    jobs = read_trace(options.trace, from_day=options.from_day)
    jobs = [job for job in jobs if job.nodes <= options.hosts]
    began = time.perf_counter()
    told = figures(play(jobs, regular_fleet(options.hosts, 8, 5)))
    seconds = time.perf_counter() - began
    print(f"{len(jobs)} asks on {options.hosts} hosts in {seconds:.1f} s")
    print(f"first come, first served: mean wait {first_come(jobs, options.hosts):.2f} h")
    print("muster: " + ", ".join(f"{name} {value:.3f}" for name, value in told.items() if isinstance(value, float)))


if __name__ == "__main__":
    main()

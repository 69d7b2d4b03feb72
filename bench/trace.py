"""A trace through `muster replay`'s own functions, beside the plainest schedulers there are, in the same run.

    .venv/bin/python bench/trace.py TRACE.csv[.gz] --hosts 80 [--from-day 20] [--reserved-hosts 40]

On demand, beside first come, first served on the first hosts that fit, where nobody overtakes. As reservations,
beside a count of hosts per hour written in the plainest way, on the same windows: the calendar must promise as much.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Sequence
from pathlib import Path

from muster.core.capacity.calendar import CELL
from muster.core.replay.figures import figures, promise_figures
from muster.core.replay.play import Window, Windows, asked_windows, play, promise
from muster.core.replay.trace import HOST_GPUS, Job, read_trace, regular_fleet
from muster.model.base import HOUR

DRAWS = 5


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
    return waited / len(jobs) / HOUR


def counted(asked: Sequence[Window], hosts: int, slack_hours: int) -> int:
    """Host-milliseconds that a plain count of hosts per hour accepts."""
    used = [0] * (max((window.start + window.cells for window in asked), default=0) + slack_hours + 1)
    accepted = 0
    for window in asked:
        for start in range(window.start, window.start + slack_hours + 1):
            end = start + window.cells
            if max(used[start:end]) + window.hosts <= hosts:
                used[start:end] = [count + window.hosts for count in used[start:end]]
                accepted += window.host_ms
                break
    return accepted


def reservations(jobs: list[Job], hosts: int) -> None:
    for slack in (0, 6, 24):
        windows = Windows(slack=slack * CELL, draws=DRAWS)
        told = promise(jobs, hosts, windows)
        plain = sum(counted(asked_windows(jobs, windows, draw), hosts, slack) for draw in range(DRAWS))
        print(
            f"reservations on {hosts} hosts, {slack:>2} h of slack: {promise_figures(told)['reserved_share']:.4f} of "
            f"host-hours promised, {told.accepted_host_ms / plain:.4f} of the plain count"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--hosts", type=int, default=80)
    parser.add_argument("--reserved-hosts", type=int, default=40)
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
    reservations(jobs, options.reserved_hosts)


if __name__ == "__main__":
    main()

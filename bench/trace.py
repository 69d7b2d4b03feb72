"""A trace through `muster replay`'s own functions, beside the plainest schedulers there are, in the same run.

    bench/run trace TRACE.csv[.gz] --hosts 80 [--from-day 20] [--reserved-hosts 40]
                    [--gang-hosts 640] [--topology HOSTS.csv]

On demand, beside first come, first served on the first hosts that fit, where nobody overtakes, and beside EASY
backfill (`bench/easy.py`). As gangs, where one GPU of the trace is one whole host: how many sit in one leaf and how
long they wait, by how far ahead a leaf may be waited for, beside EASY on the same hosts. As reservations, beside a
count of hosts per hour written in the plainest way, on the same windows: the calendar must promise as much.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.easy import easy
from muster.core.capacity.calendar import CELL
from muster.core.capacity.waiting import Patience
from muster.core.replay.figures import figures, promise_figures
from muster.core.replay.play import Window, Windows, asked_windows, play, promise
from muster.core.replay.trace import HOST_GPUS, Job, fleet_of_topology, read_trace, regular_fleet
from muster.model.base import HOUR
from muster.model.hosts import Host

DRAWS = 5
AHEAD_HOURS = (0, 2, 4)


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


def on_demand(jobs: list[Job], hosts: int) -> None:
    fleet = regular_fleet(hosts, 8, 5)
    began = time.perf_counter()
    told = figures(play(jobs, fleet))
    print(f"{len(jobs)} asks on {hosts} hosts in {time.perf_counter() - began:.1f} s")
    print("muster: " + ", ".join(f"{name} {value:.3f}" for name, value in told.items() if isinstance(value, float)))
    print(f"first come, first served: mean wait {first_come(jobs, hosts):.2f} h")
    bar = figures(easy(jobs, fleet))
    print(f"easy: {waits(bar)}")
    print(f"muster: {waits(told)}; of easy's: {of(told, bar, 'mean_wait_h')} and {of(told, bar, 'weighted_wait_h')}")


def gangs(jobs: list[Job], fleet: list[Host]) -> None:
    bar = figures(easy(jobs, fleet))
    print(f"gangs, {len(jobs)} asks on {len(fleet)} hosts; easy: {leaves(bar)}")
    for hours in AHEAD_HOURS:
        told = figures(play(jobs, fleet, patience=Patience(hours * HOUR)))
        ratio = of(told, bar, "multi_host_wait_h")
        print(f"muster, a leaf {hours} h ahead: {leaves(told)}; {ratio} of easy's wait")


def waits(told: dict[str, Any]) -> str:
    return f"mean wait {told['mean_wait_h']:.2f} h, weighted {told['weighted_wait_h']:.2f} h"


def leaves(told: dict[str, Any]) -> str:
    return f"{told['one_leaf_share'] or 0:.3f} in one leaf, wait {told['multi_host_wait_h']:.2f} h"


def of(told: dict[str, Any], bar: dict[str, Any], key: str) -> str:
    return f"{told[key] / bar[key]:.2f}" if bar[key] else "-"


def fitting(jobs: list[Job], hosts: int) -> list[Job]:
    return [job for job in jobs if job.nodes <= hosts]


def main(said: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench/run trace", description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--hosts", type=int, default=80)
    parser.add_argument("--reserved-hosts", type=int, default=40)
    parser.add_argument("--gang-hosts", type=int, default=640)
    parser.add_argument(
        "--topology", type=Path, help="of the hosts for gangs; else leaves of 16 hosts, pods of 8 leaves"
    )
    parser.add_argument("--from-day", type=float, default=0)
    options = parser.parse_args(said)
    jobs = fitting(read_trace(options.trace, from_day=options.from_day), options.hosts)
    on_demand(jobs, options.hosts)
    count = options.gang_hosts
    fleet = fleet_of_topology(options.topology, count) if options.topology else regular_fleet(count, 16, 8)
    gangs(fitting(read_trace(options.trace, from_day=options.from_day, gpu_is_host=True), len(fleet)), fleet)
    reservations(jobs, options.reserved_hosts)


if __name__ == "__main__":
    main()

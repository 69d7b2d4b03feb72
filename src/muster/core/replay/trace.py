"""Reading a trace and the fleet it is played on.

A trace is CSV (plain or .gz) with submit_time and duration in seconds, gpus, and optionally tenant. A topology is CSV
with pod and leaf per host. Leans on the model only.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from muster.errors import Invalid
from muster.model.base import DAY, SECOND, Instant
from muster.model.hosts import Host

REGION = "replay"
GPU_TYPE = "GPU"
HOST_GPUS = 8


class Job(NamedTuple):
    """One ask: `nodes` nodes of `gpus_per_node` GPUs, submitted at `at` for `length`."""

    at: Instant
    length: Instant
    gpus: int  # as asked
    nodes: int
    gpus_per_node: int
    tenant: str

    @property
    def work(self) -> int:
        """GPU-milliseconds as asked."""
        return self.gpus * self.length


def read_trace(
    path: Path, *, from_day: float = 0, to_day: float | None = None, gpu_is_host: bool = False
) -> list[Job]:
    """The asks of these days, earliest first; the first is at 0."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    rows = list(csv.DictReader(text.splitlines()))
    try:
        jobs = [_job(row, gpu_is_host) for row in rows]
    except (KeyError, ValueError) as error:
        raise Invalid(f"{path.name} is no trace: {error}", hint="columns: submit_time, duration, gpus") from error
    jobs.sort(key=lambda job: job.at)
    origin = jobs[0].at if jobs else 0
    last = None if to_day is None else to_day * DAY
    kept = [job for job in jobs if job.at - origin >= from_day * DAY and (last is None or job.at - origin < last)]
    first = kept[0].at if kept else 0
    return [job._replace(at=job.at - first) for job in kept]


def _job(row: dict[str, str], gpu_is_host: bool) -> Job:
    gpus = int(row["gpus"]) * (HOST_GPUS if gpu_is_host else 1)
    whole = gpus >= HOST_GPUS
    return Job(
        at=round(float(row["submit_time"]) * SECOND),
        length=max(1, round(float(row["duration"]) * SECOND)),
        gpus=gpus,
        nodes=-(-gpus // HOST_GPUS) if whole else 1,
        gpus_per_node=HOST_GPUS if whole else gpus,
        tenant=row.get("tenant") or "",
    )


def regular_fleet(hosts: int, leaf_hosts: int, pod_leaves: int) -> list[Host]:
    leaves = [n // leaf_hosts for n in range(hosts)]
    return [_host(n, f"pod-{leaf // pod_leaves:04d}", f"leaf-{leaf:05d}") for n, leaf in enumerate(leaves)]


def fleet_of_topology(path: Path, hosts: int | None) -> list[Host]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"pod", "leaf"} <= rows[0].keys():
        raise Invalid(f"{path.name} is no topology", hint="columns: pod, leaf")
    rows.sort(key=lambda row: (row["pod"], row["leaf"]))
    return [_host(n, row["pod"], row["leaf"]) for n, row in enumerate(rows[:hosts])]


def fleet_of_places(places: Sequence[tuple[str, str]]) -> list[Host]:
    """Hosts at these pods and leaves, as if all were of one region and type."""
    return [_host(n, pod, leaf) for n, (pod, leaf) in enumerate(places)]


def _host(n: int, pod: str, leaf: str) -> Host:
    return Host(
        id=f"host-{n:06d}",
        name=f"host-{n:06d}",
        region=REGION,
        pod=pod,
        leaf=leaf,
        gpu_type=GPU_TYPE,
        slots=HOST_GPUS,
        cpus=1,
        memory_gib=1,
        substrate="replay",
        created_at=0,
    )

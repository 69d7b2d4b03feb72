"""Playing a trace: asks come, wait, start where placement says, and end; or are promised windows on the calendar.

Leans on the placement index, the waiting list and the calendar, the very functions the service calls. Time is
virtual: it goes from event to event.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from muster.clock import SeededEntropy
from muster.core.capacity.calendar import CELL, Line, Promise, end_cell, first_cell
from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import Ask, Placement
from muster.core.capacity.waiting import Patience, Waiting, starters
from muster.core.replay.trace import GPU_TYPE, HOST_GPUS, REGION, Job
from muster.model.base import HOUR, Instant
from muster.model.hosts import Host


class Outcome(NamedTuple):
    """What became of one ask: when it started (None = never) and over how many leaves."""

    job: Job
    started: Instant | None
    leaves: int = 0

    @property
    def wait(self) -> Instant:
        return 0 if self.started is None else self.started - self.job.at


class Busy(NamedTuple):
    """GPUs in use, integrated over time: until the last ask came, and while anybody waited."""

    used: float
    span: Instant
    used_queued: float
    span_queued: Instant


class Moment(NamedTuple):
    """From this instant to the next one: GPUs in use, and asks that wait."""

    at: Instant
    used: int
    waiting: int


class Played(NamedTuple):
    outcomes: list[Outcome]
    busy: Busy
    gpus: int
    largest_leaf: int
    course: list[Moment]


class _Meter:
    def __init__(self, until: Instant) -> None:
        self.until, self.last, self.used = until, 0, 0
        self.total = self.queued = 0.0
        self.span_queued = 0

    def to(self, now: Instant, waiting: bool) -> None:
        within = min(now, self.until) - self.last
        if within > 0:
            self.total += self.used * within
        if waiting:
            self.queued += self.used * (now - self.last)
            self.span_queued += now - self.last
        self.last = now


def play(
    jobs: Sequence[Job],
    hosts: Sequence[Host],
    *,
    patience: Patience = Patience(),
    progress: Callable[[int], None] = lambda done: None,
) -> Played:
    """Every ask as an on-demand one that would rather wait than be refused."""
    index = indexed(hosts)
    meter = _Meter(jobs[-1].at if jobs else 0)
    outcomes: list[Outcome | None] = [None] * len(jobs)
    running: list[tuple[Instant, int, Placement]] = []
    queue: list[Waiting] = []
    course: list[Moment] = []
    coming = 0

    def take(one: Waiting, placement: Placement) -> None:
        index.take(placement.workers, now + one.length)
        job = jobs[one.key]
        outcomes[one.key] = Outcome(job, now, index.leaves_of(placement.workers))
        meter.used += job.nodes * job.gpus_per_node
        heapq.heappush(running, (now + one.length, one.key, placement))

    while coming < len(jobs) or running:
        now = min(jobs[coming].at if coming < len(jobs) else 1 << 62, running[0][0] if running else 1 << 62)
        meter.to(now, bool(queue))
        while running and running[0][0] <= now:
            _, key, placement = heapq.heappop(running)
            meter.used -= jobs[key].nodes * jobs[key].gpus_per_node
            for grant in placement.workers:
                index.free(grant.host_id, grant.slots)
        while coming < len(jobs) and jobs[coming].at <= now:
            queue.append(Waiting(coming, _ask(jobs[coming]), jobs[coming].length, jobs[coming].at))
            coming += 1
            progress(coming)
        if queue:
            gone = {start.key for start in starters(queue, index, now, take, patience)}
            queue = [one for one in queue if one.key not in gone] if gone else queue
        course.append(Moment(now, meter.used, len(queue)))
    busy = Busy(meter.total, meter.until, meter.queued, meter.span_queued)
    told = [found or Outcome(job, None) for found, job in zip(outcomes, jobs, strict=True)]
    return Played(told, busy, len(hosts) * HOST_GPUS, largest_leaf(hosts), course)


def indexed(hosts: Iterable[Host]) -> CapacityIndex:
    index = CapacityIndex()
    for host in hosts:
        index.set_host(host)
    return index


def _ask(job: Job) -> Ask:
    return Ask(REGION, GPU_TYPE, job.gpus_per_node, job.nodes)


def largest_leaf(hosts: Iterable[Host]) -> int:
    counts: dict[tuple[str, str], int] = {}
    for host in hosts:
        counts[host.pod, host.leaf] = counts.get((host.pod, host.leaf), 0) + 1
    return max(counts.values(), default=0)


class Windows(NamedTuple):
    """How asks become windows: a lead of up to so much, drawn so many times; a start that may slip by so much."""

    lead: Instant = 7 * 24 * HOUR
    slack: Instant = 0
    seed: int = 0
    draws: int = 1


class Window(NamedTuple):
    """Whole hosts asked for over cells of the calendar."""

    hosts: int
    start: int
    cells: int

    @property
    def host_ms(self) -> int:
        return self.hosts * self.cells * CELL


class Promises(NamedTuple):
    """What came of the windows, summed over all draws."""

    asked: int
    accepted: int
    asked_host_ms: int
    accepted_host_ms: int
    slipped: Instant  # how much later than asked the accepted ones begin
    host_ms: int  # what the fleet has from the first window to the last


def asked_windows(jobs: Sequence[Job], windows: Windows, draw: int = 0) -> list[Window]:
    """Every ask for whole hosts as a window of fixed length, in the order they ask."""
    dice = SeededEntropy(windows.seed + draw)
    found = []
    for job in jobs:
        if job.gpus_per_node == HOST_GPUS:
            start = first_cell(job.at + round(dice.chance() * windows.lead)) + 1
            found.append(Window(job.nodes, start, max(1, end_cell(job.length))))
    return found


def promise(
    jobs: Sequence[Job], hosts: int, windows: Windows, *, progress: Callable[[int], None] = lambda done: None
) -> Promises:
    """Windows promised first come, first served."""
    total = Promises(0, 0, 0, 0, 0, 0)
    for draw in range(windows.draws):
        once = _promise(asked_windows(jobs, windows, draw), hosts, windows.slack // CELL)
        total = Promises(*(sum(pair) for pair in zip(total, once, strict=True)))
    progress(len(jobs))
    return total


def _promise(asked: Sequence[Window], hosts: int, slack: int) -> Promises:
    line = Line(share_percent=100, spares=0)
    for n in range(hosts):
        line.set_host(str(n))
    accepted = accepted_ms = slipped = last = 0
    for n, window in enumerate(asked):
        found = begins(line, window, slack)
        if found is not None:
            line.put(str(n), Promise(window.hosts, found, found + window.cells))
            accepted, accepted_ms = accepted + 1, accepted_ms + window.host_ms
            slipped, last = slipped + (found - window.start) * CELL, max(last, found + window.cells)
    return Promises(
        len(asked), accepted, sum(window.host_ms for window in asked), accepted_ms, slipped, hosts * last * CELL
    )


def begins(line: Line, window: Window, slack: int) -> int | None:
    """The cell at which the calendar would let such a window begin."""
    if line.reservable_room(window.start, window.start + window.cells) >= window.hosts:
        return window.start
    return line.earliest(window.hosts, window.cells, window.start, window.start + slack) if slack else None

"""Playing a trace on lent hosts: some asks have right of way, the others use what is idle and give it back.

Leans on the very functions that lend and take back in the service (`core/capacity/preemption.py`). Whole hosts are
counted, as there; notice is not played, for it is minutes beside hours. *Law.* What was taken back begins anew: all
it had done is lost.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from muster.clock import SeededEntropy
from muster.core.capacity.preemption import Hold, Wish, fill, victims
from muster.core.replay.play import Busy, Moment, Outcome, Played
from muster.core.replay.trace import HOST_GPUS, Job
from muster.model.base import Instant

WISHES_MAX: Final = 64
"""Of those that wait for idle hosts, so many are weighed at a time."""


class Lent(NamedTuple):
    """What was played, and GPU-milliseconds of work that were lost to reclaiming and done in vain."""

    played: Played
    lost: int


class _Fleet:
    """Hosts by count: who runs until when, who waits, what was lost."""

    def __init__(self, jobs: Sequence[Job], hosts: int, lent: Sequence[bool]) -> None:
        self.jobs, self.free, self.lent = jobs, hosts, lent
        self.began: dict[int, Instant] = {}  # running
        self.ends: list[tuple[Instant, int, Instant]] = []  # (end, job, began): one that was taken back is stale
        self.first: list[int] = []  # with right of way, waiting
        self.idle: list[int] = []  # waiting for idle hosts
        self.held = Counter[str]()  # lent hosts by tenant
        self.losses = Counter[str]()
        self.lost = 0

    def start(self, n: int, now: Instant) -> None:
        self.began[n] = now
        self._count(n, self.jobs[n].nodes)
        heapq.heappush(self.ends, (now + self.jobs[n].length, n, now))

    def _count(self, n: int, hosts: int) -> None:
        self.free -= hosts
        if self.lent[n]:
            self.held[self.jobs[n].tenant] += hosts

    def ended(self, now: Instant) -> list[int]:
        """Those that are done by now."""
        done = []
        while self.ends and self.ends[0][0] <= now:
            _, n, began = heapq.heappop(self.ends)
            if self.began.get(n) == began:
                del self.began[n]
                self._count(n, -self.jobs[n].nodes)
                done.append(n)
        return done

    def serve(self, now: Instant) -> None:
        """Right of way first, in order; then what is idle is lent."""
        while self.first and self._make_room(self.jobs[self.first[0]].nodes, now):
            self.start(self.first.pop(0), now)
        if not self.idle or self.free <= 0:
            return
        fitting = islice((n for n in self.idle if self.jobs[n].nodes <= self.free), WISHES_MAX)
        wishes = [self._wish(n) for n in fitting]
        holding = [Wish(f"held {tenant}", tenant, count, count, 0) for tenant, count in self.held.items()]
        for key in fill(self.free, [*wishes, *holding]):
            self.idle.remove(int(key))
            self.start(int(key), now)

    def _wish(self, n: int) -> Wish:
        return Wish(str(n), self.jobs[n].tenant, self.jobs[n].nodes, 0, self.jobs[n].at, whole=True)

    def _make_room(self, nodes: int, now: Instant) -> bool:
        """Whether so many hosts are free, some of them taken back if need be."""
        lacking = nodes - self.free
        if lacking <= 0:
            return True
        if self.held.total() < lacking:
            return False
        holds = [
            Hold(str(n), self.jobs[n].tenant, began, self.jobs[n].nodes)
            for n, began in self.began.items()
            if self.lent[n]
        ]
        for key in victims(holds, lacking, now, self.losses):
            self._take_back(int(key), now)
        return True

    def _take_back(self, n: int, now: Instant) -> None:
        job = self.jobs[n]
        self.lost += (now - self.began.pop(n)) * job.nodes * HOST_GPUS
        self._count(n, -job.nodes)
        self.losses[job.tenant] += 1
        self.idle.append(n)


def play_lent(
    jobs: Sequence[Job], hosts: int, share: float, seed: int, progress: Callable[[int], None] = lambda done: None
) -> Lent:
    """Every ask for whole hosts; so large a share of them, drawn from the seed, on lent hosts."""
    jobs = [job for job in jobs if job.gpus_per_node == HOST_GPUS and job.nodes <= hosts]
    dice = SeededEntropy(seed)
    lent = [dice.chance() < share for _ in jobs]
    fleet = _Fleet(jobs, hosts, lent)
    outcomes = [Outcome(job, None) for job in jobs]
    course: list[Moment] = []
    last, used, coming, until = 0, 0, 0, jobs[-1].at if jobs else 0
    while coming < len(jobs) or fleet.ends:
        at = jobs[coming].at if coming < len(jobs) else fleet.ends[0][0]
        now = min(at, fleet.ends[0][0]) if fleet.ends else at
        used += (hosts - fleet.free) * HOST_GPUS * max(0, min(now, until) - last)
        last = now
        for n in fleet.ended(now):
            outcomes[n] = Outcome(jobs[n], now - jobs[n].length)
        while coming < len(jobs) and jobs[coming].at <= now:
            (fleet.idle if lent[coming] else fleet.first).append(coming)
            coming += 1
            progress(coming)
        fleet.serve(now)
        course.append(Moment(now, (hosts - fleet.free) * HOST_GPUS, len(fleet.first) + len(fleet.idle)))
    return Lent(Played(outcomes, Busy(used, until, 0, 0), hosts * HOST_GPUS, 0, course), fleet.lost)

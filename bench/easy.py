"""EASY backfill on known ends, as common schedulers have it: the bar that waiting and placing are measured against.

In order of coming. The first that finds no room is promised the earliest instant at which enough will be free; of the
next hundred whoever fits may overtake it, if over by then or off the promised hosts. Gangs go to the best-fitting
leaf, else to the tightest pod, over few leaves; slices to the host whose busy time they prolong least. Written apart
from `core/capacity`, on purpose: nothing here may get better or worse with what it is compared to.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import islice

from muster.core.replay.play import Busy, Outcome, Played, largest_leaf
from muster.core.replay.trace import HOST_GPUS, Job
from muster.model.base import Instant
from muster.model.hosts import Host

DEPTH = 100
"""So many behind the first are looked at."""
NEVER: Instant = 1 << 62
Leaf = tuple[str, str]


class _Fleet:
    def __init__(self, hosts: Sequence[Host]) -> None:
        self.leaf: list[Leaf] = [(host.pod, host.leaf) for host in hosts]
        self.free = [HOST_GPUS] * len(hosts)
        self.ends: list[dict[int, Instant]] = [{} for _ in hosts]  # of whom runs there, by job
        self.until = [0] * len(hosts)  # the last of these ends
        self.whole = set(range(len(hosts)))

    def pick(self, job: Job, now: Instant, barred: frozenset[int]) -> list[int]:
        """Hosts for it; none if it does not fit."""
        if job.gpus_per_node < HOST_GPUS:
            return self._pick_slice(job, now, barred)
        open_ = self.whole - barred
        return (
            gathered([(self.leaf[host], host) for host in sorted(open_)], job.nodes)
            if len(open_) >= job.nodes
            else []
        )

    def _pick_slice(self, job: Job, now: Instant, barred: frozenset[int]) -> list[int]:
        end, need = now + job.length, job.gpus_per_node
        fitting = (host for host, free in enumerate(self.free) if free >= need and host not in barred)
        found = min(
            ((max(0, end - max(self.until[host], now)), self.free[host], host) for host in fitting), default=None
        )
        return [] if found is None else [found[2]]

    def take(self, key: int, job: Job, picked: Iterable[int], end: Instant) -> None:
        for host in picked:
            self.free[host] -= job.gpus_per_node
            self.ends[host][key] = end
            self.until[host] = max(self.until[host], end)
            self.whole.discard(host)

    def give_back(self, key: int, job: Job, picked: Iterable[int]) -> None:
        for host in picked:
            self.free[host] += job.gpus_per_node
            del self.ends[host][key]
            self.until[host] = max(self.ends[host].values(), default=0)
            if self.free[host] == HOST_GPUS:
                self.whole.add(host)

    def promise(self, job: Job, jobs: Sequence[Job]) -> tuple[Instant, frozenset[int]]:
        """When enough will be free for one that finds no room now, and where."""
        if job.gpus_per_node == HOST_GPUS:
            until = sorted(self.until)[job.nodes - 1]
            by_then = sorted((host for host, end in enumerate(self.until) if end <= until), key=self._latest)
            return until, frozenset(by_then[: job.nodes])
        at, host = min((self._room(host, job.gpus_per_node, jobs), host) for host in range(len(self.free)))
        return at, frozenset([host])

    def _latest(self, host: int) -> Instant:
        return -self.until[host]

    def _room(self, host: int, need: int, jobs: Sequence[Job]) -> Instant:
        free = self.free[host]
        for end, key in sorted((end, key) for key, end in self.ends[host].items()):
            free += jobs[key].gpus_per_node
            if free >= need:
                return end
        return NEVER


def gathered(free: Sequence[tuple[Leaf, int]], need: int) -> list[int]:
    """So many of these hosts: of the best-fitting leaf, else of the tightest pod, else of the emptiest pods."""
    leaves: dict[Leaf, list[int]] = {}
    pods: dict[str, int] = {}
    for leaf, host in free:
        leaves.setdefault(leaf, []).append(host)
        pods[leaf[0]] = pods.get(leaf[0], 0) + 1
    fitting = [each for each in leaves.values() if len(each) >= need]
    if fitting:
        return min(fitting, key=len)[:need]
    enough = [pod for pod, count in pods.items() if count >= need]
    order = [min(enough, key=pods.__getitem__)] if enough else sorted(pods, key=lambda pod: -pods[pod])
    picked: list[int] = []
    for pod in order:
        left = sorted((each for leaf, each in leaves.items() if leaf[0] == pod), key=lambda each: -len(each))
        while left and len(picked) < need:
            last = [each for each in left if len(each) >= need - len(picked)]
            best = min(last, key=len) if last else left[0]
            left.remove(best)
            picked += best[: need - len(picked)]
    return picked


class _Easy:
    def __init__(self, jobs: Sequence[Job], hosts: Sequence[Host]) -> None:
        self.jobs, self.fleet = jobs, _Fleet(hosts)
        self.queue: list[int] = []
        self.running: list[tuple[Instant, int, list[int]]] = []
        self.outcomes = [Outcome(job, None) for job in jobs]

    def start(self, key: int, now: Instant, barred: frozenset[int] = frozenset()) -> bool:
        job = self.jobs[key]
        picked = self.fleet.pick(job, now, barred)
        if picked:
            self.fleet.take(key, job, picked, now + job.length)
            heapq.heappush(self.running, (now + job.length, key, picked))
            self.outcomes[key] = Outcome(job, now, len({self.fleet.leaf[host] for host in picked}))
        return bool(picked)

    def end(self, now: Instant) -> None:
        while self.running and self.running[0][0] <= now:
            _, key, picked = heapq.heappop(self.running)
            self.fleet.give_back(key, self.jobs[key], picked)

    def serve(self, now: Instant) -> None:
        while self.queue and self.start(self.queue[0], now):
            del self.queue[0]
        if len(self.queue) < 2:
            return
        at, promised = self.fleet.promise(self.jobs[self.queue[0]], self.jobs)
        gone = set()
        refused: dict[bool, tuple[int, int]] = {}  # room only shrinks now: whoever is larger need not try
        for key in islice(self.queue, 1, 1 + DEPTH):
            job = self.jobs[key]
            late, size = now + job.length > at, (job.gpus_per_node, job.nodes)
            if late in refused and size >= refused[late]:
                continue
            if self.start(key, now, promised if late else frozenset()):
                gone.add(key)
            else:
                refused[late] = size
        self.queue = [key for key in self.queue if key not in gone] if gone else self.queue


def easy(jobs: Sequence[Job], hosts: Sequence[Host]) -> Played:
    """As `play`, for waits and leaves: what is in use is not counted."""
    house, coming = _Easy(jobs, hosts), 0
    while coming < len(jobs) or house.running:
        now = min(jobs[coming].at if coming < len(jobs) else NEVER, house.running[0][0] if house.running else NEVER)
        house.end(now)
        while coming < len(jobs) and jobs[coming].at <= now:
            house.queue.append(coming)
            coming += 1
        house.serve(now)
    return Played(house.outcomes, Busy(0, 0, 0, 0), len(hosts) * HOST_GPUS, largest_leaf(hosts), [])

"""What a replay looks like over time and by size of ask: the numbers behind the plots. Pure.

Leans on what was played. *Law.* Classes of size do not depend on the run, so that two can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from muster.core.replay.figures import one_leaf_share, percentile
from muster.core.replay.play import Moment, Outcome, Played
from muster.core.replay.trace import HOST_GPUS, Job
from muster.model.base import HOUR, Instant

SPANS: Final = 160
"""A line has so many points: more cannot be told apart on a page."""


class Course(NamedTuple):
    """Means over equal spans of time, from 0 on."""

    span: Instant
    used: list[float]  # share of all GPUs
    waiting: list[float]  # asks


class Size(NamedTuple):
    """Asks of so many hosts, both included; (0, 0) are those for a part of one."""

    low: int
    high: int

    @property
    def label(self) -> str:
        if self.high < 2:
            return "1" if self.high else "part"
        return str(self.high) if self.low == self.high else f"{self.low}–{self.high}"


class Spread(NamedTuple):
    """How the waits of so many asks are spread, in hours."""

    asks: int
    quarter: float
    median: float
    three_quarters: float
    p95: float


class Series(NamedTuple):
    course: Course
    waits: list[float]  # hours, ascending
    spreads: Mapping[Size, Spread]
    one_leaf: Mapping[Size, float]  # of gangs that a leaf could hold


def series(played: Played) -> Series:
    started = [one for one in played.outcomes if one.started is not None]
    sizes = by_size(started)
    shares = {size: one_leaf_share(each, played.largest_leaf) for size, each in sizes.items() if size.high >= 2}
    return Series(
        course(played),
        sorted(one.wait / HOUR for one in started),
        {size: spread(each) for size, each in sizes.items()},
        {size: share for size, share in shares.items() if share is not None},
    )


def size_of(job: Job) -> Size:
    """Gangs by doubling: 2, 3-4, 5-8, 9-16, …: leaves are mostly powers of two."""
    if job.gpus_per_node < HOST_GPUS:
        return Size(0, 0)
    high: int = 1 << (job.nodes - 1).bit_length()
    return Size(high // 2 + 1, high)


def by_size(started: Iterable[Outcome]) -> dict[Size, list[Outcome]]:
    found: dict[Size, list[Outcome]] = {}
    for one in started:
        found.setdefault(size_of(one.job), []).append(one)
    return dict(sorted(found.items()))


def spread(each: list[Outcome]) -> Spread:
    waits = sorted(one.wait for one in each)
    quarter, median, three_quarters, p95 = (percentile(waits, share) / HOUR for share in (25, 50, 75, 95))
    return Spread(len(waits), quarter, median, three_quarters, p95)


def course(played: Played) -> Course:
    """Until the last ask came, or the last that waited began; if all came and began at once, until the last end."""
    moments = played.course
    queued = max((after.at for before, after in pairwise(moments) if before.waiting), default=0)
    until = max(played.busy.span, queued) or (moments[-1].at if moments else 0)
    span = max(1, -(-until // SPANS))
    used, waiting = [0.0] * SPANS, [0.0] * SPANS
    for before, after in pairwise(moments):
        for n, length in _spans(before, after, span):
            used[n] += before.used * length
            waiting[n] += before.waiting * length
    gpus = max(1, played.gpus)
    return Course(span, [total / span / gpus for total in used], [total / span for total in waiting])


def _spans(before: Moment, after: Moment, span: Instant) -> Iterable[tuple[int, Instant]]:
    """The spans that lie between two moments, and how much of each does."""
    at = before.at
    while at < after.at and at < span * SPANS:
        n = at // span
        end = min(after.at, (n + 1) * span)
        yield n, end - at
        at = end

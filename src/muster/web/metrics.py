"""What the server counts, in plain numbers.

Counting a request is three additions: the hottest answer of the house costs some tens of microseconds, and a labelled
client counter would be a tenth of that. The page they become is written by exposition.py, loaded when it is first
asked for: the client library brings a web server along, and a start should not wait for that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_SECONDS: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


class Meter:
    """The counts of one route."""

    __slots__ = ("buckets", "seconds", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.buckets = [0] * (len(LATENCY_SECONDS) + 1)
        self.seconds = 0.0

    def note(self, status: int, seconds: float) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.buckets[bisect_left(LATENCY_SECONDS, seconds)] += 1
        self.seconds += seconds


class Gauge(NamedTuple):
    """A figure of the house at this moment, by its labels' values."""

    name: str
    sentence: str
    labels: Sequence[str]
    samples: Sequence[tuple[Sequence[str], float]]
    grows: bool = False  # only ever: a counter


class Metrics:
    """Every route's meter, and the page that shows them."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, str], Meter] = {}

    def meter(self, dialect: str, route: str) -> Meter:
        return self._meters.setdefault((dialect, route), Meter())

    def page(self, gauges: Iterable[Gauge]) -> bytes:
        """Everything counted so far, and the house's own figures, as text."""
        from muster.web.exposition import page_of

        return page_of(self._meters, gauges)

"""What the server counts, in Prometheus' words.

Leans on prometheus-client for the format only: counting a request is three additions on plain numbers, because the
hottest answer of the house costs some tens of microseconds and a labelled client counter would be a tenth of that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
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
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Once([*self._families(), *map(_gauge, gauges)]))
        return generate_latest(registry)

    def _families(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("muster_requests", "Answered requests.", labels=("dialect", "route", "status"))
        latency = HistogramMetricFamily(
            "muster_request_seconds", "From the first byte read to the last handed over.", labels=("dialect", "route")
        )
        for (dialect, route), meter in self._meters.items():
            for status, count in meter.statuses.items():
                requests.add_metric((dialect, route, str(status)), count)
            if meter.statuses:
                latency.add_metric((dialect, route), buckets=_cumulative(meter), sum_value=meter.seconds)
        yield requests
        yield latency


class _Once(Collector):
    """Families already gathered, handed over as they are."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _cumulative(meter: Meter) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*map(str, LATENCY_SECONDS), "+Inf"), meter.buckets, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


def _gauge(gauge: Gauge) -> Metric:
    kind = CounterMetricFamily if gauge.grows else GaugeMetricFamily
    family = kind(gauge.name, gauge.sentence, labels=gauge.labels)
    for values, figure in gauge.samples:
        family.add_metric(values, figure)
    return family

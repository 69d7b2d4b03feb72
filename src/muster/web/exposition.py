"""The metrics page, in Prometheus' words. Leans on prometheus-client for the format only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from muster.web.metrics import LATENCY_SECONDS, Gauge, Meter


def page_of(meters: Mapping[tuple[str, str], Meter], gauges: Iterable[Gauge]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once([*_families(meters), *map(_gauge, gauges)]))
    return generate_latest(registry)


def _families(meters: Mapping[tuple[str, str], Meter]) -> Iterator[Metric]:
    requests = CounterMetricFamily("muster_requests", "Answered requests.", labels=("dialect", "route", "status"))
    latency = HistogramMetricFamily(
        "muster_request_seconds", "From the first byte read to the last handed over.", labels=("dialect", "route")
    )
    for (dialect, route), meter in meters.items():
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

"""Is it alive, is it ready, and how is it: /healthz, /readyz, /metrics. Open, and silent about tenants.

Leans on core for the house's figures. Shaped as a dialect so that it lives in the same table as every other route.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from muster.contracts.http import Call, Reply, Route, SocketRoute
from muster.core.figures import Figures, figures
from muster.core.house import House
from muster.errors import CallError, Unavailable
from muster.web.metrics import CONTENT_TYPE, Gauge, Metrics


class Pulse(Protocol):
    """What an engine counts of itself."""

    steps: int
    failures: int
    last_pass_ms: int

    @property
    def busy_seconds(self) -> float: ...


class Probes:
    """`engine` is the one of this process, when there is one: another process counts its own."""

    name = "probes"

    def __init__(self, house: House, metrics: Metrics, engine: Pulse | None = None) -> None:
        self._house = house
        self._metrics = metrics
        self._engine = engine

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/healthz", self.health, "healthz", open=True),
            Route("GET", "/readyz", self.ready, "readyz", open=True),
            Route("GET", "/metrics", self.metrics, "metrics", open=True),
        )

    def sockets(self) -> Sequence[SocketRoute]:
        return ()

    def claims(self, path: str) -> bool:
        return False

    def credentials(self, headers: Mapping[str, str], query: str) -> str | None:
        return None

    def refuse(self, error: CallError, call: Call) -> Reply:
        return Reply(503, json.dumps({"status": "unavailable", "detail": error.message}).encode())

    def crash(self, call: Call) -> Reply:
        return Reply(503, json.dumps({"status": "unavailable", "request_id": call.id}).encode())

    async def health(self, call: Call) -> Reply:
        """The process answers; nothing more."""
        return Reply(200, b'{"status":"ok"}')

    async def ready(self, call: Call) -> Reply:
        """The store answers, and room is known."""
        await self._house.store.last_event()
        if not self._house.capacity.loaded:
            raise Unavailable("the fleet is still being read", hint="ask again in a second")
        return Reply(200, b'{"status":"ready"}')

    async def metrics(self, call: Call) -> Reply:
        gauges = [*_gauges(await figures(self._house)), *(_pulse(self._engine) if self._engine else ())]
        return Reply(200, self._metrics.page(gauges), CONTENT_TYPE)


def _gauges(seen: Figures) -> Iterator[Gauge]:
    yield Gauge("muster_hosts", "Hosts enrolled.", (), [((), seen.hosts)])
    yield Gauge("muster_engine_due", "Pieces of work due now.", (), [((), seen.due)])
    yield Gauge("muster_engine_work", "Pieces of work in all.", (), [((), seen.work)])
    yield Gauge(
        "muster_clusters",
        "Live clusters by phase.",
        ("phase",),
        [((phase,), n) for phase, n in seen.clusters.items()],
    )
    yield Gauge(
        "muster_free_gpus",
        "GPUs nobody holds.",
        ("region", "gpu_type"),
        [(key, free) for key, free in seen.free_gpus.items()],
    )


def _pulse(engine: Pulse) -> Iterator[Gauge]:
    yield Gauge("muster_engine_steps", "Reconciles run.", (), [((), engine.steps)], grows=True)
    yield Gauge("muster_engine_failures", "Reconciles that raised.", (), [((), engine.failures)], grows=True)
    sentence = "Time of this process that reconciles took; what their commits cost the disk is not in it."
    yield Gauge("muster_engine_busy_seconds", sentence, (), [((), engine.busy_seconds)], grows=True)
    yield Gauge(
        "muster_engine_last_pass_seconds",
        "How long the last full pass took to make everything due.",
        (),
        [((), engine.last_pass_ms / 1000)],
    )

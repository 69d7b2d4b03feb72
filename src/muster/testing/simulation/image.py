"""One process image of Muster inside a history: the same lines that build a server, over files that outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from muster.contracts.clock import Clock, Entropy
from muster.contracts.orchestrator import Orchestrator
from muster.contracts.steps import Failpoints
from muster.contracts.store import Store
from muster.contracts.substrate import Substrate
from muster.core.access.pool import simulated_pools
from muster.core.house import FleetFacts, House, build_house, reconcilers_of
from muster.dialects.native.routes import Native
from muster.dialects.native.watch import Watch
from muster.engine.engine import Engine, Pace
from muster.engine.failpoints import orchestrator_with, store_with, substrate_with
from muster.orchestrators.simulated.orchestrator import SimulatedOrchestrator
from muster.store.sqlite import SqliteStore
from muster.substrates.simulated.desk import SimulatedFaultDesk
from muster.substrates.simulated.places import StorePlaces
from muster.substrates.simulated.substrate import SimulatedSubstrate
from muster.substrates.simulated.world import SimulatedWorld
from muster.web.asgi import App
from muster.web.metrics import Metrics

F = TypeVar("F", bound=Failpoints)


class Lost(Exception):
    """The connection broke: the caller cannot know what became of its request."""


@dataclass
class Files:
    """What survives a crash: the store's file and the world."""

    store: Path
    world: SimulatedWorld


class Drivers(NamedTuple):
    """What stands behind the doors of an image."""

    store: Store
    substrate: Substrate
    orchestrator: Orchestrator


def as_they_are(drivers: Drivers) -> Drivers:
    return drivers


class Image(Generic[F]):
    """Everything that a crash drops: connections, caches, tasks. `dress` may put something before the drivers."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        entropy: Entropy,
        failpoints: F,
        *,
        pace: Pace,
        api: bool,
        dress: Callable[[Drivers], Drivers] = as_they_are,
    ) -> None:
        self.failpoints = failpoints
        self._raw_store = SqliteStore.open(files.store, inline=True, fsync=False)
        store, substrate, orchestrator = dress(
            Drivers(
                self._raw_store, SimulatedSubstrate(files.world, clock), SimulatedOrchestrator(files.world, clock)
            )
        )
        self.store = store_with(failpoints, store)
        self.substrate = substrate_with(failpoints, substrate)
        self.orchestrator = orchestrator_with(failpoints, orchestrator)
        self.desk = SimulatedFaultDesk(files.world, entropy, StorePlaces(self._raw_store))
        self.house: House = build_house(
            store=self.store,
            clock=clock,
            entropy=entropy,
            orchestrator=self.orchestrator,
            faults=self.desk,
            fleet=FleetFacts("simulated", ("simulated",), True),
            pools=simulated_pools,
        )
        reconcilers = reconcilers_of(self.house, self.substrate, self.orchestrator)
        self.engine = Engine(self.store, clock, entropy, reconcilers, pace=pace)
        self.app = self._app(clock, entropy) if api else None
        self._stop = asyncio.Event()
        self.running: asyncio.Task[None] | None = None

    def _app(self, clock: Clock, entropy: Entropy) -> App:
        return App(
            [Native(self.house, Watch())],
            self.house.accounts,
            clock=clock,
            entropy=entropy,
            ticks=lambda: clock.now() / 1000,
            metrics=Metrics(),
        )

    def start(self) -> None:
        self.running = asyncio.ensure_future(self.engine.run(self._stop))

    async def drop(self) -> None:
        """As kill -9 leaves it: nothing is finished, nothing is flushed."""
        if self.running is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
        await self._raw_store.close()

    async def call(
        self, method: str, path: str, key: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """One request through the real door."""
        if self.app is None:
            raise Lost("this image serves no API")
        return await ask(self.app, method, path, key, body, headers or {})


async def ask(app: App, method: str, path: str, key: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    path, _, query = path.partition("?")
    sent: list[Any] = []
    content = b"" if body is None else msgspec.json.encode(body)
    head = {"authorization": f"Bearer {key}", "content-type": "application/json", **headers}
    head["content-length"] = str(len(content))
    messages = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode()) for k, v in head.items()],
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    raw = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], msgspec.json.decode(raw) if raw else None

"""Composition root: settings -> parts -> a running server. The only file that names concrete drivers.

Everything below is handed its parts; nobody looks for one. *Laws.* What was opened is closed, in reverse order; a
stop lets the calls and reconciles at hand finish; whoever cannot start says why in one sentence.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import uvloop

from muster import __version__
from muster.announcing import announcing
from muster.bootstrap import OPERATOR_KEY_FILE, TENANT_KEY_FILE, first_start
from muster.clock import RealClock, RealEntropy, ticks
from muster.contracts.clock import Clock, Entropy
from muster.contracts.faults import FaultDesk
from muster.contracts.http import Dialect
from muster.contracts.jobs import Workshop
from muster.contracts.objects import ObjectStore
from muster.contracts.orchestrator import Orchestrator
from muster.contracts.store import Store
from muster.contracts.substrate import Substrate
from muster.core.access.pool import Pools, loopback_pools, no_pools, simulated_pools
from muster.core.billing.plan import Terms
from muster.core.capacity.waiting import Patience
from muster.core.clusters.autoscale import Scaling
from muster.core.house import FleetFacts, House, build_house, reconcilers_of
from muster.core.retention import Retention
from muster.dialects.native.routes import Native
from muster.dialects.native.watch import Watch
from muster.dialects.tensorpool.routes import TensorPool
from muster.dialects.tir.routes import Tir
from muster.dialects.together.routes import Together
from muster.engine.engine import Engine, Pace
from muster.engine.failpoints import DieAt, orchestrator_with, store_with, substrate_with
from muster.engine.wakeups import Wakeups
from muster.errors import DriverError, MusterError
from muster.fleet_choice import settle_fleet
from muster.homestead import AlreadyRunning, NoHome, forget_info, held, keep, kept, make_home, write_info
from muster.model.base import HOUR, MINUTE, SECOND
from muster.orchestrators.none import NoOrchestrator
from muster.settings import BadSetting, Settings, read
from muster.store.archive import DirectoryArchive
from muster.store.open import open_store
from muster.substrates.none import NoSubstrate
from muster.web.asgi import App, Limits
from muster.web.issuers import WebIssuers
from muster.web.logs import set_up_logs
from muster.web.metrics import Metrics
from muster.web.probes import Probes
from muster.web.serve import CannotListen, Server, check_pair, listen, url_of

if TYPE_CHECKING:
    from muster.substrates.local import LocalSubstrate

_log = logging.getLogger("muster")
ENGINE_FILE: Final = "engine.name"
SWITCH_SECONDS: Final = 0.0001
"""How long the loop may keep the interpreter from the thread that commits: with Python's usual 5 ms a group waits
longer for its turn than for the disk, and the loop runs out of work meanwhile."""

GC_THRESHOLDS: Final = (20_000, 20, 20)
"""Nearly all that a call makes is gone when it is answered, without any collector: looking seldom finds the same."""
HOSTD_RETRY_SECONDS: Final = 1.0
SLURM_SECRET_FILE: Final = "slurm.secret"  # noqa: S105 - its name, not its content


class Fleet(NamedTuple):
    """The drivers of one kind of fleet, and what goes with them."""

    substrate: Substrate
    orchestrator: Orchestrator
    faults: FaultDesk | None = None
    pools: Pools = no_pools
    close: Callable[[], Awaitable[None]] | None = None
    listen: Callable[[asyncio.Event], Awaitable[None]] | None = None  # runs beside the engine until told to stop
    workshop: Workshop | None = None

    @property
    def facts(self) -> FleetFacts:
        simulated = self.substrate.simulated or self.orchestrator.simulated
        return FleetFacts(self.substrate.name, (self.orchestrator.name,), simulated)


def simulated_fleet(settings: Settings, clock: Clock, entropy: Entropy, store: Store) -> Fleet:
    from muster.orchestrators.simulated import SimulatedOrchestrator
    from muster.orchestrators.simulated.workshop import SimulatedWorkshop
    from muster.substrates.simulated import SimulatedFaultDesk, SimulatedSubstrate, SimulatedWorld
    from muster.substrates.simulated.places import StorePlaces

    file = settings.world or settings.home / "world.db"
    world = SimulatedWorld.open(str(file), clock, seed=settings.seed, time_scale=settings.time_scale)

    async def close() -> None:
        world.close()

    substrate = SimulatedSubstrate(world, clock)
    return Fleet(
        substrate,
        SimulatedOrchestrator(world, clock),
        SimulatedFaultDesk(world, entropy, StorePlaces(store)),
        simulated_pools,
        close,
        substrate.listen,
        SimulatedWorkshop(clock, settings.time_scale),
    )


def local_fleet(settings: Settings, clock: Clock, entropy: Entropy, store: Store) -> Fleet:
    """Real nodes on this machine, through hostd, which `run_server` has brought up by now."""
    from muster.orchestrators.slurm import SlurmOrchestrator
    from muster.orchestrators.slurm.workshop import SlurmWorkshop
    from muster.substrates.local import LocalSubstrate

    file = settings.home / SLURM_SECRET_FILE
    if kept(file) is None:
        keep(file, entropy.token(32))
    substrate = LocalSubstrate(settings.home, door_host=settings.host)
    orchestrator = SlurmOrchestrator(substrate, clock, (kept(file) or "").encode())

    async def listen(stop: asyncio.Event) -> None:
        while not stop.is_set() and not await _opened(substrate):
            await clock.sleep(HOSTD_RETRY_SECONDS)
        orchestrator.watch(substrate.announce)
        await stop.wait()

    async def close() -> None:
        await orchestrator.close()
        await substrate.close()

    workshop = SlurmWorkshop(substrate)
    return Fleet(substrate, orchestrator, None, loopback_pools, close, listen, workshop)


async def _opened(substrate: LocalSubstrate) -> bool:
    """The doors of clusters that run on. A hostd that is away is waited for: it is no reason to end."""
    try:
        await substrate.start()
    except DriverError as error:
        _log.warning("%s", error.because)
        return False
    return True


def no_fleet(settings: Settings, clock: Clock, entropy: Entropy, store: Store) -> Fleet:
    return Fleet(NoSubstrate(), NoOrchestrator())


FLEETS: Final[dict[str, Callable[[Settings, Clock, Entropy, Store], Fleet]]] = {
    "simulated": simulated_fleet,
    "local": local_fleet,
    "none": no_fleet,
}
"""Where hosts come from and what they become, by --fleet. Imports inside: a server loads the drivers it uses."""

DIALECTS: Final[tuple[Callable[[House, Watch], Dialect], ...]] = (
    Native,
    lambda house, _: Together(house),
    lambda house, _: TensorPool(house),
    lambda house, _: Tir(house),
)
"""How others speak to us. The first one words the refusal of paths that nobody claims."""


@dataclass(frozen=True, slots=True)
class Running:
    """A house with what moves and answers in it."""

    house: House
    engine: Engine | None
    app: App | None
    watch: Watch
    beside: tuple[Callable[[asyncio.Event], Awaitable[None]], ...] = ()  # what runs beside them until told to stop


async def assemble(settings: Settings, closing: AsyncExitStack) -> Running:
    """Every part, from the outside in; `closing` ends them in reverse."""
    clock, entropy = RealClock(), RealEntropy()
    watch = Watch()
    engines: list[Engine] = []

    def committed(woken: bool) -> None:
        watch.ring()
        if woken:
            for engine in engines:
                engine.nudge()

    opened = await open_store(settings.database, ticks)
    closing.push_async_callback(opened.close)
    store = announcing(_with_failpoint(opened, settings), committed)
    fleet = _open_fleet(settings, clock, entropy, store)
    if fleet.close is not None:
        closing.push_async_callback(fleet.close)
    gateway = _open_gateway(settings, clock, entropy)
    if gateway is not None:
        closing.push_async_callback(gateway.close)
    house = build_house(
        store=store,
        clock=clock,
        entropy=entropy,
        orchestrator=fleet.orchestrator,
        faults=fleet.faults,
        fleet=fleet.facts,
        pools=fleet.pools,
        issuers=WebIssuers(allow_private=settings.oidc_issuers == "any"),
        archive=None if fleet.workshop is None else DirectoryArchive(settings.home / "jobs"),
        objects=None if gateway is None else gateway.store,
        terms=Terms(settings.unfunded_grace_hours * HOUR, settings.credit_warning_hours * HOUR),
        scaling=_scaling(settings),
        patience=Patience(settings.leaf_patience_minutes * MINUTE),
        notice_ms=settings.preemption_notice_seconds * SECOND,
    )
    closing.push_async_callback(house.accounts.close)
    if settings.answers:
        await first_start(house, settings)
    apps: list[App] = []
    engine = _engine(house, fleet, settings, lambda: sum(app.calls for app in apps)) if settings.moves else None
    app = _app(house, watch, settings, engine) if settings.answers else None
    apps += [app] if app is not None else []
    if engine is None:
        return Running(house, None, app, watch, (_fleet_reader(house),))
    engines.append(engine)
    beside = (_fleet_reader(house), *_announcements(house, fleet), *((gateway.run,) if gateway is not None else ()))
    return Running(house, engine, app, watch, beside)


def _scaling(settings: Settings) -> Scaling:
    """Queues are looked at every quarter of a minute, or as often as they may change something."""
    idle, cool_down = settings.autoscale_idle_seconds * SECOND, settings.autoscale_cool_down_seconds * SECOND
    return Scaling(idle, cool_down, min(Scaling().look_ms, idle, cool_down))


def _fleet_reader(house: House) -> Callable[[asyncio.Event], Awaitable[None]]:
    """A large fleet takes seconds to read: meanwhile calls are answered, and /readyz says how it is."""

    async def read_fleet(stop: asyncio.Event) -> None:
        await house.capacity.ready()
        # What is here now stays; a collector that walks a large index again and again only costs latency.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        await stop.wait()

    return read_fleet


def _announcements(house: House, fleet: Fleet) -> tuple[Callable[[asyncio.Event], Awaitable[None]], ...]:
    """What the fleet announces becomes due at once, instead of at the next look."""
    wakeups = Wakeups(house.store, house.clock, ("cluster", "volume"))
    fleet.substrate.watch(wakeups.hear)
    return (wakeups.run,) if fleet.listen is None else (wakeups.run, fleet.listen)


class Gateway(NamedTuple):
    """An S3 server: how it is spoken to, and what keeps it running beside the engine."""

    store: ObjectStore
    run: Callable[[asyncio.Event], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


def _open_gateway(settings: Settings, clock: Clock, entropy: Entropy) -> Gateway | None:
    if settings.object_storage == "off":
        return None
    from muster.objectstores.versity import Versity, how_to_get, keep_running, place_of, program

    command = program(settings.cache)
    if command is None:
        raise BadSetting(f"--object-storage on needs versitygw: {how_to_get(settings.cache)}")
    place = place_of(settings.home, settings.host, entropy)

    async def run(stop: asyncio.Event) -> None:
        await keep_running(command, place, settings.home, stop)

    store = Versity(place, clock)
    return Gateway(store, run, store.close)


def _with_failpoint(store: Store, settings: Settings) -> Store:
    return store if settings.failpoint is None else store_with(DieAt(settings.failpoint), store)


def _open_fleet(settings: Settings, clock: Clock, entropy: Entropy, store: Store) -> Fleet:
    opener = FLEETS.get(settings.fleet)
    if opener is None:
        raise BadSetting(f"this build has no {settings.fleet} fleet; use --fleet {' or '.join(FLEETS)}")
    fleet = opener(settings, clock, entropy, store)
    if settings.failpoint is None:
        return fleet
    failpoint = DieAt(settings.failpoint)
    return fleet._replace(
        substrate=substrate_with(failpoint, fleet.substrate),
        orchestrator=orchestrator_with(failpoint, fleet.orchestrator),
    )


def _engine(house: House, fleet: Fleet, settings: Settings, traffic: Callable[[], int]) -> Engine:
    retention = Retention(house.store, house.clock, event_days=settings.event_retention_days)

    async def prune() -> None:
        await retention.prune()

    reconcilers = reconcilers_of(house, fleet.substrate, fleet.orchestrator, fleet.workshop)
    pace = Pace(crowded_share=settings.engine_share / 100)
    return Engine(
        house.store,
        house.clock,
        house.entropy,
        reconcilers,
        pace=pace,
        chores=[prune],
        ticks=ticks,
        traffic=traffic,
        worker=_engine_name(settings, house.entropy),
    )


def _engine_name(settings: Settings, entropy: Entropy) -> str:
    """The home's, not the process's: whoever holds the home now knows that its last engine has ended."""
    file = settings.home / ENGINE_FILE
    if kept(file) is None:
        keep(file, f"engine-{entropy.uuid()}")
    return kept(file) or ""


def _app(house: House, watch: Watch, settings: Settings, engine: Engine | None) -> App:
    metrics = Metrics()
    limits = Limits(house.clock, rate=settings.rate_limit, burst=settings.rate_burst, calls=settings.calls_limit)
    return App(
        [*(dialect(house, watch) for dialect in DIALECTS), Probes(house, metrics, engine)],
        house.accounts,
        clock=house.clock,
        entropy=house.entropy,
        ticks=ticks,
        metrics=metrics,
        limits=limits if settings.limits == "on" else None,
        faults=house.faults,
        body_limit=settings.body_limit,
    )


class Life:
    """From the first answer to the last: starts what moves and answers, and ends both gracefully."""

    def __init__(self, settings: Settings, running: Running, bound: socket.socket | None) -> None:
        self._settings = settings
        self._running = running
        self._bound = bound
        self._stop = asyncio.Event()
        self._server = (
            Server(running.app, tls_cert=settings.tls_cert, tls_key=settings.tls_key) if running.app else None
        )

    async def live(self, say: Callable[[str], None]) -> int:
        """Until a signal comes or a part breaks. Returns the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._told_to_stop)
        parts = self._start()
        stopped = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            if self._server is not None:
                await asyncio.wait([asyncio.create_task(self._server.listening.wait()), *parts, stopped], **_FIRST)
            self._tell(say)
            await asyncio.wait([stopped, *parts], **_FIRST)
        finally:
            code = await self._end(parts, stopped)
        return code

    def _start(self) -> list[asyncio.Task[None]]:
        parts: list[asyncio.Task[None]] = []
        if self._running.engine is not None:
            parts.append(asyncio.create_task(self._running.engine.run(self._stop), name="engine"))
        parts += [asyncio.ensure_future(beside(self._stop)) for beside in self._running.beside]
        if self._server is not None and self._bound is not None:
            parts.append(asyncio.create_task(self._server.serve(sockets=[self._bound]), name="web"))
        return parts

    def _told_to_stop(self) -> None:
        """Once: finish what is at hand. Twice: do not even wait for that."""
        if self._stop.is_set() and self._server is not None:
            self._server.force_exit = True
        self._stop.set()

    def _tell(self, say: Callable[[str], None]) -> None:
        settings, house = self._settings, self._running.house
        info: dict[str, Any] = {"pid": os.getpid(), "started": house.clock.now(), "role": settings.role, "url": None}
        if self._bound is not None:
            info["url"] = url_of(self._bound, settings.scheme)
            info["tls_cert"] = None if settings.tls_cert is None else str(settings.tls_cert)
            write_info(settings.home, "server", info)
        if settings.moves:
            write_info(settings.home, "engine", info)
        for line in _banner(settings, house, info["url"]):
            say(line)

    async def _end(self, parts: list[asyncio.Task[None]], stopped: asyncio.Task[Any]) -> int:
        for name, ours in (("server", self._settings.answers), ("engine", self._settings.moves)):
            if ours:
                forget_info(self._settings.home, name)
        self._stop.set()
        stopped.cancel()
        self._running.watch.close()
        if self._server is not None:
            self._server.stop()
        broken = [each for each in await asyncio.gather(*parts, return_exceptions=True) if each is not None]
        for error in broken:
            _log.error("a part of the server broke", exc_info=error)
        return 1 if broken else 0


_FIRST: Final[Any] = {"return_when": asyncio.FIRST_COMPLETED}


def _banner(settings: Settings, house: House, url: str | None) -> list[str]:
    """What somebody who just typed `up` wants to know."""
    kind = "no" if settings.fleet == "none" else settings.fleet
    fleet = f"{kind} fleet" + (", nothing of it is real" if house.fleet.simulated else "")
    if url is None:
        return [f"Muster {__version__} engine on {settings.home} ({fleet})"]
    return [
        f"Muster {__version__} at {url} ({fleet})",
        f"  operator key  {settings.home / OPERATOR_KEY_FILE}",
        f"  tenant key    {settings.home / TENANT_KEY_FILE}",
        f"  now type      {os.environ.get('MUSTER_COMMAND', 'muster')} cluster create demo --wait",
        "  Ctrl-C stops it; nothing is lost",
    ]


async def serve(settings: Settings, say: Callable[[str], None] = print) -> int:
    """Build everything, live, end everything. Returns the exit code."""
    make_home(settings.home)
    with held(settings.home, answers=settings.answers, moves=settings.moves):
        async with AsyncExitStack() as closing:
            check_pair(settings.tls_cert, settings.tls_key)
            bound = listen(settings.host, settings.port) if settings.answers else None
            if bound is not None:
                closing.callback(bound.close)
            running = await assemble(settings, closing)
            return await Life(settings, running, bound).live(say)


def run_server(asked: Settings) -> int:
    """What `muster up` becomes: the exit code of a life, or one sentence about why there was none."""
    set_up_logs(asked.log_format, asked.log_level)
    os.umask(0o077)
    sys.setswitchinterval(SWITCH_SECONDS)

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        settings = settle_fleet(asked, say)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(settings, say))
    except AlreadyRunning as first:
        say(str(first))
        return 0
    except (BadSetting, CannotListen, MusterError, NoHome) as error:
        print(f"muster: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    try:
        sys.exit(run_server(read({}, os.environ)))
    except BadSetting as mistake:
        sys.exit(f"muster: {mistake}")

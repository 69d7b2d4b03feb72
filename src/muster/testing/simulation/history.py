"""One seed, one history: boot, tenants, faults, crashes, calm, and the questions asked of it all along."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from muster.clock import SeededEntropy
from muster.contracts.faults import Fault, FaultKind
from muster.contracts.store import Find
from muster.core.capacity.index import Stock
from muster.core.capacity.pools import PoolWish
from muster.core.clusters.snapshot import ClusterView
from muster.core.demo import demo_catalog
from muster.core.hosts.rules import HostSpec
from muster.core.house import House
from muster.dialects.native.clusters import KEPT_AS
from muster.dialects.native.translate import render_cluster
from muster.engine.engine import Pace
from muster.model.accounts import SYSTEM, Role
from muster.model.base import MINUTE, Instant
from muster.model.catalog import Price
from muster.model.clusters import Cluster
from muster.model.hosts import Host
from muster.store.sqlite import SqliteStore
from muster.substrates.simulated.substrate import SimulatedSubstrate
from muster.substrates.simulated.world import SimulatedWorld
from muster.testing.simulation.chaos import Chaos
from muster.testing.simulation.elastic import Elastic
from muster.testing.simulation.image import Drivers, Files, Image, as_they_are
from muster.testing.simulation.invariants import ALWAYS, EVENTUALLY
from muster.testing.simulation.loop import Stalled, VirtualClock, VirtualLoop, run_virtual
from muster.testing.simulation.outside import Invariant, Ledger, Outside
from muster.testing.simulation.planners import Planner
from muster.testing.simulation.users import GPU_TYPE, REGION, Client, Operator, Tenant, User, control_host, gpu_host

C = TypeVar("C", bound=Client)

TRACE_LINES_SHOWN = 60


@dataclass(frozen=True)
class Plot:
    """What kind of history: sizes, lengths and how often things go wrong."""

    hosts: int = 6
    control_hosts: int = 2
    users: int = 3
    planners: int = 1
    operators: int = 1
    elastic: int = 0  # people whose clusters follow their queue, and draw from a pool of hosts set apart for them
    minutes: int = 30
    calm_minutes: int = 45
    engines: int = 2
    crash_chance: float = 0.004
    freeze_chance: float = 0.002
    freeze_leases: float = 2.0  # how long a frozen engine sleeps, in lengths of its claim
    fault_minutes: float = 4.0  # 0 = never
    check_seconds: float = 90.0
    credit_micro: int = 0  # 0 = everybody pays later; else the account's credit, with prices about to soar
    pace: Pace = field(
        default_factory=lambda: Pace(lease_ms=30_000, look_again_ms=120_000, full_pass_ms=600_000, idle_ms=20_000)
    )


@dataclass
class Report:
    """What came of it. `broken` is (invariant, sentence)."""

    seed: int
    broken: tuple[str, str] | None = None
    trace: list[str] = field(default_factory=list)
    crashes: int = 0
    clusters: int = 0
    steps: int = 0
    digest: str = ""  # of the whole log of events: two histories with the same one are the same history

    def story(self) -> str:
        lines = self.trace[-TRACE_LINES_SHOWN:]
        told = f"{self.broken[0]}: {self.broken[1]}" if self.broken else "nothing broke"
        replay = f"python -m muster.testing.simulation --seed {self.seed}"
        return "\n".join([f"seed {self.seed}: {told}", *lines, f"replay: {replay}"])


class Broken(Exception):
    def __init__(self, invariant: str, sentence: str) -> None:
        super().__init__(f"{invariant}: {sentence}")
        self.invariant = invariant
        self.sentence = sentence


class History:
    def __init__(
        self,
        seed: int,
        plot: Plot,
        directory: Path,
        loop: VirtualLoop,
        always: Mapping[str, Invariant],
        eventually: Mapping[str, Invariant],
        dress: Callable[[Drivers], Drivers],
    ) -> None:
        self.report = Report(seed)
        self._plot = plot
        self._clock = VirtualClock(loop)
        self._dice = SeededEntropy(seed)
        self._ids = SeededEntropy(seed ^ 0x5EED)
        self._files = Files(
            directory / "muster.db", SimulatedWorld.open(":memory:", self._clock, seed=seed, time_scale=1.0)
        )
        self._always = always
        self._eventually = eventually
        self._dress = dress
        self._ledger = Ledger()
        self._images: list[Image[Chaos] | None] = [None] * plot.engines
        self._calm = False

    async def run(self) -> Report:
        try:
            await self._live()
        except Broken as broken:
            self.report.broken = (broken.invariant, broken.sentence)
        finally:
            for image in self._images:
                if image is not None:
                    self.report.steps += image.engine.steps
                    await image.drop()
            self._files.world.close()
            await self._sign()
        return self.report

    async def _live(self) -> None:
        people = await self._found()
        until = self._clock.now() + self._plot.minutes * MINUTE
        crew = [asyncio.ensure_future(self._keep_alive(slot)) for slot in range(self._plot.engines)]
        acts = [asyncio.ensure_future(person.live(until)) for person in people]
        if self._plot.fault_minutes:
            acts.append(asyncio.ensure_future(self._trouble(until)))
        watch = asyncio.ensure_future(self._watch())
        try:
            await self._until_done(acts, watch)
            await self._calm_down()
            settle = asyncio.ensure_future(self._clock.sleep(self._plot.calm_minutes * 60))
            await self._until_done([settle], watch)
            await self._check(self._always)
            await self._check(self._eventually)
        finally:
            for task in (*crew, *acts, watch):
                task.cancel()
            await asyncio.gather(*crew, *acts, watch, return_exceptions=True)

    async def _until_done(self, acts: Sequence[asyncio.Future[None]], watch: asyncio.Future[None]) -> None:
        """Wait for the acts; what the watch sees broken ends the history at once."""
        gathered: asyncio.Future[Any] = asyncio.gather(*acts)
        both: set[asyncio.Future[Any]] = {gathered, watch}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if watch.done():
            gathered.cancel()
            watch.result()
        await gathered

    # --- the founding: what an operator does on the first day -----------------------------------------------------

    async def _found(self) -> list[Tenant | Operator]:
        image = self._boot(0, calm=True)
        house = image.house
        await house.catalog.put_all(SYSTEM, demo_catalog(self._clock.now()))
        await house.hosts.import_hosts(SYSTEM, self._fleet())
        credit = self._plot.credit_micro
        account = await house.accounts.create_account(SYSTEM, name="everyone", postpaid=not credit)
        if credit:
            await house.billing.top_up(SYSTEM, account.id, credit)
            await house.catalog.put_all(SYSTEM, soaring(await house.billing.prices(), self._clock.now()))
        _, secret = await house.accounts.create_key(SYSTEM, name="operator", role=Role.OPERATOR)
        people: list[Tenant | Operator] = [self._person(Operator, "operator", secret)] * self._plot.operators
        tenants = [(User, f"user{n}") for n in range(self._plot.users)]
        for kind, name in (*tenants, *((Planner, f"planner{n}") for n in range(self._plot.planners))):
            project = await house.accounts.create_project(SYSTEM, account_id=account.id, name=name)
            _, secret = await house.accounts.create_key(SYSTEM, name=name, role=Role.ADMIN, project_id=project.id)
            people.append(self._person(kind, name, secret))
        people += [await self._elastic(house, account.id, n) for n in range(self._plot.elastic)]
        await image.drop()
        return people

    async def _elastic(self, house: House, account_id: str, number: int) -> User:
        """With a pool of two hosts that nobody else may have."""
        name = f"elastic{number}"
        project = await house.accounts.create_project(SYSTEM, account_id=account_id, name=name)
        _, secret = await house.accounts.create_key(SYSTEM, name=name, role=Role.ADMIN, project_id=project.id)
        pool = await house.pools.create(SYSTEM, PoolWish(name, REGION, GPU_TYPE, project_id=project.id))
        await house.pools.add(SYSTEM, pool.id, (), 2)
        return self._person(Elastic, name, secret)

    def _person(self, kind: type[C], name: str, secret: str) -> C:
        self._ledger.secrets.add(secret)
        return kind(name, secret, self._clock, self._dice, lambda: self._images[0], self._ledger, self._tell)

    def _fleet(self) -> list[HostSpec]:
        gpu = [gpu_host(f"gpu-{i}", f"leaf-{i // 4}") for i in range(self._plot.hosts)]
        return gpu + [control_host(f"control-{i}") for i in range(self._plot.control_hosts)]

    # --- processes that die and come back -------------------------------------------------------------------------

    def _boot(self, slot: int, *, calm: bool = False) -> Image[Chaos]:
        chaos = Chaos(
            self._clock,
            self._dice,
            lambda text: self._hurt(f"process {slot}: {text}"),
            crash_chance=self._plot.crash_chance,
            freeze_chance=self._plot.freeze_chance,
            freeze_seconds=self._plot.pace.lease_ms / 1000 * self._plot.freeze_leases,
        )
        chaos.calm = calm or self._calm
        return Image(
            self._files, self._clock, self._ids, chaos, pace=self._plot.pace, api=slot == 0, dress=self._dress
        )

    async def _keep_alive(self, slot: int) -> None:
        while True:
            image = self._boot(slot)
            self._images[slot] = image
            image.start()
            await image.failpoints.died.wait()
            self.report.crashes += 1
            self._images[slot] = None
            self.report.steps += image.engine.steps
            await image.drop()
            await self._clock.sleep(1 + self._dice.chance() * 30)
            self._tell(f"process {slot}: starts again")

    async def _calm_down(self) -> None:
        """Faults are cleared, hosts looked at, nobody dies any more: now everything must come to rest."""
        self._calm = True
        self._tell("calm")
        for image in self._images:
            if image is not None:
                image.failpoints.calm = True
        image = self._boot(0, calm=True)
        for fault in await image.desk.faults():
            await image.desk.clear(fault.id)
        for host in await image.store.find(Find(Host, equals={"cordoned": True})):
            await image.house.hosts.uncordon(SYSTEM, host.id)
        await image.drop()

    # --- the world's malice ---------------------------------------------------------------------------------------

    async def _trouble(self, until: int) -> None:
        while self._clock.now() < until:
            await self._clock.sleep(self._dice.chance() * 2 * 60 * self._plot.fault_minutes)
            image = self._images[0]
            if image is None:
                continue
            fault = self._some_fault()
            if fault is None:
                self._clock.jump(self._dice.chance() * 90)
                self._hurt("the clock jumps ahead")
                continue
            self._hurt(f"FAULT {fault.kind} {fault.target}")
            made = await image.desk.inject(fault)
            if fault.kind is FaultKind.HOST_DEATH:
                asyncio.ensure_future(self._revive(made)).add_done_callback(lambda task: task.cancelled())

    async def _revive(self, fault: Fault) -> None:
        await self._clock.sleep(60 + self._dice.chance() * 1200)
        image = self._boot(0, calm=True)
        await image.desk.clear(fault.id)
        named = await image.store.find(Find(Host, equals={"name": fault.target}))
        if named and named[0].cordoned:
            await image.house.hosts.uncordon(SYSTEM, named[0].id)
        await image.drop()

    def _some_fault(self) -> Fault | None:
        host = f"gpu-{int(self._dice.chance() * self._plot.hosts)}"
        kinds = (
            Fault(kind=FaultKind.HOST_DEATH, target=host),
            Fault(kind=FaultKind.SLOW_BOOT, target=host, seconds=600),
            Fault(kind=FaultKind.FAILED_BOOT, target=host, count=1),
            Fault(kind=FaultKind.LOST_REPLY, target=host, count=1),
            Fault(kind=FaultKind.FLAP, target=host, seconds=120),
            Fault(kind=FaultKind.STOCK_OUT, target="us-central-8", seconds=300),
            None,
        )
        return kinds[int(self._dice.chance() * len(kinds))]

    # --- the questions ----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._plot.check_seconds * (10 if self._calm else 1))
            await self._check(self._always)

    async def _check(self, invariants: Mapping[str, Invariant]) -> None:
        store = SqliteStore.open(self._files.store, inline=True, fsync=False)
        try:
            outside = Outside(
                store=store,
                substrate=SimulatedSubstrate(self._files.world, self._clock),
                collisions=self._files.world.collisions,
                ledger=self._ledger,
                now=self._clock.now(),
                stale_views=self._stale_views,
                summaries=self._summaries,
                failures=self._failures,
            )
            self.report.clusters = await store.count(Find(Cluster))
            for name, invariant in invariants.items():
                sentence = await invariant(outside)
                if sentence is not None:
                    raise Broken(name, sentence)
        finally:
            await store.close()

    async def _stale_views(self) -> list[str]:
        """Documents that the serving process would answer with and that a fresh look contradicts."""
        image = self._images[0]
        if image is None or image.failpoints.dead:
            return []
        stale = []
        for cluster in await image.store.find(Find(Cluster, equals={"gone_at": None})):
            cached = await image.house.clusters.rendered(SYSTEM, cluster.id, KEPT_AS, cluster_bytes)
            fresh = cluster_bytes(await image.house.clusters.view(SYSTEM, cluster.id))
            if cached != fresh:
                stale.append(f"the document of cluster {cluster.name} is not what it would be now")
        return stale

    async def _summaries(self) -> list[list[Stock]]:
        """What each process that lives believes to be free, once it has caught up."""
        told = []
        for image in self._images:
            if image is not None and not image.failpoints.dead:
                await image.house.capacity.sync()
                told.append(image.house.capacity.summary())
        return told

    def _failures(self) -> int:
        return sum(image.engine.failures for image in self._images if image and not image.failpoints.dead)

    async def _sign(self) -> None:
        store = SqliteStore.open(self._files.store, inline=True, fsync=False)
        events = await store.events(after=0, limit=1_000_000)
        await store.close()
        self.report.digest = hashlib.sha256(msgspec.json.encode(events)).hexdigest()[:16]

    def _hurt(self, text: str) -> None:
        self._ledger.hurt.append(self._clock.now())
        self._tell(text)

    def _tell(self, text: str) -> None:
        at = (self._clock.now() - 1_800_000_000_000) / 1000
        self.report.trace.append(f"{at:10.1f}s  {text}")


def soaring(prices: Sequence[Price], now: Instant) -> list[Price]:
    """What was cheap enough for a day is not for an hour: credit ends within a history, and a price changes in it."""
    later = now + 12 * MINUTE
    metered = [price for price in prices if price.region == REGION and price.billing == "on_demand"]
    return [replace(p, id=f"{p.id}-soared", number=0, micro=p.micro * 400, valid_from=later) for p in metered]


def cluster_bytes(view: ClusterView) -> bytes:
    return render_cluster(view, True)


def play(
    seed: int,
    plot: Plot | None = None,
    *,
    always: Mapping[str, Invariant] = ALWAYS,
    eventually: Mapping[str, Invariant] = EVENTUALLY,
    dress: Callable[[Drivers], Drivers] = as_they_are,
) -> Report:
    """Run one history to its end. The same seed and plot give the same history."""
    loop = VirtualLoop()
    with tempfile.TemporaryDirectory(prefix="muster-history-") as directory:
        history = History(seed, plot or Plot(), Path(directory), loop, always, eventually, dress)
        try:
            return run_virtual(history.run(), loop)
        except Stalled as stalled:
            history.report.broken = ("time_passes", str(stalled))
            return history.report

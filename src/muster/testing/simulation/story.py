"""One scripted story that passes every durable step of the house: the exhaustive twin of the histories.

A seed finds what nobody thought of; the story leaves nothing to chance. It is told once for each door (before and
after each step of contracts/steps.py): the process dies there the first time, starts again, and the story goes on.
Whoever adds a step adds an act to `ACTS` that reaches it, or test_exhaustive fails.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from muster.clock import SeededEntropy
from muster.contracts.faults import Fault, FaultKind
from muster.contracts.orchestrator import Standing
from muster.contracts.steps import Step
from muster.contracts.store import Find
from muster.core.capacity.index import Stock
from muster.core.clusters.wishes import target_of
from muster.core.demo import demo_catalog
from muster.dialects.native.clusters import KEPT_AS
from muster.dialects.native.translate import render_cluster, stamp
from muster.engine.engine import Pace
from muster.model.accounts import SYSTEM, Role
from muster.model.base import MINUTE, Instant
from muster.model.catalog import Price
from muster.model.clusters import Cluster
from muster.model.health import RemediationMode
from muster.substrates.simulated.substrate import SimulatedSubstrate
from muster.substrates.simulated.world import SimulatedWorld
from muster.testing.simulation.chaos import At, Crash
from muster.testing.simulation.image import Drivers, Files, Image, Lost, as_they_are
from muster.testing.simulation.invariants import ALWAYS, EVENTUALLY
from muster.testing.simulation.loop import VirtualClock, VirtualLoop, run_virtual
from muster.testing.simulation.outside import Invariant, Ledger, Outside
from muster.testing.simulation.users import GPU_TYPE, REGION, control_host, gpu_host, public_key

LOOK_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 7_200.0
CALM_SECONDS: Final = 120.0
"""After each act: by then all must have settled, and is looked at."""
PACE: Final = Pace(lease_ms=30_000, look_again_ms=30_000, full_pass_ms=300_000, idle_ms=20_000)


class Told(NamedTuple):
    """What came of a telling. `broken` is (invariant, sentence)."""

    reached: frozenset[Step]
    deaths: int
    broken: tuple[str, str] | None


class Died(Exception):
    """The process died under this call; whoever asked does not know what became of it."""


class Story:
    def __init__(self, directory: Path, loop: VirtualLoop, door: At, dress: Callable[[Drivers], Drivers]) -> None:
        self._clock = VirtualClock(loop)
        self._ids = SeededEntropy(2)
        world = SimulatedWorld.open(":memory:", self._clock, seed=2, time_scale=1.0)
        self._files = Files(directory / "muster.db", world)
        self._dress = dress
        self._ledger = Ledger()
        self._door = door
        self._deaths = 0
        self._key = ""
        self.image: Image[At] = self._boot(At())
        self.ids: dict[str, str] = {}

    async def tell(self, invariants: Mapping[str, Invariant]) -> Told:
        try:
            await self._found()
            broken = None
            for act in ACTS:
                await act(self)
                await self._clock.sleep(CALM_SECONDS)
                broken = broken or await self._broken(invariants)
        finally:
            await self.image.drop()
            self._files.world.close()
        return Told(frozenset(self._door.reached), self._deaths, broken)

    async def _found(self) -> None:
        """What is there before the story begins: the shelf, and the operator's key."""
        house = self.image.house
        await house.catalog.put_all(SYSTEM, demo_catalog(self._clock.now()))
        _, self.operator = await house.accounts.create_key(SYSTEM, name="operator", role=Role.OPERATOR)
        self._ledger.secrets.add(self.operator)
        await self.image.drop()
        self.image = self._boot(self._door)
        self.image.start()

    # --- a process that dies and comes back -------------------------------------------------------------------------

    def _boot(self, failpoints: At) -> Image[At]:
        return Image(self._files, self._clock, self._ids, failpoints, pace=PACE, api=True, dress=self._dress)

    async def rise(self) -> None:
        """If the process died, start it again; it dies only once."""
        if self.image.failpoints.dead:
            self._deaths += 1
            await self.image.drop()
            self._door = self._door.risen()
            self.image = self._boot(self._door)
            self.image.start()

    # --- how it is told ---------------------------------------------------------------------------------------------

    async def alone(self, act: Callable[[Image[At]], Awaitable[Any]]) -> Any:
        """Something done to the process that is up now; `Died` when it did not survive that."""
        await self.rise()
        image = self.image
        try:
            answer = await act(image)
        except (Crash, Lost) as death:
            raise Died(str(death)) from death
        if image.failpoints.dead:
            raise Died("it died before the answer came through")
        return answer

    async def stubbornly(self, act: Callable[[Image[At]], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await self.alone(act)
            except Died:
                await self._clock.sleep(1)

    async def ask(
        self, method: str, path: str, body: Any = None, *, once: str = "", also: tuple[int, ...] = ()
    ) -> Any:
        """Say it until it is answered, and expect a yes (or one of `also`)."""
        headers = {"idempotency-key": once} if once else {}
        key = self._key or self.operator
        status, answer = await self.stubbornly(
            lambda image: image.call(method, f"/muster/v1{path}", key, body, headers)
        )
        if status >= 300 and status not in also:
            raise AssertionError(f"{method} {path} -> {status}: {answer}")
        return answer

    async def until(self, what: str, path: str, so: Callable[[Any], bool]) -> Any:
        """Look at it until it is so; an answer of None means that it is not there (any more)."""
        deadline = self._clock.now() + PATIENCE_SECONDS * 1000
        while True:
            answer = await self.ask("GET", path, also=(404,))
            if so(None if answer and answer.get("code") == "not_found" else answer):
                return answer
            if self._clock.now() > deadline:
                raise AssertionError(f"never {what}: {answer}")
            await self._clock.sleep(LOOK_SECONDS)

    async def cluster_is(self, phase: str, workers: int | None = None) -> Any:
        def so(cluster: Any) -> bool:
            running = [n for n in cluster["nodes"] if n["role"] == "worker" and n["phase"] == "running"]
            settled = len(cluster["nodes"]) == (0 if workers == 0 else (workers or 0) + 2)
            done = cluster["observed_generation"] == cluster["generation"] or phase in ("paused", "unfunded")
            return cluster["phase"] == phase and done and (workers is None or (len(running) == workers and settled))

        return await self.until(f"{phase} with {workers}", f"/clusters/{self.ids['cluster']}", so)

    async def repaired(self, id: str) -> None:
        look = lambda image: image.house.health.remediation(SYSTEM, self.ids["cluster"], None, id)  # noqa: E731
        while (await self.stubbornly(look)).is_open:
            await self._clock.sleep(LOOK_SECONDS)

    async def as_tenant(self) -> None:
        """Make a key and use it from now on. Its secret is told once: who died over it needs another."""
        attempt = 0
        while not self._key:
            attempt += 1
            body = {"name": f"tenant-{attempt}", "role": "admin", "project_id": self.ids["project"]}
            try:
                _, made = await self.alone(
                    lambda image, body=body: image.call("POST", "/muster/v1/keys", self.operator, body)  # type: ignore[misc]
                )
                self._key = made["secret"]
            except Died:
                continue
        self._ledger.secrets.add(self._key)

    def now(self) -> Instant:
        return self._clock.now()

    async def fault(self, kind: FaultKind, host: str, **fields: Any) -> Fault:
        fault: Fault = await self.stubbornly(lambda image: image.desk.inject(Fault(kind=kind, target=host, **fields)))
        return fault

    # --- the questions ----------------------------------------------------------------------------------------------

    async def _broken(self, invariants: Mapping[str, Invariant]) -> tuple[str, str] | None:
        await self.rise()
        outside = Outside(
            store=self.image.store,
            substrate=SimulatedSubstrate(self._files.world, self._clock),
            collisions=self._files.world.collisions,
            ledger=self._ledger,
            now=self._clock.now(),
            stale_views=self._stale_views,
            summaries=self._summaries,
            failures=lambda: self.image.engine.failures,
        )
        for name, invariant in invariants.items():
            sentence = await invariant(outside)
            if sentence is not None:
                return name, sentence
        return None

    async def _stale_views(self) -> list[str]:
        house, stale = self.image.house, []
        for cluster in await self.image.store.find(Find(Cluster, equals={"gone_at": None})):
            cached = await house.clusters.rendered(
                SYSTEM, cluster.id, KEPT_AS, lambda view: render_cluster(view, True)
            )
            if cached != render_cluster(await house.clusters.view(SYSTEM, cluster.id), True):
                stale.append(f"the document of cluster {cluster.name} is not what it would be now")
        return stale

    async def _summaries(self) -> list[list[Stock]]:
        await self.image.house.capacity.sync()
        return [self.image.house.capacity.summary()]


# --- the acts, in their order; each says which steps it is there for ------------------------------------------------


async def the_operator_furnishes(story: Story) -> None:
    """catalog.write, host.write, account.write"""
    await story.ask("PUT", f"/regions/{REGION}", {"title": "the middle"})
    hosts = [gpu_host(f"gpu-{i}", f"leaf-{i // 2}") for i in range(4)] + [control_host("control-0")]
    fields = ("name", "region", "pod", "leaf", "role", "gpu_type", "slots", "cpus", "memory_gib")
    told = [{field: getattr(host, field) for field in fields} for host in hosts]
    await story.ask("POST", "/hosts", {"hosts": told}, once="hosts")
    account = await story.ask("POST", "/accounts", {"name": "someone", "postpaid": True}, once="account")
    project = await story.ask("POST", "/projects", {"name": "p", "account_id": account["id"]}, once="project")
    story.ids["project"] = project["id"]


async def hosts_are_set_apart(story: Story) -> None:
    """pool.write: made, filled with the one host that is nobody's, emptied and gone"""
    wish = {"name": "apart", "region": REGION, "gpu_type": GPU_TYPE, "project_id": story.ids["project"]}
    pool = await story.ask("POST", "/pools", wish, once="pool")
    await story.ask("POST", f"/pools/{pool['id']}/hosts", {"hosts": ["gpu-3"]})
    await story.ask("DELETE", f"/pools/{pool['id']}/hosts/gpu-3")
    await story.ask("DELETE", f"/pools/{pool['id']}", also=(404,))


async def a_tenant_comes_in(story: Story) -> None:
    """key.write, access.write"""
    await story.as_tenant()
    await story.ask("POST", "/ssh-keys", {"name": "laptop", "public_key": public_key(b"k" * 32)}, once="ssh")
    rule = {"direction": "inbound", "protocol": "tcp", "port_min": 22, "port_max": 22}
    group = await story.ask("POST", "/security-groups", {"name": "g", "rules": [rule]}, once="group")
    story.ids["group"] = group["id"]


async def a_volume_is_made(story: Story) -> None:
    """volume.accept, volume.record, substrate.ensure"""
    body = {"name": "data", "region": REGION, "size_gib": 100}
    volume = await story.ask("POST", "/volumes", body, once="volume")
    story.ids["volume"] = volume["id"]
    await story.until("available", f"/volumes/{volume['id']}", lambda seen: seen["phase"] == "available")


async def a_cluster_starts_with_a_bad_host(story: Story) -> None:
    """cluster.accept, cluster.move, cluster.record, nodes.record, nodes.intend, nodes.free, converge, test"""
    for host in ("gpu-0", "gpu-1"):
        await story.fault(FaultKind.FAILED_BOOT, host, count=1)
    body = {
        "name": "c",
        "type": "slurm",
        "region": REGION,
        "gpu_type": GPU_TYPE,
        "gpus": 16,
        "failover": True,
        "security_group_ids": [story.ids["group"]],
        "mounts": [{"volume_id": story.ids["volume"]}],
    }
    cluster = await story.ask("POST", "/clusters", body, once="cluster")
    story.ids["cluster"] = cluster["id"]
    await story.cluster_is("ready", 2)


async def it_is_reconfigured(story: Story) -> None:
    """cluster.wish; the rules of a group reach its clusters"""
    config = {"scripts": {"nodeset_init": "#!/bin/bash\necho hello"}}
    await story.ask("PATCH", f"/clusters/{story.ids['cluster']}", {"config": config})
    await story.cluster_is("ready", 2)
    rule = {"direction": "inbound", "protocol": "tcp", "port_min": 443, "port_max": 443}
    await story.ask("PUT", f"/security-groups/{story.ids['group']}", {"rules": [rule]})


async def it_grows_and_shrinks(story: Story) -> None:
    """nodes.intend by the service; drain, expel, ensure_absent, nodes.free"""
    await story.ask("PATCH", f"/clusters/{story.ids['cluster']}", {"gpus": 24})
    await story.cluster_is("ready", 3)
    await story.ask("PATCH", f"/clusters/{story.ids['cluster']}", {"gpus": 16})
    await story.cluster_is("ready", 2)


async def it_follows_its_queue(story: Story) -> None:
    """cluster.scale: grown for what waits, shrunk when that is over"""
    path = f"/clusters/{story.ids['cluster']}"
    await story.ask("PATCH", path, {"autoscale": {"max_gpus": 24}})
    load = await story.fault(FaultKind.LOAD, story.ids["cluster"], count=24)
    await story.cluster_is("ready", 3)
    await story.stubbornly(lambda image: image.desk.clear(load.id))
    await story.cluster_is("ready", 2)
    await story.ask("PATCH", path, {"autoscale": {"max_gpus": 0}})
    await story.cluster_is("ready", 2)


async def the_volume_grows(story: Story) -> None:
    """volume.wish"""
    await story.ask("PATCH", f"/volumes/{story.ids['volume']}", {"size_gib": 200})
    await story.until("grown", f"/volumes/{story.ids['volume']}", lambda seen: seen["actual_gib"] == 200)


async def it_pauses(story: Story) -> None:
    await story.ask("POST", f"/clusters/{story.ids['cluster']}/pause", {})
    await story.cluster_is("paused", 0)


async def it_resumes(story: Story) -> None:
    await story.ask("POST", f"/clusters/{story.ids['cluster']}/resume", {})
    await story.cluster_is("ready", 2)


async def it_restarts(story: Story) -> None:
    """Every node is booted anew, once, however often whoever does it dies meanwhile."""
    await story.ask("POST", f"/clusters/{story.ids['cluster']}/restart", {"control": True})
    await story.cluster_is("ready", 2)


async def a_host_dies(story: Story) -> None:
    """degraded, substituted by failover; remediation.record"""
    cluster = await story.cluster_is("ready", 2)
    host = next(node["host_name"] for node in cluster["nodes"] if node["role"] == "worker")
    fault = await story.fault(FaultKind.HOST_DEATH, host)
    path = f"/clusters/{story.ids['cluster']}"
    await story.until("hurt", path, lambda seen: host not in {node["host_name"] for node in seen["nodes"]})
    await story.cluster_is("ready", 2)
    await story.stubbornly(lambda image: image.desk.clear(fault.id))
    await story.stubbornly(lambda image: image.house.hosts.uncordon(SYSTEM, host))


async def a_node_is_repaired(story: Story) -> None:
    """remediation.wish, orchestrator.admit: it is drained, booted anew, and takes work again"""
    cluster = await story.cluster_is("ready", 2)
    node = next(node["id"] for node in cluster["nodes"] if node["role"] == "worker")
    mode = RemediationMode.REBOOT
    await story.stubbornly(
        lambda image: image.house.health.create(SYSTEM, cluster["id"], node, mode=mode, id=f"repair-{node}")
    )
    await story.repaired(f"repair-{node}")

    async def standing(image: Image[At]) -> Standing:
        view = await image.house.clusters.view(SYSTEM, cluster["id"])
        return (await image.orchestrator.observe(target_of(view)))[node]

    assert await story.stubbornly(standing) is Standing.IDLE, "a node that was repaired takes work again"


async def a_price_changes(story: Story) -> None:
    """billing.book: what was used so far is booked at the old price"""
    dearer = Price(
        id="dearer", item=f"8x{GPU_TYPE}", region=REGION, micro=50_000_000, valid_from=story.now() + MINUTE
    )
    await story.stubbornly(lambda image: image.house.catalog.put(SYSTEM, dearer))

    def booked(page: Any) -> bool:
        return any(entry["at"] == stamp(dearer.valid_from) for entry in page["items"])

    await story.until("booked", "/billing/entries", booked)


async def a_budget_is_spent(story: Story) -> None:
    """billing.write, billing.wish; stopped, and brought back"""
    budget = f"/billing/budgets/{story.ids['project']}"
    await story.ask("PUT", budget, {"monthly_micro": 1})
    await story.cluster_is("unfunded", 0)
    await story.ask("PUT", budget, {"monthly_micro": 10**12})
    await story.cluster_is("ready", 2)


async def a_quote_expires(story: Story) -> None:
    """calendar.write, reservation.accept, reservation.record"""
    body = {"gpu_type": "H100_SXM", "gpus": 8, "days": 2}
    quote = await story.ask("POST", "/quotes", body, once="quote")
    await story.until("expired", f"/quotes/{quote['id']}", lambda seen: seen["state"] == "expired")


async def idle_hosts_are_lent_and_asked_back(story: Story) -> None:
    """preemption.grant, preemption.reclaim, orchestrator.warn, orchestrator.evict"""
    path = f"/clusters/{story.ids['cluster']}"
    await story.ask("PATCH", path, {"preemptible_gpus": 16})
    await story.until("lent two", path, lambda seen: seen["preemptible"]["allocated"] == 16)
    body = {"name": "needy", "type": "slurm", "region": REGION, "gpu_type": GPU_TYPE, "gpus": 16}
    needy = await story.ask("POST", "/clusters", body, once="needy")
    await story.until("ready", f"/clusters/{needy['id']}", lambda seen: seen["phase"] == "ready")
    await story.ask("DELETE", f"/clusters/{needy['id']}", also=(404,))
    await story.until("lent again", path, lambda seen: seen["preemptible"]["allocated"] == 16)
    await story.ask("PATCH", path, {"preemptible_gpus": 0})
    await story.cluster_is("ready", 2)


async def everything_goes(story: Story) -> None:
    """cluster.gone, volume.record, ensure_absent"""
    await story.ask("DELETE", f"/clusters/{story.ids['cluster']}", also=(404,))
    await story.until("gone", f"/clusters/{story.ids['cluster']}", lambda seen: seen is None)
    await story.ask("DELETE", f"/volumes/{story.ids['volume']}", also=(404,))
    await story.until("gone", f"/volumes/{story.ids['volume']}", lambda seen: seen is None)


ACTS: Final[tuple[Callable[[Story], Awaitable[None]], ...]] = (
    the_operator_furnishes,
    hosts_are_set_apart,
    a_tenant_comes_in,
    a_volume_is_made,
    a_cluster_starts_with_a_bad_host,
    it_is_reconfigured,
    it_grows_and_shrinks,
    it_follows_its_queue,
    the_volume_grows,
    it_pauses,
    it_resumes,
    it_restarts,
    a_host_dies,
    a_node_is_repaired,
    a_price_changes,
    a_budget_is_spent,
    a_quote_expires,
    idle_hosts_are_lent_and_asked_back,
    everything_goes,
)


def tell(
    step: Step | None = None,
    side: str = "before",
    *,
    dress: Callable[[Drivers], Drivers] = as_they_are,
    invariants: Mapping[str, Invariant] = {**ALWAYS, **EVENTUALLY},
) -> Told:
    """The whole story, with a death at this door, or none."""
    loop = VirtualLoop()

    async def telling(directory: Path) -> Told:
        return await Story(directory, loop, At(step, side), dress).tell(invariants)

    with tempfile.TemporaryDirectory(prefix="muster-story-") as directory:
        return run_virtual(telling(Path(directory)), loop)

"""Money against a real store: what is metered, booked, refused, stopped, brought back; and what the proof finds."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.clock import SeededEntropy
from muster.contracts.metering import Want, listened
from muster.contracts.reconciler import Outcome, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Remove, Replace, Wake
from muster.core.billing.booking import book_contract, booked, top_up_entry
from muster.core.billing.metering import KIND, Meter
from muster.core.billing.plan import Terms
from muster.core.billing.purse import HousePurse
from muster.core.billing.rates import PriceBook
from muster.core.billing.reconcile import BillingReconciler
from muster.core.billing.service import BillingService
from muster.core.billing.verify import verify
from muster.core.idempotency import Once
from muster.errors import Forbidden, InsufficientBalance, Invalid, NotFound, QuotaExceeded, UniqueViolation
from muster.model.accounts import SYSTEM, Account, Actor, Project, Role
from muster.model.base import DAY, HOUR, MINUTE, SECOND, changed
from muster.model.billing import (
    Book,
    Contract,
    EntryKind,
    Funding,
    FundingState,
    LedgerEntry,
    Usage,
    UsageClass,
    account_book,
)
from muster.model.catalog import Price
from muster.model.clusters import Billing, Cluster, ClusterSpec, ClusterStatus, ClusterType, Moved, Node, NodeRole
from muster.model.phases import NodePhase, Phase, VolumePhase
from muster.model.volumes import Volume
from muster.store.sqlite import SqliteStore
from muster.testing.clock import BIRTHDAY, ManualClock

ADMIN = Actor(role=Role.ADMIN, name="ada", account_id="a", project_id="p")
STRANGER = Actor(role=Role.ADMIN, name="eve", account_id="b", project_id="q")
NODE_HOUR = 24_000_000
PER_SECOND = NODE_HOUR // 3600 + 1


def price(id: str, micro: int = NODE_HOUR, at: int = 0, item: str = "8xH", unit: str = "node_hour") -> Price:
    return Price(id=id, item=item, region="eu", unit=unit, micro=micro, valid_from=BIRTHDAY + at)


class Desk:
    """A store that the meter listens to, with an account that pays in advance and one that pays later."""

    def __init__(self, store: SqliteStore) -> None:
        self.clock = ManualClock()
        self.raw = store
        self.store = listened(store, Meter(store, self.clock))
        self.service = BillingService(self.store, self.clock, SeededEntropy(1))
        self.purse = HousePurse(self.store, self.clock)
        self.terms = Terms(grace_ms=2 * DAY, warning_ms=HOUR)
        self.reconciler = BillingReconciler(self.store, self.clock, SeededEntropy(2), self.terms)
        rows = [
            Account(id="a", name="a", created_at=1),
            Account(id="b", name="b", postpaid=True, created_at=1),
            Project(id="p", account_id="a", name="p", slug="p", created_at=1),
            Project(id="q", account_id="b", name="q", slug="q", created_at=1),
            price("hour"),
            price("month", micro=730_000_000, item="volume", unit="gib_month"),
        ]
        asyncio.run(store.apply(Batch(Step.ACCOUNT_WRITE, [Insert(row) for row in rows])))

    async def cluster(self, id: str = "c", workers: int = 2, account: str = "a", project: str = "p") -> Cluster:
        """Accepted, as the clusters room would do it."""
        now = self.clock.now()
        spec = ClusterSpec(
            type=ClusterType.SLURM, region="eu", gpu_type="H", instance_type="8xH", workers=workers, image_id=""
        )
        cluster = Cluster(
            id=id,
            account_id=account,
            project_id=project,
            name=id,
            live_name=id,
            region="eu",
            phase=Phase.NETWORK,
            phase_since=now,
            spec=spec,
            status=ClusterStatus(history=(Moved(phase=Phase.NETWORK, at=now),)),
            digest="",
            created_at=now,
            updated_at=now,
        )
        nodes = [self.node(cluster, n) for n in range(workers)]
        nodes.append(replace(self.node(cluster, 99), role=NodeRole.CONTROLLER))
        await self.store.apply(Batch(Step.CLUSTER_ACCEPT, [Insert(cluster), *(Insert(node) for node in nodes)]))
        return cluster

    def node(self, cluster: Cluster, n: int) -> Node:
        now = self.clock.now()
        return Node(
            id=f"{cluster.id}-{n}",
            cluster_id=cluster.id,
            project_id=cluster.project_id,
            role=NodeRole.WORKER,
            name=f"w{n}",
            ordinal=n,
            phase_since=now,
            history=(Moved(phase=NodePhase.PENDING, at=now),),
            created_at=now,
        )

    async def nodes_to(self, cluster_id: str, *phases: NodePhase, only: str = "") -> None:
        now = self.clock.now()
        for phase in phases:
            found = await self.raw.find(Find(Node, equals={"cluster_id": cluster_id, "gone_at": None}))
            moved = [n.advance(phase, because="", at=now) for n in found if not only or n.id == only]
            cluster = await self.raw.get(Cluster, cluster_id)
            assert cluster is not None
            ops = [Replace(changed(cluster, updated_at=now)), *(Replace(node) for node in moved)]
            await self.store.apply(Batch(Step.NODES_RECORD, ops))

    async def move(self, id: str, *phases: Phase) -> Cluster:
        for phase in phases:
            cluster = await self.raw.get(Cluster, id)
            assert cluster is not None
            moved = cluster.advance(phase, because="", at=self.clock.now())
            await self.store.apply(Batch(Step.CLUSTER_MOVE, [Replace(moved)]))
        return moved

    async def ready(self, id: str = "c", **more: object) -> Cluster:
        await self.cluster(id, **more)  # type: ignore[arg-type]
        return await self.serve(id)

    async def serve(self, id: str) -> Cluster:
        self.clock.advance(60)
        await self.nodes_to(id, NodePhase.BOOTING, NodePhase.JOINING, NodePhase.RUNNING)
        path = (Phase.STORAGE, Phase.CONTROL, Phase.WORKERS, Phase.DRIVERS, Phase.TESTING, Phase.READY)
        return await self.move(id, *path)

    async def volume(self, gib: int = 10) -> Volume:
        now = self.clock.now()
        volume = Volume(
            id="v",
            account_id="a",
            project_id="p",
            name="v",
            live_name="v",
            region="eu",
            size_gib=gib,
            phase_since=now,
            created_at=now,
            updated_at=now,
        )
        await self.store.apply(Batch(Step.VOLUME_ACCEPT, [Insert(volume)]))
        there = replace(volume.advance(VolumePhase.AVAILABLE, because="", at=now), actual_gib=gib)
        await self.store.apply(Batch(Step.VOLUME_RECORD, [Replace(there)]))
        return there

    async def usages(self, id: str = "c", **equals: object) -> list[Usage]:
        return await self.raw.find(Find(Usage, equals={"resource_id": id, **equals}, order="opened_at"))  # type: ignore[dict-item]

    async def entries(self, kind: EntryKind = EntryKind.USAGE) -> list[LedgerEntry]:
        return await self.raw.find(Find(LedgerEntry, equals={"kind": kind}, order="at"))

    async def turn(self, account: str = "a") -> Outcome:
        await self.raw.apply(Batch(Step.ENGINE_ROUND, [Wake(KIND, account, 0)]))
        claims = await self.raw.claim(worker="w", now=self.clock.now(), lease_ms=1_000, limit=100)
        [claim] = [claim for claim in claims if (claim.kind, claim.id) == (KIND, account)]
        outcome = await self.reconciler.reconcile(account, claim)
        for one in claims:
            await self.raw.release(one, due_at=None, failed=False)
        return outcome

    async def settle(self, account: str = "a") -> Wait:
        """Turn until there is nothing to do but wait."""
        for _ in range(30):
            outcome = await self.turn(account)
            if isinstance(outcome, Wait):
                return outcome
        raise AssertionError("it never rests")

    async def available(self) -> int:
        return (await self.service.balance(ADMIN)).funds.available

    async def holds(self) -> None:
        verdict = await verify(self.raw)
        assert verdict.holds, verdict.problems


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True)
    yield Desk(store)
    asyncio.run(store.close())


# --- the meter --------------------------------------------------------------------------------------------------


def test_usage_follows_the_phase_in_the_same_batch(desk: Desk) -> None:
    async def story() -> None:
        await desk.cluster()
        [first] = await desk.usages()
        assert (first.usage_class, first.quantity, first.closed_at) == (UsageClass.PROVISIONING, 2, None)
        await desk.nodes_to("c", NodePhase.BOOTING)
        assert await desk.usages() == [first], "a node that boots is still on its way"
        desk.clock.advance(60)
        await desk.nodes_to("c", NodePhase.JOINING, NodePhase.RUNNING)
        path = (Phase.STORAGE, Phase.CONTROL, Phase.WORKERS, Phase.DRIVERS, Phase.TESTING, Phase.READY)
        await desk.move("c", *path)
        before, serving = await desk.usages()
        assert before.closed_at == serving.opened_at == desk.clock.now()
        assert (serving.usage_class, serving.quantity) == (UsageClass.SERVING, 2), "the controller is not billed"
        assert await desk.entries() == [], "provisioning costs nothing"

    asyncio.run(story())


def test_a_lost_node_is_not_charged_and_a_paused_cluster_neither(desk: Desk) -> None:
    async def story() -> None:
        await desk.ready()
        desk.clock.advance(3600)
        await desk.nodes_to("c", NodePhase.LOST, only="c-0")
        desk.clock.advance(3600)
        await desk.move("c", Phase.PAUSED)
        desk.clock.advance(3600)
        assert [entry.micro for entry in await desk.entries()] == [2 * NODE_HOUR, NODE_HOUR]
        classes = {(u.usage_class, u.quantity) for u in await desk.usages(closed_at=None)}
        assert classes == {(UsageClass.PAUSED, 2)}
        assert await desk.available() == -3 * NODE_HOUR
        await desk.holds()

    asyncio.run(story())


def test_a_refused_batch_meters_nothing(desk: Desk) -> None:
    async def story() -> None:
        cluster = await desk.ready()
        stale = replace(cluster.advance(Phase.DEGRADED, because="", at=desk.clock.now()), version=2)
        with pytest.raises(Exception, match="moved on"):
            await desk.store.apply(Batch(Step.CLUSTER_MOVE, [Replace(stale)]))
        assert len(await desk.usages()) == 2

    asyncio.run(story())


def test_storage_is_charged_by_the_gib_and_month(desk: Desk) -> None:
    async def story() -> None:
        volume = await desk.volume(gib=10)
        desk.clock.advance(3600)
        grown = changed(volume, actual_gib=20, updated_at=desk.clock.now())
        await desk.store.apply(Batch(Step.VOLUME_RECORD, [Replace(grown)]))
        desk.clock.advance(3600)
        # 730 a month and GiB is 1 an hour and GiB.
        assert await desk.available() == -(10 + 20) * 1_000_000

    asyncio.run(story())


def test_only_a_change_of_what_serves_wakes_the_account(desk: Desk) -> None:
    async def story() -> None:
        await desk.cluster()
        assert await desk.raw.claim(worker="w", now=desk.clock.now() + DAY, lease_ms=1, limit=9) == []
        await desk.nodes_to("c", NodePhase.BOOTING, NodePhase.JOINING, NodePhase.RUNNING)
        path = (Phase.STORAGE, Phase.CONTROL, Phase.WORKERS, Phase.DRIVERS, Phase.TESTING, Phase.READY)
        await desk.move("c", *path)
        [claim] = await desk.raw.claim(worker="w", now=desk.clock.now() + DAY, lease_ms=1, limit=9)
        assert (claim.kind, claim.id) == (KIND, "a")

    asyncio.run(story())


# --- the ledger -------------------------------------------------------------------------------------------------


def test_the_database_itself_refuses_an_unbalanced_or_changed_ledger(desk: Desk) -> None:
    async def story() -> None:
        good = top_up_entry("t", "a", 5, "", "me", desk.clock.now())
        for bad in (replace(good, micro=0), replace(good, micro=-5), replace(good, credit=good.debit)):
            with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
                await desk.store.apply(Batch(Step.BILLING_WRITE, [Insert(bad)]))
        await desk.store.apply(Batch(Step.BILLING_WRITE, [Insert(good)]))
        for op in (Replace(changed(good, micro=6)), Remove(LedgerEntry, "t")):
            with pytest.raises(sqlite3.IntegrityError, match="only ever added to"):
                await desk.store.apply(Batch(Step.BILLING_WRITE, [op]))
        with pytest.raises(UniqueViolation):
            await desk.store.apply(Batch(Step.BILLING_WRITE, [Insert(good)]))
        books = {book.id: book.micro for book in await desk.raw.find(Find(Book))}
        assert books == {"operator:cash": -5, account_book("a"): 5}

    asyncio.run(story())


def test_a_contract_is_paid_once_and_proven(desk: Desk) -> None:
    async def story() -> None:
        now = desk.clock.now()
        contract = Contract(
            id="r1",
            account_id="a",
            project_id="p",
            resource_id="c",
            micro=1_000,
            starts_at=now,
            ends_at=now + DAY,
            created_at=now,
        )
        await desk.store.apply(Batch(Step.BILLING_WRITE, book_contract(contract, by="ada")))
        assert await desk.available() == -1_000
        with pytest.raises(UniqueViolation):
            await desk.store.apply(Batch(Step.BILLING_WRITE, book_contract(contract)))
        verdict = await verify(desk.raw)
        assert (verdict.holds, verdict.contracts, verdict.charged_micro) == (True, 1, 1_000)

    asyncio.run(story())


def test_a_promise_that_failed_is_paid_back_in_the_batch_of_its_failure(desk: Desk) -> None:
    async def story() -> None:
        cluster = await desk.cluster()
        spec = replace(cluster.spec, billing=Billing.RESERVED, reserved_workers=2)
        now = desk.clock.now()
        contract = Contract(
            id="c",
            account_id="a",
            project_id="p",
            resource_id="c",
            micro=1_000,
            starts_at=now,
            ends_at=now + DAY,
            created_at=now,
        )
        wish = Replace(changed(cluster, spec=spec))
        await desk.store.apply(Batch(Step.CLUSTER_WISH, [wish, *book_contract(contract)]))
        assert await desk.available() == -1_000
        await desk.move("c", Phase.FAILED)
        assert await desk.available() == 0
        await desk.nodes_to("c", NodePhase.LEAVING)  # still failed: paid back once
        verdict = await verify(desk.raw)
        assert (verdict.holds, verdict.charged_micro) == (True, 0), verdict.problems
        statement = await desk.service.statement(ADMIN, since=BIRTHDAY)
        assert (statement.charged_micro, statement.credited_micro) == (0, 0)

    asyncio.run(story())


def test_pieces_booked_one_by_one_add_up_to_the_whole(desk: Desk) -> None:
    """A price that divides badly, booked at odd instants, and once further than the interval lasted."""
    prices = PriceBook([price("odd", micro=1_000_003), price("later", micro=7, at=5 * HOUR + 1)])
    usage = Usage(
        id="u",
        account_id="a",
        project_id="p",
        kind="cluster",
        resource_id="c",
        resource_name="c",
        item="8xH",
        region="eu",
        billing="on_demand",
        usage_class=UsageClass.SERVING,
        quantity=3,
        opened_at=BIRTHDAY + 17,
        open_key="c",
        booked_until=BIRTHDAY + 17,
    )
    total, step = 0, usage
    for until in (BIRTHDAY + 18, BIRTHDAY + 3 * HOUR + 7, BIRTHDAY + 3 * DAY + 1, BIRTHDAY + 3 * DAY):
        step, entries = booked(step, prices, until, until)
        total += sum(entry.micro if entry.kind is EntryKind.USAGE else -entry.micro for entry in entries)
        assert total == step.booked_micro == prices.charge(usage, until)
    assert len({entry.id for entry in entries}) == len(entries)


# --- a day and a price ------------------------------------------------------------------------------------------


def test_entries_are_booked_once_a_day_and_when_a_price_changes(desk: Desk) -> None:
    async def story() -> None:
        await desk.ready(account="b", project="q")
        began = desk.clock.now()
        waited = await desk.settle("b")
        assert waited == Wait("the next day", BIRTHDAY + DAY)
        await desk.raw.apply(Batch(Step.CATALOG_WRITE, [Insert(price("dear", 2 * NODE_HOUR, at=12 * HOUR))]))
        assert (await desk.settle("b")) == Wait("a price changes", BIRTHDAY + 12 * HOUR)
        desk.clock.advance_to(BIRTHDAY + 12 * HOUR)
        await desk.settle("b")
        [first] = await desk.entries()
        assert (first.since, first.at, first.price_micro) == (began, BIRTHDAY + 12 * HOUR, NODE_HOUR)
        desk.clock.advance_to(BIRTHDAY + 3 * DAY + HOUR)
        await desk.settle("b")
        await desk.settle("b")
        spans = [(entry.since, entry.at) for entry in await desk.entries()]
        days = [(BIRTHDAY + n * DAY, BIRTHDAY + (n + 1) * DAY) for n in (1, 2)]
        assert spans[1:] == [(BIRTHDAY + 12 * HOUR, BIRTHDAY + DAY), *days], "never per minute, and no day twice"
        lines = (await desk.service.statement(SYSTEM, account_id="b", since=BIRTHDAY, by="day")).lines
        whole_day = 2 * 24 * 2 * NODE_HOUR
        assert [(line.day, line.booked) for line in lines] == [
            ("2026-01-01", True),
            ("2026-01-02", True),
            ("2026-01-03", True),
            ("2026-01-04", False),
        ]
        assert [line.micro for line in lines[1:]] == [whole_day, whole_day, 2 * 2 * NODE_HOUR]
        await desk.holds()

    asyncio.run(story())


# --- credit -----------------------------------------------------------------------------------------------------


def test_a_create_needs_credit_for_its_first_day(desk: Desk) -> None:
    async def story() -> None:
        project = await desk.raw.get(Project, "p")
        assert project is not None
        want = Want("8xH", "eu", 2)
        with pytest.raises(InsufficientBalance) as refused:
            await desk.purse.require(project, [want])
        needed = 2 * 24 * NODE_HOUR
        assert refused.value.details["needed_micro"] == needed == refused.value.details["missing_micro"]
        assert "1,152.00 USD" in refused.value.message
        await desk.service.top_up(SYSTEM, "a", needed)
        await desk.purse.require(project, [want])
        with pytest.raises(InsufficientBalance):
            await desk.purse.require(project, [want, Want("volume", "eu", 1)])
        later = await desk.raw.get(Project, "q")
        assert later is not None
        await desk.purse.require(later, [Want("8xH", "eu", 1000)])  # pays later

    asyncio.run(story())


def test_credit_ends_at_its_instant_and_comes_back_with_a_top_up(desk: Desk) -> None:
    async def story() -> None:
        await desk.service.top_up(SYSTEM, "a", 3 * NODE_HOUR)
        await desk.volume(gib=1)
        await desk.ready(workers=1)
        waited = await desk.settle()
        assert waited.because == "the credit ends soon"
        desk.clock.advance_to(waited.until)
        assert (await desk.settle()).because == "the credit ends"
        known = await desk.raw.get(Funding, "a")
        assert known is not None
        assert known.state is FundingState.LOW
        desk.clock.advance_to((await desk.settle()).until)
        await desk.settle()
        cluster = await desk.raw.get(Cluster, "c")
        volume = await desk.raw.get(Volume, "v")
        assert cluster is not None
        assert volume is not None
        assert cluster.spec.unfunded_since == volume.unfunded_since == desk.clock.now()
        await desk.move("c", Phase.UNFUNDED)
        assert -PER_SECOND < await desk.available() <= 0
        desk.clock.advance(10 * 3600)
        assert -PER_SECOND < await desk.available() <= 0, "nothing is spent while nothing serves"
        await desk.service.top_up(SYSTEM, "a", NODE_HOUR // 100)
        await desk.settle()
        cluster = await desk.raw.get(Cluster, "c")
        assert cluster is not None
        assert cluster.spec.unfunded_since is not None, "a cent does not boot a cluster"
        await desk.service.top_up(SYSTEM, "a", 2 * NODE_HOUR)
        await desk.settle()
        cluster, volume = await desk.raw.get(Cluster, "c"), await desk.raw.get(Volume, "v")
        assert cluster is not None
        assert volume is not None
        assert cluster.spec.unfunded_since is None
        assert volume.unfunded_since is None
        await desk.holds()

    asyncio.run(story())


def test_the_grace_ends_what_nobody_pays_for(desk: Desk) -> None:
    async def story() -> None:
        await desk.service.top_up(SYSTEM, "a", NODE_HOUR)
        await desk.volume(gib=1)
        await desk.ready(workers=1)
        desk.clock.advance(3600)
        await desk.settle()
        stopped = desk.clock.now()
        await desk.move("c", Phase.UNFUNDED)
        desk.clock.advance_to(stopped + 2 * DAY - 1)
        await desk.settle()
        cluster = await desk.raw.get(Cluster, "c")
        assert cluster is not None
        assert cluster.delete_wished_at is None
        desk.clock.advance(0.001)
        await desk.settle()
        cluster, volume = await desk.raw.get(Cluster, "c"), await desk.raw.get(Volume, "v")
        assert cluster is not None
        assert volume is not None
        assert cluster.delete_wished_at == volume.delete_wished_at == desk.clock.now()
        assert cluster.live_name is None

    asyncio.run(story())


def test_what_ran_on_while_nobody_could_stop_it_is_the_operators(desk: Desk) -> None:
    async def story() -> None:
        await desk.service.top_up(SYSTEM, "a", NODE_HOUR)
        await desk.ready(workers=1)
        await desk.settle()
        desk.clock.advance(10 * 3600)  # an outage
        await desk.settle()
        [overrun] = await desk.entries(EntryKind.OVERRUN)
        assert overrun.micro == 9 * NODE_HOUR
        await desk.move("c", Phase.UNFUNDED)
        await desk.settle()
        assert await desk.available() == 0
        assert len(await desk.entries(EntryKind.OVERRUN)) == 1
        books = {book.id: book.micro for book in await desk.raw.find(Find(Book))}
        assert books["operator:revenue"] == 10 * NODE_HOUR, "the charge stays what was served"
        assert books["operator:overrun"] == -9 * NODE_HOUR
        await desk.holds()

    asyncio.run(story())


def test_a_reserved_cluster_runs_on_and_only_what_is_above_it_is_charged(desk: Desk) -> None:
    async def story() -> None:
        await desk.service.top_up(SYSTEM, "a", NODE_HOUR)
        reserved = await desk.cluster("r", workers=3)
        spec = replace(reserved.spec, billing=Billing.RESERVED, reserved_workers=2)
        await desk.store.apply(Batch(Step.CLUSTER_WISH, [Replace(changed(reserved, spec=spec))]))
        await desk.serve("r")
        serving = {u.billing: u.quantity for u in await desk.usages("r", usage_class="serving")}
        assert serving == {"reserved": 2, "on_demand": 1}
        desk.clock.advance(3600)
        assert await desk.available() == 0
        await desk.settle()
        cluster = await desk.raw.get(Cluster, "r")
        assert cluster is not None
        assert (cluster.spec.unfunded_since, cluster.spec.workers) == (None, 2)
        await desk.nodes_to("r", NodePhase.LEAVING, only="r-2")
        desk.clock.advance(3600)
        assert await desk.available() == 0, "the rest is paid for"
        await desk.holds()

    asyncio.run(story())


def test_a_spent_budget_stops_its_project_until_the_next_month(desk: Desk) -> None:
    async def story() -> None:
        await desk.service.set_budget(
            Actor(role=Role.ADMIN, name="bo", account_id="b", project_id="q"), "q", NODE_HOUR
        )
        await desk.ready(workers=1, account="b", project="q")
        assert (await desk.settle("b")).because == "a budget ends"
        desk.clock.advance(3600)
        await desk.settle("b")
        cluster = await desk.raw.get(Cluster, "c")
        assert cluster is not None
        assert cluster.spec.unfunded_since == desk.clock.now()
        project = await desk.raw.get(Project, "q")
        assert project is not None
        with pytest.raises(QuotaExceeded) as refused:
            await desk.purse.require(project, [Want("8xH", "eu", 1)])
        assert refused.value.details["left_micro"] == 0
        await desk.move("c", Phase.UNFUNDED)
        desk.clock.advance(20 * 24 * 3600)
        await desk.settle("b")
        cluster = await desk.raw.get(Cluster, "c")
        assert cluster is not None
        assert cluster.delete_wished_at is None, "a budget is a pause, not an end"
        desk.clock.advance(12 * 24 * 3600)
        await desk.settle("b")
        cluster = await desk.raw.get(Cluster, "c")
        assert cluster is not None
        assert cluster.spec.unfunded_since is None

    asyncio.run(story())


# --- people -----------------------------------------------------------------------------------------------------


def test_who_may_see_and_pay(desk: Desk) -> None:
    async def story() -> None:
        with pytest.raises(Forbidden):
            await desk.service.top_up(ADMIN, "a", 1)
        with pytest.raises(Forbidden):
            await desk.service.verify(ADMIN)
        for foreign in (
            desk.service.balance(STRANGER, "a"),
            desk.service.statement(STRANGER, project_id="p"),
            desk.service.set_budget(STRANGER, "p", 1),
            desk.service.budget(STRANGER, "p"),
        ):
            with pytest.raises(NotFound):
                await foreign
        with pytest.raises(Invalid):
            await desk.service.top_up(SYSTEM, "a", 0)
        assert (await desk.service.statement(ADMIN)).lines == []

    asyncio.run(story())


def test_a_top_up_said_twice_is_one(desk: Desk) -> None:
    async def story() -> None:
        once = Once("k", "d")
        first = await desk.service.top_up(SYSTEM, "a", 7, once=once)
        assert await desk.service.top_up(SYSTEM, "a", 7, once=once) == first
        assert await desk.available() == 7
        [event] = await desk.raw.events(after=0, limit=9)
        assert (event.type, event.account_id, event.data["micro"]) == ("account.topped_up", "a", 7)

    asyncio.run(story())


# --- the proof --------------------------------------------------------------------------------------------------


def test_the_proof_finds_a_charge_that_nothing_served_for(desk: Desk) -> None:
    async def story() -> None:
        await desk.ready(workers=1)
        desk.clock.advance(3600)
        await desk.move("c", Phase.PAUSED)
        await desk.holds()
        [served] = [u for u in await desk.usages() if u.usage_class is UsageClass.SERVING]
        longer = changed(served, closed_at=(served.closed_at or 0) + SECOND)
        await desk.raw.apply(Batch(Step.BILLING_BOOK, [Replace(longer)]))
        problems = (await verify(desk.raw)).problems
        assert any("in the ledger" in problem for problem in problems)
        assert any("cluster c served" in problem for problem in problems)

    asyncio.run(story())


def test_the_proof_finds_a_cluster_that_was_never_metered(desk: Desk) -> None:
    async def story() -> None:
        await desk.ready(workers=1)
        desk.clock.advance(5)
        unmetered, desk.store = desk.store, desk.raw
        await desk.ready("dark", workers=1)
        desk.store = unmetered
        [problem] = (await verify(desk.raw)).problems
        assert "cluster dark served 1 from" in problem

    asyncio.run(story())


def test_the_predicted_end_is_within_a_minutes_spend_whatever_the_rate(desk: Desk) -> None:
    async def story() -> None:
        await desk.service.top_up(SYSTEM, "a", 1_000_001)
        await desk.ready(workers=2)
        desk.clock.advance_to((await desk.settle()).until)
        while (funds := (await desk.service.balance(ADMIN)).funds).available > 0:
            desk.clock.advance_to((await desk.settle()).until)
        assert -funds.minute < funds.available <= 0
        assert funds.minute >= 2 * NODE_HOUR * MINUTE // HOUR

    asyncio.run(story())

"""The calendar on a real file: two replicas that reserve, extend, cancel, take, give back and die at any write.

Judged from the rows by the sheets of the simulation, which share no arithmetic with the calendar.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from muster.clock import SeededEntropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Remove, Replace, Store
from muster.core.accounts.service import AccountService
from muster.core.capacity.placement import Ask
from muster.core.capacity.reservations import Reservations, ReserveAsk
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import CatalogService
from muster.core.demo import demo_catalog
from muster.core.hosts.service import HostService, HostSpec
from muster.errors import MusterError
from muster.model.accounts import SYSTEM, Actor, Role
from muster.model.base import HOUR, changed
from muster.model.capacity import Booking, Reservation
from muster.model.hosts import Host, Lease
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock
from muster.testing.simulation.promises import sheets

GPU, REGION, HOSTS = "H100_SXM", "Delhi", 12
TURNS = 4_000 if os.environ.get("MUSTER_THOROUGH") else 400


class Died(BaseException):
    """The process is gone, before or after its write."""


class Mortal:
    """A store whose user may die around a write."""

    def __init__(self, behind: Store, dice: random.Random) -> None:
        self._behind, self._dice = behind, dice

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    async def apply(self, batch: Batch) -> Any:
        fate = self._dice.random()
        if fate < 0.03:
            raise Died
        answer = await self._behind.apply(batch)
        if fate > 0.97:
            raise Died
        return answer


class Replica:
    def __init__(self, store: Any, clock: ManualClock, entropy: SeededEntropy) -> None:
        self.capacity = Capacity(store)
        self.reservations = Reservations(store, clock, entropy, CatalogService(store, clock), self.capacity)


class Town:
    def __init__(self, store: SqliteStore, seed: int) -> None:
        self.store, self.clock, self.dice = store, ManualClock(), random.Random(seed)
        self.entropy = SeededEntropy(seed)
        self.replicas = [self.born(), self.born()]
        self.tenant = SYSTEM
        self.done: Counter[str] = Counter()

    def born(self) -> Replica:
        return Replica(Mortal(self.store, self.dice), self.clock, self.entropy)

    async def furnish(self) -> None:
        await CatalogService(self.store, self.clock).put_all(SYSTEM, demo_catalog(0))
        accounts = AccountService(self.store, self.clock, self.entropy)
        account = await accounts.create_account(SYSTEM, name="acme", postpaid=True)
        project = await accounts.create_project(SYSTEM, account_id=account.id, name="lab")
        self.tenant = Actor(role=Role.ADMIN, name="ann", account_id=account.id, project_id=project.id)
        specs = [
            HostSpec(name=f"h{n}", region=REGION, gpu_type=GPU, slots=8, cpus=192, memory_gib=2048)
            for n in range(HOSTS)
        ]
        await HostService(self.store, self.clock, self.entropy).import_hosts(SYSTEM, specs)

    def hours(self, most: int) -> int:
        return self.clock.now() + self.dice.randrange(1, most) * HOUR

    async def reserve(self, replica: Replica) -> None:
        lasts = self.dice.randrange(1, 40) * HOUR
        ask = ReserveAsk(GPU, 8 * self.dice.randrange(1, 5), lasts, REGION, 8, self.hours(60))
        await replica.reservations.reserve(self.tenant, ask)

    async def some(self) -> Reservation | None:
        known = await self.store.find(Find(Reservation, equals={"open": True}))
        return self.dice.choice(known) if known else None

    async def extend(self, replica: Replica) -> None:
        if one := await self.some():
            await replica.reservations.extend(self.tenant, one.id, self.hours(120))

    async def cancel(self, replica: Replica) -> None:
        if one := await self.some():
            await replica.reservations.cancel(self.tenant, one.id)

    async def take(self, replica: Replica) -> None:
        """An ask on demand, as the cluster service makes it."""
        ends_at = self.hours(50) if self.dice.random() < 0.6 else None
        ask = Ask(REGION, GPU, 8, self.dice.randrange(1, 4), ends_at=ends_at, at=self.clock.now())
        placement = await replica.capacity.place(ask)
        leases = [
            Insert(
                Lease(
                    id=self.entropy.uuid(),
                    host_id=grant.host_id,
                    slots=grant.slots,
                    node_id="n",
                    cluster_id="c",
                    project_id="p",
                    taken_at=0,
                    ends_at=ends_at,
                )
            )
            for grant in placement.workers
        ]
        mortal = Mortal(self.store, self.dice)
        try:
            await mortal.apply(Batch(Step.CLUSTER_ACCEPT, [*leases, *replica.capacity.guard(placement)]))
        except BaseException:
            replica.capacity.give_back(placement)
            raise

    async def give_back(self, replica: Replica) -> None:
        leases = await self.store.find(Find(Lease))
        over = [lease for lease in leases if lease.ends_at is not None and lease.ends_at <= self.clock.now()]
        gone = over or leases[:1]
        await self.store.apply(Batch(Step.NODES_FREE, [Remove(Lease, lease.id) for lease in gone]))

    async def fail_or_mend(self, replica: Replica) -> None:
        hosts = await self.store.find(Find(Host))
        down = [host for host in hosts if host.cordoned]
        host = down[0] if len(down) >= 2 else self.dice.choice(hosts)
        await self.store.apply(Batch(Step.HOST_WRITE, [Replace(changed(host, cordoned=not host.cordoned))]))

    async def turn(self) -> None:
        verbs: tuple[Callable[[Replica], Awaitable[None]], ...] = (
            self.reserve,
            self.reserve,
            self.take,
            self.give_back,
            self.extend,
            self.cancel,
            self.fail_or_mend,
        )
        verb, at = self.dice.choice(verbs), self.dice.randrange(2)
        try:
            await verb(self.replicas[at])
            self.done[verb.__name__] += 1
        except MusterError:
            self.done["refused"] += 1
        except Died:
            self.replicas[at] = self.born()
            self.done["died"] += 1

    async def judge(self) -> None:
        now = self.clock.now()
        for sheet in await sheets(self.store, now):
            for at in sheet.instants(now):
                assert sheet.load(at) <= len(sheet.hosts), f"more promised than exists at {at}"
                assert sheet.promised(at) <= len(sheet.hosts) * sheet.line.share_percent // 100
        open_ = {one.booking_id for one in await self.store.find(Find(Reservation, equals={"open": True}))}
        assert {one.id for one in await self.store.find(Find(Booking))} == open_


async def story(file: Path, seed: int) -> Counter[str]:
    store = SqliteStore.open(file, inline=True, fsync=False)
    town = Town(store, seed)
    try:
        await town.furnish()
        for turn in range(TURNS):
            await town.turn()
            if turn % 5 == 0:
                await town.judge()
            if turn % 25 == 0:
                town.clock.advance(3_600)
    finally:
        await store.close()
    return town.done


@pytest.mark.parametrize("seed", range(2))
def test_never_more_promised_than_exists(tmp_path: Path, seed: int) -> None:
    done = asyncio.run(story(tmp_path / "m.db", seed))
    for verb in ("reserve", "extend", "cancel", "take", "died", "refused"):
        assert done[verb] >= 3, done


def test_who_counts_no_promise_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Capacity, "room", lambda *_, **__: HOSTS)
    with pytest.raises(AssertionError, match="more promised than exists"):
        asyncio.run(story(tmp_path / "m.db", 0))

"""The store against a dict: whatever a random history does, both tell the same story."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muster.contracts.store import Claim, Expect, Find, Insert, Op, Remove, Replace, Wake
from muster.errors import FenceLost, StoreError, UniqueViolation, VersionMismatch
from muster.model.base import Noun, changed
from muster.model.clusters import Cluster
from muster.model.hosts import Lease
from muster.store.sqlite import SqliteStore
from muster.testing.store_rig import batch, cluster, event, lease

T = TypeVar("T")
IDS = st.sampled_from("abcd")
NAMES = st.sampled_from(["red", "blue"])
HOSTS = st.sampled_from(["h1", "h2"])
MASKS = st.integers(1, 0b111)
VERSIONS = st.integers(1, 3)
INSTANTS = st.integers(0, 20)

OPS = st.one_of(
    st.builds(lambda id, name: Insert(cluster(id, name=name, number=ord(id))), IDS, NAMES),
    st.builds(lambda id, host, mask: Insert(lease(id, host, mask)), IDS, HOSTS, MASKS),
    st.builds(
        lambda id, name, version, live: Replace(
            changed(cluster(id, name=name, number=ord(id), version=version, live_name=name if live else None))
        ),
        IDS,
        NAMES,
        VERSIONS,
        st.booleans(),
    ),
    st.builds(Remove, st.sampled_from([Cluster, Lease]), IDS, st.none() | VERSIONS),
    st.builds(Expect, st.just(Cluster), IDS, VERSIONS),
    st.builds(lambda id, at: Wake("cluster", id, at), IDS, INSTANTS),
)


class Work:
    def __init__(self, due_at: int) -> None:
        self.due_at = due_at
        self.wakes = 1
        self.held: Claim | None = None

    @property
    def ready_at(self) -> int:
        return self.held.expires_at if self.held else self.due_at

    def copy(self) -> Work:
        twin = Work(self.due_at)
        twin.wakes, twin.held = self.wakes, self.held
        return twin


class Model:
    """The contract, said as plainly as it can be."""

    def __init__(self) -> None:
        self.nouns: dict[tuple[type[Noun], str], Noun] = {}
        self.work: dict[str, Work] = {}
        self.events = 0
        self.capacity: list[tuple[str, int, int]] = []

    def copy(self) -> Model:
        twin = Model()
        twin.nouns, twin.events = dict(self.nouns), self.events
        twin.work = {id: work.copy() for id, work in self.work.items()}
        twin.capacity = list(self.capacity)
        return twin

    def all(self, noun: type[T]) -> list[T]:
        return [one for one in self.nouns.values() if isinstance(one, noun)]

    def apply(self, op: Op) -> None:
        if isinstance(op, Insert):
            self._insert(op.noun)
        elif isinstance(op, Replace):
            self._require(type(op.noun), op.noun.id, op.noun.version - 1)
            self._unique_name(op.noun)
            self.nouns[type(op.noun), op.noun.id] = op.noun
        elif isinstance(op, Remove):
            gone = self._require(op.noun, op.key, op.version)
            del self.nouns[op.noun, op.key]
            if isinstance(gone, Lease):
                self.capacity.append((gone.host_id, 0, gone.slots))
        elif isinstance(op, Expect):
            self._require(op.noun, op.key, op.version)
        else:
            work = self.work.get(op.id)
            if work is None:
                self.work[op.id] = Work(op.due_at)
            else:
                work.wakes += 1
                work.due_at = min(work.due_at, op.due_at)

    def _insert(self, noun: Noun) -> None:
        if (type(noun), noun.id) in self.nouns:
            raise UniqueViolation("id")
        self._unique_name(noun)
        if isinstance(noun, Lease):
            if any(one.host_id == noun.host_id and one.slots & noun.slots for one in self.all(Lease)):
                raise UniqueViolation("lease_slot")
            self.capacity.append((noun.host_id, noun.slots, 0))
        self.nouns[type(noun), noun.id] = noun

    def _unique_name(self, noun: Noun) -> None:
        if isinstance(noun, Cluster) and noun.live_name is not None:
            others = {one.live_name for one in self.all(Cluster) if one.id != noun.id}
            if noun.live_name in others:
                raise UniqueViolation("cluster_live_name")

    def _require(self, noun: type[Noun], key: str, version: int | None) -> Noun:
        found = self.nouns.get((noun, key))
        if found is None or version not in (None, found.version):
            raise VersionMismatch(noun.__name__, key)
        return found

    def holds(self, claim: Claim) -> bool:
        work = self.work.get(claim.id)
        return work is not None and work.held is not None and work.held.token == claim.token


class StoreAgainstModel(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="muster-model-"))
        self.loop = asyncio.new_event_loop()
        self.store = SqliteStore.open(self.home / "m.db", inline=True, fsync=False)
        self.model = Model()
        self.now = 0
        self.claims: list[Claim] = []

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.store.close())
            self.loop.close()
            shutil.rmtree(self.home)

    def run(self, told: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(told)

    @rule(ops=st.lists(OPS, max_size=4), events=st.integers(0, 2), which=st.none() | st.integers(0, 5))
    def apply(self, ops: list[Op], events: int, which: int | None) -> None:
        fence = self.claims[which % len(self.claims)] if which is not None and self.claims else None
        expected: type[StoreError] | None = None
        after = self.model.copy()
        try:
            if fence is not None and not after.holds(fence):
                raise FenceLost("lost")
            for op in ops:
                after.apply(op)
            after.events += events
        except StoreError as error:
            expected = type(error)
        asked = self.store.apply(batch(*ops, events=(event(),) * events, fence=fence))
        if expected is None:
            self.run(asked)
            self.model = after
        else:
            with pytest.raises(expected):
                self.run(asked)

    @rule(limit=st.integers(1, 3), lease_ms=st.integers(1, 10))
    def claim(self, limit: int, lease_ms: int) -> None:
        ready = sorted((work.ready_at, id) for id, work in self.model.work.items() if work.ready_at <= self.now)
        taken = self.run(self.store.claim(worker="w", now=self.now, lease_ms=lease_ms, limit=limit))
        assert [one.id for one in taken] == [id for _, id in ready[:limit]]
        for one in taken:
            assert all(one.token > old.token for old in self.claims)
            assert one.wakes == self.model.work[one.id].wakes
            self.model.work[one.id].held = one
            self.claims.append(one)

    @rule(which=st.integers(0, 9), due=st.none() | st.integers(0, 20), failed=st.booleans())
    def release(self, which: int, due: int | None, failed: bool) -> None:
        if not self.claims:
            return
        claim = self.claims[which % len(self.claims)]
        self.run(self.store.release(claim, due_at=due, failed=failed))
        if self.model.holds(claim):
            work = self.model.work[claim.id]
            work.held = None
            if work.wakes == claim.wakes:
                if due is None:
                    del self.model.work[claim.id]
                else:
                    work.due_at = due

    @rule(which=st.integers(0, 9), more=st.integers(1, 10))
    def renew(self, which: int, more: int) -> None:
        if not self.claims:
            return
        claim = self.claims[which % len(self.claims)]
        held = self.model.holds(claim)
        assert self.run(self.store.renew(claim, self.now + more)) is held
        if held:
            self.model.work[claim.id].held = claim._replace(expires_at=self.now + more)

    @rule(by=st.integers(1, 5))
    def pass_time(self, by: int) -> None:
        self.now += by

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = SqliteStore.open(self.home / "m.db", inline=True, fsync=False)

    @invariant()
    def same_story(self) -> None:
        if not hasattr(self, "store"):
            return
        for noun in (Cluster, Lease):
            stored: list[Any] = self.run(self.store.find(Find(noun)))
            assert stored == sorted(self.model.all(noun), key=lambda one: one.id)
        taken: dict[str, int] = {}
        for one in self.model.all(Lease):
            taken[one.host_id] = taken.get(one.host_id, 0) | one.slots
        assert self.run(self.store.slots_taken()) == taken
        assert [change[1:4] for change in self.run(self.store.capacity_log(0, 10_000))] == self.model.capacity
        assert len(self.run(self.store.events(after=0, limit=10_000))) == self.model.events
        ready = [work.ready_at for work in self.model.work.values()]
        assert self.run(self.store.next_due()) == min(ready, default=None)
        due = sum(at <= self.now for at in ready)
        assert self.run(self.store.work_backlog(self.now)) == (due, len(ready))


TestStoreAgainstModel = StoreAgainstModel.TestCase
TestStoreAgainstModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

"""The engine: one claim, one turn; failures are told and tried again; several engines share one store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from muster.clock import RealClock, RealEntropy, SeededEntropy
from muster.contracts.reconciler import Advance, Gone, Outcome, Settled, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Store, Wake
from muster.engine.engine import Engine, Pace
from muster.errors import FenceLost
from muster.store.postgres import PostgresStore
from muster.store.sqlite import SqliteStore
from muster.testing.postgres import postgres_dsn, postgres_server
from muster.testing.simulation.loop import VirtualClock, VirtualLoop, run_virtual

FAR = 1 << 52
__all__ = ["postgres_dsn", "postgres_server"]
Act = Callable[[str, Claim], Awaitable[Outcome]]


class Recorded:
    """A reconciler that does what the test says and remembers its turns."""

    kind = "thing"

    def __init__(self, act: Act, ids: tuple[str, ...] = ()) -> None:
        self._act = act
        self._ids = ids
        self.turns: list[tuple[str, int]] = []

    async def everything(self) -> list[str]:
        return list(self._ids)

    async def reconcile(self, id: str, claim: Claim) -> Outcome:
        self.turns.append((id, claim.token))
        return await self._act(id, claim)


def virtually(tmp_path: Path, story: Callable[[Store, VirtualClock], Awaitable[None]]) -> None:
    loop = VirtualLoop()

    async def run() -> None:
        store = SqliteStore.open(tmp_path / "m.db", inline=True, fsync=False)
        try:
            await story(store, VirtualClock(loop))
        finally:
            await store.close()

    run_virtual(run(), loop)


async def run_for(engine: Engine, seconds: float, clock: VirtualClock) -> None:
    stop = asyncio.Event()
    running = asyncio.ensure_future(engine.run(stop))
    await clock.sleep(seconds)
    stop.set()
    await running


def engine_of(store: Store, clock: VirtualClock, reconciler: Recorded, **pace: int) -> Engine:
    return Engine(store, clock, SeededEntropy(1), [reconciler], pace=Pace(**pace))


def test_what_a_killed_bearer_of_its_name_held_is_taken_up_at_once(tmp_path: Path) -> None:
    async def story(store: Store, clock: VirtualClock) -> None:
        async def act(id: str, claim: Claim) -> Outcome:
            return Gone()

        began = clock.now()
        for id in ("mine", "other"):
            await store.apply(Batch(Step.ENGINE_ROUND, [Wake("thing", id, clock.now())]))
        for worker in ("house", "neighbour"):
            await store.claim(worker=worker, now=clock.now(), lease_ms=30_000, limit=1)
        reconciler = Recorded(act)
        engine = Engine(store, clock, SeededEntropy(1), [reconciler], worker="house")
        await run_for(engine, 5, clock)
        assert [id for id, _ in reconciler.turns] == ["mine"], "the neighbour may well be alive"
        await run_for(engine, 30, clock)
        assert [id for id, _ in reconciler.turns] == ["mine", "other"]
        assert all(token > began for _, token in reconciler.turns), "also where the store is a copy of an older one"

    virtually(tmp_path, story)


def test_advance_comes_back_at_once_and_wait_at_its_time(tmp_path: Path) -> None:
    async def story(store: Store, clock: VirtualClock) -> None:
        times: list[int] = []
        began = clock.now()

        async def act(id: str, claim: Claim) -> Outcome:
            times.append((clock.now() - began) // 1000)
            return Advance() if len(times) < 3 else Wait("patience", clock.now() + 60_000)

        await store.apply(Batch(Step.ENGINE_ROUND, [Wake("thing", "a", began)]))
        await run_for(engine_of(store, clock, Recorded(act)), 70, clock)
        assert times[:3] == [0, 0, 0]
        assert times[3:] == [60]

    virtually(tmp_path, story)


def test_what_raises_is_tried_again_with_growing_pauses(tmp_path: Path) -> None:
    async def story(store: Store, clock: VirtualClock) -> None:
        times: list[int] = []
        began = clock.now()

        async def act(id: str, claim: Claim) -> Outcome:
            times.append((clock.now() - began) // 1000)
            raise RuntimeError("a bug")

        await store.apply(Batch(Step.ENGINE_ROUND, [Wake("thing", "a", began)]))
        engine = engine_of(store, clock, Recorded(act))
        await run_for(engine, 40, clock)
        pauses = [b - a for a, b in pairwise(times)]
        assert pauses == sorted(pauses)
        assert pauses[0] >= 1
        assert len(times) >= 4
        assert engine.failures == len(times)

    virtually(tmp_path, story)


def test_a_wake_up_during_a_turn_is_not_lost(tmp_path: Path) -> None:
    async def story(store: Store, clock: VirtualClock) -> None:
        reconciler = Recorded(lambda id, claim: act(id, claim))

        async def act(id: str, claim: Claim) -> Outcome:
            if len(reconciler.turns) == 1:
                await store.apply(Batch(Step.ENGINE_ROUND, [Wake("thing", id, clock.now())]))
            return Settled()

        await store.apply(Batch(Step.ENGINE_ROUND, [Wake("thing", "a", clock.now())]))
        await run_for(engine_of(store, clock, reconciler, look_again_ms=10_000_000), 5, clock)
        assert len(reconciler.turns) == 2

    virtually(tmp_path, story)


def test_the_full_pass_needs_no_wake_up_at_all(tmp_path: Path) -> None:
    async def story(store: Store, clock: VirtualClock) -> None:
        async def act(id: str, claim: Claim) -> Outcome:
            return Gone()

        reconciler = Recorded(act, ids=("a", "b"))
        await run_for(engine_of(store, clock, reconciler, full_pass_ms=30_000), 65, clock)
        assert sorted(id for id, _ in reconciler.turns) == ["a", "a", "a", "b", "b", "b"]

    virtually(tmp_path, story)


def test_a_long_turn_keeps_its_claim(tmp_path: Path) -> None:
    async def story(store: Store, clock: VirtualClock) -> None:
        async def act(id: str, claim: Claim) -> Outcome:
            await clock.sleep(100)
            await store.apply(Batch(Step.ENGINE_ROUND, [Wake("other", "x", FAR)], fence=claim))
            return Settled()

        await store.apply(Batch(Step.ENGINE_ROUND, [Wake("thing", "a", clock.now())]))
        reconciler = Recorded(act)
        first = engine_of(store, clock, reconciler, lease_ms=9_000)
        second = Engine(store, clock, SeededEntropy(2), [reconciler], pace=Pace(lease_ms=9_000))
        await asyncio.gather(run_for(first, 110, clock), run_for(second, 110, clock))
        assert [id for id, _ in reconciler.turns] == ["a"]
        assert first.failures == second.failures == 0

    virtually(tmp_path, story)


def test_a_zombies_batch_is_refused(tmp_path: Path) -> None:
    async def story(store: Store, clock: VirtualClock) -> None:
        await store.apply(Batch(Step.ENGINE_ROUND, [Wake("thing", "a", clock.now())]))
        [old] = await store.claim(worker="frozen", now=clock.now(), lease_ms=1_000, limit=1)
        await clock.sleep(2)
        [new] = await store.claim(worker="awake", now=clock.now(), lease_ms=1_000, limit=1)
        assert new.token > old.token
        with pytest.raises(FenceLost):
            await store.apply(Batch(Step.ENGINE_ROUND, [Wake("other", "x", FAR)], fence=old))
        await store.apply(Batch(Step.ENGINE_ROUND, [Wake("other", "x", FAR)], fence=new))

    virtually(tmp_path, story)


def test_engines_on_one_postgresql_share_work_and_survive_one_that_freezes(postgres_dsn: str) -> None:
    """Two stores, two engines: the first freezes in the middle of a turn, past its lease; the second takes over, and
    what the first does when it wakes is refused."""

    async def story() -> None:
        clock, entropy = RealClock(), RealEntropy()
        stores = [await PostgresStore.open(postgres_dsn) for _ in range(2)]
        frozen, thawed, all_done, late = (asyncio.Event() for _ in range(4))
        refused: list[FenceLost] = []
        done: dict[str, set[str]] = {"first": set(), "second": set()}
        everything = {f"thing-{n}" for n in range(40)}

        def finished(who: str, id: str) -> Outcome:
            done[who].add(id)
            if done["first"] | done["second"] == everything:
                all_done.set()
            return Gone()

        async def freezing(id: str, claim: Claim) -> Outcome:
            if not frozen.is_set():
                frozen.set()
                await thawed.wait()
                try:
                    await stores[0].apply(Batch(Step.ENGINE_ROUND, [Wake("late", id, FAR)], fence=claim))
                except FenceLost as error:
                    refused.append(error)
                    late.set()
                    raise
            return finished("first", id)

        async def awake(id: str, claim: Claim) -> Outcome:
            await frozen.wait()
            return finished("second", id)

        class Frozen(Engine):
            async def _keep(self, claim: Claim) -> None:
                """A frozen process renews nothing."""

        pace = Pace(lease_ms=300, idle_ms=20, concurrency=4, full_pass_ms=10_000_000)
        first = Frozen(stores[0], clock, entropy, [Recorded(freezing)], pace=pace)
        second = Engine(stores[1], clock, entropy, [Recorded(awake)], pace=pace)
        await stores[0].apply(Batch(Step.ENGINE_ROUND, [Wake("thing", id, 0) for id in sorted(everything)]))
        stop = asyncio.Event()
        running = [asyncio.ensure_future(engine.run(stop)) for engine in (first, second)]
        await all_done.wait()
        thawed.set()
        await late.wait()
        stop.set()
        await asyncio.gather(*running)
        assert len(refused) == 1
        assert done["first"]
        assert done["second"]
        for store in stores:
            await store.close()

    asyncio.run(asyncio.wait_for(story(), 60))

"""A volume's whole life on a real store and the simulated fleet: straight, through trouble, through crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from muster.clock import SeededEntropy
from muster.contracts.reconciler import Advance, Gone, Outcome, Settled, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Find, Insert, Remove, Wake
from muster.contracts.substrate import Fence, Power, Seen, VolumeWish, Wish
from muster.core.volumes.plan import READY
from muster.core.volumes.reconcile import STOCK_RETRY, VolumeReconciler
from muster.core.volumes.wishes import Wished, ended_volume, grown_volume, new_volume
from muster.errors import DriverError, FencedOff, FenceLost, Never, NoneLeft, TryLater, UnknownOutcome
from muster.model.accounts import SYSTEM
from muster.model.base import HOUR, MINUTE, SECOND, changed
from muster.model.clusters import Cluster, ClusterSpec, ClusterType
from muster.model.events import Request, RequestState
from muster.model.phases import VOLUME_LIMITS, Phase, VolumePhase
from muster.model.volumes import Attachment, Volume
from muster.store.sqlite import SqliteStore
from muster.substrates.simulated import SimulatedSubstrate, SimulatedWorld
from muster.testing.clock import ManualClock


class Crash(BaseException):
    """The process ends here."""


class Moody:
    """The simulated substrate with moods: what it says instead of, or after, doing as it is told."""

    def __init__(self, real: SimulatedSubstrate) -> None:
        self._real = real
        self.refuse: list[DriverError] = []
        self.lose: list[DriverError] = []
        self.sees: Seen | None = None
        self.limit_gib = 1 << 30

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    async def ensure(self, wishes: Sequence[Wish], fence: Fence) -> None:
        if self.refuse:
            raise self.refuse.pop(0)
        if any(isinstance(wish, VolumeWish) and wish.size_gib > self.limit_gib for wish in wishes):
            raise Never(f"no volume here has more than {self.limit_gib} GiB")
        await self._real.ensure(wishes, fence)
        if self.lose:
            raise self.lose.pop(0)

    async def observe(self, keys: Sequence[str]) -> dict[str, Seen]:
        if self.sees is not None:
            return dict.fromkeys(keys, self.sees)
        return await self._real.observe(keys)

    async def ensure_absent(self, keys: Sequence[str], fence: Fence) -> None:
        if self.refuse:
            raise self.refuse.pop(0)
        await self._real.ensure_absent(keys, fence)


class Yard:
    """One volume, its reconciler, and the smallest engine that keeps the contract."""

    def __init__(self, store: SqliteStore, world_path: str) -> None:
        self.store = store
        self.clock = ManualClock()
        self.entropy = SeededEntropy(1)
        self.world = SimulatedWorld.open(world_path, self.clock, seed=1)
        self.substrate = Moody(SimulatedSubstrate(self.world, self.clock))
        self.reconciler = VolumeReconciler(store, self.clock, self.substrate)  # type: ignore[arg-type]
        self.outcomes: list[Outcome] = []

    async def want(self, size_gib: int = 100) -> Volume:
        wished = new_volume(
            id=self.entropy.uuid(),
            request_id=self.entropy.uuid(),
            account_id="a",
            project_id="p",
            name="data",
            region="eu-1",
            size_gib=size_gib,
            actor=SYSTEM,
            at=self.clock.now(),
        )
        await self.accept(wished, Step.VOLUME_ACCEPT)
        return wished.volume

    async def accept(self, wished: Wished, step: Step = Step.VOLUME_WISH) -> None:
        await self.store.apply(Batch(step, wished.ops(), wished.events))

    async def grow(self, id: str, size_gib: int) -> None:
        volume = await self.volume(id)
        await self.accept(
            grown_volume(volume, size_gib, request_id=self.entropy.uuid(), actor=SYSTEM, at=self.clock.now())
        )

    async def end(self, id: str) -> None:
        volume = await self.volume(id)
        await self.accept(ended_volume(volume, request_id=self.entropy.uuid(), actor=SYSTEM, at=self.clock.now()))

    async def volume(self, id: str) -> Volume:
        volume = await self.store.get(Volume, id)
        assert volume is not None
        return volume

    async def requests(self, id: str) -> dict[str, Request]:
        found = await self.store.find(Find(Request, equals={"resource_id": id}))
        return {request.operation: request for request in found}

    async def step(self) -> Outcome | None:
        """Claim what is due, run it, put it back; time jumps to when something is due."""
        due = await self.store.next_due()
        if due is None:
            return None
        self.clock.advance_to(due)
        claims = await self.store.claim(worker="w", now=self.clock.now(), lease_ms=30 * SECOND, limit=1)
        if not claims:
            return None
        claim = claims[0]
        if claim.kind != "volume":
            await self.store.release(claim, due_at=None, failed=False)
            return Settled()
        outcome = await self.reconciler.reconcile(claim.id, claim)
        self.outcomes.append(outcome)
        await self.store.release(claim, due_at=self._due_at(outcome), failed=False)
        return outcome

    def _due_at(self, outcome: Outcome) -> int | None:
        match outcome:
            case Advance():
                return self.clock.now()
            case Wait(_, until):
                assert until > self.clock.now(), "a wait that does not wait would spin"
                return until
            case Settled():
                return self.clock.now() + HOUR
            case Gone():
                return None

    async def until(self, over: Callable[[], Awaitable[bool]], steps_max: int = 200) -> None:
        for _ in range(steps_max):
            if await over():
                return
            await self.step()
        raise AssertionError(f"not over after {steps_max} steps: {self.outcomes[-5:]}")

    async def settle(self) -> None:
        """Run until the volume rests or is gone."""
        self.outcomes.clear()

        async def rests() -> bool:
            return bool(self.outcomes) and isinstance(self.outcomes[-1], Settled | Gone)

        await self.until(rests)

    async def mount(self, volume_id: str, cluster_id: str) -> Attachment:
        spec = ClusterSpec(
            type=ClusterType.SLURM, region="eu-1", gpu_type="H", instance_type="8xH", workers=1, image_id=""
        )
        cluster = Cluster(
            id=cluster_id,
            account_id="a",
            project_id="p",
            name=cluster_id,
            live_name=cluster_id,
            region="eu-1",
            phase=Phase.STORAGE,
            phase_since=1,
            spec=spec,
            digest="",
            created_at=1,
            updated_at=1,
        )
        mount = Attachment(
            id=f"{volume_id}-{cluster_id}",
            volume_id=volume_id,
            cluster_id=cluster_id,
            project_id="p",
            mount_path="/home",
            created_at=1,
        )
        await self.store.apply(Batch(Step.CLUSTER_ACCEPT, [Insert(cluster), Insert(mount)]))
        return mount

    async def kept(self) -> list[str]:
        return [owned.key for owned in self.world.owned()]


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True)
    yard = Yard(store, str(tmp_path / "world.db"))
    yield yard
    yard.world.close()
    asyncio.run(store.close())


def test_the_straight_road(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want(100)).id
        await yard.step()
        asked = await yard.volume(id)
        assert asked.phase is VolumePhase.PROVISIONING
        assert "100 GiB" in asked.because
        assert (await yard.requests(id))["create"].state is RequestState.PROCESSING
        await yard.settle()
        made = await yard.volume(id)
        assert (made.phase, made.actual_gib, made.because) == (VolumePhase.AVAILABLE, 100, READY)
        created = (await yard.requests(id))["create"]
        assert (created.state, created.finished_at) == (RequestState.COMPLETED, made.phase_since)

        await yard.grow(id, 250)
        await yard.settle()
        grown = await yard.volume(id)
        assert (grown.phase, grown.actual_gib, grown.because) == (VolumePhase.AVAILABLE, 250, READY)
        assert (await yard.requests(id))["grow"].state is RequestState.COMPLETED

        await yard.end(id)
        await yard.settle()
        gone = await yard.volume(id)
        assert (gone.phase, gone.live_name, gone.gone_at) == (VolumePhase.GONE, None, gone.phase_since)
        assert (await yard.requests(id))["delete"].state is RequestState.COMPLETED
        assert await yard.kept() == []
        assert await yard.store.next_due() is None
        types = [event.type for event in await yard.store.events(after=0, limit=100, resource_id=id)]
        assert types == [
            "volume.created",
            "volume.phase",
            "volume.grow_wished",
            "volume.grown",
            "volume.delete_wished",
            "volume.phase",
            "volume.phase",
        ]

    asyncio.run(story())


def test_growing_while_it_is_made_ends_at_the_last_wish(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want(100)).id
        await yard.step()
        await yard.grow(id, 300)
        await yard.settle()
        volume = await yard.volume(id)
        assert (volume.phase, volume.actual_gib) == (VolumePhase.AVAILABLE, 300)
        states = {name: request.state for name, request in (await yard.requests(id)).items()}
        assert states == {"create": RequestState.COMPLETED, "grow": RequestState.COMPLETED}

    asyncio.run(story())


def test_deleting_while_it_is_made_leaves_nothing(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want()).id
        await yard.step()
        await yard.end(id)
        await yard.settle()
        assert (await yard.volume(id)).phase is VolumePhase.GONE
        requests = await yard.requests(id)
        assert requests["create"].state is RequestState.FAILED
        assert requests["create"].message == "the volume was deleted first"
        assert requests["delete"].state is RequestState.COMPLETED
        assert await yard.kept() == []

    asyncio.run(story())


@pytest.mark.parametrize("mood", [TryLater("busy"), UnknownOutcome("no reply"), FencedOff("an older token")])
def test_trouble_that_passes_is_waited_for_in_words(yard: Yard, mood: DriverError) -> None:
    async def story() -> None:
        id = (await yard.want()).id
        yard.substrate.refuse = [mood]
        outcome = await yard.step()
        assert outcome == Wait(mood.because, yard.clock.now() + 5 * SECOND)
        assert (await yard.volume(id)).because == mood.because
        await yard.settle()
        assert (await yard.volume(id)).phase is VolumePhase.AVAILABLE

    asyncio.run(story())


def test_a_lost_reply_makes_one_volume(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want()).id
        yard.substrate.lose = [UnknownOutcome("no reply")]
        await yard.settle()
        assert (await yard.volume(id)).phase is VolumePhase.AVAILABLE
        assert await yard.kept() == [id]

    asyncio.run(story())


def test_a_stock_out_is_waited_for_longer_and_once_written(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want()).id
        yard.substrate.refuse = [NoneLeft("eu-1 has none left") for _ in range(3)]
        assert await yard.step() == Wait("eu-1 has none left", yard.clock.now() + STOCK_RETRY)
        version = (await yard.volume(id)).version
        await yard.step()
        await yard.step()
        assert (await yard.volume(id)).version == version
        await yard.settle()
        assert (await yard.volume(id)).phase is VolumePhase.AVAILABLE

    asyncio.run(story())


def test_never_is_a_failure_with_its_reason_and_a_new_wish_tries_again(yard: Yard) -> None:
    async def story() -> None:
        yard.substrate.limit_gib = 50
        id = (await yard.want(100)).id
        await yard.settle()
        failed = await yard.volume(id)
        assert failed.phase is VolumePhase.FAILED
        assert failed.because == "no volume here has more than 50 GiB"
        assert (await yard.requests(id))["create"].message == failed.because
        yard.substrate.limit_gib = 500
        await yard.grow(id, 100)
        await yard.settle()
        assert (await yard.volume(id)).phase is VolumePhase.AVAILABLE
        assert (await yard.requests(id))["grow"].state is RequestState.COMPLETED

    asyncio.run(story())


def test_a_refused_growth_fails_its_request_and_not_the_volume(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want(100)).id
        await yard.settle()
        yard.substrate.limit_gib = 150
        await yard.grow(id, 200)
        await yard.settle()
        volume = await yard.volume(id)
        assert (volume.phase, volume.actual_gib, volume.because) == (VolumePhase.AVAILABLE, 100, READY)
        refused = (await yard.requests(id))["grow"]
        assert (refused.state, refused.message) == (RequestState.FAILED, "no volume here has more than 150 GiB")

    asyncio.run(story())


def test_what_the_substrate_could_not_make_has_failed_and_is_cleared_before_the_next_try(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want()).id
        await yard.step()
        yard.substrate.sees = Seen(Power.FAILED, because="a disk died")
        await yard.settle()
        assert (await yard.volume(id)).because == "a disk died"
        assert (await yard.volume(id)).phase is VolumePhase.FAILED
        yard.substrate.sees = None
        await yard.grow(id, 100)
        await yard.settle()
        phases = [
            event.data["phase"]
            for event in await yard.store.events(after=0, limit=100, resource_id=id)
            if event.type == "volume.phase"
        ]
        assert phases == ["failed", "provisioning", "available"]

    asyncio.run(story())


def test_a_missing_volume_is_never_made_anew_in_silence(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want()).id
        await yard.settle()
        await yard.substrate.ensure_absent([id], Fence(id, 1 << 40))
        yard.clock.advance(60)
        await yard.store.apply(Batch(Step.VOLUME_WISH, [Wake("volume", id, yard.clock.now())]))
        outcome = await yard.step()
        assert isinstance(outcome, Wait)
        assert "missing" in (await yard.volume(id)).because
        assert await yard.kept() == []

    asyncio.run(story())


def test_unreachable_is_not_gone_and_heals(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want()).id
        await yard.settle()
        yard.substrate.sees = Seen(Power.UNKNOWN, because="its rack does not answer")
        await yard.store.apply(Batch(Step.VOLUME_WISH, [Wake("volume", id, yard.clock.now())]))
        assert isinstance(await yard.step(), Wait)
        assert "rack" in (await yard.volume(id)).because
        yard.substrate.sees = None
        await yard.settle()
        assert (await yard.volume(id)).because == READY

    asyncio.run(story())


def test_clusters_that_have_it_mounted_are_told_in_the_same_batch(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want()).id
        await yard.mount(id, "c1")
        before = await yard.store.get(Cluster, "c1")
        await yard.step()
        asked = await yard.store.get(Cluster, "c1")
        assert before is not None
        assert asked == before, "waiting is no news for a cluster"

        async def available() -> bool:
            return (await yard.volume(id)).phase is VolumePhase.AVAILABLE

        await yard.until(available)
        told = await yard.store.get(Cluster, "c1")
        assert told is not None
        assert told.version == before.version + 1
        claims = await yard.store.claim(worker="x", now=yard.clock.now(), lease_ms=1, limit=10)
        assert ("cluster", "c1") in {(claim.kind, claim.id) for claim in claims}

    asyncio.run(story())


def test_nothing_is_cleared_away_while_it_is_mounted(yard: Yard) -> None:
    """An attachment that slipped in beside the delete wish."""

    async def story() -> None:
        id = (await yard.want()).id
        await yard.settle()
        mount = await yard.mount(id, "c1")
        await yard.end(id)
        outcome = await yard.step()
        assert isinstance(outcome, Wait)
        assert "mounted" in outcome.because
        assert await yard.kept() == [id]
        await yard.store.apply(Batch(Step.CLUSTER_GONE, [Remove(Attachment, mount.id)]))
        await yard.settle()
        assert (await yard.volume(id)).phase is VolumePhase.GONE

    asyncio.run(story())


def test_a_zombie_cannot_bring_a_gone_volume_back(yard: Yard) -> None:
    """An engine froze before its first `ensure`; another one ended the volume, which was never made."""

    async def story() -> None:
        id = (await yard.want()).id
        [frozen] = await yard.store.claim(worker="frozen", now=yard.clock.now(), lease_ms=SECOND, limit=1)
        await yard.end(id)
        await yard.settle()
        assert (await yard.volume(id)).phase is VolumePhase.GONE
        wish = VolumeWish(key=id, region="eu-1", size_gib=100)
        with pytest.raises(FencedOff):
            await yard.substrate.ensure([wish], Fence(id, frozen.token))
        assert await yard.kept() == []

    asyncio.run(story())


def test_a_wish_that_comes_during_a_step_is_not_written_over(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want(100)).id
        await yard.step()
        real = yard.substrate.observe

        async def interrupted(keys: Sequence[str]) -> dict[str, Seen]:
            seen = await real(keys)
            if (await yard.volume(id)).generation == 1 and seen[id].power is Power.UP:
                await yard.grow(id, 200)
            return seen

        yard.substrate.observe = interrupted  # type: ignore[method-assign]
        await yard.settle()
        volume = await yard.volume(id)
        assert (volume.size_gib, volume.actual_gib, volume.phase) == (200, 200, VolumePhase.AVAILABLE)

    asyncio.run(story())


def test_the_full_pass_finds_the_living_and_what_should_be_gone(yard: Yard) -> None:
    async def story() -> None:
        live = (await yard.want()).id
        await yard.settle()
        assert await yard.reconciler.everything() == [live]
        await yard.substrate.ensure([VolumeWish(key="ghost", region="eu-1", size_gib=1)], Fence("ghost", 1))
        ghost = changed(await yard.volume(live), id="ghost", live_name=None, gone_at=1, delete_wished_at=1, number=0)
        await yard.store.apply(Batch(Step.VOLUME_RECORD, [Insert(ghost)]))
        assert await yard.reconciler.everything() == [live, "ghost"]
        await yard.store.apply(Batch(Step.VOLUME_WISH, [Wake("volume", "ghost", yard.clock.now())]))
        yard.outcomes.clear()

        async def swept() -> bool:
            return Gone() in yard.outcomes

        await yard.until(swept)
        assert await yard.kept() == [live]

    asyncio.run(story())


def test_what_nobody_wrote_down_is_left_to_the_operator(yard: Yard) -> None:
    async def story() -> None:
        await yard.substrate.ensure([VolumeWish(key="theirs", region="eu-1", size_gib=1)], Fence("theirs", 1))
        claim = Claim("volume", "theirs", 9, 0, 0, 0)
        assert await yard.reconciler.reconcile("theirs", claim) == Gone()
        assert await yard.kept() == ["theirs"]

    asyncio.run(story())


def test_it_stays_well_within_its_limits(yard: Yard) -> None:
    async def story() -> None:
        id = (await yard.want()).id
        begun = yard.clock.now()
        await yard.settle()
        limit = VOLUME_LIMITS[VolumePhase.PROVISIONING]
        assert limit is not None
        assert (await yard.volume(id)).phase_since - begun < limit / 10
        assert (await yard.volume(id)).stuck_since(yard.clock.now() + 10 * MINUTE) is None

    asyncio.run(story())


class Failpoint:
    """Ends the process before or after the n-th durable step; counts them otherwise."""

    def __init__(self) -> None:
        self.passed = 0
        self.crash_at = -1
        self.before = True

    def arm(self, at: int, *, before: bool) -> None:
        self.passed, self.crash_at, self.before = 0, at, before

    async def around(self, deed: Awaitable[None]) -> None:
        here = self.passed == self.crash_at
        self.passed += 1
        if here and self.before:
            deed.close()  # type: ignore[attr-defined]
            raise Crash
        await deed
        if here:
            raise Crash


class Watched:
    """Every call passes through; the durable ones pass a failpoint."""

    def __init__(self, real: object, failpoint: Failpoint, durable: tuple[str, ...]) -> None:
        self._real = real
        self._failpoint = failpoint
        self._durable = durable

    def __getattr__(self, name: str) -> object:
        method = getattr(self._real, name)
        if name not in self._durable:
            return method

        def passed(*args: object) -> Awaitable[None]:
            return self._failpoint.around(method(*args))

        return passed


async def whole_life(yard: Yard, failpoint: Failpoint) -> None:
    """Create, grow, delete; whenever the process dies, another one takes up the same work."""

    def reborn() -> None:
        store = Watched(yard.store, failpoint, ("apply",))
        substrate = Watched(yard.substrate, failpoint, ("ensure", "ensure_absent"))
        yard.reconciler = VolumeReconciler(store, yard.clock, substrate)  # type: ignore[arg-type]

    async def rest() -> None:
        for _ in range(200):
            try:
                outcome = await yard.step()
            except Crash:
                reborn()
                continue
            if isinstance(outcome, Settled | Gone):
                return
        raise AssertionError("it never rests")

    reborn()
    id = (await yard.want(100)).id
    await rest()
    await yard.grow(id, 200)
    await rest()
    volume = await yard.volume(id)
    assert (volume.phase, volume.actual_gib) == (VolumePhase.AVAILABLE, 200)
    await yard.end(id)
    await rest()
    assert (await yard.volume(id)).phase is VolumePhase.GONE
    assert await yard.kept() == []
    assert {request.state for request in (await yard.requests(id)).values()} == {RequestState.COMPLETED}
    phases = [
        event.data["phase"]
        for event in await yard.store.events(after=0, limit=100, resource_id=id)
        if event.type == "volume.phase"
    ]
    assert phases == ["available", "deleting", "gone"], "each move is told exactly once"


def test_a_crash_before_or_after_any_durable_step_changes_nothing_in_the_end(tmp_path: Path) -> None:
    def live(name: str, at: int, *, before: bool) -> int:
        store = SqliteStore.open(tmp_path / f"{name}.db", inline=True, fsync=False)
        yard = Yard(store, str(tmp_path / f"{name}-world.db"))
        failpoint = Failpoint()
        failpoint.arm(at, before=before)
        try:
            asyncio.run(whole_life(yard, failpoint))
        finally:
            yard.world.close()
            asyncio.run(store.close())
        return failpoint.passed

    steps = live("straight", -1, before=True)
    assert steps >= 10
    for at in range(steps):
        assert live(f"before-{at}", at, before=True) > at
        assert live(f"after-{at}", at, before=False) > at


def test_every_batch_is_fenced(yard: Yard) -> None:
    """A worker whose claim ran out writes nothing, even when nobody else wrote meanwhile."""

    async def story() -> None:
        id = (await yard.want()).id
        await yard.step()
        yard.clock.advance(MINUTE / SECOND)
        [old] = await yard.store.claim(worker="old", now=yard.clock.now(), lease_ms=1, limit=1)
        yard.clock.advance(1)
        [new] = await yard.store.claim(worker="new", now=yard.clock.now(), lease_ms=MINUTE, limit=1)
        before = await yard.volume(id)
        with pytest.raises(FenceLost):
            await yard.reconciler.reconcile(id, old)
        assert await yard.volume(id) == before
        assert isinstance(await yard.reconciler.reconcile(id, new), Advance)

    asyncio.run(story())

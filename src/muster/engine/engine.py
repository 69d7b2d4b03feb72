"""The engine: claims due work, runs one reconcile, applies its outcome, lets go. Knows no noun.

*Laws.* One claim, one reconcile. A claim is renewed while its reconcile runs and its token fences everything done
under it; what an engine that is known to have ended still holds is taken up at once. Whatever a reconciler raises is
told and tried again later with growing pauses; nothing is dropped. Wake-ups are a courtesy: a periodic full pass
assumes that every one of them was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from muster.contracts.clock import Clock, Entropy
from muster.contracts.reconciler import Advance, Gone, Outcome, Reconciler, Settled, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Store, Wake
from muster.engine.crowd import Crowd
from muster.engine.effort import Effort, Ticks
from muster.errors import FencedOff, FenceLost, StoreFull, VersionMismatch
from muster.model.base import SECOND, Instant

log = logging.getLogger("muster.engine")

BACKOFF_FIRST = 1 * SECOND
BACKOFF_MOST = 60 * SECOND
WAKE_CHUNK = 500
CROWDED_HANDS = 2
REST_SECONDS_MOST = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How hard the engine works. All limits, no wishes."""

    concurrency: int = 16
    lease_ms: int = 30_000
    look_again_ms: int = 20_000  # how soon a settled resource is looked at again
    full_pass_ms: int = 300_000
    idle_ms: int = 500  # how late a wake-up written by another process may be noticed
    crowded_share: float = 0.1  # of the process's time, while the API wants it too


class Engine:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        reconcilers: Sequence[Reconciler],
        *,
        pace: Pace = Pace(),
        chores: Sequence[Callable[[], Awaitable[None]]] = (),
        ticks: Ticks = lambda: 0.0,
        traffic: Callable[[], int] = lambda: 0,
        worker: str = "",
    ) -> None:
        """`worker`: a name that only one engine at a time may bear, so that what its last bearer held is its own."""
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._reconcilers = {reconciler.kind: reconciler for reconciler in reconcilers}
        self._pace = pace
        self._chores = chores
        self.worker = worker or f"engine-{entropy.uuid()}"
        self._inherits = bool(worker)
        self._nudged = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._effort = Effort(ticks)
        self._crowd = Crowd(traffic)
        self._rested_at = 0.0
        self.steps = 0
        self.failures = 0
        self.last_pass_ms = 0

    @property
    def busy_seconds(self) -> float:
        """What reconciles took of this thread's time so far."""
        return self._effort.seconds

    def nudge(self) -> None:
        """Something became due in this process; look at once instead of at the next tick."""
        self._nudged.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; then let the running reconciles finish."""
        next_pass = self._clock.now()
        stopping = asyncio.ensure_future(stop.wait())
        if self._inherits:
            await self._guarded(self._inherit)
        try:
            while not stop.is_set():
                if self._clock.now() >= next_pass:
                    next_pass = self._clock.now() + self._pace.full_pass_ms
                    await self._guarded(self.full_pass)
                if not await self._start_some():
                    await self._idle(stopping)
        finally:
            stopping.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _inherit(self) -> None:
        """Whoever bore our name was killed: its work waits for no expiry. And our tokens are greater than its were,
        even if the store was lost or restored meanwhile: they follow the clock, which no copy sets back."""
        await self._store.tokens_above(self._clock.now())
        left = await self._store.disown(self.worker)
        if left:
            log.info("work that was left in the middle is taken up again: %d", left)

    async def full_pass(self) -> None:
        """Make everything due, as if every wake-up had been lost, and do the house's chores."""
        began = self._clock.now()
        for reconciler in self._reconcilers.values():
            ids = await reconciler.everything()
            for start in range(0, len(ids), WAKE_CHUNK):
                wakes = [Wake(reconciler.kind, id, self._clock.now()) for id in ids[start : start + WAKE_CHUNK]]
                await self._store.apply(Batch(Step.ENGINE_ROUND, wakes))
        for chore in self._chores:
            await chore()
        self.last_pass_ms = self._clock.now() - began

    async def _start_some(self) -> bool:
        """Claim what is due and start it; False when there is nothing to do or no hand free."""
        free = self._pace.concurrency - len(self._running)
        if free <= 0:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            return True
        self._nudged.clear()
        claims = await self._claim(min(free, CROWDED_HANDS) if self._crowd.here(self._clock.now()) else free)
        for claim in claims:
            task = asyncio.ensure_future(self._effort.of(self._turn(claim)))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        if claims:
            await self._be_polite()
        return bool(claims)

    async def _claim(self, limit: int) -> list[Claim]:
        try:
            return await self._store.claim(
                worker=self.worker, now=self._clock.now(), lease_ms=self._pace.lease_ms, limit=limit
            )
        except StoreFull:
            log.warning("the disk is full; the engine waits")
            await self._clock.sleep(1.0)
            return []

    async def _be_polite(self) -> None:
        """Let the API breathe: while calls come in, rest in proportion to the time our own turns took."""
        await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        spent, self._rested_at = self._effort.seconds - self._rested_at, self._effort.seconds
        if self._crowd.here(self._clock.now()):
            await self._clock.sleep(min(REST_SECONDS_MOST, spent * (1 / self._pace.crowded_share - 1)))

    async def _idle(self, stopping: asyncio.Future[Any]) -> None:
        due = await self._store.next_due()
        most = self._pace.idle_ms / 1000
        wait = most if due is None else (due - self._clock.now()) / 1000
        sleeper = asyncio.ensure_future(self._clock.sleep(min(most, max(0.001, wait))))
        nudged = asyncio.ensure_future(self._nudged.wait())
        waiting: set[asyncio.Future[Any]] = {sleeper, nudged, stopping, *self._running}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        sleeper.cancel()
        nudged.cancel()

    async def _turn(self, claim: Claim) -> None:
        """One reconcile under one claim."""
        keeper = asyncio.ensure_future(self._keep(claim))
        try:
            outcome = await self._reconcilers[claim.kind].reconcile(claim.id, claim)
        except (FenceLost, FencedOff) as error:
            log.info("%s %s: another engine has it now (%s)", claim.kind, claim.id, error)
        except VersionMismatch:
            await self._guarded(lambda: self._let_go(claim, Advance("the wish changed meanwhile")))
        except Exception as error:
            self.failures += 1
            log.exception("%s %s: %s", claim.kind, claim.id, error)
            await self._guarded(lambda: self._let_go(claim, None))
        else:
            await self._guarded(lambda: self._let_go(claim, outcome))
        finally:
            self.steps += 1
            keeper.cancel()

    async def _let_go(self, claim: Claim, outcome: Outcome | None) -> None:
        now = self._clock.now()
        match outcome:
            case Advance():
                due: Instant | None = now
            case Wait(until=until):
                due = until
            case Settled():
                due = now + self._pace.look_again_ms
            case Gone():
                due = None
            case None:
                due = now + min(BACKOFF_MOST, BACKOFF_FIRST * 2 ** min(claim.attempts, 10))
        await self._store.release(claim, due_at=due, failed=outcome is None)
        if due is not None and due <= now:
            self.nudge()

    async def _keep(self, claim: Claim) -> None:
        while True:
            await self._clock.sleep(self._pace.lease_ms / 3000)
            if not await self._store.renew(claim, self._clock.now() + self._pace.lease_ms):
                return

    async def _guarded(self, act: Callable[[], Awaitable[None]]) -> None:
        """What fails here is tried again by the next pass or when the claim expires; it is told, not lost."""
        try:
            await act()
        except Exception as error:
            self.failures += 1
            log.exception("engine: %s", error)

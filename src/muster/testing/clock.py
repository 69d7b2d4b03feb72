"""A clock that stands still until it is moved: for tests of things that compute their state from the time."""

from __future__ import annotations

import asyncio

from muster.model.base import SECOND, Instant

BIRTHDAY: Instant = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class ManualClock:
    """`sleep` moves the clock itself and lets others run: nobody waits in real time."""

    def __init__(self, now: Instant = BIRTHDAY) -> None:
        self._now = now

    def now(self) -> Instant:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * SECOND)

    def advance_to(self, at: Instant) -> None:
        self._now = max(self._now, at)

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)

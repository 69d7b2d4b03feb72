"""What may go wrong around a durable step: the process dies, or freezes past its lease and comes back as a zombie."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from muster.contracts.clock import Clock, Entropy
from muster.contracts.steps import Step


class Crash(BaseException):
    """The process image is dropped here. Not an Exception: nothing in the house may catch it."""


class Chaos:
    """Failpoints of one process image, thrown by the seed's dice; a dead image can do nothing any more."""

    def __init__(
        self,
        clock: Clock,
        entropy: Entropy,
        tell: Callable[[str], None],
        *,
        crash_chance: float,
        freeze_chance: float,
        freeze_seconds: float,
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._tell = tell
        self._crash_chance = crash_chance
        self._freeze_chance = freeze_chance
        self._freeze_seconds = freeze_seconds
        self.dead = False
        self.died = asyncio.Event()
        self.calm = False

    async def before(self, step: Step) -> None:
        await self._door(step, "before")

    async def after(self, step: Step) -> None:
        await self._door(step, "after")

    async def _door(self, step: Step, side: str) -> None:
        if self.dead:
            raise Crash(step)
        if self.calm:
            return
        dice = self._entropy.chance()
        if dice < self._crash_chance:
            self.dead = True
            self.died.set()
            self._tell(f"CRASH {side} {step}")
            raise Crash(step)
        if dice < self._crash_chance + self._freeze_chance:
            self._tell(f"FREEZE {side} {step}")
            await self._clock.sleep(self._freeze_seconds)
            if self.dead:
                raise Crash(step)


class At:
    """Dies at one named door, the first time it is reached (at none, when none is named); for the exhaustive twin."""

    def __init__(self, step: Step | None = None, side: str = "before") -> None:
        self._door = (step, side)
        self.dead = False
        self.reached: set[Step] = set()

    def risen(self) -> At:
        """The doors of the next process, which lives; what was reached stays reached."""
        after = At()
        after.reached = self.reached
        return after

    async def before(self, step: Step) -> None:
        self._pass(step, "before")

    async def after(self, step: Step) -> None:
        self._pass(step, "after")

    def _pass(self, step: Step, side: str) -> None:
        if self.dead:
            raise Crash(step)
        self.reached.add(step)
        if (step, side) == self._door:
            self.dead = True
            raise Crash(step)

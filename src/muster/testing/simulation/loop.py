"""An event loop whose time is virtual: sleeping costs nothing, and the same seed gives the same order of events."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from muster.model.base import Instant

T = TypeVar("T")

EPOCH: Instant = 1_800_000_000_000
"""Every history begins at the same instant."""


SPINS_MAX = 10_000
"""Rounds of the loop without time passing: more than this is a livelock."""


class Stalled(RuntimeError):
    """Nothing more will happen, or nothing but the same: in real life this process would hang, or spin, for ever."""


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for time to pass, let it have passed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._spins = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stalled("nothing is runnable and nothing is scheduled")
        self._spins = 0 if timeout > 0 else self._spins + 1
        if self._spins > SPINS_MAX:
            self._spins = 0  # so that there is a way to end in order
            raise Stalled("everything spins and no time passes")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class VirtualClock:
    """The house's clock inside a virtual loop; `jump` steps it, as a corrected system clock does."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._offset: Instant = 0

    def now(self) -> Instant:
        return EPOCH + self._offset + int(self._loop.time() * 1000)

    def jump(self, seconds: float) -> None:
        self._offset += int(seconds * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtual(main: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run to the end in virtual time, leaving no task behind."""
    asyncio.set_event_loop(loop)
    # Tasks of a crashed image die unheard: that is what a crash is.
    loop.set_exception_handler(lambda _, context: None)
    try:
        return loop.run_until_complete(main)
    finally:
        leftover = asyncio.all_tasks(loop)
        for task in leftover:
            task.cancel()
        if leftover:
            loop.run_until_complete(asyncio.gather(*leftover, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()

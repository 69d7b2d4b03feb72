"""How much of the process's time the engine takes, measured where it is spent.

One thread serves calls and moves resources; the share of each cannot be read from the operating system. So every
stretch between two waits of a piece of the engine's work is measured by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeAlias

Ticks: TypeAlias = Callable[[], float]


class Effort:
    """Sums the seconds that work wrapped by it spends running, not waiting."""

    def __init__(self, ticks: Ticks) -> None:
        self._ticks = ticks
        self.seconds = 0.0

    async def of(self, work: Coroutine[Any, Any, None]) -> None:
        await _Stretches(work, self)

    def step(self, act: Callable[[], Any]) -> Any:
        began = self._ticks()
        try:
            return act()
        finally:
            self.seconds += self._ticks() - began


class _Stretches:
    """Drives a coroutine as `await` does, a measured stretch at a time; what is thrown in reaches it."""

    def __init__(self, work: Coroutine[Any, Any, None], effort: Effort) -> None:
        self._work = work
        self._effort = effort

    def __await__(self) -> Generator[Any, Any, None]:
        go_on = partial(self._work.send, None)
        act: Callable[[], Any] = go_on
        while True:
            try:
                waits_for = self._effort.step(act)
            except StopIteration:
                return
            try:
                yield waits_for
                act = go_on
            except BaseException as thrown:
                act = partial(self._work.throw, thrown)

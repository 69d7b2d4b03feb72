"""Waiting for news: long polls and the stream of changes.

Leans on the event loop's own time only, so that it runs under a virtual one. *Laws.* A commit of this process is
heard at once, another's within half a second; nobody waits longer than it asked; a stop wakes everybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

POLL_SECONDS: Final = 0.5
"""How long a change made by another process may stay unheard."""

PAUSE_SECONDS: Final = 0.02
"""Between two looks of one waiter, so that a busy store does not wake everybody for every commit."""

T = TypeVar("T")


class Watch:
    """Rung by whoever commits; heard by whoever waits."""

    def __init__(self) -> None:
        self._bell = asyncio.Event()
        self._waiting = 0
        self.closed = False

    def ring(self) -> None:
        """Something was committed. Costs nothing while nobody waits."""
        if self._waiting:
            bell, self._bell = self._bell, asyncio.Event()
            bell.set()

    def close(self) -> None:
        """The server stops: everybody answers with what there is."""
        self.closed = True
        self.ring()

    def listener(self) -> Listener:
        return Listener(self)

    async def until(self, look: Callable[[], Awaitable[T]], done: Callable[[T], bool], seconds: float) -> T:
        """What `look` sees once it is `done`, or what it sees when time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with self.listener() as listener:
            while True:
                seen = await look()
                left = deadline - loop.time()
                if done(seen) or left <= 0 or self.closed:
                    return seen
                await listener.news(min(POLL_SECONDS, left))


class Listener:
    """One who waits. The bell is held from before the look, so that a ring in between is not missed."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._bell = watch._bell

    def __enter__(self) -> Listener:
        self._watch._waiting += 1
        self._bell = self._watch._bell
        return self

    def __exit__(self, *_: object) -> None:
        self._watch._waiting -= 1

    async def news(self, seconds: float) -> None:
        """Return when something was committed since the last news, or after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._bell.wait()
                await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            pass
        self._bell = self._watch._bell

"""Work that outlasts a call: begun by one, followed by later ones.

Laws: per owner one piece of work at a time; the same key is the same work; a result is told once, then the next call
begins anew (unless it is to be kept, until other work is asked for); a failure is always told once only; whoever left
without a result is called when there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_PATIENCE_SECONDS: Final = 0.03
"""Short work is answered by the very call that began it."""


class Background(Generic[T]):
    def __init__(self, ended: Callable[[str], None]) -> None:
        """`ended(owner)`: work that a call left under way is done, one way or the other."""
        self._ended = ended
        self._work: dict[str, tuple[str, asyncio.Task[T]]] = {}
        self._left: set[asyncio.Task[T]] = set()

    def __contains__(self, owner: str) -> bool:
        return owner in self._work

    async def follow(
        self, owner: str, key: str, begin: Callable[[], Awaitable[T]], *, keep: bool = False
    ) -> T | None:
        """The result, or None while it is under way."""
        known = self._work.get(owner)
        if known is None or known[0] != key:
            if known is not None and not known[1].done():
                known[1].cancel()
                await asyncio.wait([known[1]])
            known = (key, asyncio.ensure_future(begin()))
            self._work[owner] = known
        task = known[1]
        await asyncio.wait([task], timeout=_PATIENCE_SECONDS)
        if not task.done():
            self._leave(owner, task)
            return None
        if not keep or task.cancelled() or task.exception() is not None:
            self._work.pop(owner, None)
        return task.result()

    def _leave(self, owner: str, task: asyncio.Task[T]) -> None:
        if task not in self._left:
            self._left.add(task)
            task.add_done_callback(self._left.discard)
            task.add_done_callback(lambda done: None if done.cancelled() else self._ended(owner))

    async def close(self) -> None:
        tasks = [task for _, task in self._work.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._work.clear()

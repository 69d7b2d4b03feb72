"""Work that outlasts a call: begun by one, followed by later ones.

Laws: per owner one piece of work at a time; the same key is the same work; a result is told once, then the next call
begins anew (unless it is to be kept, until other work is asked for); a failure is always told once only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_PATIENCE_SECONDS: Final = 0.03
"""Short work is answered by the very call that began it."""


class Background(Generic[T]):
    def __init__(self) -> None:
        self._work: dict[str, tuple[str, asyncio.Task[T]]] = {}

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
            return None
        if not keep or task.cancelled() or task.exception() is not None:
            self._work.pop(owner, None)
        return task.result()

    async def close(self) -> None:
        tasks = [task for _, task in self._work.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._work.clear()

"""A store that tells this process when it has committed: long polls answer and the engine looks at once.

Leans on contracts.store. A courtesy, never a need: other processes' commits are found by looking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from muster.contracts.store import Batch, Store, Wake


class _Announcing:
    """Everything goes straight to the store behind; after a commit `committed` hears whether work was woken."""

    def __init__(self, behind: Store, committed: Callable[[bool], None]) -> None:
        self._behind = behind
        self._committed = committed
        # The hottest reads are bound once, so that they cost no more than without us.
        self.get, self.find = behind.get, behind.find
        self.head, self.heads = behind.head, behind.heads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    async def apply(self, batch: Batch) -> Mapping[str, int]:
        numbers = await self._behind.apply(batch)
        self._committed(Wake in map(type, batch.ops))
        return numbers


def announcing(store: Store, committed: Callable[[bool], None]) -> Store:
    return cast(Store, _Announcing(store, committed))

"""What the house forgets, so that a log written for ever does not grow for ever.

Leans on the store's contract. *Laws.* A pass is bounded, in all and per transaction, so that nobody waits for it; the
rest waits for the next. Nothing is forgotten that somebody may still come back to: the audit log is kept as long as
the operator said, a client's idempotency key for a week, and of the capacity log more than any replica follows
line by line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from muster.contracts.clock import Clock
from muster.contracts.store import Store
from muster.core.capacity.service import LINES_BEHIND_MAX
from muster.model.base import DAY

EVENT_DAYS_DEFAULT: Final = 90
KEY_DAYS: Final = 7
CAPACITY_LINES_KEPT: Final = 5 * LINES_BEHIND_MAX
PRUNE_CHUNK: Final = 500  # rows forgotten in one transaction: others wait no longer than that
PRUNE_CHUNKS_MAX: Final = 20  # chunks of a kind in one pass


class Retention:
    """Called by the engine's periodic pass."""

    def __init__(self, store: Store, clock: Clock, *, event_days: int = EVENT_DAYS_DEFAULT) -> None:
        self._store = store
        self._clock = clock
        self._event_days = event_days

    async def prune(self) -> int:
        """Forget what is old; how many rows went."""
        now = self._clock.now()
        events = await _in_chunks(lambda: self._store.prune_events(now - self._event_days * DAY, PRUNE_CHUNK))
        keys = await _in_chunks(lambda: self._store.prune_keys(now - KEY_DAYS * DAY, PRUNE_CHUNK))
        lines = await _in_chunks(lambda: self._store.prune_capacity_log(CAPACITY_LINES_KEPT, PRUNE_CHUNK))
        return events + keys + lines


async def _in_chunks(prune: Callable[[], Awaitable[int]]) -> int:
    gone = 0
    for _ in range(PRUNE_CHUNKS_MAX):
        pruned = await prune()
        gone += pruned
        if pruned < PRUNE_CHUNK:
            break
    return gone

"""What a substrate announces, made due: the courtesy that spares the next look its wait.

Leans on the store alone. *Law.* A wake-up may be lost here (a full disk, a crash): the periodic full pass assumes so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from muster.contracts.clock import Clock
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Store, Wake
from muster.errors import StoreError

log = logging.getLogger("muster.engine")

WAKE_CHUNK: Final = 250


class Wakeups:
    """`hear` may be called at any moment and never waits; `run` writes down what was heard.

    An owner's kind is not known to a substrate, so each kind is woken under that id; the wrong one finds nothing.
    """

    def __init__(self, store: Store, clock: Clock, kinds: Sequence[str]) -> None:
        self._store = store
        self._clock = clock
        self._kinds = kinds
        self._heard: dict[str, None] = {}
        self._bell = asyncio.Event()

    def hear(self, owner: str) -> None:
        self._heard[owner] = None
        self._bell.set()

    async def run(self, stop: asyncio.Event) -> None:
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                ringing = asyncio.ensure_future(self._bell.wait())
                await asyncio.wait({ringing, stopping}, return_when=asyncio.FIRST_COMPLETED)
                ringing.cancel()
                await self.deliver()
        finally:
            stopping.cancel()

    async def deliver(self) -> None:
        """Many announcements of one owner are one wake-up."""
        self._bell.clear()
        owners = list(self._heard)
        self._heard.clear()
        now = self._clock.now()
        wakes = [Wake(kind, owner, now) for owner in owners for kind in self._kinds]
        try:
            for start in range(0, len(wakes), WAKE_CHUNK):
                await self._store.apply(Batch(Step.ENGINE_ROUND, wakes[start : start + WAKE_CHUNK]))
        except StoreError as error:
            log.warning("%d wake-ups were lost: %s", len(wakes), error)

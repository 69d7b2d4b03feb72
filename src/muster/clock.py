"""The real clock and the real dice: the one place that may ask the operating system for either."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
import uuid

from muster.model.base import Instant

ticks = time.perf_counter
"""Seconds from an arbitrary point: for measuring how long something took, never for when it was."""


class RealClock:
    """Wall time that never goes backwards within the process: a stepped system clock must not un-happen things."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> Instant:
        self._last = max(self._last, time.time_ns() // 1_000_000)
        return self._last

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


UUIDS_PER_READ = 256


class RealEntropy:
    """System randomness for ids and secrets; for ids it is read in bulk, because a create makes many."""

    def __init__(self) -> None:
        self._pool = ""

    def uuid(self) -> str:
        if not self._pool:
            self._pool = os.urandom(16 * UUIDS_PER_READ).hex()
        h, self._pool = self._pool[:32], self._pool[32:]
        return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}"

    def token(self, nbytes: int = 32) -> str:
        return secrets.token_urlsafe(nbytes)

    def chance(self) -> float:
        return secrets.randbelow(1 << 53) / (1 << 53)


class SeededEntropy:
    """The same seed gives the same ids, secrets and dice: for simulations, never for a server that faces people."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - replayable on purpose

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def token(self, nbytes: int = 32) -> str:
        return self._random.randbytes(nbytes).hex()

    def chance(self) -> float:
        return self._random.random()

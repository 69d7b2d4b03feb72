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
        now = time.time_ns() // 1_000_000
        if now > self._last:
            self._last = now
        return self._last

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


UUIDS_PER_READ = 256
BUCKET_BITS = 28
"""Ids made within so many nanoseconds (268 ms) begin alike."""


class RealEntropy:
    """System randomness for ids and secrets; for ids it is read in bulk, because a create makes many.

    An id is a version 4 UUID of 106 random bits. Its first 16 bits are the quarter of a second it was made in, going
    round in some five hours: rows written together lie together in every index, so that a commit writes few pages.
    """

    def __init__(self) -> None:
        self._tails: list[str] = []
        self._bucket = -1
        self._head = ""

    def uuid(self) -> str:
        bucket = time.time_ns() >> BUCKET_BITS
        if bucket != self._bucket:
            self._bucket, self._head = bucket, f"{bucket & 0xFFFF:04x}"
        if not self._tails:
            self._tails = _tails()
        return self._head + self._tails.pop()

    def token(self, nbytes: int = 32) -> str:
        return secrets.token_urlsafe(nbytes)

    def chance(self) -> float:
        return secrets.randbelow(1 << 53) / (1 << 53)


def _tails() -> list[str]:
    """All of a version 4 UUID but its first four digits."""
    pool = os.urandom(14 * UUIDS_PER_READ).hex()
    digits = (pool[at : at + 28] for at in range(0, len(pool), 28))
    return [f"{h[:4]}-{h[4:8]}-4{h[8:11]}-{'89ab'[int(h[11], 16) & 3]}{h[12:15]}-{h[15:27]}" for h in digits]


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

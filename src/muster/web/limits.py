"""How much one key may ask: a token bucket for its rate, and a count of the calls it holds open.

Leans on contracts.clock. *Laws.* Time comes from the Clock; memory is bounded (idle buckets are forgotten); a refusal
says when to come back.
"""

from __future__ import annotations

from contextlib import suppress

from muster.contracts.clock import Clock
from muster.errors import RateLimited
from muster.model.base import Instant

BUCKETS_MAX = 16_384
"""Buckets kept before full (idle) ones are swept out."""


class Bucket:
    __slots__ = ("at", "tokens")

    def __init__(self, tokens: float, at: Instant) -> None:
        self.tokens = tokens
        self.at = at


class RateLimit:
    """`rate` tokens a second for each key, at most `burst` saved up."""

    def __init__(self, clock: Clock, *, rate: float, burst: int) -> None:
        self._clock = clock
        self._per_ms = rate / 1_000
        self._burst = float(burst)
        self._buckets: dict[str, Bucket] = {}

    def take(self, key: str) -> None:
        """One token of this key, or RateLimited with the time until the next."""
        now = self._clock.now()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._new(key, now)
        tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._per_ms)
        bucket.at = now
        if tokens < 1:
            bucket.tokens = tokens
            seconds = (1 - tokens) / self._per_ms / 1_000
            raise RateLimited("too many requests with this key", retry_after_seconds=seconds, hint="slow down")
        bucket.tokens = tokens - 1

    def _new(self, key: str, now: Instant) -> Bucket:
        if len(self._buckets) >= BUCKETS_MAX:
            self._sweep(now)
        bucket = self._buckets[key] = Bucket(self._burst, now)
        return bucket

    def _sweep(self, now: Instant) -> None:
        """A bucket that has had time to fill up again says nothing: forget it."""
        full_after = self._burst / self._per_ms
        self._buckets = {key: b for key, b in self._buckets.items() if now - b.at < full_after}


class OpenCalls:
    """How many calls and streams each key holds open at this moment."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[str, int] = {}

    def enter(self, key: str) -> None:
        count = self._open.get(key, 0)
        if count >= self._limit:
            raise RateLimited(
                f"this key already holds {count} calls open", retry_after_seconds=1, hint="end some calls or streams"
            )
        self._open[key] = count + 1

    def leave(self, key: str) -> None:
        with suppress(KeyError):
            self._open[key] -= 1
            if self._open[key] <= 0:
                del self._open[key]

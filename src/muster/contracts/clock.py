"""Time, identity and chance: the only door they come through.

*Laws.* Nothing in the house asks the operating system for the time, an id or a random number; lint bans it. That is
what lets the whole control plane run under a virtual clock: one seed, one replayable history.
"""

from __future__ import annotations

from typing import Protocol

from muster.model.base import Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """Wall time in milliseconds; never goes backwards within one process."""

    async def sleep(self, seconds: float) -> None:
        """Let others run for at least so long."""


class Entropy(Protocol):
    def uuid(self) -> str:
        """A lower-case UUIDv4: real clients check the version digit."""

    def token(self, nbytes: int = 32) -> str:
        """A URL-safe secret of so many random bytes."""

    def chance(self) -> float:
        """Uniform in [0, 1): jitter, and the simulated world's dice."""

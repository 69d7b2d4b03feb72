"""Whether others want this process's time: told from how many calls came in lately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from muster.model.base import SECOND, Instant

CALLS_PER_SECOND: Final = 50
LOOK_MS: Final = 100


class Crowd:
    """`traffic` counts calls since the start. Looked at ten times a second at the most."""

    def __init__(self, traffic: Callable[[], int]) -> None:
        self._traffic = traffic
        self._looked_at: Instant = 0
        self._calls = 0
        self._here = False

    def here(self, now: Instant) -> bool:
        since = now - self._looked_at
        if since >= LOOK_MS:
            calls = self._traffic()
            self._here = calls - self._calls >= CALLS_PER_SECOND * min(since, SECOND) / SECOND
            self._looked_at, self._calls = now, calls
        return self._here

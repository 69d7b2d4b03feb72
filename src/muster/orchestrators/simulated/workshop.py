"""Jobs in the simulated world: they take a moment, print what they would have run, and leave nothing behind.

Leans on the clock alone: how far a job is follows from when it was submitted. A command `false`, or `exit N`, ends it
as it would on a real cluster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from muster.contracts.clock import Clock
from muster.contracts.jobs import Errand, Going, Sight
from muster.contracts.orchestrator import Target
from muster.contracts.substrate import Fence
from muster.model.base import SECOND
from muster.model.jobs import Output

QUEUED_MS: Final = 2 * SECOND
COMMAND_MS: Final = 20 * SECOND
_SLEEP: Final = re.compile(r"sleep (\d{1,6})")
_EXIT: Final = re.compile(r"exit (\d{1,3})")


class SimulatedWorkshop:
    uploads = False

    def __init__(self, clock: Clock, time_scale: float = 1.0) -> None:
        self._clock = clock
        self._scale = time_scale

    async def submit(self, target: Target, errand: Errand, fence: Fence) -> None:
        """Nothing to do: it runs from the moment that was written down."""

    async def look(self, target: Target, errand: Errand) -> Sight:
        if errand.stopped:
            return Sight(Going.ENDED, 143)
        passed = self._passed(errand)
        if passed < QUEUED_MS:
            return Sight(Going.QUEUED)
        return Sight(Going.RUNNING) if passed < self._ends(errand) else Sight(Going.ENDED, self._verdict(errand))

    async def stop(self, target: Target, errand: Errand, fence: Fence) -> None:
        """`look` sees the wish itself."""

    async def log(self, target: Target, errand: Errand, offset: int) -> bytes:
        passed, at = self._passed(errand), QUEUED_MS
        lines: list[str] = []
        for command in self._reached(errand):
            if passed < at:
                break
            lines.append(f"(simulated) $ {command}\n")
            at += _lasts(command)
        return "".join(lines).encode()[offset:]

    async def outputs(self, target: Target, errand: Errand) -> Sequence[Output]:
        return ()

    async def piece(self, target: Target, errand: Errand, path: str, offset: int) -> bytes:
        return b""

    def _passed(self, errand: Errand) -> float:
        return (self._clock.now() - errand.submitted_at) * self._scale

    def _reached(self, errand: Errand) -> list[str]:
        """Up to the first that fails, as under `set -e`."""
        reached: list[str] = []
        for command in errand.spec.commands:
            reached.append(command)
            if _code(command) != 0 or _EXIT.fullmatch(command.strip()):
                break
        return reached

    def _ends(self, errand: Errand) -> float:
        return QUEUED_MS + sum(_lasts(command) for command in self._reached(errand))

    def _verdict(self, errand: Errand) -> int:
        return _code(self._reached(errand)[-1])


def _lasts(command: str) -> int:
    sleep = _SLEEP.fullmatch(command.strip())
    return int(sleep[1]) * SECOND if sleep else COMMAND_MS


def _code(command: str) -> int:
    left = _EXIT.fullmatch(command.strip())
    if left:
        return int(left[1]) & 0xFF
    return 1 if command.strip() == "false" else 0

"""Listening for silence: every cluster's daemons are knocked at every few seconds, and a change wakes its owner.

A node's death is announced by the substrate within milliseconds; a dead slurmd or a cut link only shows here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from muster.contracts.clock import Clock
from muster.contracts.hands import Hands, Knock
from muster.contracts.orchestrator import Target
from muster.errors import DriverError
from muster.orchestrators.slurm import roster
from muster.orchestrators.slurm.render import controller_of, login_of, workers_of

EVERY_SECONDS: Final = 2.0


class Probes:
    def __init__(self, hands: Hands, clock: Clock) -> None:
        self._hands = hands
        self._clock = clock
        self._minded: dict[str, tuple[tuple[str, int], ...]] = {}
        self._heard: dict[str, list[Knock]] = {}
        self._task: asyncio.Task[None] | None = None

    def mind(self, target: Target, heard: Sequence[Knock] | None = None) -> None:
        """Probe this cluster from now on; called whenever somebody looks at it. `heard` is what he saw himself: he
        is woken for what changes from there."""
        head, door = controller_of(target), login_of(target)
        if head is None or door is None:
            return
        ports = [(head.node_id, roster.SLURMCTLD_PORT), (door.node_id, roster.SSH_PORT)]
        ports += [(worker.node_id, roster.SLURMD_PORT) for worker in workers_of(target)]
        if self._minded.get(target.cluster_id) != tuple(ports):
            self._minded[target.cluster_id] = tuple(ports)
            self._heard.pop(target.cluster_id, None)
        if heard is not None:
            self._heard[target.cluster_id] = list(heard)

    def start(self, wake: Callable[[str], None]) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._listen(wake))

    async def _listen(self, wake: Callable[[str], None]) -> None:
        while True:
            await self._clock.sleep(EVERY_SECONDS)
            for owner in list(self._minded):
                with contextlib.suppress(DriverError):
                    await self._round(owner, wake)

    async def _round(self, owner: str, wake: Callable[[str], None]) -> None:
        heard = await self._hands.knock(self._minded[owner])
        if all(knock is Knock.GONE for knock in heard):
            self._minded.pop(owner, None)
            self._heard.pop(owner, None)
        elif self._heard.get(owner, heard) != heard:
            wake(owner)
        self._heard[owner] = heard

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

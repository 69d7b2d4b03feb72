"""Failpoints: the store and the drivers, with a door before and after every durable step.

The exhaustive test crashes at each door; a running server does so when told by MUSTER_FAILPOINT. Everything that is
not a durable step passes through untouched.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from muster.contracts.orchestrator import Orchestrator, Progress, Target, Tested
from muster.contracts.steps import Failpoints, Step
from muster.contracts.store import Batch, Store
from muster.contracts.substrate import Fence, Substrate, Wish

DOORS: Final = frozenset(f"{step}:{side}" for step in Step for side in ("before", "after"))


class DieAt:
    """Ends this process, as kill -9 would, at the first of these doors: `cluster.accept:after,nodes.free:before`."""

    def __init__(self, doors: str) -> None:
        self._doors = frozenset(doors.split(","))
        if not self._doors <= DOORS:
            raise ValueError(f"a failpoint is STEP:before or STEP:after, not {min(self._doors - DOORS)!r}")

    async def before(self, step: Step) -> None:
        self._die(step, "before")

    async def after(self, step: Step) -> None:
        self._die(step, "after")

    def _die(self, step: Step, side: str) -> None:
        door = f"{step}:{side}"
        if door in self._doors:
            os.write(2, f"killed at {door}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


class _Through:
    """Everything not named in a subclass goes straight to the thing behind."""

    def __init__(self, behind: Any, failpoints: Failpoints) -> None:
        self._behind = behind
        self._failpoints = failpoints

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    async def _at(self, step: Step, call: Callable[[], Awaitable[Any]]) -> Any:
        await self._failpoints.before(step)
        answer = await call()
        await self._failpoints.after(step)
        return answer


class _Store(_Through):
    async def apply(self, batch: Batch) -> Any:
        return await self._at(batch.step, lambda: self._behind.apply(batch))


class _Substrate(_Through):
    async def ensure(self, wishes: Sequence[Wish], fence: Fence) -> None:
        await self._at(Step.SUBSTRATE_ENSURE, lambda: self._behind.ensure(wishes, fence))

    async def ensure_absent(self, keys: Sequence[str], fence: Fence) -> None:
        await self._at(Step.SUBSTRATE_ABSENT, lambda: self._behind.ensure_absent(keys, fence))


class _Orchestrator(_Through):
    async def converge(self, target: Target, fence: Fence) -> Progress:
        progress: Progress = await self._at(Step.ORCHESTRATOR_CONVERGE, lambda: self._behind.converge(target, fence))
        return progress

    async def test(self, target: Target, run: str, fence: Fence) -> Tested:
        tested: Tested = await self._at(Step.ORCHESTRATOR_TEST, lambda: self._behind.test(target, run, fence))
        return tested

    async def drain(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        await self._at(Step.ORCHESTRATOR_DRAIN, lambda: self._behind.drain(target, node_ids, because, fence))

    async def warn(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        await self._at(Step.ORCHESTRATOR_WARN, lambda: self._behind.warn(target, node_ids, because, fence))

    async def evict(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        await self._at(Step.ORCHESTRATOR_EVICT, lambda: self._behind.evict(target, node_ids, fence))

    async def admit(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        await self._at(Step.ORCHESTRATOR_ADMIT, lambda: self._behind.admit(target, node_ids, fence))

    async def expel(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        await self._at(Step.ORCHESTRATOR_EXPEL, lambda: self._behind.expel(target, node_ids, fence))


# The wrappers keep their contract by handing everything on, which no type checker can see: hence the casts.


def store_with(failpoints: Failpoints, store: Store) -> Store:
    return cast(Store, _Store(store, failpoints))


def substrate_with(failpoints: Failpoints, substrate: Substrate) -> Substrate:
    return cast(Substrate, _Substrate(substrate, failpoints))


def orchestrator_with(failpoints: Failpoints, orchestrator: Orchestrator) -> Orchestrator:
    return cast(Orchestrator, _Orchestrator(orchestrator, failpoints))

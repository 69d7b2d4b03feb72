"""Everything done twice in a row: a repeated batch is refused, a repeated driver call changes nothing.

For the exhaustive twin. The first call is the real one; the second must find its work done: drivers because the same
key twice is one thing, the store because every batch names the versions it was decided on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from muster.contracts.orchestrator import Orchestrator, Progress, Target, Tested
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Expect, Store, Wake
from muster.contracts.substrate import Fence, Owned, Seen, Substrate, Wish
from muster.errors import StoreError
from muster.testing.simulation.image import Drivers


class Changed(AssertionError):
    """A repeated call did something."""


class _Behind:
    """Everything not named in a subclass goes straight to the thing behind."""

    def __init__(self, behind: Any, repeated: set[Step]) -> None:
        self._behind = behind
        self._repeated = repeated

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


class _Store(_Behind):
    async def apply(self, batch: Batch) -> Any:
        answer = await self._behind.apply(batch)
        before = await self._behind.last_event()
        try:
            await self._behind.apply(batch)
        except StoreError:
            pass
        else:
            if batch.events or not all(isinstance(op, Wake | Expect) for op in batch.ops):
                raise Changed(f"{batch.step} was written twice")
        if await self._behind.last_event() != before:
            raise Changed(f"{batch.step} left something behind though it was refused")
        self._repeated.add(batch.step)
        return answer


class _Driver(_Behind):
    """`_look` is what the world shows of the driver's work."""

    async def _look(self) -> object:
        raise NotImplementedError

    async def _twice(self, step: Step, call: Callable[[], Awaitable[Any]]) -> Any:
        await call()
        before = await self._look()
        answer = await call()
        if await self._look() != before:
            raise Changed(f"{step} did something when it was repeated")
        self._repeated.add(step)
        return answer


class _Substrate(_Driver):
    async def _look(self) -> tuple[list[Owned], dict[str, Seen]]:
        owned: list[Owned] = await self._behind.owned()
        return owned, await self._behind.observe([thing.key for thing in owned])

    async def ensure(self, wishes: Sequence[Wish], fence: Fence) -> None:
        await self._twice(Step.SUBSTRATE_ENSURE, lambda: self._behind.ensure(wishes, fence))

    async def ensure_absent(self, keys: Sequence[str], fence: Fence) -> None:
        await self._twice(Step.SUBSTRATE_ABSENT, lambda: self._behind.ensure_absent(keys, fence))


class _Orchestrator(_Driver):
    _target: Target

    async def _look(self) -> object:
        return await self._behind.observe(self._target)

    async def _on(self, target: Target, step: Step, call: Callable[[], Awaitable[Any]]) -> Any:
        self._target = target
        return await self._twice(step, call)

    async def converge(self, target: Target, fence: Fence) -> Progress:
        return cast(
            Progress, await self._on(target, Step.ORCHESTRATOR_CONVERGE, lambda: self._behind.converge(target, fence))
        )

    async def test(self, target: Target, run: str, fence: Fence) -> Tested:
        return cast(
            Tested, await self._on(target, Step.ORCHESTRATOR_TEST, lambda: self._behind.test(target, run, fence))
        )

    async def drain(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        await self._on(target, Step.ORCHESTRATOR_DRAIN, lambda: self._behind.drain(target, node_ids, because, fence))

    async def warn(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        await self._on(target, Step.ORCHESTRATOR_WARN, lambda: self._behind.warn(target, node_ids, because, fence))

    async def evict(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        await self._on(target, Step.ORCHESTRATOR_EVICT, lambda: self._behind.evict(target, node_ids, fence))

    async def admit(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        await self._on(target, Step.ORCHESTRATOR_ADMIT, lambda: self._behind.admit(target, node_ids, fence))

    async def expel(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        await self._on(target, Step.ORCHESTRATOR_EXPEL, lambda: self._behind.expel(target, node_ids, fence))


class Twice:
    """Hand `dress` to a story; afterwards `repeated` says which steps were done twice."""

    def __init__(self) -> None:
        self.repeated: set[Step] = set()

    def dress(self, drivers: Drivers) -> Drivers:
        return Drivers(
            cast(Store, _Store(drivers.store, self.repeated)),
            cast(Substrate, _Substrate(drivers.substrate, self.repeated)),
            cast(Orchestrator, _Orchestrator(drivers.orchestrator, self.repeated)),
        )

"""Trouble on demand: who may ask for it, and the line in the audit log that says who did.

Leans on the fault desk's contract and the store's event log. *Laws.* The operator's only; a real fleet has trouble of
its own; the fault itself belongs to the world, and of the store only the log is touched.
"""

from __future__ import annotations

from muster.contracts.clock import Clock
from muster.contracts.faults import Fault, FaultDesk
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Store
from muster.core.accounts.rights import require_operator
from muster.core.guarded import submit
from muster.errors import NotFound, Unsupported
from muster.model.accounts import Actor
from muster.model.events import Event


class FaultService:
    def __init__(self, store: Store, clock: Clock, desk: FaultDesk | None) -> None:
        self._store = store
        self._clock = clock
        self._desk = desk

    async def faults(self, actor: Actor) -> list[Fault]:
        return await self._open_desk(actor).faults()

    async def inject(self, actor: Actor, fault: Fault) -> Fault:
        made = await self._open_desk(actor).inject(fault)
        await self._tell(actor, made.id, "injected", f"{made.kind} {made.target}".rstrip())
        return made

    async def clear(self, actor: Actor, id: str) -> None:
        if not await self._open_desk(actor).clear(id):
            raise NotFound(f"there is no fault {id}")
        await self._tell(actor, id, "cleared", "")

    def _open_desk(self, actor: Actor) -> FaultDesk:
        require_operator(actor)
        if self._desk is None:
            raise Unsupported("this fleet is real: it has trouble of its own", hint="use --fleet simulated")
        return self._desk

    async def _tell(self, actor: Actor, id: str, what: str, message: str) -> None:
        event = Event(
            at=self._clock.now(),
            kind="fault",
            resource_id=id,
            type=f"fault.{what}",
            actor=actor.name,
            cause=f"key {actor.key_id}" if actor.key_id else "",
            message=message,
        )
        await submit(self._store, Batch(Step.HOST_WRITE, [], [event]))

"""Reading the event log, and forgetting its oldest lines.

Leans on the store's contract, whose log has no holes: who resumes after `seq` misses nothing. Keeps the law that a
tenant reads its own project's lines only; lines that belong to no project are the operator's.
"""

from __future__ import annotations

from typing import Final

from muster.contracts.clock import Clock
from muster.contracts.store import Store
from muster.core.accounts.rights import own_project
from muster.core.paging import page_limit
from muster.errors import Invalid
from muster.model.accounts import Actor
from muster.model.base import DAY
from muster.model.events import Event

SEQ_MAX: Final = (1 << 63) - 1
RETENTION_DAYS_DEFAULT: Final = 90
PRUNE_CHUNK: Final = 500  # lines forgotten in one transaction: others wait no longer than that
PRUNE_CHUNKS_MAX: Final = 20  # chunks in one pass; what is left waits for the next


class EventReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def events(
        self,
        actor: Actor,
        *,
        after: int = 0,
        limit: int | None = None,
        project_id: str | None = None,
        kind: str | None = None,
        resource_id: str | None = None,
        newest_first: bool = False,
    ) -> list[Event]:
        """Lines after `after` in commit order; `newest_first` goes backwards from before `after` (0 = the end)."""
        if not 0 <= after <= SEQ_MAX:
            raise Invalid(
                "after is the number of an event", field="after", hint="use the seq of the last one you saw"
            )
        everybody = actor.is_operator and project_id is None
        return await self._store.events(
            after=after,
            limit=page_limit(limit),
            project_id=None if everybody else own_project(actor, project_id),
            kind=kind,
            resource_id=resource_id,
            newest_first=newest_first,
        )

    async def last(self, actor: Actor) -> int:
        """The number of the newest line: where "from now on" begins. It tells nothing of whose line that is."""
        return await self._store.last_event()


class Retention:
    """The audit log is kept so many days; called by the engine's periodic pass."""

    def __init__(self, store: Store, clock: Clock, *, days: int = RETENTION_DAYS_DEFAULT) -> None:
        self._store = store
        self._clock = clock
        self._days = days

    async def prune(self) -> int:
        """Forget what is older, in bounded chunks; how many lines went."""
        before = self._clock.now() - self._days * DAY
        gone = 0
        for _ in range(PRUNE_CHUNKS_MAX):
            pruned = await self._store.prune_events(before, PRUNE_CHUNK)
            gone += pruned
            if pruned < PRUNE_CHUNK:
                break
        return gone

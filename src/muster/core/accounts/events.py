"""Reading the event log.

Leans on the store's contract, whose log has no holes: who resumes after `seq` misses nothing. Keeps the law that a
tenant reads its own project's lines only; lines that belong to no project are the operator's.
"""

from __future__ import annotations

from typing import Final

from muster.contracts.store import Store
from muster.core.accounts.rights import own_project
from muster.core.paging import page_limit
from muster.errors import Invalid
from muster.model.accounts import Actor
from muster.model.events import Event

SEQ_MAX: Final = (1 << 63) - 1


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

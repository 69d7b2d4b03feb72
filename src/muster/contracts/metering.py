"""What the rooms ask of money, without knowing who keeps the books.

*Laws.* Usage follows phases and leases in the very batch that changes them: whoever keeps the books listens at the
store (`Listener.beside`) and is called by nobody, so no writer can forget it. Whether a wish can be paid for is asked
once, at admission, between quota and placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, cast

from muster.contracts.store import Batch, Op, Store
from muster.model.accounts import Project
from muster.model.base import Instant


class Want(NamedTuple):
    """So much of an item, wished for: nodes of an instance type, or GiB of "volume"."""

    item: str
    region: str
    quantity: int
    billing: str = "on_demand"


class Agreement(NamedTuple):
    """Capacity promised for a stretch of time. `id` is the promise's own; `micro` is a price already given for the
    whole of it, None = what the catalogue says."""

    id: str
    resource_id: str
    want: Want
    starts_at: Instant
    ends_at: Instant
    micro: int | None = None
    memo: str = ""


class Purse(Protocol):
    async def require(self, project: Project, wants: Sequence[Want]) -> None:
        """Raises InsufficientBalance or QuotaExceeded, with figures, when the project could not pay for this."""

    async def agree(self, project: Project, agreement: Agreement, by: str) -> Sequence[Op]:
        """What pays for a promise, for the batch that gives it; the same id is never paid twice. Raises as above."""


class Unlimited:
    """Nobody asks for money."""

    async def require(self, project: Project, wants: Sequence[Want]) -> None:
        return None

    async def agree(self, project: Project, agreement: Agreement, by: str) -> Sequence[Op]:
        return ()


FREE: Purse = Unlimited()


class Listener(Protocol):
    async def beside(self, batch: Batch) -> Sequence[Op]:
        """What must become true together with this batch."""


class _Listened:
    """Everything goes straight to the store behind; a batch takes along what its listener wants beside it."""

    def __init__(self, behind: Store, listener: Listener) -> None:
        self._behind = behind
        self._listener = listener
        # The hottest reads are bound once, so that they cost no more than without us.
        self.get, self.find = behind.get, behind.find
        self.head, self.heads = behind.head, behind.heads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    async def apply(self, batch: Batch) -> Any:
        beside = await self._listener.beside(batch)
        if beside:
            batch = Batch(batch.step, [*batch.ops, *beside], batch.events, batch.fence)
        return await self._behind.apply(batch)


def listened(store: Store, listener: Listener) -> Store:
    # The wrapper keeps the contract by handing everything on, which no type checker can see: hence the cast.
    return cast(Store, _Listened(store, listener))

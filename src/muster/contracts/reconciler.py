"""Motion: one piece of work is an id and nothing else, so first run, retry, restart and repair are one road.

*Laws.* Intent is committed before the effect. No loops, retries or sleeps inside: one step, then an outcome from this
closed set. The engine does the waiting. A reconciler that raises is tried again with back-off, and told.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from muster.contracts.store import Claim
from muster.model.base import Instant


class Advance(NamedTuple):
    """A step was made; there may be another at once."""

    because: str = ""


class Wait(NamedTuple):
    """Nothing to do before `until`, unless woken."""

    because: str
    until: Instant


class Settled(NamedTuple):
    """Wish and observation agree; look again at the next full pass."""


class Gone(NamedTuple):
    """The thing and all it held are gone; so is its work."""


Outcome: TypeAlias = Advance | Wait | Settled | Gone


class Reconciler(Protocol):
    @property
    def kind(self) -> str: ...

    async def reconcile(self, id: str, claim: Claim) -> Outcome: ...

    async def everything(self) -> list[str]:
        """Every id that is not gone: the periodic full pass assumes that all wake-ups were lost."""

"""The simulated world, as a simulated driver sees it: bodies, time, dice, and a page of notes per cluster.

The simulated substrate keeps the world; the simulated orchestrator is handed it. That is how a node that dies in one
is down in the other, without either driver knowing its neighbour.

*Laws.*
| rule | mandatory |
|---|---|
| the world only remembers: every state is computed from stored instants, nothing runs in the background | yes |
| it outlives the process: kill -9 of Muster kills no body | yes |
| dice depend on the seed and the arguments alone, never on the order of calls | yes |
| a turn is whole or undone, one at a time over all processes; the token it saw is remembered either way | yes |
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from muster.contracts.substrate import Fence, Power
from muster.model.base import Instant


class Span(NamedTuple):
    """Seconds at time scale 1, least and most."""

    least: float
    most: float


class Body(NamedTuple):
    """A node's physical state. `up_at` tells one boot from the next; `changes_at` is by the world's clock."""

    power: Power
    because: str
    up_at: Instant
    changes_at: Instant | None


class Load(NamedTuple):
    """GPUs that work in an owner's queue asks for now, and when such work last ended (0 = it never did)."""

    gpus: int = 0
    eased_at: Instant = 0


class World(Protocol):
    def now(self) -> Instant:
        """The world's own time: the house's plus what faults have advanced it by."""

    def house_time(self, at: Instant) -> Instant:
        """What the house's clock will show at this instant of the world."""

    def draw(self, span: Span, *key: object) -> Instant:
        """Milliseconds within the span, the same for the same key; divided by the time scale."""

    def secret(self, *key: object) -> bytes:
        """32 bytes known only to this world, the same for the same key."""

    def bodies(self, node_keys: Sequence[str]) -> dict[str, Body]:
        """Nodes by key; no entry means: absent."""

    def turn(self, fence: Fence) -> AbstractContextManager[None]:
        """A whole change. Raises `FencedOff` for an older token than one already seen for that owner."""

    def load(self, owner: str) -> Load:
        """The work that was put into this owner's queue."""

    def recall(self, owner: str) -> bytes | None:
        """The owner's page of notes."""

    def remember(self, owner: str, page: bytes) -> None:
        """Inside a turn only. The page goes when the owner's last thing goes."""

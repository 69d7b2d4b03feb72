"""What a plan may name: what the drivers see now, and every step that can be taken. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.contracts.orchestrator import Queue, Standing
from muster.contracts.substrate import Seen
from muster.model.base import Instant
from muster.model.clusters import Node
from muster.model.phases import NodePhase, Phase


@dataclass(frozen=True, slots=True)
class Sight:
    """What the drivers see now: power by key (no entry = absent), standing by node id."""

    seen: Mapping[str, Seen]
    standing: Mapping[str, Standing] = field(default_factory=dict)
    queue: Queue | None = None  # of a cluster that may grow by itself


@dataclass(frozen=True, slots=True)
class NodeMove:
    node: Node
    phase: NodePhase
    because: str
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """The cluster enters a phase; on the way it passes others whose work is seen to be done already."""

    phase: Phase
    because: str
    via: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """Nodes changed; write it down, and how far on that brings the cluster."""

    moves: tuple[NodeMove, ...]
    onward: Move | None = None


@dataclass(frozen=True, slots=True)
class EnsureFabric:
    """Its network, and these nodes, which may boot meanwhile."""

    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class EnsureNodes:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class PowerOff:
    """Expel these nodes, and have these keys absent."""

    nodes: tuple[Node, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Free:
    """These nodes are seen to be off: their leases go."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Substitute:
    """New nodes elsewhere for these, which leave."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class TakeSeats:
    """Seats for the whole cluster anew, and on to the network."""

    because: str


@dataclass(frozen=True, slots=True)
class Converge:
    because: str


@dataclass(frozen=True, slots=True)
class RunTests:
    run: str


@dataclass(frozen=True, slots=True)
class Drain:
    nodes: tuple[Node, ...]

    @property
    def because(self) -> str:
        return "it is to be repaired" if self.nodes[0].mending.wish else "the cluster shrinks"


@dataclass(frozen=True, slots=True)
class Grow:
    """More workers for what waits in its queue; fewer than `least` would help nobody."""

    workers: int
    least: int
    because: str


@dataclass(frozen=True, slots=True)
class Shrink:
    """These workers were grown for work that is over."""

    node_ids: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class SeatMore:
    """Its owner's wish for more was accepted to wait for hosts: seats for so many."""

    workers: int


@dataclass(frozen=True, slots=True)
class Warn:
    """These nodes are asked back: let their work know."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Evict:
    """The notice of these nodes is over: end their work."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class WaitFor:
    because: str
    until: Instant


@dataclass(frozen=True, slots=True)
class Rest:
    pass


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing of it is left but its record."""


Step: TypeAlias = (
    Move
    | Note
    | EnsureFabric
    | EnsureNodes
    | PowerOff
    | Free
    | Substitute
    | TakeSeats
    | Converge
    | RunTests
    | Drain
    | Grow
    | Shrink
    | SeatMore
    | Warn
    | Evict
    | WaitFor
    | Rest
    | Finish
)

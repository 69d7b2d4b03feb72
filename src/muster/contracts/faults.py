"""Trouble on demand: what can be made to go wrong on a simulated fleet, and on its wire.

A tool author's CI asks for these through the native API; simulation asks for them directly.

*Laws.*
| rule | mandatory |
|---|---|
| a fault injected through one process is felt by all that share the world | yes |
| a fault that is over (counted out, timed out, cleared) is not listed any more | yes |
| a fault changes the world, never the house: no row of the store is touched | yes |
| `wire_fault` costs next to nothing while there is none: it is asked for every request | yes |
| the server applies no wire fault to the fault routes themselves, so that a fault can always be cleared | yes |
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from muster.model.base import Instant, Part


class FaultKind(StrEnum):
    HOST_DEATH = "host-death"  # everything on the host is dead until cleared
    SLOW_BOOT = "slow-boot"  # boots that begin on the host take ten times as long
    FAILED_BOOT = "failed-boot"  # the next `count` boots on the host fail
    LOST_REPLY = "lost-reply"  # the next `count` ensures that touch the host do their work, but say UnknownOutcome
    FLAP = "flap"  # nodes on the host are unknown and up in turn, for `seconds`
    STOCK_OUT = "stock-out"  # new wishes in the region are refused, and what was accepted before meets NoneLeft
    LOAD = "load"  # jobs that ask for `count` GPUs are in the queue of the cluster, until cleared or for `seconds`
    ADVANCE = "advance"  # the world's clock moves ahead by `seconds`, at once
    HTTP_429 = "http-429"
    HTTP_500 = "http-500"
    SLOW_REPLY = "slow-reply"  # replies are held back for `delay_seconds`


ON_HOSTS: Final = frozenset(
    {FaultKind.HOST_DEATH, FaultKind.SLOW_BOOT, FaultKind.FAILED_BOOT, FaultKind.LOST_REPLY, FaultKind.FLAP}
)
ON_REGIONS: Final = frozenset({FaultKind.STOCK_OUT})
ON_CLUSTERS: Final = frozenset({FaultKind.LOAD})
ON_THE_WIRE: Final = frozenset({FaultKind.HTTP_429, FaultKind.HTTP_500, FaultKind.SLOW_REPLY})
COUNTED: Final = frozenset({FaultKind.FAILED_BOOT, FaultKind.LOST_REPLY}) | ON_THE_WIRE
"""Kinds that understand `count`; without count and seconds they happen once."""


class Fault(Part, frozen=True, kw_only=True):
    """One piece of trouble. The caller says kind, target, seconds, count; the desk fills in the rest.

    `target` is a host's id or name, a region, or a cluster's id. Without `seconds` and `count` it lasts until it is
    cleared, if its kind can last. `left` is how often it will still happen, `until` when it ends by the house's
    clock.
    """

    kind: FaultKind
    target: str = ""
    seconds: float | None = None
    count: int | None = None
    delay_seconds: float = 2.0  # slow-reply only
    id: str = ""
    host_id: str = ""
    left: int | None = None
    made_at: Instant = 0
    until: Instant | None = None


class WireFault(NamedTuple):
    """What to do to one reply: hold it back, then answer `status` in the dialect's own words (0 = the real one)."""

    kind: FaultKind
    status: int = 0
    delay_seconds: float = 0.0


class Place(NamedTuple):
    """A host as the desk must know it."""

    id: str
    name: str


class Places(Protocol):
    """What exists, so that a fault cannot be aimed at nothing. Handed in by the composition root."""

    async def host(self, id_or_name: str) -> Place | None: ...

    async def region(self, name: str) -> bool: ...

    async def cluster(self, id: str) -> bool: ...


class FaultDesk(Protocol):
    async def inject(self, fault: Fault) -> Fault:
        """Make it so, and tell it with its id. Raises `Invalid` when it makes no sense."""

    async def faults(self) -> list[Fault]:
        """Those still in force, oldest first."""

    async def clear(self, id: str) -> bool:
        """End one; False when there is no such fault."""

    def sold_out(self, region: str) -> bool:
        """Whether nothing more is to be had there. Asked at every wish for capacity: as good as free."""

    def wire_fault(self) -> WireFault | None:
        """What to do to the reply at hand; counts it."""

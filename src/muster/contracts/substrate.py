"""Where hosts come from: the substrate makes nodes, fabrics and volumes real on hosts we may use.

*Laws.*
| rule | mandatory |
|---|---|
| the caller chooses the key; the same key twice is one thing | yes |
| a changed wish under the same key is applied in place (mounts, rules, size) or raises `Never` | yes |
| a raised `NodeWish.generation` powers the node off and boots it anew | yes |
| a node may be asked for together with its fabric, and comes up when that has | yes |
| no call waits: it starts the work and returns; `observe` tells how far it is | yes |
| absent of the unknown is success; a thing is absent only when `observe` says so (no entry) | yes |
| `owned()` is complete: what is not in it does not exist, so orphans can be found | yes |
| a call with an older token than one already seen for that owner raises `FencedOff` | yes |
| errors are four: `TryLater`, `NoneLeft`, `Never`, `UnknownOutcome` (observe before repeating) | yes |
| changes are announced through `watch`; an announcement may be lost | if it can |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias

from muster.model.access import Rule
from muster.model.base import Instant, Part
from muster.model.clusters import ClusterType, Mount


class Fence(NamedTuple):
    """Who calls: `owner` is the cluster's or volume's id, `token` that of the claim behind the call."""

    owner: str
    token: int


class FabricWish(Part, frozen=True, kw_only=True):
    """A cluster's own network. Rules filter what crosses its edge and what reaches each node.

    None: no security group was asked for, and the substrate's default holds (SSH comes in, nothing else does).
    (): its groups have no rules, and nothing comes in.
    """

    key: str
    region: str
    rules: tuple[Rule, ...] | None = None


class NodeWish(Part, frozen=True, kw_only=True):
    """A node powered on, on this host, on these slots."""

    key: str
    fabric: str
    host_id: str
    host_name: str
    region: str
    name: str
    role: str  # controller | login | worker
    slots: int
    gpu_type: str = ""
    gpus: int = 0
    cpus: int
    memory_gib: int
    shm_gib: int = 0
    image: str = ""
    rootfs: str = ""  # a root file system the fleet knows by this name; "" is the fleet's own
    generation: int = 1
    mounts: tuple[Mount, ...] = ()


class VolumeWish(Part, frozen=True, kw_only=True):
    key: str
    region: str
    size_gib: int


Wish: TypeAlias = FabricWish | NodeWish | VolumeWish


class Power(StrEnum):
    STARTING = "starting"
    UP = "up"
    FAILED = "failed"  # never came up, and will not by itself
    DEAD = "dead"  # was up, its host or init is gone
    STOPPING = "stopping"  # ensure_absent was asked; it may still run
    UNKNOWN = "unknown"  # unreachable: never read as gone


class Seen(NamedTuple):
    """What the substrate says of one key. No entry at all means: absent."""

    power: Power
    because: str = ""
    address: str = ""
    generation: int = 1
    size_gib: int = 0
    look_again_at: Instant | None = None


class Owned(NamedTuple):
    key: str
    kind: str  # fabric | node | volume
    owner: str


class Substrate(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def simulated(self) -> bool:
        """Told on every screen and in the API."""

    async def ensure(self, wishes: Sequence[Wish], fence: Fence) -> None: ...

    async def observe(self, keys: Sequence[str]) -> dict[str, Seen]: ...

    async def ensure_absent(self, keys: Sequence[str], fence: Fence) -> None: ...

    async def owned(self) -> list[Owned]: ...

    def watch(self, wake: Callable[[str], None]) -> None:
        """Call `wake(owner)` when something of that owner changed."""

    async def close(self) -> None: ...


__all__ = [
    "ClusterType",
    "FabricWish",
    "Fence",
    "NodeWish",
    "Owned",
    "Power",
    "Seen",
    "Substrate",
    "VolumeWish",
    "Wish",
]

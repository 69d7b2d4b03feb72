"""The simulated fabric, node or volume as a row of instants, and what it looks like at a given one. Pure.

*Law.* A thing's state is a function of the row, the faults on its host and the time: nothing runs, nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from muster.contracts.faults import FaultKind
from muster.contracts.substrate import FabricWish, NodeWish, Power, VolumeWish, Wish
from muster.contracts.world import Span
from muster.errors import Never
from muster.model.base import Instant

FABRIC_UP: Final = Span(5, 10)
VOLUME_UP: Final = Span(10, 20)
CONTROL_BOOT: Final = Span(40, 70)
WORKER_BOOT: Final = Span(60, 150)
POWER_OFF: Final = Span(5, 10)
FABRIC_DOWN: Final = Span(2, 4)
VOLUME_DOWN: Final = Span(3, 6)
GROW: Final = Span(2, 4)

SLOW_BOOT_FACTOR: Final = 10
FLAP_SECONDS: Final = Span(15, 15)
FAILED_BOOT: Final = "no answer from its console after power-on (simulated failed boot)"


class Thing(NamedTuple):
    """`up_at` is when it comes up, or gives up if `doom` says why; `gone_at` is set from the wish to be absent on."""

    number: int
    key: str
    kind: str  # fabric | node | volume
    owner: str
    region: str
    host_id: str
    host_name: str
    slots: int
    generation: int
    wish: bytes
    started_at: Instant
    up_at: Instant
    doom: str
    size_gib: int
    size_was: int
    sized_at: Instant
    gone_at: Instant | None

    @property
    def address(self) -> str:
        """Unique among the living of one world; only nodes have one."""
        if self.kind != "node":
            return ""
        rest, last = divmod(self.number, 254)
        return f"10.{rest // 256 % 256}.{rest % 256}.{last + 1}"

    def is_gone(self, now: Instant) -> bool:
        return self.gone_at is not None and now >= self.gone_at

    def size_at(self, now: Instant) -> int:
        return self.size_gib if now >= self.sized_at else self.size_was


class Trouble(NamedTuple):
    """A fault as the world keeps it; instants are the world's."""

    id: str
    kind: FaultKind
    target: str
    host_id: str
    seconds: float | None
    times: int | None  # how often in all
    left: int | None
    delay_seconds: float
    since: Instant
    until: Instant | None
    made_at: Instant  # by the house's clock

    def active(self, now: Instant) -> bool:
        return self.left != 0 and (self.until is None or now < self.until)


class State(NamedTuple):
    power: Power
    because: str = ""
    changes_at: Instant | None = None


def kind_of(wish: Wish) -> str:
    match wish:
        case FabricWish():
            return "fabric"
        case NodeWish():
            return "node"
        case VolumeWish():
            return "volume"


def boot_span(wish: NodeWish) -> Span:
    """Machines with GPUs take longer to come up: memory training, firmware, link training."""
    return WORKER_BOOT if wish.gpus else CONTROL_BOOT


def down_span(kind: str) -> Span:
    return {"fabric": FABRIC_DOWN, "node": POWER_OFF, "volume": VOLUME_DOWN}[kind]


def state_of(thing: Thing, now: Instant) -> State:
    """By its own row alone, as if no fault were about."""
    if thing.gone_at is not None:
        return State(Power.STOPPING, "it was told to go", thing.gone_at)
    if now < thing.up_at:
        return State(Power.STARTING, f"the {thing.kind} is being made", thing.up_at)
    if thing.doom:
        return State(Power.FAILED, thing.doom)
    return State(Power.UP, "", thing.sized_at if now < thing.sized_at else None)


def troubled(thing: Thing, state: State, faults: Iterable[Trouble], now: Instant, flap_ms: Instant) -> State:
    """The state as seen through the faults on the thing's host. What is failed or stopping stays so."""
    for fault in faults:
        if fault.host_id != thing.host_id or state.power not in (Power.STARTING, Power.UP):
            continue
        if fault.kind is FaultKind.HOST_DEATH:
            return State(Power.DEAD, f"host {thing.host_name} is dead (simulated)", fault.until)
        if fault.kind is FaultKind.FLAP:
            state = _flapping(thing, state, fault, now, flap_ms)
    return state


def _flapping(thing: Thing, state: State, fault: Trouble, now: Instant, flap_ms: Instant) -> State:
    """Unknown first, then as it is, in turns of `flap_ms`."""
    turn, _ = divmod(now - fault.since, flap_ms)
    edge = fault.since + (turn + 1) * flap_ms
    if fault.until is not None:
        edge = min(edge, fault.until)
    if turn % 2 == 0:
        return State(Power.UNKNOWN, f"host {thing.host_name} does not answer (simulated flap)", edge)
    return state._replace(changes_at=min(edge, state.changes_at or edge))


def same_place(old: Wish, new: Wish) -> bool:
    """Whether a changed wish can still be met by the thing that is there."""
    match old, new:
        case FabricWish(), FabricWish():
            return old.region == new.region
        case VolumeWish(), VolumeWish():
            return old.region == new.region and old.size_gib <= new.size_gib
        case NodeWish(), NodeWish():
            return _same_node(old, new)
    return False


def _same_node(old: NodeWish, new: NodeWish) -> bool:
    """Mounts may change under a running node; image and sizes only with a boot; its host, slots and name never."""
    fixed = (old.fabric, old.host_id, old.slots, old.region, old.name, old.role, old.gpu_type, old.gpus)
    if fixed != (new.fabric, new.host_id, new.slots, new.region, new.name, new.role, new.gpu_type, new.gpus):
        return False
    if new.generation > old.generation:
        return True
    booted = (old.generation, old.image, old.cpus, old.memory_gib, old.shm_gib)
    return booted == (new.generation, new.image, new.cpus, new.memory_gib, new.shm_gib)


def require_same_place(old: Wish, new: Wish) -> None:
    if not same_place(old, new):
        raise Never(f"{kind_of(new)} {new.key} cannot be changed so in place")

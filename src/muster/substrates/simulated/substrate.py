"""The simulated substrate: contracts/substrate.py over a world that only remembers.

Leans on the world for memory, time and dice. Keeps every law of the contract; where a real machine would refuse
(slots still in use, a fabric or volume that is not there, a volume still mounted) so does this one, because that is
what makes it a witness in simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from muster.contracts.clock import Clock
from muster.contracts.faults import FaultKind
from muster.contracts.substrate import FabricWish, Fence, NodeWish, Owned, Power, Seen, VolumeWish, Wish
from muster.errors import Never, NoneLeft, TryLater, UnknownOutcome
from muster.model.base import Instant
from muster.substrates.simulated.things import (
    FABRIC_UP,
    FAILED_BOOT,
    GROW,
    POWER_OFF,
    SLOW_BOOT_FACTOR,
    VOLUME_UP,
    State,
    Thing,
    Trouble,
    boot_span,
    down_span,
    kind_of,
    require_same_place,
)
from muster.substrates.simulated.world import SimulatedWorld

_encoder: Final = msgspec.json.Encoder(order="deterministic")
_kinds: Final[dict[str, type[FabricWish] | type[NodeWish] | type[VolumeWish]]] = {
    "fabric": FabricWish,
    "node": NodeWish,
    "volume": VolumeWish,
}


class _Collision(TryLater):
    """Two nodes on one slot: somebody freed a lease before the power was off."""


class SimulatedSubstrate:
    name = "simulated"
    simulated = True

    def __init__(self, world: SimulatedWorld, clock: Clock) -> None:
        self._world = world
        self._clock = clock

    async def ensure(self, wishes: Sequence[Wish], fence: Fence) -> None:
        lost: Trouble | None = None
        try:
            with self._world.turn(fence):
                for wish in wishes:
                    self._ensure(wish, fence.owner)
                lost = self._reply_lost(wishes)
        except _Collision as collision:
            self._world.collide(collision.because)
            raise TryLater(collision.because) from collision
        if lost is not None:
            raise UnknownOutcome(f"the reply of host {lost.target} was lost (simulated)")

    def _ensure(self, wish: Wish, owner: str) -> None:
        thing = self._world.things([wish.key]).get(wish.key)
        if thing is None:
            self._begin(wish, owner)
        elif thing.owner != owner:
            raise Never(f"{thing.kind} {thing.key} belongs to {thing.owner}")
        elif thing.gone_at is not None:
            raise TryLater(f"{thing.kind} {thing.key} is still going")
        else:
            self._change(thing, wish)

    def _begin(self, wish: Wish, owner: str) -> None:
        now = self._world.now()
        self._require_stock(wish)
        thing = Thing(
            number=0,
            key=wish.key,
            kind=kind_of(wish),
            owner=owner,
            region=wish.region,
            host_id="",
            host_name="",
            slots=0,
            generation=1,
            wish=_encoder.encode(wish),
            started_at=now,
            up_at=now,
            doom="",
            size_gib=0,
            size_was=0,
            sized_at=now,
            gone_at=None,
        )
        match wish:
            case NodeWish():
                self._require_neighbours(wish)
                thing = self._booted(self._placed(thing, wish), wish, now)
                self._world.mount(wish.key, [mount.volume_id for mount in wish.mounts])
            case FabricWish():
                thing = thing._replace(up_at=now + self._world.draw(FABRIC_UP, "up", wish.key))
            case VolumeWish():
                up_at = now + self._world.draw(VOLUME_UP, "up", wish.key)
                thing = thing._replace(up_at=up_at, size_gib=wish.size_gib, size_was=wish.size_gib)
        self._world.save(thing)

    def _change(self, thing: Thing, wish: Wish) -> None:
        """Apply a changed wish in place, or boot anew for a raised generation, or refuse."""
        page = _encoder.encode(wish)
        if page == thing.wish:
            return
        old = msgspec.json.decode(thing.wish, type=_kinds[thing.kind])
        require_same_place(old, wish)
        now = self._world.now()
        thing = thing._replace(wish=page)
        match wish:
            case NodeWish():
                self._require_neighbours(wish)
                self._world.mount(wish.key, [mount.volume_id for mount in wish.mounts])
                if wish.generation > thing.generation:
                    off_at = now + self._world.draw(POWER_OFF, "off", wish.key, wish.generation)
                    thing = self._booted(thing, wish, off_at)
            case VolumeWish() if wish.size_gib > thing.size_gib:
                grown_at = now + self._world.draw(GROW, "grow", wish.key, wish.size_gib)
                thing = thing._replace(size_was=thing.size_at(now), size_gib=wish.size_gib, sized_at=grown_at)
        self._world.save(thing)

    def _placed(self, thing: Thing, wish: NodeWish) -> Thing:
        squatter = self._world.squatter(wish.host_id, wish.slots, wish.key)
        if squatter is not None:
            raise _Collision(f"host {wish.host_name}: node {squatter} still holds slots wanted by {wish.key}")
        return thing._replace(host_id=wish.host_id, host_name=wish.host_name, slots=wish.slots)

    def _booted(self, thing: Thing, wish: NodeWish, at: Instant) -> Thing:
        """Powered on at this instant; faults on the host decide how long it takes and whether it succeeds."""
        span = boot_span(wish)
        takes = self._world.draw(span, "up", wish.key, wish.generation)
        if self._trouble(FaultKind.SLOW_BOOT, wish.host_id) is not None:
            takes *= SLOW_BOOT_FACTOR
        failing = self._trouble(FaultKind.FAILED_BOOT, wish.host_id)
        if failing is not None:
            self._world.spend(failing)
        doom = FAILED_BOOT if failing is not None else ""
        return thing._replace(generation=wish.generation, started_at=at, up_at=at + takes, doom=doom)

    def _require_stock(self, wish: Wish) -> None:
        """A stock-out is about what is new; what already runs keeps its place. Networks do not run out."""
        if isinstance(wish, FabricWish):
            return
        for fault in self._world.faults():
            if fault.kind is FaultKind.STOCK_OUT and fault.target == wish.region:
                raise NoneLeft(f"region {wish.region} has none left (simulated stock-out)")

    def _require_neighbours(self, wish: NodeWish) -> None:
        needed = [wish.fabric, *(mount.volume_id for mount in wish.mounts)]
        there = self._world.things(needed)
        for key in needed:
            if key not in there or there[key].gone_at is not None:
                raise TryLater(f"node {wish.key} needs {key}, which is not there")

    def _trouble(self, kind: FaultKind, host_id: str) -> Trouble | None:
        return next((f for f in self._world.faults() if f.kind is kind and f.host_id == host_id), None)

    def _reply_lost(self, wishes: Sequence[Wish]) -> Trouble | None:
        for wish in wishes:
            if isinstance(wish, NodeWish):
                fault = self._trouble(FaultKind.LOST_REPLY, wish.host_id)
                if fault is not None:
                    self._world.spend(fault)
                    return fault
        return None

    async def observe(self, keys: Sequence[str]) -> dict[str, Seen]:
        now = self._world.now()
        return {thing.key: self._seen(thing, state, now) for thing, state in self._world.look(keys)}

    def _seen(self, thing: Thing, state: State, now: Instant) -> Seen:
        settled = state.power not in (Power.STARTING, Power.FAILED)
        return Seen(
            power=state.power,
            because=state.because,
            address=thing.address if settled else "",
            generation=thing.generation,
            size_gib=thing.size_at(now),
            look_again_at=None if state.changes_at is None else self._world.house_time(state.changes_at),
        )

    async def ensure_absent(self, keys: Sequence[str], fence: Fence) -> None:
        with self._world.turn(fence):
            things = list(self._world.things(keys).values())
            # Nodes first, so that the fabric under them may go in the same call.
            for thing in sorted(things, key=lambda thing: (thing.kind != "node", thing.number)):
                if thing.owner != fence.owner:
                    raise Never(f"{thing.kind} {thing.key} belongs to {thing.owner}")
                if thing.gone_at is None:
                    self._end(thing)

    def _end(self, thing: Thing) -> None:
        users = self._users_of(thing)
        busy = next((user for user in users if user.gone_at is None), None)
        if busy is not None:
            raise TryLater(f"{thing.kind} {thing.key} is still used by node {busy.key}")
        takes = self._world.draw(down_span(thing.kind), "down", thing.key, thing.generation)
        last_user = max((user.gone_at or 0 for user in users), default=0)
        self._world.save(thing._replace(gone_at=max(self._world.now() + takes, last_user)))

    def _users_of(self, thing: Thing) -> list[Thing]:
        """Nodes that lean on it: those of a fabric have its owner, those of a volume have it mounted."""
        if thing.kind == "volume":
            return self._world.mounters(thing.key)
        if thing.kind == "fabric":
            nodes = (other for other in self._world.belongings(thing.owner) if other.kind == "node")
            return [node for node in nodes if msgspec.json.decode(node.wish, type=NodeWish).fabric == thing.key]
        return []

    async def owned(self) -> list[Owned]:
        return self._world.owned()

    def watch(self, wake: Callable[[str], None]) -> None:
        """Faults are announced; what happens in its own time is told by `look_again_at`."""
        self._world.watch(wake)

    async def listen(self, stop: asyncio.Event, every_seconds: float = 1.0) -> None:
        """Pass on what other processes did to the world, until told to stop. Missing it only delays."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                nap = asyncio.ensure_future(self._clock.sleep(every_seconds))
                await asyncio.wait({nap, stopping}, return_when=asyncio.FIRST_COMPLETED)
                nap.cancel()
                self._world.hear()
        finally:
            stopping.cancel()

    async def close(self) -> None:
        self._world.close()

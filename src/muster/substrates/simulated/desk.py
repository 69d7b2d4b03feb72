"""The fault desk of the simulated fleet: contracts/faults.py over the world's own memory.

Leans on the world and on `Places`, by which a fault is aimed at hosts and regions that exist. Faults live in the
world's file, so one injected through the API process is felt by the engine process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from muster.contracts.clock import Entropy
from muster.contracts.faults import (
    COUNTED,
    ON_CLUSTERS,
    ON_HOSTS,
    ON_REGIONS,
    ON_THE_WIRE,
    Fault,
    FaultKind,
    Place,
    Places,
    WireFault,
)
from muster.errors import Invalid, TryLater, Unavailable
from muster.model.base import DAY, SECOND, Instant
from muster.substrates.simulated.things import Trouble
from muster.substrates.simulated.world import SimulatedWorld

SECONDS_MAX: Final = 10 * 365 * DAY / SECOND
COUNT_MAX: Final = 1_000_000
DELAY_SECONDS_MAX: Final = 60.0
FLAP_SECONDS_DEFAULT: Final = 120.0
LOOK_MS: Final = 500
"""How soon a fault injected through another process is felt at the door; in the injecting process it is at once."""

_STATUS: Final = {FaultKind.HTTP_429: 429, FaultKind.HTTP_500: 500, FaultKind.SLOW_REPLY: 0}
_AIMS: Final = {"host": ON_HOSTS, "region": ON_REGIONS, "cluster": ON_CLUSTERS}
_NOWHERE: Final = Place("", "")
_AT_THE_DOOR: Final = ON_THE_WIRE | ON_REGIONS


class SimulatedFaultDesk:
    def __init__(self, world: SimulatedWorld, entropy: Entropy, places: Places) -> None:
        self._world = world
        self._entropy = entropy
        self._places = places
        self._at_the_door: list[Trouble] = []
        self._look_at: Instant = 0

    async def inject(self, fault: Fault) -> Fault:
        _check(fault)
        place = await self._aim(fault)
        if fault.kind is FaultKind.ADVANCE:
            return self._advance(fault)
        trouble = self._trouble(fault, place)
        with _available(), self._world.change():
            self._world.add_fault(trouble)
            if trouble.until is not None:
                self._revive(trouble, trouble.until)
            self._announce(trouble)
        self._look_at = 0
        self._world.hear()
        return self._told(trouble)

    async def faults(self) -> list[Fault]:
        return [self._told(trouble) for trouble in self._world.faults()]

    async def clear(self, id: str) -> bool:
        known = next((trouble for trouble in self._world.faults() if trouble.id == id), None)
        if known is None:
            return False
        with _available(), self._world.change():
            ended = self._world.end_fault(known)
            self._revive(known, self._world.now())
            self._announce(known)
        self._world.hear()
        return ended

    def wire_fault(self) -> WireFault | None:
        fault = next((trouble for trouble in self._looked() if trouble.kind in ON_THE_WIRE), None)
        if fault is None:
            return None
        with _available(), self._world.change():
            self._world.spend(fault)
        delay = fault.delay_seconds if fault.kind is FaultKind.SLOW_REPLY else 0.0
        return WireFault(fault.kind, _STATUS[fault.kind], delay)

    def sold_out(self, region: str) -> bool:
        return any(fault.kind is FaultKind.STOCK_OUT and fault.target == region for fault in self._looked())

    def _looked(self) -> list[Trouble]:
        """Trouble that callers meet. Every call asks: while there is none, the world is looked at now and then."""
        now = self._world.house_now()
        if self._at_the_door or now >= self._look_at:
            self._look_at = now + LOOK_MS
            self._at_the_door = [trouble for trouble in self._world.faults() if trouble.kind in _AT_THE_DOOR]
        return self._at_the_door

    async def _aim(self, fault: Fault) -> Place:
        if fault.kind in ON_HOSTS:
            place = await self._places.host(fault.target)
            return place if place is not None else _refuse("target", f"there is no host {fault.target!r}")
        if fault.kind in ON_REGIONS and not await self._places.region(fault.target):
            _refuse("target", f"there is no region {fault.target!r}")
        if fault.kind in ON_CLUSTERS and not await self._places.cluster(fault.target):
            _refuse("target", f"there is no cluster {fault.target!r}")
        return _NOWHERE

    def _advance(self, fault: Fault) -> Fault:
        """Over as soon as it happened: told, but not kept."""
        with _available(), self._world.change():
            self._world.advance(round((fault.seconds or 0) * SECOND))
            self._world.announce("")
        self._world.hear()
        return Fault(
            kind=fault.kind, seconds=fault.seconds, id=self._entropy.uuid(), left=0, made_at=self._world.house_now()
        )

    def _trouble(self, fault: Fault, place: Place) -> Trouble:
        now = self._world.now()
        seconds, count = fault.seconds, fault.count
        if fault.kind is FaultKind.FLAP and seconds is None:
            seconds = FLAP_SECONDS_DEFAULT
        if fault.kind in COUNTED and seconds is None and count is None:
            count = 1
        return Trouble(
            id=self._entropy.uuid(),
            kind=fault.kind,
            target=place.name or fault.target,
            host_id=place.id,
            seconds=seconds,
            times=count,
            left=count,
            delay_seconds=fault.delay_seconds,
            since=now,
            until=None if seconds is None else now + round(seconds * SECOND),
            made_at=self._world.house_now(),
        )

    def _revive(self, trouble: Trouble, at: Instant) -> None:
        """Whoever returns from the dead has booted anew, and must join its cluster again."""
        if trouble.kind is FaultKind.HOST_DEATH:
            self._world.reboot(trouble.host_id, trouble.since, at)

    def _announce(self, trouble: Trouble) -> None:
        if trouble.kind in ON_CLUSTERS:
            self._world.announce_to(trouble.target)
        elif trouble.kind not in ON_THE_WIRE:
            self._world.announce(trouble.host_id)

    def _told(self, trouble: Trouble) -> Fault:
        return Fault(
            id=trouble.id,
            kind=trouble.kind,
            target=trouble.target,
            host_id=trouble.host_id,
            seconds=trouble.seconds,
            count=trouble.times,
            left=trouble.left,
            delay_seconds=trouble.delay_seconds,
            made_at=trouble.made_at,
            until=None if trouble.until is None else self._world.house_time(trouble.until),
        )


@contextmanager
def _available() -> Iterator[None]:
    """The desk is met by people, who are owed a CallError."""
    try:
        yield
    except TryLater as busy:
        raise Unavailable(busy.because, hint="try again") from busy


def _check(fault: Fault) -> None:
    """The shape of the wish, before anything is looked up."""
    aim = next((word for word, kinds in _AIMS.items() if fault.kind in kinds), None)
    if aim and not fault.target:
        _refuse("target", f"{fault.kind} needs a {aim}")
    if not aim and fault.target:
        _refuse("target", f"{fault.kind} has no target")
    if fault.kind is FaultKind.ADVANCE and fault.seconds is None:
        _refuse("seconds", "advance needs the seconds to move the world's clock by")
    if fault.seconds is not None and not (math.isfinite(fault.seconds) and 0 < fault.seconds <= SECONDS_MAX):
        _refuse("seconds", f"seconds must be above 0 and at most {SECONDS_MAX:.0f}")
    if fault.kind is FaultKind.LOAD and fault.count is None:
        _refuse("count", "load needs the count of GPUs that are asked for")
    if fault.count is not None and fault.kind not in COUNTED | ON_CLUSTERS:
        _refuse("count", f"{fault.kind} is not counted", hint="use seconds, or clear it when done")
    if fault.count is not None and not 1 <= fault.count <= COUNT_MAX:
        _refuse("count", f"count must be between 1 and {COUNT_MAX}")
    if not 0 <= fault.delay_seconds <= DELAY_SECONDS_MAX:
        _refuse("delay_seconds", f"delay_seconds must be between 0 and {DELAY_SECONDS_MAX:.0f}")


def _refuse(field: str, sentence: str, *, hint: str | None = None) -> NoReturn:
    raise Invalid(sentence, field=field, hint=hint)

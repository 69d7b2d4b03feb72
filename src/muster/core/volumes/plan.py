"""What to do next for a volume: pure, one step at a time.

*Laws.* The row is the intent: nothing is asked of the substrate for a volume that is not written down. Nothing that
served is cleared away while a cluster has it mounted, nor made anew in silence: its data would be gone. A size is
asked for only while a request wants it, so a refused one is not asked for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from muster.contracts.substrate import Power, Seen
from muster.model.base import MINUTE, SECOND, Instant, changed
from muster.model.events import Request, RequestState
from muster.model.phases import IllegalMove, VolumePhase
from muster.model.volumes import Volume

LOOK_AGAIN: Final = 2 * SECOND
LOOK_AGAIN_MAX: Final = 15 * SECOND
MOUNTED_RETRY: Final = 15 * SECOND
MISSING_RETRY: Final = MINUTE

READY: Final = "ready"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the store says: the volume, its open requests, the clusters that have it mounted."""

    volume: Volume
    requests: Sequence[Request] = ()
    mounted_on: Sequence[str] = ()


class Ask(NamedTuple):
    """Ask the substrate for the volume as wished."""


class Clear(NamedTuple):
    """Ask the substrate to have nothing of it."""


class Move(NamedTuple):
    phase: VolumePhase
    because: str
    actual_gib: int


class Note(NamedTuple):
    """Same phase, other facts."""

    because: str
    actual_gib: int


class WaitFor(NamedTuple):
    because: str
    until: Instant


class Rest(NamedTuple):
    pass


Step: TypeAlias = Ask | Clear | Move | Note | WaitFor | Rest


def plan(snapshot: Snapshot, seen: Seen | None, now: Instant) -> Step:
    volume = snapshot.volume
    if volume.delete_wished_at is not None:
        return _ending(snapshot, now)
    match volume.phase:
        case VolumePhase.PROVISIONING:
            return _provisioning(volume, seen, now)
        case VolumePhase.AVAILABLE:
            return _available(snapshot, seen, now)
        case VolumePhase.FAILED:
            return _failed(snapshot, seen)
        case VolumePhase.DELETING | VolumePhase.GONE:
            raise IllegalMove(f"volume {volume.id} is {volume.phase}, and nobody wished it")


def _ending(snapshot: Snapshot, now: Instant) -> Step:
    volume = snapshot.volume
    if snapshot.mounted_on:
        return WaitFor(f"still mounted on {len(snapshot.mounted_on)} cluster(s)", now + MOUNTED_RETRY)
    if volume.phase is not VolumePhase.DELETING:
        return Move(VolumePhase.DELETING, "deletion was asked for", volume.actual_gib)
    return Clear()


def _provisioning(volume: Volume, seen: Seen | None, now: Instant) -> Step:
    if seen is None:
        return Ask()
    match seen.power:
        case Power.UP if seen.size_gib >= volume.size_gib:
            return Move(VolumePhase.AVAILABLE, READY, seen.size_gib)
        case Power.UP:
            return Ask()
        case Power.FAILED | Power.DEAD:
            return Move(VolumePhase.FAILED, seen.because or "the substrate could not make it", volume.actual_gib)
        case _:
            return _look_again(_growing(volume), seen, now)


def _available(snapshot: Snapshot, seen: Seen | None, now: Instant) -> Step:
    volume = snapshot.volume
    if seen is None:
        return WaitFor("the substrate to know of this volume again: it is missing there", now + MISSING_RETRY)
    if seen.power is not Power.UP:
        return _look_again("the substrate to have it up", seen, now)
    if seen.size_gib > volume.actual_gib:
        return Note(READY, seen.size_gib)
    if volume.actual_gib < volume.size_gib and snapshot.requests:
        return Ask()
    if snapshot.requests or volume.because != READY:
        return Note(READY, volume.actual_gib)
    return Rest()


def _failed(snapshot: Snapshot, seen: Seen | None) -> Step:
    """It never served, so what is left of it is cleared away before it is tried again."""
    if not snapshot.requests:
        return Rest()
    if seen is not None:
        return Clear()
    return Move(VolumePhase.PROVISIONING, "trying again", snapshot.volume.actual_gib)


def _look_again(what: str, seen: Seen, now: Instant) -> WaitFor:
    """No later than the substrate says, and no later than the world's clock may have been moved meanwhile."""
    because = f"{what}: {seen.because}" if seen.because else what
    hint = seen.look_again_at if seen.look_again_at is not None else now + LOOK_AGAIN
    return WaitFor(because, min(max(hint, now + 1), now + LOOK_AGAIN_MAX))


def _growing(volume: Volume) -> str:
    return f"the substrate to give it {volume.size_gib} GiB"


def after_asking(volume: Volume, seen: Seen | None, now: Instant) -> WaitFor | None:
    """When to look again after the substrate was asked; None = at once, it is there."""
    if seen is None:
        return WaitFor("the substrate to begin", now + LOOK_AGAIN)
    if seen.power is Power.UP and seen.size_gib >= volume.size_gib:
        return None
    return _look_again(_growing(volume), seen, now)


def after_clearing(seen: Seen, now: Instant) -> WaitFor:
    return _look_again("the substrate to clear it away", seen, now)


def settle(requests: Sequence[Request], volume: Volume, at: Instant) -> list[Request]:
    """The requests whose state this volume decides, in their next value."""
    judged = ((request, _verdict(request, volume)) for request in requests)
    return [judge(request, *verdict, at) for request, verdict in judged if verdict[0] is not request.state]


def begin(requests: Sequence[Request], because: str, at: Instant) -> list[Request]:
    """Someone is at work on these now; how they end is decided when a step is done, not while it is waited for."""
    fresh = [request for request in requests if request.state is RequestState.PENDING]
    return [judge(request, RequestState.PROCESSING, because, at) for request in fresh]


def judge(request: Request, state: RequestState, message: str, at: Instant) -> Request:
    over = state in (RequestState.COMPLETED, RequestState.FAILED)
    return changed(request, state=state, message=message, updated_at=at, finished_at=at if over else None)


def _verdict(request: Request, volume: Volume) -> tuple[RequestState, str]:
    going = (RequestState.PROCESSING, volume.because)
    if request.operation == "delete":
        return (RequestState.COMPLETED, "it is gone") if volume.phase is VolumePhase.GONE else going
    if volume.delete_wished_at is not None:
        return RequestState.FAILED, "the volume was deleted first"
    if volume.phase is VolumePhase.FAILED:
        return RequestState.FAILED, volume.because
    if volume.phase is VolumePhase.AVAILABLE and volume.actual_gib >= volume.size_gib:
        return RequestState.COMPLETED, volume.because
    return going

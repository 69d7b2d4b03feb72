"""Make a volume what its row says: look, let the plan name one step, take it, write down what came of it.

Leans on the store's and the substrate's contracts. Keeps these laws: the input is an id and nothing else; every batch
and every driver call carries the claim; a move, its event and its requests are one batch; before a volume is called
gone, the substrate was told so under this very claim, so that a zombie's late `ensure` is refused and leaks nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec.structs

from muster.contracts.clock import Clock
from muster.contracts.reconciler import Advance, Gone, Outcome, Settled, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Find, Op, Replace, Store
from muster.contracts.substrate import Fence, Seen, Substrate, VolumeWish
from muster.core.accounts.audit import audit
from muster.core.volumes import plan as planning
from muster.core.volumes.mounts import mounts_of, open_requests, tell_clusters
from muster.core.volumes.plan import Snapshot, after_asking, after_clearing, begin, plan, settle
from muster.errors import DriverError, Never, NoneLeft, VersionMismatch
from muster.model.accounts import SYSTEM
from muster.model.base import SECOND, Instant, changed
from muster.model.events import Event, Request, RequestState
from muster.model.phases import VolumePhase
from muster.model.volumes import Attachment, Volume

DRIVER_RETRY: Final = 5 * SECOND
STOCK_RETRY: Final = 30 * SECOND
NEVER_RETRY: Final = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Turn:
    """One run: what the store says, and the hold we have on it."""

    volume: Volume
    requests: Sequence[Request]
    mounts: list[Attachment]
    claim: Claim
    now: Instant

    @property
    def fence(self) -> Fence:
        return Fence(self.volume.id, self.claim.token)


class VolumeReconciler:
    kind = "volume"

    def __init__(self, store: Store, clock: Clock, substrate: Substrate) -> None:
        self._store = store
        self._clock = clock
        self._substrate = substrate

    async def everything(self) -> list[str]:
        """The living, and whatever the substrate keeps under the name of one that is not."""
        live = [head.key for head in await self._store.heads(Find(Volume, equals={"gone_at": None}))]
        try:
            kept = [owned.key for owned in await self._substrate.owned() if owned.kind == "volume"]
        except DriverError:
            kept = []  # a full pass must not fail for a substrate that is away
        return list(dict.fromkeys([*live, *kept]))

    async def reconcile(self, id: str, claim: Claim) -> Outcome:
        volume = await self._store.get(Volume, id)
        if volume is None:
            return Gone()  # a row comes before its volume, so this is not our leak but perhaps somebody's data
        if volume.gone_at is not None:
            return await self._sweep(id, claim)
        requests = await open_requests(self._store, id)
        turn = Turn(volume, requests, await mounts_of(self._store, id), claim, self._clock.now())
        try:
            return await self._step(turn)
        except VersionMismatch:
            return Advance("a wish changed meanwhile")

    async def _step(self, turn: Turn) -> Outcome:
        try:
            snapshot = Snapshot(turn.volume, turn.requests, [mount.cluster_id for mount in turn.mounts])
            return await self._perform(plan(snapshot, await self._look(turn), turn.now), turn)
        except Never as error:
            return await self._give_up(turn, error.because)
        except NoneLeft as error:
            return await self._wait(turn, error.because, turn.now + STOCK_RETRY)
        except DriverError as error:
            return await self._wait(turn, error.because, turn.now + DRIVER_RETRY)

    async def _look(self, turn: Turn) -> Seen | None:
        return (await self._substrate.observe([turn.volume.id])).get(turn.volume.id)

    async def _perform(self, step: planning.Step, turn: Turn) -> Outcome:
        match step:
            case planning.Ask():
                return await self._ask(turn)
            case planning.Clear():
                return await self._clear(turn)
            case planning.Move(phase, because, actual_gib):
                moved = turn.volume.advance(phase, because=because, at=turn.now)
                await self._record(turn, msgspec.structs.replace(moved, actual_gib=actual_gib))
                return Advance(because)
            case planning.Note(because, actual_gib):
                await self._record(turn, changed(turn.volume, because=because, actual_gib=actual_gib))
                return Advance(because)
            case planning.WaitFor(because, until):
                return await self._wait(turn, because, until)
            case planning.Rest():
                return Settled()

    async def _ask(self, turn: Turn) -> Outcome:
        volume = turn.volume
        wish = VolumeWish(key=volume.id, region=volume.region, size_gib=volume.size_gib)
        await self._substrate.ensure([wish], turn.fence)
        wait = after_asking(volume, await self._look(turn), turn.now)
        return Advance("it is there") if wait is None else await self._wait(turn, wait.because, wait.until)

    async def _clear(self, turn: Turn) -> Outcome:
        await self._substrate.ensure_absent([turn.volume.id], turn.fence)
        seen = await self._look(turn)
        if seen is not None:
            wait = after_clearing(seen, turn.now)
            return await self._wait(turn, wait.because, wait.until)
        if turn.volume.phase is not VolumePhase.DELETING:
            return Advance("cleared away")
        gone = turn.volume.advance(VolumePhase.GONE, because="nothing of it is left", at=turn.now)
        await self._record(turn, msgspec.structs.replace(gone, gone_at=turn.now, live_name=None))
        return Gone()

    async def _give_up(self, turn: Turn, because: str) -> Outcome:
        """The substrate says never. What never served has failed; what serves goes on as it is."""
        volume = turn.volume
        if volume.phase is VolumePhase.PROVISIONING:
            await self._record(turn, volume.advance(VolumePhase.FAILED, because=because, at=turn.now))
            return Advance(because)
        if volume.phase is VolumePhase.AVAILABLE and volume.delete_wished_at is None:
            refused = [planning.judge(r, RequestState.FAILED, because, turn.now) for r in turn.requests]
            event = _event("grow_refused", volume, because, turn.now)
            await self._apply(turn, changed(volume, updated_at=turn.now), refused, [event])
            return Advance(because)
        return await self._wait(turn, because, turn.now + NEVER_RETRY)

    async def _wait(self, turn: Turn, because: str, until: Instant) -> Outcome:
        """What we wait for is written where people look, once, not at every look."""
        if turn.volume.because != because:
            waiting = changed(turn.volume, because=because)
            await self._apply(turn, waiting, begin(turn.requests, because, turn.now), [])
        return Wait(because, until)

    async def _record(self, turn: Turn, volume: Volume) -> None:
        later = msgspec.structs.replace(volume, updated_at=turn.now)
        events: list[Event] = []
        if later.phase is not turn.volume.phase:
            events.append(_event("phase", later, later.because, turn.now))
        elif later.actual_gib != turn.volume.actual_gib:
            events.append(_event("grown", later, f"it has {later.actual_gib} GiB now", turn.now))
        told = await tell_clusters(self._store, turn.mounts, turn.now) if events else []
        await self._apply(turn, later, settle(turn.requests, later, turn.now), events, told)

    async def _apply(
        self, turn: Turn, volume: Volume, requests: list[Request], events: list[Event], told: Sequence[Op] = ()
    ) -> None:
        ops: list[Op] = [Replace(volume), *(Replace(request) for request in requests), *told]
        await self._store.apply(Batch(Step.VOLUME_RECORD, ops, events, fence=turn.claim))

    async def _sweep(self, id: str, claim: Claim) -> Outcome:
        """It was called gone, so nothing may be left of it."""
        now = self._clock.now()
        try:
            await self._substrate.ensure_absent([id], Fence(id, claim.token))
            seen = (await self._substrate.observe([id])).get(id)
        except DriverError as error:
            return Wait(error.because, now + DRIVER_RETRY)
        return Gone() if seen is None else Wait(*after_clearing(seen, now))


def _event(what: str, volume: Volume, message: str, at: Instant) -> Event:
    data = {"phase": volume.phase.value, "size_gib": volume.size_gib, "actual_gib": volume.actual_gib}
    return audit(SYSTEM, "volume", what, volume, at=at, message=message, cause="reconcile", data=data)

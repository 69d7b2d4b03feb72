"""What becomes of a reservation by itself: quotes expire, windows end, a term that became ready gives the rest back.

*Laws.* The input is an id and nothing else; every batch is fenced. Leans on the reservations' use cases and on the
cluster's row, which it only reads.
"""

from __future__ import annotations

from typing import Final

from muster.contracts.clock import Clock
from muster.contracts.reconciler import Advance, Gone, Outcome, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Find, Op, Replace, Store
from muster.core.accounts.audit import audit
from muster.core.capacity.reservations import Reservations, described, key_of
from muster.model.accounts import SYSTEM
from muster.model.base import DAY, SECOND, Instant, changed
from muster.model.capacity import Reservation, ReservationState
from muster.model.clusters import Cluster
from muster.model.hosts import ANY_TIME, Lease
from muster.model.phases import Phase

LOOK_AGAIN: Final = 15 * SECOND


class ReservationReconciler:
    kind = "reservation"

    def __init__(self, store: Store, clock: Clock, reservations: Reservations) -> None:
        self._store = store
        self._clock = clock
        self._reservations = reservations

    async def everything(self) -> list[str]:
        return [one.id for one in await self._store.find(Find(Reservation, equals={"open": True}))]

    async def reconcile(self, id: str, claim: Claim) -> Outcome:
        reservation = await self._store.get(Reservation, id)
        if reservation is None or not reservation.open:
            return Gone()
        cluster = await self._store.get(Cluster, reservation.cluster_id) if reservation.cluster_id else None
        now = self._clock.now()
        verdict = over_because(reservation, cluster, now)
        if verdict is not None:
            after, ops = await self._reservations.over(reservation, *verdict, now)
            await self._record(claim, after, ops, str(after.state), now)
            return Gone()
        ends_at = cluster.ends_at if cluster is not None else None
        if ends_at is not None and ends_at < reservation.ends_at:
            after, ops = await self._reservations.moved(reservation, ends_at, now)
            # What is known of its hosts follows, or they would stand in the way of its own extension.
            leases = await self._store.find(Find(Lease, equals={"cluster_id": reservation.cluster_id}))
            ops += (Replace(changed(lease, ends_at=ends_at)) for lease in leases if lease.ends_at != ANY_TIME)
            await self._record(claim, after, ops, "trimmed", now)
            return Advance("what was not needed is given back")
        # Past its end it only waits for its cluster to go, which wakes it; this is for a wake-up that was lost.
        due = reservation.expires_at or (reservation.ends_at if reservation.ends_at > now else now + LOOK_AGAIN)
        return Wait("its time", min(now + DAY, due))

    async def _record(self, claim: Claim, after: Reservation, ops: list[Op], what: str, now: Instant) -> None:
        event = audit(SYSTEM, "reservation", what, after, at=now, message=after.because or described(after))
        try:
            await self._store.apply(Batch(Step.RESERVATION_RECORD, ops, [event], fence=claim))
        except BaseException:
            self._reservations.booker.lost(key_of(after))
            raise


def over_because(
    reservation: Reservation, cluster: Cluster | None, now: Instant
) -> tuple[ReservationState, str] | None:
    """Whether it is over, and how it ended."""
    if reservation.state is ReservationState.HELD and now >= (reservation.expires_at or 0):
        return ReservationState.EXPIRED, "nobody accepted it in time"
    if reservation.cluster_id is None:
        return (ReservationState.ENDED, "its window is over") if now >= reservation.ends_at else None
    if cluster is None or cluster.phase in (Phase.GONE, Phase.FAILED, Phase.DELETING):
        return ReservationState.ENDED, "its cluster is gone"
    if cluster.delete_wished_at is not None:
        return ReservationState.ENDED, "its cluster is to go"
    return None

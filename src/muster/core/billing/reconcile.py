"""Carry out what an account's money asks for: one guarded batch per step, under the claim.

Leans on the store's contract; never meets a driver. What it writes on clusters and volumes are wishes, which their
own reconcilers carry out. *Laws.* The input is an account's id and nothing else. It wakes at the instant at which
credit, grace, budget or price end, at midnight, and shortly after anything began or ceased to cost money.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from muster.contracts.clock import Clock, Entropy
from muster.contracts.reconciler import Advance, Gone, Outcome, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Expect, Find, Insert, Op, Replace, Store, Wake
from muster.core.accounts.audit import audit
from muster.core.billing import plan as planning
from muster.core.billing.booking import booking_ops, overrun_entry
from muster.core.billing.funds import ledger_of, open_of_account, price_book, spent_by_project
from muster.core.billing.metering import KIND
from muster.core.billing.plan import Terms, Ward, plan
from muster.core.clusters.requests import new_request
from muster.core.volumes.wishes import ended_volume
from muster.model.accounts import SYSTEM, Account, Project
from muster.model.base import Instant, Noun, changed
from muster.model.billing import Book, Budget, Funding, account_book
from muster.model.clusters import Cluster
from muster.model.events import Event
from muster.model.volumes import Volume


@dataclass(frozen=True, slots=True)
class Turn:
    ward: Ward
    claim: Claim
    now: Instant


class BillingReconciler:
    """`kind` is "billing"; its ids are accounts."""

    kind = KIND

    def __init__(self, store: Store, clock: Clock, entropy: Entropy, terms: Terms = Terms()) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._terms = terms

    async def everything(self) -> list[str]:
        return [account.id for account in await self._store.find(Find(Account))]

    async def reconcile(self, id: str, claim: Claim) -> Outcome:
        account = await self._store.get(Account, id)
        if account is None:
            return Gone()
        now = self._clock.now()
        turn = Turn(await self._look(account, now), claim, now)
        return await self._perform(plan(turn.ward, self._terms, now), turn)

    async def _look(self, account: Account, now: Instant) -> Ward:
        usages = await open_of_account(self._store, account.id)
        budgets = await self._store.find(Find(Budget, equals={"account_id": account.id}))
        ward = Ward(
            account=account,
            ledger=await ledger_of(self._store, account.id),
            usages=usages,
            prices=await price_book(self._store),
            funding=await self._store.get(Funding, account.id),
        )
        if account.postpaid and not budgets:
            return await self._with_stopped(ward)
        spent = {
            budget.id: await spent_by_project(self._store, budget.id, usages, ward.prices, now) for budget in budgets
        }
        return await self._with_all(ward, {budget.id: budget for budget in budgets}, spent)

    async def _with_stopped(self, ward: Ward) -> Ward:
        """A post-paid account has nothing to stop; but it may have become post-paid after something was stopped."""
        return ward if ward.funding is None else await self._with_all(ward, {}, {})

    async def _with_all(self, ward: Ward, budgets: dict[str, Budget], spent: dict[str, int]) -> Ward:
        projects = [p.id for p in await self._store.find(Find(Project, equals={"account_id": ward.account.id}))]
        wanted: dict[str, Any] = {"equals": {"gone_at": None}, "one_of": {"project_id": projects}}
        clusters = await self._store.find(Find(Cluster, **wanted)) if projects else []
        volumes = await self._store.find(Find(Volume, **wanted)) if projects else []
        living = [cluster for cluster in clusters if cluster.delete_wished_at is None]
        return Ward(
            account=ward.account,
            ledger=ward.ledger,
            usages=ward.usages,
            prices=ward.prices,
            funding=ward.funding,
            clusters=living,
            volumes=volumes,
            budgets=budgets,
            spent=spent,
        )

    # --- the steps --------------------------------------------------------------------------------------------------

    @functools.singledispatchmethod
    async def _perform(self, step: object, turn: Turn) -> Outcome:
        raise AssertionError(f"no way to perform {step}")

    @_perform.register
    async def _(self, step: planning.WaitUntil, turn: Turn) -> Outcome:
        return Wait(step.because, step.until)

    @_perform.register
    async def _(self, step: planning.BookUp, turn: Turn) -> Outcome:
        ops = booking_ops(step.usages, turn.ward.prices, step.until, turn.now)
        await self._apply(Step.BILLING_BOOK, turn, ops, [])
        return Advance(f"{len(step.usages)} intervals booked")

    @_perform.register
    async def _(self, step: planning.Stand, turn: Turn) -> Outcome:
        """Whoever tops up meanwhile makes the book another version, and this is thought over."""
        ward, account = turn.ward, turn.ward.account
        funds = ward.funds(turn.now)
        known = ward.funding
        minute = funds.minute or (known.minute_micro if known is not None else 0)
        since = known.since if known is not None and known.state is step.state else turn.now
        fields: dict[str, Any] = {"state": step.state, "since": since, "minute_micro": minute}
        ops: list[Op] = [
            Insert(Funding(id=account.id, account_id=account.id, **fields))
            if known is None
            else Replace(changed(known, **fields))
        ]
        book = await self._store.get(Book, account_book(account.id))
        if book is not None:
            ops.append(Expect(Book, book.id, book.version))
        events = []
        if known is None or known.state is not step.state:
            data = {
                "balance_micro": funds.available,
                "micro_per_hour": funds.hourly,
                "runs_out_at": funds.runs_out_at,
            }
            events.append(self._event("account", str(step.state), account, step.because, turn.now, data))
        if step.overrun:
            entry = overrun_entry(f"overrun:{account.id}:{turn.claim.token}", account.id, step.overrun, turn.now)
            ops.append(Insert(entry))
            data = {"micro": step.overrun}
            events.append(self._event("account", "overrun", account, entry.memo, turn.now, data))
        await self._apply(Step.BILLING_BOOK, turn, ops, events)
        return Advance(step.because)

    @_perform.register
    async def _(self, step: planning.Stop, turn: Turn) -> Outcome:
        await self._mark(turn, step.clusters, step.volumes, turn.now, "unfunded", step.because)
        return Advance(step.because)

    @_perform.register
    async def _(self, step: planning.Start, turn: Turn) -> Outcome:
        await self._mark(turn, step.clusters, step.volumes, None, "refunded", "there is credit again")
        return Advance("there is credit again")

    async def _mark(
        self,
        turn: Turn,
        clusters: Sequence[Cluster],
        volumes: Sequence[Volume],
        since: Instant | None,
        what: str,
        because: str,
    ) -> None:
        ops: list[Op] = []
        events: list[Event] = []
        for cluster in clusters:
            ops += (Replace(_marked(cluster, since, turn.now)), Wake("cluster", cluster.id, turn.now))
            events.append(self._event("cluster", what, cluster, because, turn.now))
        for volume in volumes:
            ops.append(Replace(changed(volume, unfunded_since=since, updated_at=turn.now)))
            data = {"phase": volume.phase, "actual_gib": volume.actual_gib, "unfunded": since is not None}
            events.append(self._event("volume", what, volume, because, turn.now, data))
        await self._apply(Step.BILLING_WISH, turn, ops, events)

    @_perform.register
    async def _(self, step: planning.End, turn: Turn) -> Outcome:
        """Deletion protection is against slips of the hand; it does not outlast the credit."""
        ops: list[Op] = []
        events: list[Event] = []
        because = "its account had no credit and the grace is over"
        for cluster in step.clusters:
            ended = changed(
                cluster,
                delete_wished_at=turn.now,
                live_name=None,
                generation=cluster.generation + 1,
                updated_at=turn.now,
            )
            request = new_request(
                self._entropy.uuid(),
                "cluster",
                ended,
                "delete",
                generation=ended.generation,
                actor=SYSTEM,
                at=turn.now,
            )
            ops += (Replace(ended), Insert(request), Wake("cluster", cluster.id, turn.now))
            events.append(self._event("cluster", "delete_wished", cluster, because, turn.now))
        for volume in step.volumes:
            gone = ended_volume(volume, request_id=self._entropy.uuid(), actor=SYSTEM, at=turn.now, cause=because)
            ops += gone.ops()
            events += gone.events
        await self._apply(Step.BILLING_WISH, turn, ops, events)
        return Advance(because)

    def _event(
        self, kind: str, what: str, noun: Noun, message: str, at: Instant, data: dict[str, Any] | None = None
    ) -> Event:
        return audit(SYSTEM, kind, what, noun, at=at, message=message, cause="billing", data=data)

    async def _apply(self, step: Step, turn: Turn, ops: Sequence[Op], events: Sequence[Event]) -> None:
        await self._store.apply(Batch(step, ops, events, fence=turn.claim))


def _marked(cluster: Cluster, since: Instant | None, now: Instant) -> Cluster:
    """Stopped, or no longer so. A reserved cluster runs on, as large as its contract pays for."""
    spec = cluster.spec
    if planning.surplus(cluster):
        shrunk = replace(spec, workers=spec.reserved_workers)
        return changed(cluster, spec=shrunk, generation=cluster.generation + 1, updated_at=now)
    return changed(cluster, spec=replace(spec, unfunded_since=since), updated_at=now)

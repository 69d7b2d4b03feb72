"""What to do next about an account's money: pure, one step at a time.

`plan(ward, terms, now)` looks at the books, at what accrues and at what there is to stop, start or end. *Laws.* A
post-paid account is never stopped. Reserved capacity is paid for and runs to its end. Storage outlives credit by the
grace. The account never owes more than one minute's spend: what ran on longer, because nobody was there to stop it,
is the operator's. A project over its budget stops like an account without credit, but keeps its storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from muster.core.billing.booking import due_until
from muster.core.billing.funds import Funds, funds_of, month_of
from muster.core.billing.rates import PriceBook, lasts, midnight, share, spent
from muster.model.accounts import Account
from muster.model.base import DAY, HOUR, MINUTE, SECOND, Instant
from muster.model.billing import METERED, Budget, Funding, FundingState, Usage
from muster.model.clusters import Cluster
from muster.model.phases import VolumePhase
from muster.model.volumes import Volume

RESUME_COVERS: Final = HOUR
"""What stopped comes back when the credit lasts for at least so long: a cent does not boot a cluster."""
STEP_MOST: Final = 100
"""So many rows are changed in one batch; the rest is the next step's."""


class Terms(NamedTuple):
    """The operator's terms, from the settings."""

    grace_ms: int = 3 * DAY
    warning_ms: int = DAY


@dataclass(frozen=True, slots=True)
class Ward:
    """An account with everything that its money decides about."""

    account: Account
    ledger: int
    usages: Sequence[Usage]  # the open ones
    prices: PriceBook
    funding: Funding | None = None
    clusters: Sequence[Cluster] = ()
    volumes: Sequence[Volume] = ()
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    spent: Mapping[str, int] = field(default_factory=dict)  # this month, by project with a budget

    def funds(self, now: Instant) -> Funds:
        return funds_of(self.ledger, self.usages, self.prices, now)


class BookUp(NamedTuple):
    """Book these intervals up to these boundaries."""

    usages: Sequence[Usage]
    until: Sequence[Instant]


class Stand(NamedTuple):
    """The account stands differently now; `overrun` is what the operator bears."""

    state: FundingState
    because: str
    overrun: int = 0


class Stop(NamedTuple):
    clusters: Sequence[Cluster]
    volumes: Sequence[Volume]
    because: str


class Start(NamedTuple):
    clusters: Sequence[Cluster]
    volumes: Sequence[Volume]


class End(NamedTuple):
    """The grace is over."""

    clusters: Sequence[Cluster]
    volumes: Sequence[Volume]


class WaitUntil(NamedTuple):
    because: str
    until: Instant


Step: TypeAlias = BookUp | Stand | Stop | Start | End | WaitUntil


def plan(ward: Ward, terms: Terms, now: Instant) -> Step:
    behind = [(usage, due_until(usage, ward.prices, now)) for usage in ward.usages if usage.charged]
    behind = [(usage, until) for usage, until in behind if until > usage.booked_until][:STEP_MOST]
    if behind:
        return BookUp([usage for usage, _ in behind], [until for _, until in behind])
    return _stand(ward, terms, now) or _stop_and_start(ward, now) or _end(ward, terms, now) or _wait(ward, terms, now)


# --- how it stands ----------------------------------------------------------------------------------------------


def _stand(ward: Ward, terms: Terms, now: Instant) -> Stand | None:
    funds = ward.funds(now)
    known = ward.funding.state if ward.funding is not None else FundingState.FUNDED
    state = _state(ward, funds, terms)
    overrun = _overrun(ward, funds)
    if state is known and not overrun:
        return None
    return Stand(state, _WORDS[state], overrun)


_WORDS: Final = {
    FundingState.FUNDED: "its credit lasts",
    FundingState.LOW: "its credit ends soon",
    FundingState.UNFUNDED: "its credit has ended",
}


def _state(ward: Ward, funds: Funds, terms: Terms) -> FundingState:
    if ward.account.postpaid:
        return FundingState.FUNDED
    if _broke(ward, funds):
        return FundingState.UNFUNDED
    left = lasts(funds.burn, funds.available)
    return FundingState.LOW if left is not None and left < terms.warning_ms else FundingState.FUNDED


def _broke(ward: Ward, funds: Funds) -> bool:
    if ward.funding is not None and ward.funding.state is FundingState.UNFUNDED:
        return funds.available <= 0 or funds.available < _to_resume(ward, funds.now)
    return funds.available <= 0 and funds.burn > 0


def _to_resume(ward: Ward, now: Instant) -> int:
    """What everything that was stopped would cost for `RESUME_COVERS`."""
    stopped = [cluster for cluster in ward.clusters if cluster.spec.unfunded_since is not None]
    rates = [
        cluster.spec.workers * share(ward.prices.at(cluster.spec.instance_type, cluster.region, "on_demand", now))
        for cluster in stopped
    ]
    return spent(sum(rates), RESUME_COVERS)


def _overrun(ward: Ward, funds: Funds) -> int:
    """More than a minute below zero: nobody was there to stop it in time."""
    if ward.account.postpaid or funds.available >= 0:
        return 0
    minute = max(funds.minute, ward.funding.minute_micro if ward.funding is not None else 0)
    return -funds.available if -funds.available > minute else 0


# --- what follows from it ---------------------------------------------------------------------------------------


def _stop_and_start(ward: Ward, now: Instant) -> Stop | Start | None:
    unfunded = ward.funding is not None and ward.funding.state is FundingState.UNFUNDED
    over = {id for id, budget in ward.budgets.items() if ward.spent.get(id, 0) >= budget.monthly_micro}
    stop = [c for c in ward.clusters if (unfunded or c.project_id in over) and (_runs(c) or surplus(c))]
    shut = [v for v in ward.volumes if unfunded and v.unfunded_since is None and _kept(v)]
    if stop or shut:
        because = "its account has no credit left" if unfunded else "its project has spent its budget"
        return Stop(stop[:STEP_MOST], shut[:STEP_MOST], because)
    start = [
        cluster
        for cluster in ward.clusters
        if cluster.spec.unfunded_since is not None and not unfunded and cluster.project_id not in over
    ]
    reopen = [volume for volume in ward.volumes if volume.unfunded_since is not None and not unfunded]
    return Start(start[:STEP_MOST], reopen[:STEP_MOST]) if start or reopen else None


def _runs(cluster: Cluster) -> bool:
    """A paused cluster costs nothing, and is not resumed without credit; a reserved one is paid for."""
    spec = cluster.spec
    return spec.billing in METERED and spec.unfunded_since is None and not spec.paused


def surplus(cluster: Cluster) -> int:
    """Workers beyond those that a contract pays for."""
    spec = cluster.spec
    if spec.billing in METERED or spec.reserved_workers is None:
        return 0
    return max(0, spec.workers - spec.reserved_workers)


def _kept(volume: Volume) -> bool:
    """One that is to be deleted costs money too, as long as a cluster has it mounted."""
    return volume.phase is VolumePhase.AVAILABLE


def _end(ward: Ward, terms: Terms, now: Instant) -> End | None:
    """Only what has no credit ends; a spent budget is a pause until the next month."""
    if ward.funding is None or ward.funding.state is not FundingState.UNFUNDED:
        return None
    over = ward.funding.since + terms.grace_ms
    clusters = [c for c in ward.clusters if _since(c.spec.unfunded_since, terms, now) and now >= over]
    volumes = [
        v for v in ward.volumes if _since(v.unfunded_since, terms, now) and now >= over and v.delete_wished_at is None
    ]
    return End(clusters[:STEP_MOST], volumes[:STEP_MOST]) if clusters or volumes else None


def _since(stopped: Instant | None, terms: Terms, now: Instant) -> bool:
    return stopped is not None and now >= stopped + terms.grace_ms


# --- when to look again -----------------------------------------------------------------------------------------


def _wait(ward: Ward, terms: Terms, now: Instant) -> WaitUntil:
    """The next instant at which any of the above may come out differently."""
    instants = [(midnight(now) + DAY, "the next day"), *_credit_ends(ward, terms, now), *_budgets_end(ward, now)]
    change = ward.prices.next_change(ward.usages, now)
    if change is not None:
        instants.append((change, "a price changes"))
    stops = [c.spec.unfunded_since for c in ward.clusters] + [v.unfunded_since for v in ward.volumes]
    if ward.funding is not None:
        stops.append(ward.funding.since)
    instants += [(since + terms.grace_ms, "the grace ends") for since in stops if since is not None]
    until, because = min((at, why) for at, why in instants if at > now)
    return WaitUntil(because, until)


def _credit_ends(ward: Ward, terms: Terms, now: Instant) -> list[tuple[Instant, str]]:
    funds = ward.funds(now)
    end = funds.runs_out_at
    if end is None or ward.account.postpaid:
        return []
    if funds.available <= 0:
        return [(now + MINUTE, "what runs to stop")]
    return [(end + 1, "the credit ends"), (end - terms.warning_ms + 1, "the credit ends soon")]


def _budgets_end(ward: Ward, now: Instant) -> list[tuple[Instant, str]]:
    instants: list[tuple[Instant, str]] = []
    for id, budget in ward.budgets.items():
        burn = ward.prices.burn([usage for usage in ward.usages if usage.project_id == id], now)
        left = lasts(burn, budget.monthly_micro - ward.spent.get(id, 0))
        if left is not None:
            instants.append((now + max(left + 1, SECOND), "a budget ends"))
        instants.append((month_of(now)[1], "the next month"))
    return instants

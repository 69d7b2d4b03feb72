"""The proof: charges are serving time times price, plus contracts, to the second; and the books add up.

Reckons everything anew by another road than booking did: serving time from the histories of clusters and nodes (and,
for volumes, from the event log), sums with fractions, books from their entries. Shares no arithmetic with rates.py or
booking.py on purpose: a mistake there must not be repeated here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from muster.contracts.store import Find, Store
from muster.model.base import Instant, N
from muster.model.billing import (
    METERED,
    ON_DEMAND,
    PREEMPTIBLE,
    UNIT_MS,
    Book,
    Contract,
    EntryKind,
    LedgerEntry,
    Usage,
    UsageClass,
)
from muster.model.capacity import Reservation, ReservationKind, ReservationState
from muster.model.catalog import Price
from muster.model.clusters import Cluster, Node, NodeRole
from muster.model.events import Event

PAGE: Final = 1_000
PROBLEMS_MOST: Final = 100
SERVING_PHASES: Final = frozenset({"ready", "degraded"})
SERVING_NODES: Final = frozenset({"running", "draining"})


class Stretch(NamedTuple):
    """So much served from one instant to another; `until` None = it still does."""

    since: Instant
    until: Instant | None
    quantity: int


@dataclass
class Verdict:
    problems: list[str] = field(default_factory=list)
    entries: int = 0
    intervals: int = 0
    clusters: int = 0
    volumes: int = 0
    contracts: int = 0
    charged_micro: int = 0

    @property
    def holds(self) -> bool:
        return not self.problems

    def wrong(self, sentence: str) -> None:
        if len(self.problems) < PROBLEMS_MOST:
            self.problems.append(sentence)


async def verify(store: Store) -> Verdict:
    verdict = Verdict()
    entries = [entry async for entry in _all(store, LedgerEntry)]
    usages = [usage async for usage in _all(store, Usage)]
    verdict.entries, verdict.intervals = len(entries), len(usages)
    await _books_add_up(store, entries, verdict)
    await _charges_are_usage_times_price(store, entries, usages, verdict)
    await _contracts_are_paid(store, entries, verdict)
    await _promises_are_paid(store, entries, verdict)
    by_resource: dict[str, list[Usage]] = defaultdict(list)
    for usage in usages:
        by_resource[usage.resource_id].append(usage)
    await _clusters_served(store, by_resource, usages, verdict)
    await _volumes_served(store, by_resource, verdict)
    return verdict


async def _all(store: Store, noun: type[N]) -> AsyncIterator[N]:
    after: tuple[str, str] | None = None
    while True:
        page = await store.find(Find(noun, after=after, limit=PAGE))
        for one in page:
            yield one
        if len(page) < PAGE:
            return
        after = (page[-1].id, page[-1].id)


# --- books ------------------------------------------------------------------------------------------------------


async def _books_add_up(store: Store, entries: Sequence[LedgerEntry], verdict: Verdict) -> None:
    sums: dict[str, int] = defaultdict(int)
    for entry in entries:
        sums[entry.debit] -= entry.micro
        sums[entry.credit] += entry.micro
    if sum(sums.values()):
        verdict.wrong(f"the ledger does not balance: its legs differ by {sum(sums.values())}")
    kept = {book.id: book.micro for book in await store.find(Find(Book))}
    for id in sorted({*sums, *kept}):
        if sums.get(id, 0) != kept.get(id, 0):
            verdict.wrong(f"book {id} says {kept.get(id, 0)} and its entries add up to {sums.get(id, 0)}")


async def _contracts_are_paid(store: Store, entries: Sequence[LedgerEntry], verdict: Verdict) -> None:
    paid: dict[str, int] = defaultdict(int)
    back: dict[str, int] = defaultdict(int)
    for entry in entries:
        if entry.kind is EntryKind.CONTRACT:
            paid[entry.id.removeprefix("contract:")] += entry.micro
            verdict.charged_micro += entry.micro
        elif entry.kind is EntryKind.REFUND:
            back[entry.id.removeprefix("refund:")] += entry.micro
            verdict.charged_micro -= entry.micro
    async for contract in _all(store, Contract):
        verdict.contracts += 1
        if back.pop(contract.id, contract.micro) != contract.micro:
            verdict.wrong(f"contract {contract.id} costs {contract.micro} and was paid back otherwise")
        if paid.pop(contract.id, 0) != contract.micro:
            verdict.wrong(f"contract {contract.id} costs {contract.micro} and was not paid so")
    for id in (*paid, *back):
        verdict.wrong(f"there is no contract {id}, but it was paid, or paid back")


async def _promises_are_paid(store: Store, entries: Sequence[LedgerEntry], verdict: Verdict) -> None:
    """Every promise has its contract, at the price it was given; back goes only what was not begun or not kept."""
    back = {entry.id.removeprefix("refund:") for entry in entries if entry.kind is EntryKind.REFUND}
    contracts = {contract.id: contract async for contract in _all(store, Contract)}
    async for promise in _all(store, Reservation):
        if promise.kind is ReservationKind.QUOTE:
            continue
        contract = contracts.get(promise.id) or contracts.get(promise.cluster_id or "")
        if contract is None:
            verdict.wrong(f"reservation {promise.id} is {promise.state} and has no contract")
            continue
        if contract.id == promise.id and promise.price_micro not in (None, contract.micro):
            verdict.wrong(f"reservation {promise.id} was priced {promise.price_micro}, and paid {contract.micro}")
        cluster = await store.get(Cluster, promise.cluster_id) if promise.cluster_id else None
        if contract.id in back and not _given_back(promise, cluster):
            verdict.wrong(f"contract {contract.id} was paid back, though its promise was begun and kept")
        if contract.id not in back and contract.micro and _given_back(promise, cluster):
            verdict.wrong(f"contract {contract.id} was not paid back, though its promise was not begun or not kept")


def _given_back(promise: Reservation, cluster: Cluster | None) -> bool:
    if cluster is None:
        return promise.state is ReservationState.CANCELLED and promise.updated_at < promise.starts_at
    phases = [moved.phase for moved in cluster.status.history]
    return "failed" in phases or ("deleting" in phases and "network" not in phases)


# --- charges ----------------------------------------------------------------------------------------------------


async def _charges_are_usage_times_price(
    store: Store, entries: Sequence[LedgerEntry], usages: Sequence[Usage], verdict: Verdict
) -> None:
    paid: dict[str, int] = defaultdict(int)
    for entry in entries:
        if entry.usage_id is not None:
            paid[entry.usage_id] += entry.micro if entry.kind is EntryKind.USAGE else -entry.micro
    prices = await store.find(Find(Price))
    for usage in usages:
        until = usage.booked_until if usage.closed_at is None else usage.closed_at
        cost = _cost(usage, until, prices)
        had = paid.pop(usage.id, 0)
        verdict.charged_micro += had
        if had != cost or usage.booked_micro != cost:
            verdict.wrong(
                f"{usage.resource_name}: {usage.quantity} x {usage.item} {usage.usage_class} from {usage.opened_at} "
                f"to {until} costs {cost}; {had} is in the ledger, {usage.booked_micro} noted"
            )
    for id in paid:
        verdict.wrong(f"there is no interval {id}, but it was charged")


def _cost(usage: Usage, until: Instant, prices: Iterable[Price]) -> int:
    """Second by second, so to say: each price for as long as it was the last one whose time had come."""
    if usage.usage_class is not UsageClass.SERVING or usage.billing not in METERED:
        return 0
    timed = [price for price in prices if (price.item, price.region) == (usage.item, usage.region)]
    timed = [price for price in timed if price.unit in UNIT_MS and price.committed_days == 0]
    mine = [price for price in timed if price.billing == usage.billing]
    if usage.billing == PREEMPTIBLE:  # what others cost, until it has a price of its own
        first = min((price.valid_from for price in mine), default=until)
        mine += [price for price in timed if price.billing == ON_DEMAND and price.valid_from < first]
    mine.sort(key=lambda price: (price.valid_from, price.number, price.id))
    total = Fraction(0)
    for at, price in enumerate(mine):
        ends = min(until, mine[at + 1].valid_from) if at + 1 < len(mine) else until
        lasted = ends - max(price.valid_from, usage.opened_at)
        if lasted > 0:
            total += Fraction(usage.quantity * lasted * price.micro, UNIT_MS[price.unit])
    return int(total)


# --- serving time -----------------------------------------------------------------------------------------------


async def _clusters_served(
    store: Store, by_resource: dict[str, list[Usage]], usages: Sequence[Usage], verdict: Verdict
) -> None:
    metered_from = min((usage.opened_at for usage in usages), default=None)
    async for cluster in _all(store, Cluster):
        mine = by_resource.get(cluster.id, [])
        if not mine and (metered_from is None or cluster.created_at < metered_from):
            continue  # older than the meter
        verdict.clusters += 1
        nodes = await store.find(Find(Node, equals={"cluster_id": cluster.id}))
        since = min((usage.opened_at for usage in mine), default=cluster.created_at)
        lived, metered = _clipped(_lived(cluster, nodes), since), _metered(mine)
        if lived != metered:
            verdict.wrong(f"cluster {cluster.name} served {_told(lived)} and was metered {_told(metered)}")


def _lived(cluster: Cluster, nodes: Sequence[Node]) -> list[Stretch]:
    """How many workers served, from the histories alone."""
    changes: list[tuple[Instant, int, str, str]] = [
        (moved.at, 0, "", moved.phase) for moved in cluster.status.history
    ]
    for node in nodes:
        if node.role is NodeRole.WORKER:
            changes += [(moved.at, 1, node.id, moved.phase) for moved in node.history]
    changes.sort(key=lambda change: change[0])
    phase, serving = "", set[str]()
    levels: list[tuple[Instant, int]] = []
    for at, _, node_id, now in changes:
        if not node_id:
            phase = now
        elif now in SERVING_NODES:
            serving.add(node_id)
        else:
            serving.discard(node_id)
        levels.append((at, len(serving) if phase in SERVING_PHASES else 0))
    return _stretches(levels)


def _metered(usages: Sequence[Usage]) -> list[Stretch]:
    levels: dict[Instant, int] = defaultdict(int)
    for usage in usages:
        if usage.usage_class is UsageClass.SERVING:
            levels[usage.opened_at] += usage.quantity
            if usage.closed_at is not None:
                levels[usage.closed_at] -= usage.quantity
    so_far, running = 0, []
    for at in sorted(levels):
        so_far += levels[at]
        running.append((at, so_far))
    return _stretches(running)


def _stretches(levels: Sequence[tuple[Instant, int]]) -> list[Stretch]:
    """Levels at instants as stretches: of several at one instant the last counts, nothing is no stretch."""
    last: dict[Instant, int] = dict(levels)
    found: list[Stretch] = []
    level, since = 0, 0
    for at in sorted(last):
        if last[at] == level:
            continue
        if level:
            found.append(Stretch(since, at, level))
        level, since = last[at], at
    return [*found, Stretch(since, None, level)] if level else found


def _clipped(stretches: Sequence[Stretch], since: Instant) -> list[Stretch]:
    return [
        stretch._replace(since=max(stretch.since, since))
        for stretch in stretches
        if stretch.until is None or stretch.until > since
    ]


async def _volumes_served(store: Store, by_resource: dict[str, list[Usage]], verdict: Verdict) -> None:
    """Volumes keep no history of their own; those whose whole story is still in the event log are held against it."""
    stories: dict[str, list[Event]] = defaultdict(list)
    after = 0
    while page := await store.events(after=after, limit=PAGE, kind="volume"):
        for event in page:
            stories[event.resource_id].append(event)
        after = page[-1].seq
    for id, story in stories.items():
        if story[0].type != "volume.created" or id not in by_resource:
            continue
        verdict.volumes += 1
        lived, metered = _stretches(_volume_levels(story)), _metered(by_resource[id])
        if lived != metered:
            verdict.wrong(f"volume {id} served {_told(lived)} and was metered {_told(metered)}")


def _volume_levels(story: Sequence[Event]) -> list[tuple[Instant, int]]:
    levels: list[tuple[Instant, int]] = []
    unfunded = False
    for event in story:
        if "actual_gib" not in event.data:
            continue
        unfunded = event.data.get("unfunded", unfunded)
        serves = event.data["phase"] == "available" and not unfunded
        levels.append((event.at, event.data["actual_gib"] if serves else 0))
    return levels


def _told(stretches: Sequence[Stretch]) -> str:
    return ", ".join(f"{s.quantity} from {s.since} to {s.until or 'now'}" for s in stretches) or "nothing"

"""From usage to entries: what is booked when an interval closes, when a price changed and once a day. Pure.

*Laws.* Entries are never booked per minute. Whatever is booked of one interval adds up to what it costs, to the
micro-unit: each entry is the difference of the charge up to its end and what was booked before. An entry covers one
UTC day and one price. Its id is the interval's and a count, so the same booking twice is refused by the database.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from muster.contracts.store import Insert, Op, Replace
from muster.core.billing.rates import PriceBook, midnight
from muster.model.base import DAY, Instant, changed
from muster.model.billing import (
    CASH,
    OVERRUN,
    REVENUE,
    Contract,
    EntryKind,
    LedgerEntry,
    Usage,
    account_book,
)


def booked(usage: Usage, prices: PriceBook, until: Instant, now: Instant) -> tuple[Usage, list[LedgerEntry]]:
    """The interval with everything up to `until` booked, and the entries that do so."""
    entries: list[LedgerEntry] = []
    if not usage.charged or until <= usage.booked_until:
        usage = _take_back(usage, prices, until, now, entries)
    else:
        for piece in prices.pieces(usage, usage.booked_until, until):
            for since, end in _by_day(piece.since, piece.until):
                micro = piece.price.micro if piece.price is not None else 0
                usage = _book_to(usage, prices, since, end, micro, now, entries)
    return replace(usage, booked_until=until), entries


def _take_back(usage: Usage, prices: PriceBook, until: Instant, now: Instant, entries: list[LedgerEntry]) -> Usage:
    """A phase may be recorded as having ended a moment before the last booking: what was too much goes back."""
    return _book_to(usage, prices, until, until, 0, now, entries) if until < usage.booked_until else usage


def _book_to(
    usage: Usage,
    prices: PriceBook,
    since: Instant,
    until: Instant,
    price_micro: int,
    now: Instant,
    entries: list[LedgerEntry],
) -> Usage:
    micro = prices.charge(usage, until) - usage.booked_micro
    if micro == 0:
        return usage
    books = (account_book(usage.account_id), REVENUE)
    debit, credit = books if micro > 0 else reversed(books)
    entries.append(
        LedgerEntry(
            id=f"{usage.id}.{usage.bookings + 1}",
            account_id=usage.account_id,
            project_id=usage.project_id,
            kind=EntryKind.USAGE if micro > 0 else EntryKind.CORRECTION,
            debit=debit,
            credit=credit,
            micro=abs(micro),
            at=until,
            since=since,
            usage_id=usage.id,
            resource_id=usage.resource_id,
            resource_name=usage.resource_name,
            item=usage.item,
            quantity=usage.quantity,
            price_micro=price_micro,
            created_at=now,
        )
    )
    return replace(usage, bookings=usage.bookings + 1, booked_micro=usage.booked_micro + micro)


def _by_day(since: Instant, until: Instant) -> list[tuple[Instant, Instant]]:
    days = range(midnight(since) + DAY, until, DAY)
    cuts = [since, *days, until]
    return [(start, end) for start, end in itertools.pairwise(cuts) if end > start]


def closing_ops(usage: Usage, prices: PriceBook, at: Instant, now: Instant) -> list[Op]:
    """An interval ends: its last entries, and the row without its open key."""
    ended = max(at, usage.opened_at)
    last, entries = booked(usage, prices, ended, now)
    return [Replace(changed(last, closed_at=ended, open_key=None)), *(Insert(entry) for entry in entries)]


def booking_ops(usages: Sequence[Usage], prices: PriceBook, until: Sequence[Instant], now: Instant) -> list[Op]:
    """Intervals that go on, booked up to a boundary behind them."""
    ops: list[Op] = []
    for usage, end in zip(usages, until, strict=True):
        later, entries = booked(usage, prices, end, now)
        ops += (Replace(changed(later)), *(Insert(entry) for entry in entries))
    return ops


def due_until(usage: Usage, prices: PriceBook, now: Instant) -> Instant:
    """Up to where an open interval should be booked by now: the last midnight, or the last change of its price."""
    return max(midnight(now), prices.last_change(usage, now), usage.booked_until)


def top_up_entry(id: str, account_id: str, micro: int, memo: str, by: str, at: Instant) -> LedgerEntry:
    return LedgerEntry(
        id=id,
        account_id=account_id,
        kind=EntryKind.TOP_UP,
        debit=CASH,
        credit=account_book(account_id),
        micro=micro,
        at=at,
        memo=memo,
        booked_by=by,
        created_at=at,
    )


def overrun_entry(id: str, account_id: str, micro: int, at: Instant) -> LedgerEntry:
    """What ran on while nobody could stop it is given back to the account, at the operator's cost."""
    return LedgerEntry(
        id=id,
        account_id=account_id,
        kind=EntryKind.OVERRUN,
        debit=OVERRUN,
        credit=account_book(account_id),
        micro=micro,
        at=at,
        memo="ran on after the credit had ended, while nobody could stop it",
        created_at=at,
    )


def book_contract(contract: Contract, *, by: str = "system") -> list[Op]:
    """Capacity paid for in advance: the contract and the one entry that pays it, for the batch that promises it.

    Whoever promises asks the purse first; the entry's id is the contract's, so one promise is never paid twice.
    """
    ops: list[Op] = [Insert(contract)]
    if contract.micro > 0:
        entry = LedgerEntry(
            id=f"contract:{contract.id}",
            account_id=contract.account_id,
            project_id=contract.project_id,
            kind=EntryKind.CONTRACT,
            debit=account_book(contract.account_id),
            credit=REVENUE,
            micro=contract.micro,
            at=contract.created_at,
            resource_id=contract.resource_id,
            memo=contract.memo,
            booked_by=by,
            created_at=contract.created_at,
        )
        ops.append(Insert(entry))
    return ops


def refund_entry(contract: Contract, because: str, at: Instant) -> LedgerEntry:
    """A promise that was not kept, or not begun, is paid back, whole; once, for its id is the contract's."""
    return LedgerEntry(
        id=f"refund:{contract.id}",
        account_id=contract.account_id,
        project_id=contract.project_id,
        kind=EntryKind.REFUND,
        debit=REVENUE,
        credit=account_book(contract.account_id),
        micro=contract.micro,
        at=at,
        resource_id=contract.resource_id,
        memo=f"{because}: {contract.memo}",
        created_at=at,
    )

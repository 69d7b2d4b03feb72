"""How an account stands: what is in its book, what has accrued since, how fast it is spent and until when it lasts.

Leans on the store's contract. *Law.* A balance is computed, never kept: the ledger minus what open intervals accrued.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from muster.contracts.store import Find, Store
from muster.core.billing.rates import PriceBook, lasts, per_hour, spent
from muster.model.base import DAY, MINUTE, SECOND, Instant
from muster.model.billing import Book, EntryKind, LedgerEntry, Usage, account_book
from muster.model.catalog import Price

PAGE: Final = 1_000
LAST_ID: Final = "\U0010ffff"
"""After every id: a search that begins behind it begins with the next instant."""


@dataclass(frozen=True, slots=True)
class Funds:
    """An account's money at one instant. All sums in micro-units."""

    ledger: int
    accrued: int
    burn: int  # a rate; see rates.py
    now: Instant

    @property
    def available(self) -> int:
        return self.ledger - self.accrued

    @property
    def hourly(self) -> int:
        return per_hour(self.burn)

    @property
    def minute(self) -> int:
        return spent(self.burn, MINUTE)

    @property
    def runs_out_at(self) -> Instant | None:
        left = lasts(self.burn, self.available)
        return None if left is None else self.now + left


def funds_of(ledger: int, usages: Sequence[Usage], prices: PriceBook, now: Instant) -> Funds:
    accrued = sum(prices.owed(usage, now) for usage in usages)
    return Funds(ledger, accrued, prices.burn(usages, now), now)


async def ledger_of(store: Store, account_id: str) -> int:
    book = await store.get(Book, account_book(account_id))
    return 0 if book is None else book.micro


async def open_of_account(store: Store, account_id: str) -> list[Usage]:
    query = Find(Usage, equals={"account_id": account_id, "closed_at": None}, order="opened_at")
    return await store.find(query)


async def price_book(store: Store) -> PriceBook:
    return PriceBook(await store.find(Find(Price)))


async def load_funds(store: Store, account_id: str, now: Instant) -> Funds:
    usages = await open_of_account(store, account_id)
    prices = await price_book(store) if usages else PriceBook(())
    return funds_of(await ledger_of(store, account_id), usages, prices, now)


async def entries_between(store: Store, by: str, id: str, since: Instant, until: Instant) -> list[LedgerEntry]:
    """The entries of an account, a project or a resource (`by` names the field) owed within these instants."""
    found: list[LedgerEntry] = []
    after: tuple[int, str] = (since, LAST_ID)
    while True:
        query = Find(LedgerEntry, equals={by: id}, order="at", after=after, limit=PAGE)
        page = await store.find(query)
        found += [entry for entry in page if entry.at <= until]
        if len(page) < PAGE or page[-1].at > until:
            return found
        after = (page[-1].at, page[-1].id)


SPENT: Final = {EntryKind.USAGE: 1, EntryKind.CONTRACT: 1, EntryKind.CORRECTION: -1, EntryKind.REFUND: -1}


async def spent_by_project(
    store: Store, project_id: str, usages: Sequence[Usage], prices: PriceBook, now: Instant
) -> int:
    """What a project has spent in this calendar month: booked, and accrued since."""
    since, _ = month_of(now)
    entries = await entries_between(store, "project_id", project_id, since, now)
    booked = sum(SPENT.get(entry.kind, 0) * entry.micro for entry in entries)
    return booked + sum(prices.owed(usage, now) for usage in usages if usage.project_id == project_id)


def month_of(at: Instant) -> tuple[Instant, Instant]:
    """The first instant of the UTC month that `at` is in, and of the next one."""
    day = datetime.fromtimestamp(at / SECOND, UTC)
    first = datetime(day.year, day.month, 1, tzinfo=UTC)
    begins = int(first.timestamp()) * SECOND
    return begins, begins + monthrange(day.year, day.month)[1] * DAY

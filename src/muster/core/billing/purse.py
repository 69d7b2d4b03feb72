"""Can this be paid for? Asked at admission, between quota and placement, for whatever will cost money.

Leans on the store's contract. *Laws.* A pre-paid account needs credit for the first 24 hours of what it asks for; a
post-paid one does not. A project with a budget needs room in it, whoever pays. A refusal says all its figures. That
an account is post-paid and unbudgeted is believed for a moment, since every create asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from muster.contracts.clock import Clock
from muster.contracts.metering import Agreement, Want
from muster.contracts.store import Expect, Find, Op, Store
from muster.core.billing.booking import book_contract
from muster.core.billing.funds import (
    Funds,
    funds_of,
    ledger_of,
    open_of_account,
    price_book,
    spent_by_project,
)
from muster.core.billing.rates import PriceBook, share, spent
from muster.errors import InsufficientBalance, QuotaExceeded
from muster.model.accounts import Account, Project
from muster.model.base import DAY, SECOND, Instant
from muster.model.billing import CURRENCY, METERED, MICRO, Book, Budget, Contract, Usage, account_book
from muster.model.catalog import Price

FIRST: Final = DAY
BELIEVED: Final = 2 * SECOND


class HousePurse:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._free: dict[str, Instant] = {}  # project -> until when it is believed to be post-paid and unbudgeted

    async def require(self, project: Project, wants: Sequence[Want]) -> None:
        now = self._clock.now()
        if self._free.get(project.id, 0) > now:
            return
        account = await self._store.get(Account, project.account_id)
        budget = await self._store.get(Budget, project.id)
        postpaid = account is None or account.postpaid
        if postpaid and budget is None:
            self._free = {project.id: now + BELIEVED}
            return
        prices = await price_book(self._store)
        cost = first_cost(prices, wants, now)
        usages = await open_of_account(self._store, project.account_id)
        if not postpaid:
            await self._require_credit(project, cost, usages, prices, now)
        if budget is not None:
            await self._require_budget(project, budget, cost, usages, prices, now)

    async def agree(self, project: Project, agreement: Agreement, by: str) -> Sequence[Op]:
        """The contract and its one entry; the book is expected unchanged, so credit is not promised twice."""
        now = self._clock.now()
        account = await self._store.get(Account, project.account_id)
        micro = await self._agreed(agreement, now) if agreement.micro is None else agreement.micro
        guard: list[Op] = []
        if account is not None and not account.postpaid:
            book = await self._store.get(Book, account_book(account.id))
            guard = [] if book is None else [Expect(Book, book.id, book.version)]
            usages = await open_of_account(self._store, account.id)
            funds = funds_of(book.micro if book else 0, usages, await price_book(self._store), now)
            _require(funds, micro, f"it costs {money(micro)}")
        await self._within_budget(project, micro, now)
        contract = Contract(
            id=agreement.id,
            account_id=project.account_id,
            project_id=project.id,
            resource_id=agreement.resource_id,
            micro=micro,
            starts_at=agreement.starts_at,
            ends_at=agreement.ends_at,
            memo=agreement.memo,
            created_at=now,
        )
        return [*guard, *book_contract(contract, by=by)]

    async def _within_budget(self, project: Project, micro: int, now: Instant) -> None:
        """A contract is spent in the month in which it is agreed."""
        budget = await self._store.get(Budget, project.id)
        if budget is not None:
            usages = await open_of_account(self._store, project.account_id)
            prices = await price_book(self._store)
            await self._require_budget(project, budget, micro, usages, prices, now, says=f"it costs {money(micro)}")

    async def _agreed(self, agreement: Agreement, now: Instant) -> int:
        want = agreement.want
        prices = await self._store.find(Find(Price, equals={"item": want.item, "region": want.region}))
        return term_cost(prices, want, agreement.ends_at - agreement.starts_at, now)

    async def _require_credit(
        self, project: Project, cost: int, usages: Sequence[Usage], prices: PriceBook, now: Instant
    ) -> None:
        funds = funds_of(await ledger_of(self._store, project.account_id), usages, prices, now)
        _require(funds, cost, f"the first 24 hours cost {money(cost)}")

    async def _require_budget(
        self,
        project: Project,
        budget: Budget,
        cost: int,
        usages: Sequence[Usage],
        prices: PriceBook,
        now: Instant,
        says: str = "",
    ) -> None:
        so_far = await spent_by_project(self._store, project.id, usages, prices, now)
        left = budget.monthly_micro - so_far
        if cost == 0 or cost <= left:
            return
        details: dict[str, Any] = {
            "currency": CURRENCY,
            "budget_micro": budget.monthly_micro,
            "spent_micro": so_far,
            "left_micro": left,
            "needed_micro": cost,
        }
        raise QuotaExceeded(
            f"{says or f'the first 24 hours cost {money(cost)}'}, and the budget of project {project.name} has "
            f"{money(left)} left this month",
            hint="raise the budget, ask for less, or wait for the next month",
            details=details,
        )


def _require(funds: Funds, cost: int, says: str) -> None:
    if cost == 0 or funds.available >= cost:
        return
    raise InsufficientBalance(
        f"{says}, and the account has {money(funds.available)}",
        hint=f"top up at least {money(cost - funds.available)}, or ask for less",
        details={
            "currency": CURRENCY,
            "needed_micro": cost,
            "balance_micro": funds.available,
            "missing_micro": cost - funds.available,
            "accrued_micro": funds.accrued,
            "spent_per_hour_micro": funds.hourly,
        },
    )


def first_cost(prices: PriceBook, wants: Sequence[Want], now: Instant) -> int:
    """What these wishes cost in their first 24 hours; what is paid for by contract is asked for elsewhere."""
    rates = (
        want.quantity * share(prices.at(want.item, want.region, want.billing, now))
        for want in wants
        if want.billing in METERED
    )
    return spent(sum(rates), FIRST)


def term_cost(prices: Sequence[Price], want: Want, lasts_ms: int, now: Instant) -> int:
    """A term of just so many days has a price of its own; else so many hours are paid for, as they are called."""
    held = [price for price in prices if price.valid_from <= now]
    held.sort(key=lambda price: (price.valid_from, price.number, price.id), reverse=True)
    for price in held:
        if price.unit == "term" and price.billing == want.billing and price.committed_days * DAY == lasts_ms:
            return want.quantity * price.micro
    for billing in (want.billing, "on_demand"):
        for price in held:
            if price.unit == "node_hour" and price.billing == billing and not price.committed_days:
                return spent(want.quantity * share(price), lasts_ms)
    return 0


def money(micro: int) -> str:
    """For people: two digits, downwards, so that nobody is promised a cent too much."""
    cents = micro * 100 // MICRO
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02d} {CURRENCY}"

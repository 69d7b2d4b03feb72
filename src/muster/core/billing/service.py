"""Money as people ask about it: balance, statement, top-up, budgets, proof.

Leans on accounts (rights, audit) and the store's contract. Never meets a driver. *Laws.* Tenants see their own
account and their own project's statement; others' do not exist. Only the operator tops up. Every write
leaves an audit line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from muster.contracts.clock import Clock, Entropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Op, Remove, Replace, Store, Wake
from muster.core.accounts.audit import audit
from muster.core.accounts.rights import own_project, require_operator, require_write, sees
from muster.core.billing.booking import top_up_entry
from muster.core.billing.funds import (
    Funds,
    entries_between,
    funds_of,
    ledger_of,
    month_of,
    open_of_account,
    price_book,
    spent_by_project,
)
from muster.core.billing.metering import KIND
from muster.core.billing.purse import money
from muster.core.billing.statements import BY, Line, lines_of
from muster.core.billing.verify import Verdict, verify
from muster.core.guarded import guarded, insert, require_version, submit
from muster.core.idempotency import Once
from muster.core.paging import Page, cursor_of, page_limit, read_cursor
from muster.errors import Invalid, NotFound
from muster.model.accounts import Account, Actor, Project
from muster.model.base import DAY, Instant, changed
from muster.model.billing import Budget, EntryKind, Funding, FundingState, LedgerEntry
from muster.model.catalog import Price

TOP_UP_MICRO_MAX: Final = 10**15
STATEMENT_DAYS_MAX: Final = 400
MEMO_CHARS_MAX: Final = 255
CREDITS: Final = (EntryKind.TOP_UP, EntryKind.OVERRUN)
"""What is paid in or given, rather than charged or taken back."""


@dataclass(frozen=True, slots=True)
class Balance:
    """How an account stands now."""

    account: Account
    funds: Funds
    state: FundingState
    since: Instant | None


@dataclass(frozen=True, slots=True)
class BudgetView:
    budget: Budget
    spent_micro: int


@dataclass(frozen=True, slots=True)
class Statement:
    """`charged_micro` is what was used or agreed on, `credited_micro` what was paid in or given back."""

    lines: list[Line]
    since: Instant
    until: Instant

    @property
    def charged_micro(self) -> int:
        return sum(line.micro for line in self.lines if line.kind not in CREDITS)

    @property
    def credited_micro(self) -> int:
        return -sum(line.micro for line in self.lines if line.kind in CREDITS)


class BillingService:
    def __init__(self, store: Store, clock: Clock, entropy: Entropy) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy

    # --- look -----------------------------------------------------------------------------------------------------

    async def balance(self, actor: Actor, account_id: str | None = None) -> Balance:
        account = await self._account(actor, account_id)
        usages = await open_of_account(self._store, account.id)
        prices = await price_book(self._store)
        funds = funds_of(await ledger_of(self._store, account.id), usages, prices, self._clock.now())
        known = await self._store.get(Funding, account.id)
        state = known.state if known is not None else FundingState.FUNDED
        return Balance(account, funds, state, known.since if known is not None else None)

    async def statement(
        self,
        actor: Actor,
        *,
        account_id: str | None = None,
        project_id: str | None = None,
        resource_id: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        by: str = "day",
    ) -> Statement:
        """Of an account (operator), a project, or one cluster or volume; of this month unless told otherwise."""
        now = self._clock.now()
        begins, ends = month_of(now)[0] if since is None else since, now if until is None else until
        _check_period(begins, ends, by)
        if actor.is_operator and project_id is None:
            account = await self._account(actor, account_id)
            field, id = "account_id", account.id
        else:
            field, id = "project_id", own_project(actor, project_id)
            account = await self._account_of(id)
        entries = await entries_between(self._store, field, id, begins, ends)
        usages = [u for u in await open_of_account(self._store, account.id) if getattr(u, field) == id]
        if resource_id is not None:
            entries = [entry for entry in entries if entry.resource_id == resource_id]
            usages = [usage for usage in usages if usage.resource_id == resource_id]
        open_now = usages if begins <= now <= ends else []
        return Statement(lines_of(entries, open_now, await price_book(self._store), now, by), begins, ends)

    async def entries(
        self, actor: Actor, *, account_id: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> Page[LedgerEntry]:
        """The ledger itself, newest first: the operator's of any account, a tenant's of its own project."""
        most = page_limit(limit)
        equals: dict[str, Any] = (
            {"account_id": (await self._account(actor, account_id)).id}
            if actor.is_operator
            else {"project_id": own_project(actor, None)}
        )
        found = await self._store.find(
            Find(
                LedgerEntry,
                equals=equals,
                order="at",
                descending=True,
                after=read_cursor(cursor),
                limit=most + 1,
            )
        )
        more = len(found) > most
        return Page(found[:most], cursor_of(found[most - 1].at, found[most - 1].id) if more else None)

    async def prices(self, *, region: str | None = None, at: Instant | None = None) -> list[Price]:
        """Every price that holds now or will, in order."""
        now = self._clock.now() if at is None else at
        found = await self._store.find(Find(Price, equals={} if region is None else {"region": region}))
        found.sort(
            key=lambda price: (price.item, price.region, price.billing, price.committed_days, price.valid_from)
        )
        later: dict[tuple[str, str, str, int], Instant] = {}
        for price in found:
            if price.valid_from <= now:
                later[_what(price)] = price.valid_from
        return [price for price in found if price.valid_from >= later.get(_what(price), 0)]

    async def verify(self, actor: Actor) -> Verdict:
        require_operator(actor)
        return await verify(self._store)

    # --- pay ------------------------------------------------------------------------------------------------------

    async def top_up(
        self, actor: Actor, account_id: str, micro: int, *, memo: str = "", once: Once | None = None
    ) -> LedgerEntry:
        """Credit for an account. What had stopped for want of it comes back by itself."""
        require_operator(actor)
        if not 0 < micro <= TOP_UP_MICRO_MAX:
            raise Invalid("a top-up is more than nothing", field="micro", hint="millionths of the currency")
        if len(memo) > MEMO_CHARS_MAX:
            raise Invalid(f"memo has at most {MEMO_CHARS_MAX} characters", field="memo")
        account = await self._account(actor, account_id)
        now = self._clock.now()
        entry = top_up_entry(self._entropy.uuid(), account.id, micro, memo, actor.name, now)
        event = audit(
            actor,
            "account",
            "topped_up",
            account,
            at=now,
            message=f"{money(micro)} for account {account.name}",
            data={"micro": micro, "entry_id": entry.id},
        )
        wake = Wake(KIND, account.id, now)
        return await insert(self._store, Step.BILLING_WRITE, entry, [event], also=[wake], once=once, scope=account.id)

    # --- budgets --------------------------------------------------------------------------------------------------

    async def set_budget(
        self, actor: Actor, project_id: str, monthly_micro: int, *, if_version: int | None = None
    ) -> Budget:
        require_write(actor)
        if not 0 <= monthly_micro <= TOP_UP_MICRO_MAX:
            raise Invalid("a budget is nothing or more", field="monthly_micro", hint="millionths of the currency")
        project = await self._project(actor, project_id)

        async def write() -> Budget:
            now = self._clock.now()
            known = await self._store.get(Budget, project.id)
            if if_version is not None and known is not None:
                require_version(known, if_version)
            budget = (
                changed(known, monthly_micro=monthly_micro, updated_at=now)
                if known is not None
                else Budget(
                    id=project.id,
                    account_id=project.account_id,
                    project_id=project.id,
                    monthly_micro=monthly_micro,
                    created_at=now,
                    updated_at=now,
                )
            )
            message = f"project {project.name} may spend {money(monthly_micro)} a month"
            event = audit(actor, "budget", "set", budget, at=now, message=message)
            op = Insert(budget) if known is None else Replace(budget)
            wake = Wake(KIND, project.account_id, now)
            await submit(self._store, Batch(Step.BILLING_WRITE, [op, wake], [event]))
            return budget

        return await guarded(write)

    async def budgets(self, actor: Actor) -> list[BudgetView]:
        equals = {} if actor.is_operator else {"project_id": own_project(actor, None)}
        return [await self._viewed(budget) for budget in await self._store.find(Find(Budget, equals=equals))]

    async def budget(self, actor: Actor, project_id: str) -> BudgetView:
        return await self._viewed(await self._budget(actor, project_id))

    async def remove_budget(self, actor: Actor, project_id: str, *, if_version: int | None = None) -> None:
        require_write(actor)
        budget = await self._budget(actor, project_id)
        require_version(budget, if_version)
        now = self._clock.now()
        event = audit(actor, "budget", "removed", budget, at=now, message="the project has no budget any more")
        ops: list[Op] = [Remove(Budget, budget.id, budget.version), Wake(KIND, budget.account_id, now)]
        await submit(self._store, Batch(Step.BILLING_WRITE, ops, [event]))

    # --- the small print ------------------------------------------------------------------------------------------

    async def _viewed(self, budget: Budget) -> BudgetView:
        usages = await open_of_account(self._store, budget.account_id)
        prices = await price_book(self._store)
        spent = await spent_by_project(self._store, budget.id, usages, prices, self._clock.now())
        return BudgetView(budget, spent)

    async def _budget(self, actor: Actor, project_id: str) -> Budget:
        project = await self._project(actor, project_id)
        budget = await self._store.get(Budget, project.id)
        if budget is None:
            raise NotFound(f"project {project.name} has no budget")
        return budget

    async def _project(self, actor: Actor, id: str) -> Project:
        project = await self._store.get(Project, id)
        if project is None or not sees(actor, project.id):
            raise NotFound(f"there is no project {id}")
        return project

    async def _account_of(self, project_id: str) -> Account:
        project = await self._store.get(Project, project_id)
        account = await self._store.get(Account, project.account_id) if project is not None else None
        if account is None:
            raise NotFound(f"there is no project {project_id}")
        return account

    async def _account(self, actor: Actor, id: str | None) -> Account:
        wanted = id or actor.account_id
        if wanted is None:
            raise Invalid("this key belongs to no account: name one", field="account_id", hint="pass account_id")
        account = await self._store.get(Account, wanted)
        if account is None or not (actor.is_operator or actor.account_id == account.id):
            raise NotFound(f"there is no account {wanted}")
        return account


def _what(price: Price) -> tuple[str, str, str, int]:
    return price.item, price.region, price.billing, price.committed_days


def _check_period(since: Instant, until: Instant, by: str) -> None:
    if by not in BY:
        raise Invalid(f"a statement is by {', '.join(BY)}", field="by")
    if not 0 <= since <= until:
        raise Invalid("a statement begins before it ends", field="since")
    if until - since > STATEMENT_DAYS_MAX * DAY:
        raise Invalid(f"a statement covers at most {STATEMENT_DAYS_MAX} days", field="since")

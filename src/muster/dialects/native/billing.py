"""Money, on the native wire: balance, statement, ledger, prices, top-ups, budgets, and the proof.

Leans on core's billing. *Laws.* Sums are whole numbers of micro-units; CSV has the same fields as JSON, in the same
words, and nothing in it is read as a formula.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from muster.contracts.http import Call, Reply
from muster.core.billing.service import Balance, BudgetView, Statement
from muster.core.house import House
from muster.dialects.native.asking import if_match, once, paging, read, text
from muster.dialects.native.replies import answer, listing, nothing
from muster.dialects.native.translate import shown, stamp
from muster.dialects.native.views import Price as PriceView
from muster.dialects.native.views import Stamp, View
from muster.dialects.native.wire import Body, Id, Word
from muster.errors import Invalid
from muster.model.base import Instant
from muster.model.billing import CURRENCY, EntryKind, FundingState

CSV: Final = "text/csv"

Micro = Annotated[int, Meta(ge=0, le=10**15)]


class NewTopUp(Body, frozen=True, kw_only=True):
    """`micro` is millionths of the currency."""

    account_id: Id
    micro: Annotated[int, Meta(ge=1, le=10**15)]
    memo: Word = ""


class BudgetBody(Body, frozen=True, kw_only=True):
    """What the project may spend in a calendar month, UTC."""

    monthly_micro: Micro


class AccountBalance(View, frozen=True, kw_only=True):
    """`balance_micro` is `ledger_micro` less what open intervals have accrued."""

    account_id: str
    account: str
    currency: str
    postpaid: bool
    state: FundingState
    since: Stamp | None
    balance_micro: int
    ledger_micro: int
    accrued_micro: int
    micro_per_hour: int
    runs_out_at: Stamp | None
    at: Stamp


class StatementLine(View, frozen=True, kw_only=True):
    """Charges are positive, credits negative. `booked` false: accrued, not in the ledger yet."""

    day: str
    project_id: str
    resource_id: str
    resource_name: str
    kind: EntryKind
    item: str
    unit_seconds: int
    micro: int
    booked: bool


class StatementView(View, frozen=True, kw_only=True):
    currency: str
    since: Stamp
    until: Stamp
    charged_micro: int
    credited_micro: int
    lines: list[StatementLine]


class Entry(View, frozen=True, kw_only=True):
    """`micro` moves from the book `debit` to the book `credit`."""

    id: str
    account_id: str
    project_id: str | None
    kind: EntryKind
    debit: str
    credit: str
    micro: int
    at: Stamp
    since: Stamp | None
    resource_id: str | None
    resource_name: str
    item: str
    quantity: int
    price_micro: int
    memo: str
    booked_by: str
    created_at: Stamp


class BudgetReport(View, frozen=True, kw_only=True):
    project_id: str
    account_id: str
    version: int
    currency: str
    monthly_micro: int
    spent_micro: int
    left_micro: int
    updated_at: Stamp


class Proof(View, frozen=True, kw_only=True):
    holds: bool
    problems: list[str]
    entries: int
    intervals: int
    clusters: int
    volumes: int
    contracts: int
    charged_micro: int
    currency: str


class Billing:
    def __init__(self, house: House) -> None:
        self._billing = house.billing

    async def balance(self, call: Call) -> Reply:
        return answer(balance_view(await self._billing.balance(call.actor, text(call, "account_id"))))

    async def statement(self, call: Call) -> Reply:
        made = await self._made(call)
        return answer(
            StatementView(
                currency=CURRENCY,
                since=stamp(made.since),
                until=stamp(made.until),
                charged_micro=made.charged_micro,
                credited_micro=made.credited_micro,
                lines=statement_lines(made),
            )
        )

    async def statement_csv(self, call: Call) -> Reply:
        return csv_reply(StatementLine.__struct_fields__, statement_lines(await self._made(call)))

    async def _made(self, call: Call) -> Statement:
        return await self._billing.statement(
            call.actor,
            account_id=text(call, "account_id"),
            project_id=text(call, "project_id"),
            resource_id=text(call, "resource_id"),
            since=moment(call, "since"),
            until=moment(call, "until"),
            by=text(call, "by") or "day",
        )

    async def entries(self, call: Call) -> Reply:
        page = await self._billing.entries(call.actor, account_id=text(call, "account_id"), **paging(call))
        return listing((shown(entry, Entry) for entry in page.items), page.next_cursor)

    async def prices(self, call: Call) -> Reply:
        return listing(await self._prices(call))

    async def prices_csv(self, call: Call) -> Reply:
        return csv_reply(PriceView.__struct_fields__, await self._prices(call))

    async def _prices(self, call: Call) -> list[PriceView]:
        return [shown(price, PriceView) for price in await self._billing.prices(region=text(call, "region"))]

    async def top_up(self, call: Call) -> Reply:
        said = read(call, NewTopUp)
        entry = await self._billing.top_up(
            call.actor, said.account_id, said.micro, memo=said.memo, once=once(call, said, "top-up")
        )
        return answer(shown(entry, Entry), status=201)

    async def budgets(self, call: Call) -> Reply:
        return listing(budget_view(one) for one in await self._billing.budgets(call.actor))

    async def budget(self, call: Call) -> Reply:
        found = await self._billing.budget(call.actor, call.params["id"])
        return answer(budget_view(found), tag=found.budget.version)

    async def set_budget(self, call: Call) -> Reply:
        said = read(call, BudgetBody)
        id = call.params["id"]
        await self._billing.set_budget(call.actor, id, said.monthly_micro, if_version=if_match(call))
        return await self.budget(call)

    async def remove_budget(self, call: Call) -> Reply:
        await self._billing.remove_budget(call.actor, call.params["id"], if_version=if_match(call))
        return nothing()

    async def verify(self, call: Call) -> Reply:
        return answer(shown(await self._billing.verify(call.actor), Proof, currency=CURRENCY))


def balance_view(balance: Balance) -> AccountBalance:
    funds = balance.funds
    ends = None if balance.account.postpaid else funds.runs_out_at
    return AccountBalance(
        account_id=balance.account.id,
        account=balance.account.name,
        currency=CURRENCY,
        postpaid=balance.account.postpaid,
        state=balance.state,
        since=None if balance.since is None else stamp(balance.since),
        balance_micro=funds.available,
        ledger_micro=funds.ledger,
        accrued_micro=funds.accrued,
        micro_per_hour=funds.hourly,
        runs_out_at=None if ends is None else later(ends),
        at=stamp(funds.now),
    )


LAST_DAY: Final[Instant] = 253_402_300_799_000  # the year 9999 ends


def later(at: Instant) -> str:
    """Credit may last longer than calendars do."""
    return stamp(min(at, LAST_DAY))


def budget_view(view: BudgetView) -> BudgetReport:
    budget = view.budget
    return BudgetReport(
        project_id=budget.project_id,
        account_id=budget.account_id,
        version=budget.version,
        currency=CURRENCY,
        monthly_micro=budget.monthly_micro,
        spent_micro=view.spent_micro,
        left_micro=budget.monthly_micro - view.spent_micro,
        updated_at=stamp(budget.updated_at),
    )


def moment(call: Call, name: str) -> Instant | None:
    """An instant in RFC 3339, or a day: 2026-11-01."""
    said = text(call, name)
    if said is None:
        return None
    try:
        at = datetime.fromisoformat(said)
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return max(0, int(at.timestamp() * 1_000))
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{name} is no instant", field=name, hint="like 2026-11-01 or 2026-11-01T12:00:00Z") from error


def statement_lines(made: Statement) -> list[StatementLine]:
    return [StatementLine(**{**line._asdict(), "kind": EntryKind(line.kind)}) for line in made.lines]


def csv_reply(fields: Sequence[str], rows: Iterable[msgspec.Struct]) -> Reply:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(fields)
    for row in rows:
        writer.writerow([_cell(getattr(row, field)) for field in fields])
    return Reply(200, written.getvalue().encode(), CSV)


def _cell(value: Any) -> Any:
    """Names are tenants' own; a spreadsheet must not take one for a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value

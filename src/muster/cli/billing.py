"""billing: balance, statements, prices, top-ups, budgets, and the proof that every charge is right."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any, Final

import click

from muster.cli.ending import FAILED, Ended
from muster.cli.show import Column, Thing, emit, facts, table
from muster.cli.verb import Session, Verb, group, project_id, project_option, yes_option

MICRO: Final = 1_000_000
account_option = click.option("--account", help="The account, by name or id; the key's own when not given.")
csv_option = click.option("--csv", "as_csv", is_flag=True, help="As CSV.")


class Money(click.ParamType[int]):
    """An amount in the house's currency: 250, 12.50. Kept as whole micro-units."""

    name = "amount"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            micro = Decimal(str(value)) * MICRO
        except InvalidOperation:
            self.fail(f"{value!r} is no amount; say 250 or 12.50", param, ctx)
        if not micro.is_finite() or micro != micro.to_integral_value() or micro < 0:
            self.fail(f"{value!r} is no amount of whole millionths, nothing or more", param, ctx)
        return int(micro)


MONEY = Money()


def told(micro: int) -> str:
    """Two digits when they say it all, else all six."""
    sign, whole, rest = ("-" if micro < 0 else ""), abs(micro) // MICRO, abs(micro) % MICRO
    digits = f"{rest // 10_000:02d}" if rest % 10_000 == 0 else f"{rest:06d}"
    return f"{sign}{whole:,}.{digits}"


def amount(field: str) -> Any:
    return lambda thing: f"{told(thing[field])} {thing.get('currency', '')}".strip()


BALANCE: Final[list[Column]] = [
    ("ACCOUNT", "account"),
    ("STATE", "state"),
    ("BALANCE", amount("balance_micro")),
    ("LEDGER", amount("ledger_micro")),
    ("ACCRUED", amount("accrued_micro")),
    ("PER HOUR", amount("micro_per_hour")),
    ("RUNS OUT", "runs_out_at"),
    ("POSTPAID", "postpaid"),
]
LINES: Final[list[Column]] = [
    ("DAY", "day"),
    ("KIND", "kind"),
    ("WHAT", "resource_name"),
    ("ITEM", "item"),
    ("UNIT HOURS", lambda line: f"{line['unit_seconds'] / 3600:,.3f}" if line["unit_seconds"] else "-"),
    ("AMOUNT", amount("micro")),
    ("BOOKED", "booked"),
]
PRICES: Final[list[Column]] = [
    ("ITEM", "item"),
    ("REGION", "region"),
    ("BILLING", "billing"),
    ("DAYS", lambda price: price["committed_days"] or "-"),
    ("PRICE", amount("micro")),
    ("PER", "unit"),
    ("FROM", "valid_from"),
]
BUDGETS: Final[list[Column]] = [
    ("PROJECT", "project_id"),
    ("A MONTH", amount("monthly_micro")),
    ("SPENT", amount("spent_micro")),
    ("LEFT", amount("left_micro")),
]


@group("billing", "Balance, statements, prices, top-ups, budgets, and the proof.")
def billing() -> None: ...


def account_id(session: Session, account: str | None) -> str | None:
    return session.client.accounts.find(account)["id"] if account else None


@billing.command("show", cls=Verb)
@account_option
@click.pass_obj
def show(session: Session, account: str | None) -> None:
    """How an account stands, and until when its credit lasts."""
    session.one(session.client.billing.balance(account_id(session, account)), BALANCE)


@billing.command("statement", cls=Verb)
@account_option
@project_option
@click.option("--cluster", help="Only this cluster, by name or id.")
@click.option("--since", help="From this day on: 2026-11-01; the month's first when not given.")
@click.option("--until", help="Up to this day or instant; now when not given.")
@click.option("--by", type=click.Choice(["day", "resource", "project", "entry"]), default="day", show_default=True)
@csv_option
@click.pass_obj
def statement(
    session: Session,
    account: str | None,
    project: str | None,
    cluster: str | None,
    since: str | None,
    until: str | None,
    by: str,
    as_csv: bool,
) -> None:
    """What was charged, day by day, and what has accrued since."""
    asked = {
        "account_id": account_id(session, account),
        "project_id": project_id(session, project),
        "resource_id": session.client.clusters.find(cluster)["id"] if cluster else None,
        "since": since,
        "until": until,
        "by": by,
    }
    if as_csv:
        click.echo(session.client.billing.statement_csv(**asked), nl=False)
        return
    made = session.client.billing.statement(**asked)
    emit(session.output, made, lambda: worded(made))


def worded(made: Thing) -> str:
    lines = [{**line, "currency": made["currency"]} for line in made["lines"]]
    sums: list[Column] = [("CHARGED", amount("charged_micro")), ("CREDITED", amount("credited_micro"))]
    return (table(lines, LINES) if lines else "nothing was charged") + "\n\n" + facts(made, sums)


@billing.command("prices", cls=Verb)
@click.option("--region", help="Only in this region.")
@csv_option
@click.pass_obj
def prices(session: Session, region: str | None, as_csv: bool) -> None:
    """Prices that hold now, and those that are to come."""
    if as_csv:
        click.echo(session.client.billing.prices_csv(region), nl=False)
        return
    session.rows(session.client.billing.prices(region), PRICES, none="no prices")


@billing.command("top-up", cls=Verb, operator=True)
@click.argument("account")
@click.argument("amount", type=MONEY)
@click.option("--memo", default="", help="What for; stands in the ledger.")
@click.pass_obj
def top_up(session: Session, account: str, amount: int, memo: str) -> None:
    """Credit an ACCOUNT with an AMOUNT. What had stopped for want of credit comes back by itself."""
    id = session.client.accounts.find(account)["id"]
    entry = session.client.billing.top_up(id, amount, memo)
    session.say(f"{told(amount)} credited to {account} (entry {entry['id']})")
    session.one(session.client.billing.balance(id), BALANCE)


@billing.command("verify", cls=Verb, operator=True)
@click.pass_obj
def verify(session: Session) -> None:
    """Prove that charges are serving time times price, plus contracts, and that the books add up."""
    proof = session.client.billing.verify()
    emit(session.output, proof, lambda: proven(proof))
    if not proof["holds"]:
        raise Ended(f"{len(proof['problems'])} things do not add up", FAILED)


def proven(proof: Thing) -> str:
    counted = ", ".join(
        f"{proof[what]:,} {what}" for what in ("entries", "intervals", "clusters", "volumes", "contracts")
    )
    if proof["holds"]:
        return f"everything adds up: {told(proof['charged_micro'])} {proof['currency']} charged ({counted})"
    return "\n".join([*proof["problems"], f"checked {counted}"])


@billing.command("budgets", cls=Verb)
@click.pass_obj
def budgets(session: Session) -> None:
    """What projects may spend in a month, and have."""
    session.rows(session.client.billing.budgets(), BUDGETS, none="no budgets")


@billing.command("budget", cls=Verb)
@click.argument("project")
@click.argument("amount", type=MONEY, required=False)
@click.option("--none", "lift", is_flag=True, help="Lift the budget.")
@yes_option
@click.pass_obj
def budget(session: Session, project: str, amount: int | None, lift: bool, yes: bool) -> None:
    """Set what a PROJECT may spend in a calendar month, or lift it with --none."""
    if (amount is None) is not lift:
        raise click.UsageError("say an amount, or --none")
    id = session.client.projects.find(project)["id"]
    if lift:
        session.confirm(f"Lift the budget of {project}?", yes)
        session.client.billing.remove_budget(id)
        session.say(f"{project} has no budget any more")
    elif amount is not None:
        session.one(session.client.billing.set_budget(id, amount), BUDGETS)

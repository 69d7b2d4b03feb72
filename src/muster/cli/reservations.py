"""availability, quote, reservation: capacity in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from muster.cli.nouns import Shown, add_delete, add_show
from muster.cli.show import Column, Thing
from muster.cli.verb import SECONDS, Session, Verb, group, limit_option, project_id, project_option


def price_of(thing: Thing) -> str | None:
    micro = thing.get("price_micro")
    return None if micro is None else f"{micro / 1_000_000:,.2f} {thing['currency']}"


COLUMNS: list[Column] = [
    ("KIND", "kind"),
    ("STATE", "state"),
    ("GPUS", "gpus"),
    ("GPU TYPE", "gpu_type"),
    ("REGION", "region"),
    ("STARTS", "starts_at"),
    ("ENDS", "ends_at"),
    ("PRICE", price_of),
    ("EXPIRES", "expires_at"),
    ("CLUSTER", "cluster_id"),
    ("ID", "id"),
]
QUOTE = Shown("quote", lambda client: client.quotes, COLUMNS)
RESERVATION = Shown("reservation", lambda client: client.reservations, COLUMNS)


@click.command("availability", cls=Verb)
@click.option("--region", help="Only there.")
@click.option("--gpu-type", help="Only of this type.")
@click.option("--days", type=click.IntRange(1, 365), default=60, show_default=True, help="How far to look ahead.")
@click.pass_obj
def availability(session: Session, region: str | None, gpu_type: str | None, days: int) -> None:
    """When could I have it? GPUs that can be had throughout each day."""
    rows = session.client.availability(region=region, gpu_type=gpu_type, days=days)
    columns: list[Column] = [
        ("DAY", lambda row: row["at"][:10]),
        ("REGION", "region"),
        ("GPU TYPE", "gpu_type"),
        ("TO RESERVE", "reservable_gpus"),
        ("ON DEMAND", "on_demand_gpus"),
        ("OF", "total_gpus"),
    ]
    session.rows(rows, columns, none="no GPU hosts")


@group("quote", "Quotes: a start and a price, held for ten minutes, turned into a cluster by id.")
def quote() -> None: ...


@group("reservation", "Reservations: capacity promised for a time.")
def reservation() -> None: ...


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """The options of whoever asks for capacity in time."""
    for option in reversed(
        (
            click.option("--gpus", type=click.IntRange(1), default=8, show_default=True, help="In all."),
            click.option("--gpu-type", default="H100_SXM", show_default=True),
            click.option("--region", help="Where; wherever it can begin first when not given."),
            click.option("--for", "length", type=SECONDS, default="1d", show_default=True, help="How long: 12h, 5d."),
            click.option("--starts-at", help="As 2026-05-01T12:00:00Z; as early as can be when not given."),
            project_option,
        )
    ):
        command = option(command)
    return command


def body(session: Session, flags: dict[str, Any]) -> Thing:
    return {
        "gpus": flags["gpus"],
        "gpu_type": flags["gpu_type"],
        "region": flags["region"],
        "hours": flags["length"] / 3600,
        "starts_at": flags["starts_at"],
        "project_id": project_id(session, flags["project"]),
    }


@quote.command("create", cls=Verb)
@asking
@click.pass_obj
def create_quote(session: Session, /, **flags: Any) -> None:
    """Ask for the earliest start and its price."""
    made = session.client.quotes.create(**body(session, flags))
    session.one(made, COLUMNS)
    session.say(f"accept it with: muster cluster create NAME --quote {made['id']}")


@reservation.command("create", cls=Verb)
@asking
@click.pass_obj
def create_reservation(session: Session, /, **flags: Any) -> None:
    """Promise a window."""
    session.one(session.client.reservations.create(**body(session, flags)), COLUMNS)


@reservation.command("list", cls=Verb)
@limit_option
@project_option
@click.pass_obj
def list_reservations(session: Session, limit: int | None, project: str | None) -> None:
    """List quotes and reservations, newest first."""
    found = session.client.reservations.list(limit=limit, project_id=project_id(session, project))
    session.rows(found, COLUMNS, none="no reservations")


@reservation.command("extend", cls=Verb)
@click.argument("id")
@click.option("--ends-at", required=True, help="The new end, as 2026-05-01T12:00:00Z.")
@click.pass_obj
def extend(session: Session, id: str, ends_at: str) -> None:
    """Give a reservation another end."""
    session.one(session.client.reservations.update(id, ends_at=ends_at), COLUMNS)


@reservation.command("policy", cls=Verb, operator=True)
@click.argument("line", required=False)
@click.option("--share-percent", type=click.IntRange(0, 100), help="Of its hosts, how many windows may promise.")
@click.option("--spares", type=click.IntRange(0), help="Hosts kept back for the failures of others.")
@click.pass_obj
def policy(session: Session, line: str | None, share_percent: int | None, spares: int | None) -> None:
    """How much of each line of hosts may be promised; with a LINE, set it."""
    columns: list[Column] = [("LINE", "id"), ("SHARE %", "share_percent"), ("SPARES", "spares")]
    if line is None:
        session.rows(session.client.calendar_lines.list(), columns, none="no GPU hosts")
        return
    session.one(session.client.calendar_lines.update(line, share_percent=share_percent, spares=spares), columns)


add_show(quote, QUOTE)
add_delete(quote, QUOTE, "cancel", "let go")
add_show(reservation, RESERVATION)
add_delete(reservation, RESERVATION, "cancel", "cancelled")

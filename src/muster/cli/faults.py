"""fault: trouble on demand, on a simulated fleet and on its wire."""

from __future__ import annotations

from typing import Final

import click

from muster.cli.ending import USAGE, Ended
from muster.cli.show import Column
from muster.cli.verb import SECONDS, Session, Verb, group

COLUMNS: list[Column] = [
    ("ID", "id"),
    ("KIND", "kind"),
    ("TARGET", "target"),
    ("LEFT", "left"),
    ("UNTIL", "until"),
]
ON_HOSTS: Final = {
    "host-death": "Everything on HOST is dead until the fault is cleared.",
    "slow-boot": "Boots on HOST take ten times as long.",
    "failed-boot": "The next boots on HOST fail (--count).",
    "lost-reply": "The next calls that touch HOST do their work, but the reply is lost (--count).",
    "flap": "Nodes on HOST come and go (--seconds).",
}
ON_THE_WIRE: Final = {
    "http-429": "The next answers are 429 (--count or --seconds).",
    "http-500": "The next answers are 500 (--count or --seconds).",
    "slow-reply": "The next answers are slow (--count or --seconds).",
}
count_option = click.option("--count", type=click.IntRange(1), help="How often.")
seconds_option = click.option("--seconds", type=SECONDS, help="For how long: 90, 10m, 2h.")


@group("fault", "Faults: make a simulated fleet, or its wire, go wrong. Operator only.")
def fault() -> None: ...


def inject(
    session: Session, kind: str, target: str | None, seconds: float | None = None, count: int | None = None
) -> None:
    made = session.client.faults.create(kind=kind, target=target, seconds=seconds, count=count)
    session.one(made, COLUMNS)


def add_host_fault(kind: str, sentence: str) -> None:
    @fault.command(kind, cls=Verb, operator=True, help=sentence)
    @click.argument("host")
    @count_option
    @seconds_option
    @click.pass_obj
    def on_host(session: Session, host: str, count: int | None, seconds: float | None) -> None:
        inject(session, kind, host, seconds, count)


def add_wire_fault(kind: str, sentence: str) -> None:
    @fault.command(kind, cls=Verb, operator=True, help=sentence)
    @count_option
    @seconds_option
    @click.pass_obj
    def on_wire(session: Session, count: int | None, seconds: float | None) -> None:
        inject(session, kind, None, seconds, count)


for kind, sentence in ON_HOSTS.items():
    add_host_fault(kind, sentence)
for kind, sentence in ON_THE_WIRE.items():
    add_wire_fault(kind, sentence)


@fault.command("stock-out", cls=Verb, operator=True)
@click.argument("region")
@seconds_option
@click.pass_obj
def stock_out(session: Session, region: str, seconds: float | None) -> None:
    """Nothing new can be had in REGION: creates are refused, growth too."""
    inject(session, "stock-out", region, seconds)


@fault.command("load", cls=Verb, operator=True)
@click.argument("cluster")
@click.option("--gpus", type=click.IntRange(1), required=True, help="How many GPUs the work asks for.")
@seconds_option
@click.pass_obj
def load(session: Session, cluster: str, gpus: int, seconds: float | None) -> None:
    """Work in the queue of CLUSTER, until the fault is cleared: what does not fit waits for more workers."""
    inject(session, "load", session.client.clusters.find(cluster)["id"], seconds, gpus)


@fault.command("advance", cls=Verb, operator=True)
@click.argument("duration", type=SECONDS)
@click.pass_obj
def advance(session: Session, duration: float) -> None:
    """Move the simulated world's clock ahead: 90, 10m, 2h."""
    inject(session, "advance", None, duration)


@fault.command("list", cls=Verb, operator=True)
@click.pass_obj
def list_faults(session: Session) -> None:
    """Faults still in force."""
    session.rows(session.client.faults.list(), COLUMNS, none="no faults")


@fault.command("clear", cls=Verb, operator=True)
@click.argument("ids", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.pass_obj
def clear(session: Session, ids: tuple[str, ...], every: bool) -> None:
    """End faults: by id, or --all."""
    if not ids and not every:
        raise Ended("say which fault to clear", USAGE, "muster fault list, or --all")
    gone = [found["id"] for found in session.client.faults.list()] if every else list(ids)
    for id in gone:
        session.client.faults.clear(id)
    session.say(f"{len(gone)} cleared")

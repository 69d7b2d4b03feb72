"""request, event, capacity: what was asked, what happened, what is free."""

from __future__ import annotations

import json

import click

from muster.cli.nouns import Shown, add_show
from muster.cli.show import Column, Thing
from muster.cli.verb import Session, Verb, group, limit_option, timeout_option

REQUEST = Shown(
    "request",
    lambda client: client.requests,
    [
        ("OPERATION", "operation"),
        ("STATE", "state"),
        ("KIND", "kind"),
        ("RESOURCE", "resource_id"),
        ("MESSAGE", "message"),
        ("CREATED", "created_at"),
        ("ID", "id"),
    ],
)
EVENT_COLUMNS: list[Column] = [
    ("SEQ", "seq"),
    ("AT", "at"),
    ("TYPE", "type"),
    ("BY", "actor"),
    ("MESSAGE", lambda event: event.get("message") or event.get("cause")),
    ("RESOURCE", "resource_id"),
]


@group("request", "Requests: asynchronous operations and their outcome.")
def request() -> None: ...


@group("event", "Events: what happened, when, by whom, because of what. The audit log.")
def event() -> None: ...


add_show(request, REQUEST)


@request.command("list", cls=Verb)
@click.option("--resource", help="Only those of this resource id.")
@limit_option
@click.pass_obj
def list_requests(session: Session, resource: str | None, limit: int | None) -> None:
    """List requests."""
    session.rows(session.client.requests.list(resource_id=resource, limit=limit), REQUEST.columns, none="no requests")


@request.command("wait", cls=Verb)
@click.argument("id")
@timeout_option
@click.pass_obj
def wait_request(session: Session, id: str, timeout: float) -> None:
    """Wait until a request is completed or failed."""
    done = session.client.requests.wait(id, timeout)
    session.one(done, REQUEST.columns)
    if done["state"] == "failed":
        raise click.exceptions.Exit(1)


@event.command("list", cls=Verb)
@click.option("--kind", help="Only of this noun: cluster, volume, host …")
@click.option("--resource", help="Only of this resource id.")
@click.option("--after", type=int, help="Only later than this sequence number.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--oldest-first", is_flag=True, help="From the beginning instead of the end.")
@click.pass_obj
def list_events(
    session: Session, kind: str | None, resource: str | None, after: int | None, limit: int, oldest_first: bool
) -> None:
    """List events, the newest last."""
    newest = not oldest_first and after is None
    asked: Thing = {"kind": kind, "resource_id": resource, "after": after, "newest_first": newest or None}
    found = session.client.events.page(limit=limit, **asked)["items"]
    session.rows(reversed(found) if newest else found, EVENT_COLUMNS, none="no events")


@event.command("follow", cls=Verb)
@click.option("--after", type=int, help="Begin behind this sequence number.")
@click.option("--count", type=click.IntRange(1), help="End after so many.")
@click.pass_obj
def follow(session: Session, after: int | None, count: int | None) -> None:
    """Print events as they happen, until Ctrl-C. With -o json one line each."""
    for number, happened in enumerate(session.client.changes(after), 1):
        click.echo(json.dumps(happened) if session.output == "json" else event_line(happened))
        if number == count:
            return


def event_line(happened: Thing) -> str:
    words = happened.get("message") or happened.get("cause") or ""
    return (
        f"{happened.get('at', '')}  {happened.get('type', '')}  {happened.get('resource_id', '')}  {words}".rstrip()
    )


@click.command("capacity", cls=Verb)
@click.option("--region", help="Only there.")
@click.option("--gpu-type", help="Only of this type.")
@click.pass_obj
def capacity(session: Session, region: str | None, gpu_type: str | None) -> None:
    """What is free, per region, GPU type and GPUs per node."""
    wanted = {"region": region, "gpu_type": gpu_type}
    found = [
        row
        for row in session.client.capacity()
        if all(not value or row.get(name) == value for name, value in wanted.items())
    ]
    session.rows(
        found, [(name.upper().replace("_", " "), name) for name in found[0]] if found else [], none="nothing"
    )

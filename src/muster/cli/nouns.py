"""The verbs that every noun has, made from one description: list, show, and delete where it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from muster.cli.show import Column
from muster.cli.verb import Session, Verb, limit_option, project_id, project_option, yes_option

if TYPE_CHECKING:
    from muster.sdk import Client


@dataclass(frozen=True, slots=True)
class Shown:
    """How a noun is told: `of` picks its collection, `columns` its table, `fields` the sight of one."""

    name: str
    of: Callable[[Client], Any]
    columns: Sequence[Column]
    fields: Sequence[Column] = ()
    operator: bool = False
    by_project: bool = True

    @property
    def words(self) -> str:
        return f"{self.name}s"


def add_list(group: click.Group, shown: Shown) -> None:
    @group.command("list", cls=Verb, operator=shown.operator, help=f"List {shown.words}.")
    @click.option("--name", help="Only the one called so.")
    @limit_option
    @click.pass_obj
    def listed(session: Session, name: str | None, limit: int | None, project: str | None = None) -> None:
        filters = {"project_id": project_id(session, project)} if project else {}
        things = shown.of(session.client).list(limit=limit, name=name, **filters)
        session.rows(things, shown.columns, none=f"no {shown.words}")

    if shown.by_project:
        project_option(listed)


def add_show(group: click.Group, shown: Shown) -> None:
    @group.command("show", cls=Verb, operator=shown.operator, help=f"Show one {shown.name}, by name or id.")
    @click.argument("name_or_id")
    @click.pass_obj
    def show(session: Session, name_or_id: str) -> None:
        session.one(shown.of(session.client).find(name_or_id), shown.fields or shown.columns)


def add_delete(group: click.Group, shown: Shown, verb: str = "delete", done: str = "deleted") -> None:
    @group.command(verb, cls=Verb, operator=shown.operator, help=f"{verb.capitalize()} a {shown.name}.")
    @click.argument("name_or_id")
    @yes_option
    @click.pass_obj
    def delete(session: Session, name_or_id: str, yes: bool) -> None:
        thing = shown.of(session.client).find(name_or_id)
        called = thing.get("name") or thing["id"]
        session.confirm(f"{verb.capitalize()} {shown.name} {called}?", yes)
        shown.of(session.client).delete(thing["id"])
        session.say(f"{shown.name} {called} {done}")

"""What every verb that speaks to a server shares: where it goes, how it prints, how it asks before it destroys."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from muster.cli.ending import USAGE, Ended
from muster.cli.show import Column, Thing, emit, facts, table
from muster.cli.target import Asked, Target, find_target

if TYPE_CHECKING:
    from muster.sdk import Client

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Session:
    """One command's way to its server, and its voice. The client is made when first needed."""

    def __init__(self, asked: Asked, output: str) -> None:
        self.asked = asked
        self.output = output
        self._client: Client | None = None

    @property
    def target(self) -> Target:
        return find_target(self.asked, os.environ)

    @property
    def client(self) -> Client:
        if self._client is None:
            from muster.cli.trust import trust
            from muster.sdk import Client  # httpx is a fifth of a second that help need not wait for

            target = self.target
            self._client = Client(target.url, target.key, verify=trust(target.certificate))
        return self._client

    def as_operator(self) -> None:
        """What follows is the operator's to do. Before the first call only."""
        self.asked = replace(self.asked, operator=True)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    @staticmethod
    def now() -> float:
        from muster.clock import RealClock

        return RealClock().now() / 1000

    def rows(self, things: Iterable[Thing], columns: Sequence[Column], none: str = "none") -> None:
        found = list(things)
        emit(self.output, found, lambda: table(found, columns) if found else none)

    def one(self, thing: Thing, columns: Sequence[Column]) -> None:
        emit(self.output, thing, lambda: facts(thing, columns))

    def say(self, words: str) -> None:
        """For people only; never mixed into what a program reads."""
        click.echo(words, err=self.output != "table")

    def confirm(self, question: str, yes: bool) -> None:
        if yes:
            return
        if not sys.stdin.isatty():
            raise Ended(f"{question} Nobody can be asked here.", USAGE, "say --yes")
        click.confirm(question, abort=True)


def common_options() -> list[click.Parameter]:
    return [
        click.Option(["-o", "--output"], type=click.Choice(["table", "json", "yaml"]), default="table", help="Form."),
        click.Option(["--url"], help="The server's address (MUSTER_URL)."),
        click.Option(["--api-key"], help="The key to show it (MUSTER_API_KEY)."),
        click.Option(["--profile"], help="A saved server and key (MUSTER_PROFILE)."),
        click.Option(["--home"], help="The home of a local server (MUSTER_HOME)."),
        click.Option(["--as-operator"], is_flag=True, help="Use the operator's key."),
    ]


class Verb(click.Command):
    """A command with a `Session` as its object. `operator` verbs prefer the operator's key."""

    def __init__(self, *arguments: Any, operator: bool = False, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.operator = operator
        self.params.extend(common_options())

    def invoke(self, ctx: click.Context) -> Any:
        take = ctx.params.pop
        output = take("output")
        operator = take("as_operator") or self.operator
        asked = Asked(take("url"), take("api_key"), take("profile"), take("home"), operator)
        ctx.obj = Session(asked, output)
        ctx.call_on_close(ctx.obj.close)
        return super().invoke(ctx)


class Seconds(click.ParamType[float]):
    """A stretch of time: 90, 30s, 10m, 2h, 5d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        matched = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value).strip())
        if not matched:
            self.fail(f"{value!r} is no duration; say 90, 30s, 10m, 2h or 5d", param, ctx)
        return float(matched[1]) * UNITS[matched[2]]


SECONDS = Seconds()

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
limit_option = click.option("--limit", type=click.IntRange(1), help="At most so many.")
project_option = click.option("--project", help="The project, by name or id; the key's own when not given.")
wait_option = click.option("--wait", is_flag=True, help="Stay until it is done.")
timeout_option = click.option(
    "--timeout", type=SECONDS, default="30m", show_default=True, help="How long to wait at most."
)


def project_id(session: Session, project: str | None) -> str | None:
    return session.client.projects.find(project)["id"] if project else None


def group(name: str, help: str) -> Callable[[Callable[..., None]], click.Group]:
    """A noun's group of verbs, told apart from click's own by always showing help when no verb is given."""
    return click.group(name=name, help=help, no_args_is_help=True)

"""`muster up`: reads the settings and becomes the server. Its flags are the rows of the settings table."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from muster.cli.ending import USAGE, Ended
from muster.settings import SETTINGS, BadSetting, Setting, read


def flag_of(row: Setting) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A row as an option. Its value stays text: the table itself reads and refuses it, in its own sentence."""
    default = f"  [default: {row.default}]" if row.default else ""
    unit = f" ({row.unit})" if row.unit else ""
    metavar = "|".join(row.choices) if row.choices else row.kind.upper()
    return click.option(
        row.flag, row.name, default=None, metavar=metavar, help=f"{row.sentence}{unit}  [{row.env}]{default}"
    )


def settings_flags(command: Callable[..., None]) -> Callable[..., None]:
    for row in reversed(SETTINGS):
        command = flag_of(row)(command)
    return command


@click.command("up")
@settings_flags
def up(**flags: Any) -> None:
    """Start the server, on SQLite; as root with real Slurm on this machine, else on a simulated fleet.

    A second one on the same home says where the first one runs. Every flag has an environment twin, shown in
    brackets; a flag wins. Ctrl-C or SIGTERM stop it cleanly.
    """
    try:
        settings = read(flags, os.environ)
    except BadSetting as error:
        raise Ended(str(error), USAGE) from None
    from muster.app import run_server  # the server's own imports, only for whoever becomes one

    raise click.exceptions.Exit(run_server(settings))

"""`muster doctor`: what on this machine is ours and belongs to nothing. Nothing, always; else tell us.

*Laws.* It looks and changes nothing. The chain is followed whole: what the kernel holds has a record of hostd's, and
what hostd has a record of belongs to a cluster or volume that the server knows.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli import local
from muster.cli.ending import FAILED, NOT_AUTHORISED, Ended
from muster.cli.target import home_path
from muster.settings import DEFAULT_HOME

if TYPE_CHECKING:
    from muster.hostd.traces import Home


@click.command("doctor")
@click.option("--home", help=f"Whose nodes (MUSTER_HOME).  [default: {DEFAULT_HOME}]")
def doctor(home: str | None) -> None:
    """List processes, mounts, namespaces, links, cgroups and loop devices of this home that belong to nothing."""
    from muster.hostd.traces import Home, unaccounted

    where = home_path(home, os.environ)
    if os.geteuid() != 0 and (where / "hostd").exists():
        raise Ended("only root sees everything of real nodes", NOT_AUTHORISED, "sudo muster doctor")
    found = Home.at(where)
    if found is None:
        click.echo(f"nothing: {where} never had real nodes")
        return
    orphans = [*unaccounted(found), *unknown_to_the_server(found)]
    if orphans:
        click.echo("\n".join(orphans))
        raise Ended(f"{len(orphans)} left over on {where}", FAILED, "muster up removes what it finds; else tell us")
    click.echo("nothing")


def unknown_to_the_server(home: Home) -> list[str]:
    """What hostd keeps for an owner that the server does not know; without a server nobody can say."""
    from muster.hostd.traces import owners

    before = owners(home)
    known = known_owners(home.path)
    if known is None:
        return []
    after = owners(home)
    return sorted(f"{what} of {owner}" for what, owner in before.items() if what in after and owner not in known)


def known_owners(home: Path) -> set[str] | None:
    info = local.running_server(home)
    if info is None:
        return None
    with local.operator_client(home, info) as client:
        return {thing["id"] for nouns in (client.clusters, client.volumes) for thing in nouns.list()}

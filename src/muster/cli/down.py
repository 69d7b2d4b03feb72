"""`muster down`: ends every tenant's clusters, waits until they are gone, then stops the server.

*Laws.* A server is stopped only after what it holds is gone, or after it has been said plainly what is left. When no
server runs on the home, one is started for the purpose and stopped again: clusters do not end by themselves.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli import local
from muster.cli.ending import FAILED, TIMED_OUT, USAGE, Ended
from muster.cli.show import Thing
from muster.cli.target import home_path
from muster.cli.verb import SECONDS, yes_option
from muster.settings import DEFAULT_HOME, read

if TYPE_CHECKING:
    from muster.sdk import Client


@click.command("down")
@click.option("--home", help=f"Whose server (MUSTER_HOME).  [default: {DEFAULT_HOME}]")
@click.option("--all", "every", is_flag=True, help="Volumes too, with what is on them.")
@click.option("--keep-clusters", is_flag=True, help="Only stop the server; it takes up its clusters at the next up.")
@click.option(
    "--timeout", type=SECONDS, default="10m", show_default=True, help="How long to wait for clusters to go."
)
@yes_option
def down(home: str | None, every: bool, keep_clusters: bool, timeout: float, yes: bool) -> None:
    """End all clusters, all tenants', and stop the server. Volumes stay unless --all is said."""
    where = home_path(home, os.environ)
    if not (where / "run").is_dir() and not (where / "muster.db").exists():
        click.echo(f"nothing to take down: {where} is no home of a server")
        return
    info = local.running_server(where)
    if keep_clusters:
        stop_server(where, info)
        return
    rouse(where)
    with engine_at_work(where, info) as running, local.operator_client(where, running) as client:
        take_down(client, every, timeout, yes)
    if info is not None:
        stop_server(where, info)
    leave_machine(where)


def rouse(home: Path) -> None:
    """A root process that was killed is started again: without it no node ends."""
    if os.geteuid() == 0 and (home / "hostd" / "home-id").exists():
        from muster.hostd.launch import bring_up

        because = bring_up(home, read({"home": str(home)}, os.environ).cache, click.echo)
        if because:
            click.echo(f"nodes cannot be ended: {because}", err=True)


def leave_machine(home: Path) -> None:
    """With its nodes gone, the root process goes too; who is not root leaves it to notice by itself."""
    if os.geteuid() == 0 and (home / "hostd").is_dir():
        from muster.hostd.launch import dismiss

        dismiss(home)


@contextlib.contextmanager
def engine_at_work(home: Path, info: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The running server, or one started for this."""
    if info is not None:
        yield info
        return
    click.echo("no server is running on this home; starting one to end what it holds")
    log = home / "run" / "down.log"
    child = local.start(home, ["--port", "0"], log, os.environ)
    try:
        yield local.wait_until_ready(child, home, log)
    finally:
        ended_well = local.stop_child(child)
    if ended_well:
        log.unlink(missing_ok=True)


def take_down(client: Client, every: bool, timeout: float, yes: bool) -> None:
    clusters = list(client.clusters.list())
    volumes = list(client.volumes.list()) if every else []
    ask(clusters, volumes, yes)
    for cluster in clusters:
        end(client, cluster)
    await_end(client.clusters, clusters, "cluster", timeout)
    for volume in volumes:
        client.volumes.delete(volume["id"])
    await_end(client.volumes, volumes, "volume", timeout)


def ask(clusters: list[Thing], volumes: list[Thing], yes: bool) -> None:
    counts = {"cluster(s)": len(clusters), "volume(s)": len(volumes)}
    doomed = [f"{count} {noun}" for noun, count in counts.items() if count]
    if not doomed or yes:
        return
    question = f"End {' and '.join(doomed)}?"
    if not sys.stdin.isatty():
        raise Ended(f"{question} Nobody can be asked here.", USAGE, "say --yes")
    click.confirm(question, abort=True)


def end(client: Client, cluster: Thing) -> None:
    """Protection was for accidents; whoever takes the whole house down has been asked already."""
    from muster.sdk import ApiError

    try:
        if cluster.get("deletion_protection"):
            client.clusters.update(cluster["id"], deletion_protection=False)
        client.clusters.delete(cluster["id"], force=True)
    except ApiError as error:
        if error.code not in ("not_found", "wrong_phase"):
            raise


def await_end(collection: Any, things: list[Thing], noun: str, timeout: float) -> None:
    from muster.sdk import TimedOut

    for number, thing in enumerate(things, 1):
        try:
            collection.wait_gone(thing["id"], timeout)
        except TimedOut as late:
            left = ", ".join(other["name"] for other in things[number - 1 :])
            raise Ended(
                f"{late}; left: {left}. The server goes on ending them.", TIMED_OUT, "muster down again, later"
            ) from None
        click.echo(f"{noun} {thing['name']} is gone ({number} of {len(things)})")


def stop_server(home: Path, info: dict[str, Any] | None) -> None:
    if info is None:
        click.echo("no server is running")
    elif local.stop(int(info["pid"])):
        click.echo(f"server at {info['url']} stopped; state is kept in {home}")
    else:
        raise Ended(f"the server (pid {info['pid']}) has not stopped yet", FAILED, "look at its log")

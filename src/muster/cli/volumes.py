"""volume: shared storage that outlives clusters."""

from __future__ import annotations

import click

from muster.cli.ending import Ended
from muster.cli.nouns import Shown, add_list, add_show
from muster.cli.show import Thing
from muster.cli.verb import (
    Session,
    Verb,
    group,
    project_id,
    project_option,
    timeout_option,
    wait_option,
    yes_option,
)

VOLUME = Shown(
    "volume",
    lambda client: client.volumes,
    [
        ("NAME", "name"),
        ("PHASE", "phase"),
        ("SIZE GIB", "size_gib"),
        ("REGION", "region"),
        ("FLAVOUR", "flavour"),
        ("ID", "id"),
    ],
)


@group("volume", "Volumes: shared storage that outlives clusters.")
def volume() -> None: ...


add_list(volume, VOLUME)
add_show(volume, VOLUME)


def waited(session: Session, thing: Thing, wait: bool, timeout: float) -> Thing:
    if not wait:
        return thing
    rested = session.client.volumes.wait(thing["id"], timeout)
    if rested["phase"] == "failed":
        raise Ended(f"volume {rested['name']} failed: {rested.get('because') or 'no reason given'}")
    return rested


@volume.command("create", cls=Verb)
@click.argument("name")
@click.option("--size", "size_gib", type=click.IntRange(1), default=1024, show_default=True, help="GiB.")
@click.option("--region", help="Where; the first region when not given.")
@click.option("--flavour", help="shared, sfs, pfs or dataset.")
@project_option
@wait_option
@timeout_option
@click.pass_obj
def create(
    session: Session,
    name: str,
    size_gib: int,
    region: str | None,
    flavour: str | None,
    project: str | None,
    wait: bool,
    timeout: float,
) -> None:
    """Make a volume."""
    where = region or first_region(session)
    within = project_id(session, project)
    made = session.client.volumes.create(
        name=name, size_gib=size_gib, region=where, flavour=flavour, project_id=within
    )
    session.one(waited(session, made, wait, timeout), VOLUME.columns)


def first_region(session: Session) -> str:
    for region in session.client.regions.list():
        return str(region["id"])
    raise Ended("there is no region yet", hint="muster catalog put region FILE")


@volume.command("grow", cls=Verb)
@click.argument("name_or_id")
@click.argument("size_gib", type=click.IntRange(1))
@wait_option
@timeout_option
@click.pass_obj
def grow(session: Session, name_or_id: str, size_gib: int, wait: bool, timeout: float) -> None:
    """Make a volume larger, to SIZE_GIB."""
    found = session.client.volumes.find(name_or_id)
    grown = session.client.volumes.grow(found["id"], size_gib, if_version=found["version"])
    session.one(waited(session, grown, wait, timeout), VOLUME.columns)


@volume.command("delete", cls=Verb)
@click.argument("name_or_id")
@yes_option
@wait_option
@timeout_option
@click.pass_obj
def delete(session: Session, name_or_id: str, yes: bool, wait: bool, timeout: float) -> None:
    """Delete a volume and what is on it."""
    found = session.client.volumes.find(name_or_id)
    session.confirm(f"Delete volume {found['name']} and everything on it?", yes)
    session.client.volumes.delete(found["id"])
    if wait:
        session.client.volumes.wait_gone(found["id"], timeout)
    session.say(f"volume {found['name']} {'is gone' if wait else 'is being deleted'}")

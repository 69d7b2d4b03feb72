"""catalog: regions, GPU types, instance types, images and prices. The operator's to edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from muster.cli.ending import USAGE, Ended
from muster.cli.files import read_data
from muster.cli.show import Column, Thing, emit, table
from muster.cli.verb import Session, Verb, group, yes_option

if TYPE_CHECKING:
    from muster.sdk.nouns import Listing

PARTS: Final[dict[str, list[Column]]] = {
    "region": [("REGION", "id"), ("TITLE", "title")],
    "gpu-type": [
        ("GPU TYPE", "id"),
        ("TITLE", "title"),
        ("MEMORY GIB", "memory_gib"),
        ("NVSWITCHES", "nvswitch_count"),
        ("IB HCAS", "ib_hca_count"),
    ],
    "instance-type": [
        ("INSTANCE TYPE", "id"),
        ("GPUS", "gpus"),
        ("CPUS", "cpus"),
        ("MEMORY GIB", "memory_gib"),
        ("SCRATCH GIB", "scratch_gib"),
    ],
    "image": [
        ("IMAGE", "id"),
        ("REGION", "region"),
        ("OS", "os"),
        ("CUDA", "cuda_version"),
        ("DRIVER", "driver_version"),
        ("FLAVOUR", "flavour"),
    ],
    "price": [
        ("PRICE", "id"),
        ("ITEM", "item"),
        ("REGION", "region"),
        ("BILLING", "billing"),
        ("MICRO", "micro"),
        ("CURRENCY", "currency"),
        ("UNIT", "unit"),
    ],
}
PART = click.Choice(list(PARTS))


def listing(session: Session, part: str) -> Listing:
    client = session.client
    of = {
        "region": client.regions,
        "gpu-type": client.gpu_types,
        "instance-type": client.instance_types,
        "image": client.images,
        "price": client.prices,
    }
    return of[part]


@group("catalog", "The catalogue: regions, GPU types, instance types, images, prices.")
def catalog() -> None: ...


@catalog.command("list", cls=Verb)
@click.argument("part", type=PART, required=False)
@click.pass_obj
def list_parts(session: Session, part: str | None) -> None:
    """List one part of the catalogue, or all of it."""
    parts = [part] if part else list(PARTS)
    found = {name: list(listing(session, name).list()) for name in parts}
    value = found[part] if part else {name.replace("-", "_") + "s": things for name, things in found.items()}
    emit(session.output, value, lambda: "\n\n".join(table(things, PARTS[name]) for name, things in found.items()))


@catalog.command("show", cls=Verb)
@click.argument("part", type=PART)
@click.argument("id")
@click.pass_obj
def show(session: Session, part: str, id: str) -> None:
    """Show one entry."""
    found = listing(session, part).find(id)
    session.one(found, [(name.upper().replace("_", " "), name) for name in found])


@catalog.command("put", cls=Verb, operator=True)
@click.argument("part", type=PART)
@click.argument("file")
@click.pass_obj
def put(session: Session, part: str, file: str) -> None:
    """Make or change entries from a YAML or JSON FILE: one, or a list; each has an id ('-' reads standard input)."""
    data = read_data(file)
    entries: list[Thing] = data if isinstance(data, list) else [data]
    if not all(isinstance(entry, dict) and entry.get("id") for entry in entries):
        raise Ended(f"every {part} in {file} must have an id", USAGE)
    changed = [listing(session, part).put(str(entry["id"]), entry) for entry in entries]
    session.rows(changed, PARTS[part])


@catalog.command("remove", cls=Verb, operator=True)
@click.argument("part", type=PART)
@click.argument("id")
@yes_option
@click.pass_obj
def remove(session: Session, part: str, id: str, yes: bool) -> None:
    """Take an entry out of the catalogue."""
    session.confirm(f"Remove {part} {id}?", yes)
    listing(session, part).remove(id)
    session.say(f"{part} {id} removed")

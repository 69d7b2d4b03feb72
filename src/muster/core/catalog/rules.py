"""What a line of the catalogue must satisfy before it is written. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from muster.errors import Invalid
from muster.model.base import Instant, Noun
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region

Entry: TypeAlias = Region | GpuType | InstanceType | Image | Price
Tables: TypeAlias = dict[type[Noun], dict[str, Any]]
"""Every line of the catalogue by what it is and its id."""

VOLUME: Final = "volume"
"""The item that a volume's price is for."""

ID_CHARS_MAX: Final = 80
GPUS_PER_NODE_MAX: Final = 62
FLAVOURS: Final = ("base", "slurm", "nemo")
UNITS: Final = ("node_hour", "gib_month", "term")
BILLINGS: Final = ("on_demand", "reserved", "scheduled", "preemptible", "pool")

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_VERSION = re.compile(r"\d+(\.\d+)*")


def check_entry(entry: Noun, tables: Tables) -> Entry:
    """The entry, once it is known to make sense beside what the catalogue already has."""
    if len(entry.id) > ID_CHARS_MAX or not _ID.fullmatch(entry.id):
        raise Invalid(
            f"an id in the catalogue is 1 to {ID_CHARS_MAX} letters, digits, dots, dashes, colons or underscores",
            field="id",
        )
    match entry:
        case Region():
            pass
        case GpuType():
            _at_least(entry.memory_gib, 1, "memory_gib")
            _at_least(entry.nvswitch_count, 0, "nvswitch_count")
            _at_least(entry.ib_hca_count, 0, "ib_hca_count")
        case InstanceType():
            _check_instance_type(entry, tables)
        case Image():
            _check_image(entry, tables)
        case Price():
            _check_price(entry, tables)
        case _:
            raise Invalid(f"a {type(entry).__name__} is no part of the catalogue")
    return entry


def _check_instance_type(shape: InstanceType, tables: Tables) -> None:
    _known(shape.gpu_type, tables[GpuType], "gpu_type", "GPU type")
    _at_least(shape.gpus, 1, "gpus")
    if shape.gpus > GPUS_PER_NODE_MAX:
        raise Invalid(f"a node has at most {GPUS_PER_NODE_MAX} GPUs", field="gpus")
    _at_least(shape.cpus, 1, "cpus")
    _at_least(shape.memory_gib, 1, "memory_gib")
    _at_least(shape.scratch_gib, 0, "scratch_gib")
    for other in tables[InstanceType].values():
        if other.id != shape.id and (other.gpu_type, other.gpus) == (shape.gpu_type, shape.gpus):
            raise Invalid(
                f"{other.id} is already the instance type of {shape.gpus} x {shape.gpu_type}",
                field="gpus",
                hint=f"change {other.id} instead, or remove it first",
            )


def _check_image(image: Image, tables: Tables) -> None:
    _known(image.region, tables[Region], "region", "region")
    _one_of(image.flavour, FLAVOURS, "flavour")
    for field, version in (("cuda_version", image.cuda_version), ("driver_version", image.driver_version)):
        if not _VERSION.fullmatch(version):
            raise Invalid(f"{version!r} is no version like 12.8 or 570", field=field)
    if not image.os:
        raise Invalid("an image has an operating system, like ubuntu-22.04", field="os")


def _check_price(price: Price, tables: Tables) -> None:
    _known(price.region, tables[Region], "region", "region")
    if price.item != VOLUME:
        _known(price.item, tables[InstanceType], "item", "instance type")
    _one_of(price.unit, UNITS, "unit")
    _one_of(price.billing, BILLINGS, "billing")
    _at_least(price.micro, 0, "micro")
    _at_least(price.committed_days, 0, "committed_days")
    if len(price.currency) != 3 or not price.currency.isupper():
        raise Invalid("a currency is three capital letters, like USD", field="currency")


def check_price_time(price: Price, tables: Tables, now: Instant) -> None:
    """Prices change from a date on, never backwards: what has held is what was charged by."""
    known = tables[Price].get(price.id)
    if known is not None and known.valid_from <= now and _terms(known) != _terms(price):
        raise Invalid(
            f"price {price.id} has held since before now and is history",
            field="id",
            hint="put a price with another id, valid from a later instant",
        )
    others = [other for other in tables[Price].values() if other.id != price.id]
    if any(other.currency != price.currency for other in others):
        raise Invalid(f"all prices are in {others[0].currency}", field="currency")
    changes = known is None or _terms(known) != _terms(price)
    if changes and price.valid_from < now and any(_what(other) == _what(price) for other in others):
        raise Invalid(
            "a price changes from now on, never backwards",
            field="valid_from",
            hint="leave it out, or name a later date",
        )


def _what(price: Price) -> tuple[str, str, str, int]:
    return price.item, price.region, price.billing, price.committed_days


def _terms(price: Price) -> tuple[object, ...]:
    return *_what(price), price.unit, price.micro, price.currency, price.valid_from


def _known(id: str, among: Mapping[str, Noun], field: str, what: str) -> None:
    if id not in among:
        known = ", ".join(sorted(among)) or "none yet"
        raise Invalid(f"there is no {what} {id}", field=field, hint=f"known: {known}")


def _at_least(value: int, least: int, field: str) -> None:
    if value < least:
        raise Invalid(f"{field} must be at least {least}", field=field)


def _one_of(value: str, allowed: tuple[str, ...], field: str) -> None:
    if value not in allowed:
        raise Invalid(f"{field} is one of {', '.join(allowed)}", field=field)

"""A fleet in a file: what an operator writes down once to enrol racks of hosts and what may be had of them.

Reading only; importing is the services' work. Every complaint names the file, the line and the field. What the file
leaves out of the catalogue (GPU types, instance types, images) is taken from the demo's; prices are not, for hardware
of one's own costs nothing until its owner says so. docs/fleet-file.md tells the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from muster.core.catalog.rules import Tables, check_entry
from muster.core.demo import demo_gpu_types, demo_images, demo_instance_types, settled_id
from muster.core.hosts.rules import HostSpec, check_spec
from muster.errors import Invalid
from muster.model.base import Instant, Noun
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region
from muster.model.hosts import HostRole

FILE_BYTES_MAX: Final = 16 << 20
COUNT_MAX: Final = 1_000_000
EVERYWHERE: Final = "*"


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the file, as it may be written."""


class RegionLine(_Line, frozen=True, kw_only=True):
    id: str
    title: str = ""


class GpuTypeLine(_Line, frozen=True, kw_only=True):
    id: str
    title: str = ""
    memory_gib: int
    nvswitch_count: int = 0
    nvswitch_type: str = ""
    ib_hca_count: int = 0
    ib_hca_type: str = ""


class InstanceTypeLine(_Line, frozen=True, kw_only=True):
    """`id` left out is like 8xH100_SXM."""

    id: str = ""
    gpu_type: str
    gpus: int
    cpus: int
    memory_gib: int
    scratch_gib: int = 0


class ImageLine(_Line, frozen=True, kw_only=True):
    id: str = ""
    region: str = EVERYWHERE
    os: str
    cuda_version: str
    driver_version: str
    flavour: str = "base"
    title: str = ""


class PriceLine(_Line, frozen=True, kw_only=True):
    """`amount` in whole units of the currency, at most six decimals."""

    item: str
    region: str = EVERYWHERE
    billing: str = "on_demand"
    committed_days: int = 0
    unit: str = "node_hour"
    amount: Decimal
    currency: str = "USD"


class HostLine(_Line, frozen=True, kw_only=True):
    """One host, or `count` alike: {n} in the name, and {pod} and {leaf} in the place, become their numbers."""

    name: str
    count: int = 1
    region: str
    pod: str = "pod-{pod}"
    leaf: str = "leaf-{leaf}"
    hosts_per_leaf: int = 16
    leaves_per_pod: int = 16
    role: HostRole = HostRole.GPU
    gpu_type: str = ""
    slots: int
    cpus: int
    memory_gib: int

    def host(self, n: int) -> HostSpec:
        leaf = n // self.hosts_per_leaf
        width = len(str(self.count - 1))
        return HostSpec(
            name=self.name.replace("{n}", f"{n:0{width}d}"),
            region=self.region,
            pod=self.pod.replace("{pod}", str(leaf // self.leaves_per_pod)),
            leaf=self.leaf.replace("{leaf}", str(leaf)),
            role=self.role,
            gpu_type=self.gpu_type,
            slots=self.slots,
            cpus=self.cpus,
            memory_gib=self.memory_gib,
        )


@dataclass(frozen=True)
class FleetFile:
    """`catalog` in an order in which each line leans only on those before it."""

    catalog: tuple[Noun, ...]
    lines: tuple[HostLine, ...]

    @property
    def host_count(self) -> int:
        return sum(line.count for line in self.lines)

    def hosts(self) -> Iterator[HostSpec]:
        """Every host of the file, one at a time: a line may stand for a hundred thousand."""
        for line in self.lines:
            for n in range(line.count):
                yield line.host(n)


SECTIONS: Final[dict[str, type[_Line]]] = {
    "regions": RegionLine,
    "gpu_types": GpuTypeLine,
    "instance_types": InstanceTypeLine,
    "images": ImageLine,
    "prices": PriceLine,
    "hosts": HostLine,
}


class _Said(NamedTuple):
    """A line, and where it stands: told in every complaint about it."""

    line: Any
    where: str


def read_fleet_file(path: Path, now: Instant) -> FleetFile:
    """The fleet that the file describes, checked whole; prices hold from `now` on."""
    sections = _sections(path)
    tables: Tables = {Region: {}, GpuType: {}, InstanceType: {}, Image: {}, Price: {}}
    for noun, where in _catalog(sections, now):
        with _told_at(where):
            check_entry(noun, tables)
        if noun.id in tables[type(noun)]:
            raise Invalid(f"{where}: {noun.id} stands there twice", field="id")
        tables[type(noun)][noun.id] = noun
    lines = _host_lines(sections.get("hosts", []), tables)
    return FleetFile(tuple(noun for table in tables.values() for noun in table.values()), lines)


# ---- from text to lines


def _sections(path: Path) -> dict[str, list[_Said]]:
    loader = yaml.SafeLoader(_text(path))
    try:
        root = loader.get_single_node()
        if root is None:
            raise Invalid(f"{path} is empty", hint="docs/fleet-file.md has an example")
        return {key: list(_lines(loader, path, key, node)) for key, node in _keys(path, root)}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise Invalid(f"{path}{line}: this is no YAML: {getattr(error, 'problem', None) or error}") from error
    finally:
        loader.dispose()


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise Invalid(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB", hint="use `count` for hosts alike")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}") from error


def _keys(path: Path, root: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    if not isinstance(root, yaml.MappingNode):
        raise Invalid(f"{path}:1: a fleet file has sections: {', '.join(SECTIONS)}")
    seen: set[str] = set()
    for key, node in root.value:
        where = f"{path}:{key.start_mark.line + 1}"
        if key.value not in SECTIONS:
            raise Invalid(
                f"{where}: there is no section {key.value}",
                field=str(key.value),
                hint=f"one of {', '.join(SECTIONS)}",
            )
        if key.value in seen:
            raise Invalid(f"{where}: section {key.value} stands there twice", field=key.value)
        seen.add(key.value)
        yield key.value, node


def _lines(loader: yaml.SafeLoader, path: Path, section: str, node: yaml.Node) -> Iterator[_Said]:
    if not isinstance(node, yaml.SequenceNode):
        raise Invalid(f"{path}:{node.start_mark.line + 1}: {section} is a list", field=section)
    for number, item in enumerate(node.value):
        where = f"{path}:{item.start_mark.line + 1}: {section}[{number}]"
        told = loader.construct_document(item)
        try:
            yield _Said(msgspec.convert(told, SECTIONS[section], strict=True), where)
        except msgspec.ValidationError as error:
            raise Invalid(f"{where}: {_plainly(str(error))}", field=section) from error


def _plainly(complaint: str) -> str:
    """msgspec says "Expected `int`, got `str` - at `$.slots`"; people read "slots: expected int, got str"."""
    what, _, place = complaint.replace("`", "").partition(" - at $")
    what = what[:1].lower() + what[1:]
    if what.startswith("expected str, got"):
        what += " (put it in quotes)"
    return f"{place.lstrip('.')}: {what}" if place.strip(".") else what


@contextmanager
def _told_at(where: str) -> Iterator[None]:
    """The same complaint, with its place in the file."""
    try:
        yield
    except Invalid as error:
        field = f".{error.field}" if error.field else ""
        raise Invalid(f"{where}{field}: {error.message}", field=error.field, hint=error.hint) from error


# ---- from lines to nouns


def _catalog(sections: dict[str, list[_Said]], now: Instant) -> Iterator[tuple[Noun, str]]:
    """Each line of the catalogue and where it stands; "the demo catalogue" stands in for sections left out."""
    regions = [line.id for line, _ in sections.get("regions", [])]
    if not regions:
        raise Invalid("a fleet file names at least one region", field="regions")
    yield from ((Region(id=line.id, title=line.title), where) for line, where in sections["regions"])
    yield from _or_demo(sections.get("gpu_types"), _gpu_types, demo_gpu_types())
    yield from _or_demo(sections.get("instance_types"), _instance_types, _demo_shapes(sections))
    demo = [image for region in regions for image in demo_images(region)]
    yield from _or_demo(sections.get("images"), lambda line: _images(line, regions), demo)
    for line, where in sections.get("prices", []):
        yield from ((price, where) for price in _prices(line, regions, now))


def _or_demo(
    said: list[_Said] | None, nouns: Callable[[Any], Iterable[Noun]], demo: Iterable[Noun]
) -> Iterator[tuple[Noun, str]]:
    if said is None:
        yield from ((noun, "the demo catalogue") for noun in demo)
        return
    for line, where in said:
        yield from ((noun, where) for noun in nouns(line))


def _demo_shapes(sections: dict[str, list[_Said]]) -> list[InstanceType]:
    """Of the demo's instance types those whose GPU type the file has."""
    if "gpu_types" not in sections:
        return demo_instance_types()
    named = {line.id for line, _ in sections["gpu_types"]}
    return [shape for shape in demo_instance_types() if shape.gpu_type in named]


def _gpu_types(line: GpuTypeLine) -> list[GpuType]:
    fields = msgspec.structs.asdict(line)
    return [GpuType(**{**fields, "title": line.title or line.id})]


def _instance_types(line: InstanceTypeLine) -> list[InstanceType]:
    fields = msgspec.structs.asdict(line)
    return [InstanceType(**{**fields, "id": line.id or f"{line.gpus}x{line.gpu_type}"})]


def _images(line: ImageLine, regions: list[str]) -> Iterator[Image]:
    fields = msgspec.structs.asdict(line)
    for region in regions if line.region == EVERYWHERE else [line.region]:
        id = settled_id("image", region, line.os, line.cuda_version, line.driver_version, line.flavour)
        yield Image(**{**fields, "region": region, "id": line.id or id})


def _prices(line: PriceLine, regions: list[str], now: Instant) -> Iterator[Price]:
    term = f"{line.billing}-{line.committed_days}d" if line.committed_days else line.billing
    for region in regions if line.region == EVERYWHERE else [line.region]:
        yield Price(
            id=f"{line.item}.{region}.{term}",
            item=line.item,
            region=region,
            billing=line.billing,
            committed_days=line.committed_days,
            unit=line.unit,
            micro=round(line.amount * 1_000_000),
            currency=line.currency,
            valid_from=now,
        )


def _host_lines(said: list[_Said], tables: Tables) -> tuple[HostLine, ...]:
    names: set[str] = set()
    for line, where in said:
        with _told_at(where):
            _check_host_line(line, tables)
        if line.name in names:
            raise Invalid(f"{where}.name: {line.name} stands there twice", field="name")
        names.add(line.name)
    return tuple(line for line, _ in said)


def _check_host_line(line: HostLine, tables: Tables) -> None:
    if not 1 <= line.count <= COUNT_MAX:
        raise Invalid(f"count must be between 1 and {COUNT_MAX}", field="count")
    if line.hosts_per_leaf < 1 or line.leaves_per_pod < 1:
        raise Invalid("hosts_per_leaf and leaves_per_pod must be at least 1", field="hosts_per_leaf")
    if line.count > 1 and "{n}" not in line.name:
        raise Invalid("many hosts need {n} in their name", field="name", hint="like gpu-{n}")
    check_spec(line.host(line.count - 1), tables[Region], tables[GpuType])

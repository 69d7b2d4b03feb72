"""The fleet file: read whole, or refused with the place of the first mistake."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from muster import settings
from muster.app import assemble
from muster.contracts.store import Find
from muster.core.fleet_file import FleetFile, read_fleet_file
from muster.errors import Invalid
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region
from muster.model.hosts import Host, HostRole

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "fleet-file.md"


def read(tmp_path: Path, text: str) -> FleetFile:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    return read_fleet_file(path, now=1_000)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(Invalid) as refused:
        read(tmp_path, text)
    return refused.value.message.removeprefix(f"{tmp_path}/")


def test_the_documented_example_is_a_whole_file(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    fleet = read(tmp_path, example)
    hosts = list(fleet.hosts())
    assert len(hosts) == fleet.host_count == 34
    assert (hosts[0].name, hosts[31].name, hosts[32].name) == ("gpu-00", "gpu-31", "control-0")
    assert {(host.pod, host.leaf) for host in hosts[:32]} == {("pod-0", f"leaf-{n}") for n in range(4)}
    assert hosts[33].role is HostRole.CONTROL
    kinds = [type(noun) for noun in fleet.catalog]
    assert [kinds.count(kind) for kind in (Region, GpuType, InstanceType, Price)] == [1, 7, 28, 2]
    prices = {noun.item: noun for noun in fleet.catalog if isinstance(noun, Price)}
    assert (prices["8xH100_SXM"].micro, prices["volume"].micro) == (16_000_000, 100_000)
    assert prices["volume"].valid_from == 1_000


def test_own_gpu_types_bring_only_their_own_shapes(tmp_path: Path) -> None:
    fleet = read(
        tmp_path,
        """
        regions: [{id: a}, {id: b}]
        gpu_types: [{id: L40_PCIE, memory_gib: 48}, {id: OURS, memory_gib: 24}]
        images: [{os: debian-12, cuda_version: "12.8", driver_version: "570"}]
        """,
    )
    assert {noun.gpu_type for noun in fleet.catalog if isinstance(noun, InstanceType)} == {"L40_PCIE"}
    images = [noun for noun in fleet.catalog if isinstance(noun, Image)]
    assert [image.region for image in images] == ["a", "b"]
    assert len({image.id for image in images}) == 2


def test_an_instance_type_is_named_after_its_gpus(tmp_path: Path) -> None:
    fleet = read(
        tmp_path,
        """
        regions: [{id: a}]
        instance_types: [{gpu_type: H100_SXM, gpus: 4, cpus: 8, memory_gib: 64}]
        """,
    )
    assert [noun.id for noun in fleet.catalog if isinstance(noun, InstanceType)] == ["4xH100_SXM"]


HOST = "{name: h, region: a, gpu_type: H100_SXM, slots: 8, cpus: 8, memory_gib: 64}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "fleet.yaml is empty"),
        ("- 1", "fleet.yaml:1: a fleet file has sections"),
        ("regions: [{id: a}]\nhots: []", "fleet.yaml:2: there is no section hots"),
        ("regions: {id: a}", "fleet.yaml:1: regions is a list"),
        ("regions: [{id: a}]\nregions: [{id: b}]", "fleet.yaml:2: section regions stands there twice"),
        ("hosts: []", "a fleet file names at least one region"),
        ("regions:\n  - id: a\n  - id: a", "fleet.yaml:3: regions[1]: a stands there twice"),
        ("regions:\n  - id: a\n  - name: b", "fleet.yaml:3: regions[1]: object contains unknown field name"),
        ("regions: [{id: a}]\nhosts:\n  - {name: h}", "fleet.yaml:3: hosts[0]: object missing required field region"),
        (
            f"regions: [{{id: a}}]\nhosts:\n  - {HOST.replace('8, cpus', 'eight, cpus')}",
            "fleet.yaml:3: hosts[0]: slots: expected int, got str",
        ),
        (
            f"regions: [{{id: a}}]\nhosts:\n  - {HOST.replace('region: a', 'region: b')}",
            "fleet.yaml:3: hosts[0].region: host h: there is no region b",
        ),
        (
            f"regions: [{{id: a}}]\nhosts:\n  - {HOST.replace('name: h', 'name: h, count: 2')}",
            "fleet.yaml:3: hosts[0].name: many hosts need {n} in their name",
        ),
        (
            f"regions: [{{id: a}}]\nhosts:\n  - {HOST}\n  - {HOST}",
            "fleet.yaml:4: hosts[1].name: h stands there twice",
        ),
        (
            "regions: [{id: a}]\nimages: [{os: u, cuda_version: 12.8, driver_version: '570'}]",
            "fleet.yaml:2: images[0]: cuda_version: expected str, got float (put it in quotes)",
        ),
        (
            "regions: [{id: a}]\nprices: [{item: 9xH100_SXM, amount: 1}]",
            "fleet.yaml:2: prices[0].item: there is no instance type 9xH100_SXM",
        ),
        ("regions: [{id: a}]\nhosts: [", "fleet.yaml:2: this is no YAML"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    assert refusal(tmp_path, text).startswith(complaint)


def test_a_file_that_is_not_there_is_a_plain_complaint(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        read_fleet_file(tmp_path / "none.yaml", now=0)


def test_the_first_start_furnishes_the_house_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(f"regions: [{{id: a}}]\nhosts:\n  - {HOST}\n")
    (tmp_path / "home").mkdir()
    flags = {"home": str(tmp_path / "home"), "fleet_file": str(tmp_path / "fleet.yaml"), "fleet": "simulated"}

    async def story() -> tuple[list[str], list[Host]]:
        async with AsyncExitStack() as closing:
            running = await assemble(settings.read(flags, {}), closing)
            catalog = await running.house.catalog.current()
            return list(catalog.regions), await running.house.store.find(Find(Host))

    regions, hosts = asyncio.run(story())
    assert regions == ["a"]
    assert [(host.name, host.substrate) for host in hosts] == [("h", "simulated")]

"""The demo catalogue and fleet: complete, the same each time, and large enough everywhere."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest

from muster.core.catalog.rules import Tables, check_entry
from muster.core.demo import GPUS, HOME, REGIONS, SHAPES, demo_catalog, demo_fleet, demo_hosts
from muster.core.hosts.rules import check_spec
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region
from muster.model.hosts import HostRole

CELLS = [(region, gpu_type) for region in REGIONS for gpu_type in GPUS]


def test_the_catalogue_is_valid_line_by_line_in_its_own_order() -> None:
    tables: Tables = {Region: {}, GpuType: {}, InstanceType: {}, Image: {}, Price: {}}
    for noun in demo_catalog(now=5):
        check_entry(noun, tables)
        assert noun.id not in tables[type(noun)]
        tables[type(noun)][noun.id] = noun
    assert set(tables[InstanceType]) == {f"{gpus}x{gpu_type}" for gpus in SHAPES for gpu_type in GPUS}


@pytest.mark.parametrize(("cuda", "driver"), [("12.5", "555"), ("12.6", "560"), ("12.6", "565"), ("12.8", "570")])
def test_the_versions_that_clients_name_exist_in_every_region(cuda: str, driver: str) -> None:
    images = [noun for noun in demo_catalog(0) if isinstance(noun, Image)]
    found = {i.region for i in images if (i.cuda_version, i.driver_version, i.os) == (cuda, driver, "ubuntu-22.04")}
    assert found == set(REGIONS)
    assert {image.flavour for image in images} == {"base", "slurm", "nemo"}


def test_image_ids_are_settled_and_look_like_any_other() -> None:
    ids = [noun.id for noun in demo_catalog(0) if isinstance(noun, Image)]
    assert ids == [noun.id for noun in demo_catalog(1) if isinstance(noun, Image)]
    assert len(set(ids)) == len(ids)
    assert {uuid.UUID(id).version for id in ids} == {4}


def test_every_shape_has_a_price_by_the_hour_and_by_term_everywhere() -> None:
    prices = Counter((p.item, p.region) for p in demo_catalog(0) if isinstance(p, Price))
    for region in REGIONS:
        assert prices["volume", region] == 1
        for gpus in SHAPES:
            assert all(prices[f"{gpus}x{gpu_type}", region] == 5 for gpu_type in GPUS)


@pytest.mark.parametrize(("hosts", "least"), [(1, 0), (7, 0), (28, 1), (63, 2), (64, 2), (1_000, 2)])
def test_the_fleet_has_as_many_hosts_as_asked_and_some_everywhere(hosts: int, least: int) -> None:
    fleet = demo_fleet(hosts)
    cells = Counter((host.region, host.gpu_type) for host in fleet if host.role is HostRole.GPU)
    assert cells.total() == hosts
    assert min(cells[cell] for cell in CELLS) >= least
    assert max(cells.values()) == cells[HOME]
    assert len({host.name for host in fleet}) == len(fleet)
    for host in fleet:
        check_spec(host, REGIONS, GPUS)


def test_a_large_fleet_is_two_fifths_of_one_kind_in_leaves_of_sixteen() -> None:
    home = [host for host in demo_hosts(20_000) if (host.region, host.gpu_type) == HOME]
    assert 0.39 < len(home) / 20_000 < 0.41
    leaves = Counter((host.pod, host.leaf) for host in home)
    assert set(list(leaves.values())[:-1]) == {16}
    assert set(list(Counter(pod for pod, _ in leaves).values())[:-1]) == {16}


@pytest.mark.parametrize("hosts", [1, 28, 64, 5_000])
def test_control_slices_are_never_what_is_missing(hosts: int) -> None:
    fleet = demo_fleet(hosts)
    for region in REGIONS:
        slices = sum(h.slots for h in fleet if h.region == region and h.role is HostRole.CONTROL)
        gpu_hosts = [h for h in fleet if h.region == region and h.role is HostRole.GPU]
        clusters = sum(h.slots for h in gpu_hosts) if hosts <= 64 else len(gpu_hosts)
        assert slices >= max(1, 2 * clusters)

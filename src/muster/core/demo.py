"""A catalogue and a fleet to start with: four regions, seven GPU types, and as many hosts as one likes.

Pure: the same arguments give the same lines, ids included, so that a demo home made twice is the same home. The facts
are plausible, not promised; the operator edits all of it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from typing import Final, NamedTuple

from muster.core.catalog.rules import VOLUME
from muster.core.hosts.rules import HostSpec
from muster.model.base import Instant, Noun
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region
from muster.model.hosts import HostRole

HOSTS_PER_LEAF: Final = 16
LEAVES_PER_POD: Final = 16
GPUS_PER_HOST: Final = 8
SLICES_PER_CONTROL_HOST: Final = 32
SLICES_PER_CLUSTER: Final = 2  # a controller and a login
SHAPES: Final = (1, 2, 4, 8)
DEFAULT_HOSTS: Final = 64

__all__ = ["DEFAULT_HOSTS", "HostSpec", "demo_catalog", "demo_fleet", "demo_hosts"]


class GpuFacts(NamedTuple):
    """One GPU type, and the host that carries eight of them."""

    title: str
    memory_gib: int
    nvswitch: tuple[int, str]
    ib_hca: tuple[int, str]
    cpus: int
    host_memory_gib: int
    scratch_gib: int
    micro_per_gpu_hour: int
    share: int  # of the demo fleet, relative to the others


class RegionFacts(NamedTuple):
    title: str
    price_percent: int
    share: int


GPUS: Final[dict[str, GpuFacts]] = {
    "H100_SXM": GpuFacts(
        "NVIDIA H100 80GB SXM5", 80, (4, "NVSwitch 3"), (8, "ConnectX-7 400G"), 192, 2048, 28_000, 2_990_000, 8
    ),
    "H200_SXM": GpuFacts(
        "NVIDIA H200 141GB SXM5", 141, (4, "NVSwitch 3"), (8, "ConnectX-7 400G"), 192, 2048, 28_000, 3_790_000, 5
    ),
    "B200_SXM": GpuFacts(
        "NVIDIA B200 180GB SXM6", 180, (2, "NVSwitch 4"), (8, "ConnectX-7 400G"), 224, 2304, 28_000, 5_490_000, 3
    ),
    "B300_SXM": GpuFacts(
        "NVIDIA B300 270GB SXM6", 270, (2, "NVSwitch 4"), (8, "ConnectX-8 800G"), 256, 4096, 56_000, 6_490_000, 1
    ),
    "RTX_6000_PCI": GpuFacts(
        "NVIDIA RTX PRO 6000 96GB PCIe", 96, (0, ""), (2, "ConnectX-7 200G"), 128, 1024, 14_000, 1_290_000, 2
    ),
    "L40_PCIE": GpuFacts("NVIDIA L40 48GB PCIe", 48, (0, ""), (1, "ConnectX-6 200G"), 128, 1024, 14_000, 990_000, 2),
    "H100_SXM_INF": GpuFacts(
        "NVIDIA H100 80GB SXM5, inference", 80, (4, "NVSwitch 3"), (0, ""), 192, 2048, 14_000, 2_490_000, 2
    ),
}
REGIONS: Final[dict[str, RegionFacts]] = {
    "us-central-8": RegionFacts("United States, central 8", 100, 5),
    "us-central-4": RegionFacts("United States, central 4", 100, 3),
    "Delhi": RegionFacts("India, Delhi", 90, 2),
    "Chennai": RegionFacts("India, Chennai", 92, 1),
}
HOME: Final = ("us-central-8", "H100_SXM")
HOME_PERCENT: Final = 40
"""The share of a large demo fleet that is of one region and type: gangs of hundreds of nodes have somewhere to go."""

IMAGES: Final = (  # (CUDA, driver, OS, flavour)
    ("12.4", "550", "ubuntu-22.04", "base"),
    ("12.5", "555", "ubuntu-22.04", "base"),
    ("12.6", "560", "ubuntu-22.04", "base"),
    ("12.6", "565", "ubuntu-22.04", "base"),
    ("12.8", "570", "ubuntu-22.04", "base"),
    ("12.8", "570", "ubuntu-24.04", "base"),
    ("12.9", "575", "ubuntu-22.04", "base"),
    ("12.9", "575", "ubuntu-24.04", "base"),
    ("13.0", "580", "ubuntu-24.04", "base"),
    ("12.8", "570", "ubuntu-22.04", "slurm"),
    ("12.9", "575", "ubuntu-24.04", "slurm"),
    ("12.8", "570", "ubuntu-22.04", "nemo"),
    ("12.9", "575", "ubuntu-24.04", "nemo"),
)
COMMITMENTS: Final = ((30, 90), (90, 80), (365, 65))  # (days, percent of the hourly price)
VOLUME_MICRO_PER_GIB_MONTH: Final = 160_000
FLAVOUR_TITLES: Final = {"base": "Ubuntu", "slurm": "Ubuntu with Slurm", "nemo": "Ubuntu with Slurm and NeMo"}


# ---- the catalogue


def demo_catalog(now: Instant) -> list[Noun]:
    """Every line in an order in which each leans only on those before it."""
    regions = list(REGIONS)
    return [
        *(Region(id=id, title=facts.title) for id, facts in REGIONS.items()),
        *demo_gpu_types(),
        *demo_instance_types(),
        *(image for region in regions for image in demo_images(region)),
        *(price for region, facts in REGIONS.items() for price in _prices(region, facts.price_percent, now)),
    ]


def demo_gpu_types() -> list[GpuType]:
    return [
        GpuType(
            id=id,
            title=facts.title,
            memory_gib=facts.memory_gib,
            nvswitch_count=facts.nvswitch[0],
            nvswitch_type=facts.nvswitch[1],
            ib_hca_count=facts.ib_hca[0],
            ib_hca_type=facts.ib_hca[1],
        )
        for id, facts in GPUS.items()
    ]


def demo_instance_types() -> list[InstanceType]:
    """A node of fewer GPUs gets its share of the host's processors, memory and scratch."""
    return [
        InstanceType(
            id=f"{gpus}x{gpu_type}",
            gpu_type=gpu_type,
            gpus=gpus,
            cpus=facts.cpus * gpus // GPUS_PER_HOST,
            memory_gib=facts.host_memory_gib * gpus // GPUS_PER_HOST,
            scratch_gib=facts.scratch_gib * gpus // GPUS_PER_HOST,
        )
        for gpu_type, facts in GPUS.items()
        for gpus in SHAPES
    ]


def demo_images(region: str) -> list[Image]:
    return [
        Image(
            id=settled_id("image", region, os, cuda, driver, flavour),
            region=region,
            os=os,
            cuda_version=cuda,
            driver_version=driver,
            flavour=flavour,
            title=f"{FLAVOUR_TITLES[flavour]} {os.removeprefix('ubuntu-')}, CUDA {cuda}, driver {driver}",
        )
        for cuda, driver, os, flavour in IMAGES
    ]


def settled_id(*words: str) -> str:
    """An id that looks like any other on the wire, and is the same each time it is made of the same words."""
    digest = hashlib.sha256("/".join(("muster", *words)).encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


PREEMPTIBLE_PERCENT: Final = 40
"""What a preemptible hour costs, of one that nobody takes back."""


def _prices(region: str, percent: int, now: Instant) -> Iterator[Price]:
    for gpu_type, facts in GPUS.items():
        for gpus in SHAPES:
            hour = facts.micro_per_gpu_hour * gpus * percent // 100
            yield _price(f"{gpus}x{gpu_type}", region, hour, now)
            yield _preemptible(f"{gpus}x{gpu_type}", region, hour * PREEMPTIBLE_PERCENT // 100, now)
            for days, discounted in COMMITMENTS:
                yield _price(f"{gpus}x{gpu_type}", region, hour * 24 * days * discounted // 100, now, days)
    yield Price(
        id=f"{VOLUME}.{region}.on_demand",
        item=VOLUME,
        region=region,
        unit="gib_month",
        micro=VOLUME_MICRO_PER_GIB_MONTH * percent // 100,
        valid_from=now,
    )


def _price(item: str, region: str, micro: int, now: Instant, days: int = 0) -> Price:
    """By the hour, or for a whole term paid at once."""
    return Price(
        id=f"{item}.{region}.reserved-{days}d" if days else f"{item}.{region}.on_demand",
        item=item,
        region=region,
        billing="reserved" if days else "on_demand",
        committed_days=days,
        unit="term" if days else "node_hour",
        micro=micro,
        valid_from=now,
    )


def _preemptible(item: str, region: str, micro: int, now: Instant) -> Price:
    return Price(
        id=f"{item}.{region}.preemptible",
        item=item,
        region=region,
        billing="preemptible",
        micro=micro,
        valid_from=now,
    )


# ---- the fleet


def demo_fleet(hosts: int = DEFAULT_HOSTS) -> list[HostSpec]:
    return list(demo_hosts(hosts))


def demo_hosts(hosts: int = DEFAULT_HOSTS) -> Iterator[HostSpec]:
    """So many GPU hosts over all regions and types, and the control hosts that they need, one at a time."""
    counts = spread(hosts)
    for region in REGIONS:
        here = 0
        for gpu_type in GPUS:
            yield from _gpu_hosts(region, gpu_type, counts[region, gpu_type])
            here += counts[region, gpu_type]
        yield from _control_hosts(region, control_hosts_for(here))


def spread(hosts: int) -> dict[tuple[str, str], int]:
    """How many of each region and type: two of each if there are so many, the others by share (largest remainder)."""
    shares = _shares()
    each = min(2, hosts // len(shares))
    rest = hosts - each * len(shares)
    total = sum(shares.values())
    counts = {cell: each + rest * share // total for cell, share in shares.items()}
    left = hosts - sum(counts.values())
    for cell in sorted(shares, key=lambda cell: (-(rest * shares[cell] % total), -shares[cell]))[:left]:
        counts[cell] += 1
    return counts


def _shares() -> dict[tuple[str, str], int]:
    shares = {
        (region, gpu_type): where.share * what.share
        for region, where in REGIONS.items()
        for gpu_type, what in GPUS.items()
    }
    others = sum(shares.values()) - shares[HOME]
    shares[HOME] = others * HOME_PERCENT // (100 - HOME_PERCENT)
    return shares


def control_hosts_for(gpu_hosts: int) -> int:
    """Enough that controllers and logins are never what is missing: in a small fleet every GPU may be a cluster, in a
    large one every host."""
    small = min(gpu_hosts, DEFAULT_HOSTS)
    clusters = small * GPUS_PER_HOST + (gpu_hosts - small)
    return max(1, -(-clusters * SLICES_PER_CLUSTER // SLICES_PER_CONTROL_HOST))


def _gpu_hosts(region: str, gpu_type: str, count: int) -> Iterator[HostSpec]:
    facts, kind = GPUS[gpu_type], gpu_type.lower().replace("_", "-")
    for number in range(count):
        leaf = number // HOSTS_PER_LEAF
        pod = f"{kind}-p{leaf // LEAVES_PER_POD:03d}"
        yield HostSpec(
            name=f"{region.lower()}-{kind}-{number:05d}",
            region=region,
            pod=pod,
            leaf=f"{pod}-l{leaf % LEAVES_PER_POD:02d}",
            gpu_type=gpu_type,
            slots=GPUS_PER_HOST,
            cpus=facts.cpus,
            memory_gib=facts.host_memory_gib,
        )


def _control_hosts(region: str, count: int) -> Iterator[HostSpec]:
    for number in range(count):
        yield HostSpec(
            name=f"{region.lower()}-control-{number:05d}",
            region=region,
            pod="control",
            leaf=f"control-l{number // HOSTS_PER_LEAF:03d}",
            role=HostRole.CONTROL,
            slots=SLICES_PER_CONTROL_HOST,
            cpus=128,
            memory_gib=512,
        )

"""What can be had: regions, GPU types, instance types, images and prices. The operator's to edit."""

from __future__ import annotations

from muster.model.base import Instant, Noun


class Region(Noun, frozen=True, kw_only=True):
    """`id` is the region's name on every wire: us-central-8, Delhi."""

    number: int = 0
    title: str = ""


class GpuType(Noun, frozen=True, kw_only=True):
    """`id` is the type's name: H100_SXM."""

    title: str
    memory_gib: int
    nvswitch_count: int = 0
    nvswitch_type: str = ""
    ib_hca_count: int = 0
    ib_hca_type: str = ""


class InstanceType(Noun, frozen=True, kw_only=True):
    """GPU type × GPUs per node; `id` like 8xH100_SXM."""

    number: int = 0
    gpu_type: str
    gpus: int
    cpus: int
    memory_gib: int
    scratch_gib: int


class Image(Noun, frozen=True, kw_only=True):
    """OS + CUDA + driver version in one region, or a Slurm/NeMo image version (`flavour`)."""

    number: int = 0
    region: str
    os: str
    cuda_version: str
    driver_version: str
    flavour: str = "base"  # base | slurm | nemo
    title: str = ""


class Price(Noun, frozen=True, kw_only=True):
    """Micro-units of `currency` per `unit`, from `valid_from` on. `item` is an instance type or "volume"."""

    number: int = 0
    item: str
    region: str
    billing: str = "on_demand"
    committed_days: int = 0
    unit: str = "node_hour"  # node_hour | gib_month | term
    micro: int
    currency: str = "USD"
    valid_from: Instant

"""The catalogue as one frozen value: what every decision that needs it is handed.

Pure. Leans on model only. Built once per change of the catalogue and read by every request, so what requests look up
is a dictionary here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from muster.model.base import Instant
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region


def version_key(version: str) -> tuple[int, ...]:
    """ "12.10" is newer than "12.9"; anything that is no number counts as nothing."""
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in version.split("."))


def _newness(image: Image) -> tuple[tuple[int, ...], tuple[int, ...], str, str]:
    return version_key(image.driver_version), version_key(image.cuda_version), image.os, image.id


@dataclass(frozen=True)
class Catalog:
    regions: dict[str, Region]
    gpu_types: dict[str, GpuType]
    instance_types: dict[str, InstanceType]
    images: dict[str, Image]
    prices: dict[str, Price]
    _by_shape: dict[tuple[str, int], InstanceType] = field(init=False, repr=False, compare=False)
    _by_region: dict[str, tuple[Image, ...]] = field(init=False, repr=False, compare=False)
    _by_item: dict[tuple[str, str, str, int], list[Price]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shapes = {(shape.gpu_type, shape.gpus): shape for shape in self.instance_types.values()}
        images = sorted(self.images.values(), key=lambda image: image.region)
        by_region = {
            region: tuple(sorted(group, key=_newness, reverse=True))
            for region, group in groupby(images, key=lambda image: image.region)
        }
        object.__setattr__(self, "_by_shape", shapes)
        object.__setattr__(self, "_by_region", by_region)
        object.__setattr__(self, "_by_item", _newest_price_first(self.prices.values()))

    def instance_type_for(self, gpu_type: str, gpus: int) -> InstanceType | None:
        """The shape with so many of these GPUs per node."""
        return self._by_shape.get((gpu_type, gpus))

    def images_in(self, region: str) -> tuple[Image, ...]:
        """Newest driver first."""
        return self._by_region.get(region, ())

    def newest_image(self, region: str, flavour: str = "base") -> Image | None:
        return next((image for image in self.images_in(region) if image.flavour == flavour), None)

    def image_for(
        self, region: str, cuda: str, driver: str, os: str | None = None, flavour: str = "base"
    ) -> Image | None:
        """The image with these versions. Without an `os` the oldest that has them: who does not say it means the one
        that was there before there was a choice."""
        fitting = [
            image
            for image in self.images_in(region)
            if (image.cuda_version, image.driver_version, image.flavour) == (cuda, driver, flavour)
            and os in (None, image.os)
        ]
        return min(fitting, key=lambda image: (image.os, image.id), default=None)

    def price_of(self, item: str, region: str, billing: str, at: Instant, committed_days: int = 0) -> Price | None:
        """The price that holds at this instant: the last one whose time had come."""
        known = self._by_item.get((item, region, billing, committed_days), ())
        return next((price for price in known if price.valid_from <= at), None)


def _newest_price_first(prices: Iterable[Price]) -> dict[tuple[str, str, str, int], list[Price]]:
    by_item: dict[tuple[str, str, str, int], list[Price]] = defaultdict(list)
    for price in sorted(prices, key=lambda price: (price.valid_from, price.number, price.id), reverse=True):
        by_item[price.item, price.region, price.billing, price.committed_days].append(price)
    return dict(by_item)

"""What can be had: node types with their prices (SKUs and plans), and images with their versions.

Leans on the house's services. Prices belong to a location: so does everything told here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.tir import answers, words
from muster.dialects.tir.asking import location_of
from muster.errors import Invalid
from muster.model.billing import PREEMPTIBLE
from muster.model.catalog import Image, InstanceType, Price

MICRO = 1_000_000


class Shelf:
    def __init__(self, house: House) -> None:
        self._house = house

    async def plans(self, call: Call) -> Reply:
        """distributed_jobs_v2/cluster/plans/?variant=slurm|nemo."""
        location = await location_of(self._house, call)
        framework_of(call.asked("variant"), "variant")
        return answers.reply(await self._skus(location))

    async def skus(self, call: Call) -> Reply:
        """gpu_service/sku/?service=: the SDK's own list. There are no nodes without GPUs."""
        location = await location_of(self._house, call)
        return answers.reply({"CPU": [], "GPU": await self._skus(location)})

    async def pricing(self, call: Call) -> Reply:
        location = await location_of(self._house, call)
        return answers.reply(await self._skus(location))

    async def _skus(self, location: str) -> list[answers.PricedSku]:
        catalog = await self._house.catalog.current()
        await self._house.capacity.sync()
        free = {
            (room.gpu_type, room.gpus_per_node)
            for room in self._house.capacity.summary()
            if room.region == location and room.free_nodes
        }
        now, plans = self._house.clock.now(), defaultdict(list)
        for price in await self._house.billing.prices(region=location, at=now):
            spoken = price.billing != PREEMPTIBLE  # a plan of theirs is never taken back
            if spoken and price.valid_from <= now and price.item in catalog.instance_types:
                plans[price.item].append(price)
        shapes = sorted(catalog.instance_types.values(), key=lambda shape: shape.number)
        return [
            _sku(shape, plans[shape.id], available=(shape.gpu_type, shape.gpus) in free)
            for shape in shapes
            if plans[shape.id]
        ]

    async def deployment_images(self, call: Call) -> Reply:
        """distributed_jobs_v2/deployment_images/{framework}/?job_type=."""
        location = await location_of(self._house, call)
        framework = framework_of(call.params["framework"], "framework")
        if framework_of(call.asked("job_type"), "job_type") != framework:
            raise Invalid(f"this must be {framework}, as in the path", field="job_type")
        images = (await self._house.catalog.current()).images_in(location)
        return answers.reply(_families(image for image in images if image.flavour == framework))

    async def images(self, call: Call) -> Reply:
        """gpu_service/image/, as the SDK reads it. No image of ours has JupyterLab in it."""
        location = await location_of(self._house, call)
        notebooks = (call.asked("is_jupyterlab_enabled") or "").lower() == "true"
        return answers.reply(
            [] if notebooks else _families((await self._house.catalog.current()).images_in(location))
        )


def framework_of(said: str | None, field: str) -> str:
    if not said:
        raise Invalid("this field is required", field=field, hint=f"send {field}={words.FRAMEWORKS[0]}")
    if said.lower() not in words.FRAMEWORKS:
        raise Invalid(f"there is no {said[:40]}", field=field, hint=f"one of {', '.join(words.FRAMEWORKS)}")
    return said.lower()


def _sku(shape: InstanceType, prices: list[Price], *, available: bool) -> answers.PricedSku:
    """By the hour comes last: the SDK's fine-tuning client takes the commitment of the last plan it sees."""
    ordered = sorted(prices, key=lambda price: -price.committed_days)
    return answers.PricedSku(
        sku_id=shape.number,
        name=shape.id,
        series="GPU",
        sku_type=shape.gpu_type,
        cpu=shape.cpus,
        gpu=shape.gpus,
        memory=shape.memory_gib,
        is_free=False,
        is_inventory_available=available,
        plans=[
            answers.Plan(
                sku_item_price_id=price.number,
                sku_type=shape.gpu_type,
                committed_days=price.committed_days,
                unit_price=price.micro / MICRO,
                currency=price.currency,
                location=price.region,
            )
            for price in ordered
        ],
    )


def _families(images: Iterable[Image]) -> list[answers.Image]:
    """One image per operating system and framework, with its versions, newest first."""
    families: dict[tuple[str, str], list[Image]] = defaultdict(list)
    for image in images:
        families[image.flavour, image.os].append(image)
    return [
        answers.Image(
            image_id=min(image.number for image in family),
            name=family[0].title.split(",")[0] or f"{os} {flavour}",
            framework=flavour,
            versions=[version_of(image) for image in family],
        )
        for (flavour, os), family in sorted(families.items())
    ]


def version_of(image: Image) -> answers.ImageVersion:
    return answers.ImageVersion(
        image_version_id=image.number,
        version=f"cuda-{image.cuda_version}-driver-{image.driver_version}",
        os=image.os,
        cuda_version=image.cuda_version,
        driver_version=image.driver_version,
    )

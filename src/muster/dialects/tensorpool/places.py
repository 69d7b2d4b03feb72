"""Where things go on a wire without regions: storage and clusters of one project are to meet.

Leans on the house's services. A cluster goes where the project's storage is, if its shape is free there, else where
most of it is free; storage goes where the project's newest cluster is, else where most of the fleet is free.
"""

from __future__ import annotations

from muster.core.catalog.snapshot import Catalog
from muster.core.house import House
from muster.dialects.tensorpool.words import Shape
from muster.errors import Invalid
from muster.model.accounts import Actor
from muster.model.catalog import Image

SEEN_MAX = 200


async def region_for_cluster(house: House, actor: Actor, shape: Shape, nodes: int) -> str:
    """ "" leaves it to the house."""
    free = dict(house.capacity.regions_by_free(shape.gpu_type, shape.gpus))
    volumes = (await house.volumes.volumes(actor, limit=SEEN_MAX)).items
    for volume in reversed(volumes):
        if free.get(volume.region, 0) >= nodes:
            return volume.region
    return ""


async def region_for_storage(house: House, actor: Actor) -> str:
    views, _ = await house.clusters.views(actor, limit=SEEN_MAX)
    living = [view.cluster for view in views if view.cluster.delete_wished_at is None]
    if living:
        return living[-1].region
    catalog = await house.catalog.current()
    free: dict[str, int] = dict.fromkeys(sorted(catalog.regions), 0)
    for shape in catalog.instance_types.values():
        for region, nodes in house.capacity.regions_by_free(shape.gpu_type, shape.gpus):
            free[region] = free.get(region, 0) + nodes * shape.gpus
    if not free:
        raise Invalid("this server has no regions yet", hint="ask its operator")
    return max(free, key=lambda region: free[region])


def image_names(image: Image) -> tuple[str, ...]:
    """What a container may be called: the image's id, or what is in it."""
    return image.id, f"{image.flavour}:{image.os}-cuda{image.cuda_version}", f"{image.os}-cuda{image.cuda_version}"


def image_for(container: str, region: str, catalog: Catalog) -> str:
    """The image behind a container's name, in this region if one is chosen."""
    images = [image for name in sorted(catalog.regions) for image in catalog.images_in(name)]
    named = [image for image in images if container in image_names(image)]
    for image in named:
        if region in ("", image.region):
            return image.id
    known = sorted({image_names(image)[1] for image in images})
    raise Invalid(
        f"this server knows no container image {container}",
        field="container",
        hint=f"it knows {', '.join(known)}" if known else "it knows none",
    )

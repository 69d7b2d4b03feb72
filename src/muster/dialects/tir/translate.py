"""A create in the house's words. Pure: what was looked up is handed in.

Leans on wire, words and the core's commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from muster.core.catalog.snapshot import Catalog
from muster.core.clusters.commands import CreateCluster, MountWish
from muster.dialects.tir import wire, words
from muster.errors import Invalid
from muster.model.access import SecurityGroup, SshKey
from muster.model.accounts import Project
from muster.model.billing import PREEMPTIBLE
from muster.model.catalog import Image, InstanceType, Price
from muster.model.clusters import Billing, ClusterConfig, ClusterType, Scripts
from muster.model.volumes import Volume

SAID: Final = "tir"
NAME_CHARS_MAX: Final = 63
COMMITMENTS: Final = (30, 90, 365)
FLAVOURS: Final[Mapping[str, Sequence[str]]] = {
    "sfs_mount_list": ("sfs", "shared"),
    "pfs_mount_list": ("pfs",),
    "dataset_mount_list": ("dataset",),
}
"""What each list may mount; a volume made through another door is shared storage."""

DATASETS: Final = "dataset_mount_list"
SHEBANG: Final = "#!/bin/bash\n"


class Found(NamedTuple):
    """What the create names, already looked up."""

    project: Project
    location: str
    keys: Sequence[SshKey]
    group: SecurityGroup
    volumes: Mapping[int, Volume]  # by number


def create_cluster(said: wire.NewCluster, found: Found, catalog: Catalog) -> CreateCluster:
    if not 1 <= len(said.name) <= NAME_CHARS_MAX:
        raise Invalid(f"a name has 1 to {NAME_CHARS_MAX} characters", field="name")
    sku = sku_of(said.sku_id, catalog)
    price = price_of(said.sku_item_price_id, sku, found.location, catalog)
    if said.no_of_nodes < 1:
        raise Invalid("a cluster has at least one node", field="no_of_nodes")
    if not said.ssh_key_ids:
        raise Invalid("name at least one SSH key", field="ssh_key_ids")
    return CreateCluster(
        name=said.name,
        type=ClusterType.SLURM,
        region=found.location,
        gpu_type=sku.gpu_type,
        gpus=said.no_of_nodes * sku.gpus,
        gpus_per_node=sku.gpus,
        image_id=image_of(said.image_version_id, found.location, catalog).id,
        project_id=found.project.id,
        billing=Billing.RESERVED if price.committed_days else Billing.ON_DEMAND,
        duration_days=price.committed_days or None,
        ssh_key_ids=tuple(key.id for key in found.keys),
        use_saved_keys=False,
        security_group_ids=(found.group.id,),
        mounts=mounts_of(said, found.volumes),
        config=ClusterConfig(
            scripts=Scripts(lifecycle=script_of(said)),
            said={SAID: {"sku_item_price_id": price.number, "committed_days": price.committed_days}},
        ),
    )


def sku_of(number: int, catalog: Catalog) -> InstanceType:
    for shape in catalog.instance_types.values():
        if shape.number == number:
            return shape
    raise Invalid(f"there is no SKU {number}", field="sku_id", hint="see distributed_jobs_v2/cluster/plans/")


def price_of(number: int, sku: InstanceType, location: str, catalog: Catalog) -> Price:
    price = next((price for price in catalog.prices.values() if price.number == number), None)
    if price is None or price.item != sku.id or price.billing == PREEMPTIBLE:
        raise Invalid(f"SKU {sku.number} has no price {number}", field="sku_item_price_id")
    if price.region != location:
        raise Invalid(f"price {number} is one of {price.region}, not of {location}", field="sku_item_price_id")
    if price.committed_days and price.committed_days not in COMMITMENTS:
        raise Invalid(f"nobody commits for {price.committed_days} days here", field="sku_item_price_id")
    return price


def image_of(number: int, location: str, catalog: Catalog) -> Image:
    for image in catalog.images_in(location):
        if image.number == number and image.flavour in words.FRAMEWORKS:
            return image
    raise Invalid(
        f"{location} has no cluster image {number}",
        field="image_version_id",
        hint="see distributed_jobs_v2/deployment_images/slurm/",
    )


def script_of(said: wire.NewCluster) -> str:
    """Exactly when it is said to be there. Without a first line of its own it is Bash."""
    if said.script_added and not said.lifecycle_script.strip():
        raise Invalid("script_added says that there is one, and there is none", field="lifecycle_script")
    if said.lifecycle_script and not said.script_added:
        raise Invalid("there is a lifecycle_script and this says that there is none", field="script_added")
    script = said.lifecycle_script
    return script if not script or script.startswith("#!") else SHEBANG + script


def mounts_of(said: wire.NewCluster, volumes: Mapping[int, Volume]) -> tuple[MountWish, ...]:
    paths: set[str] = set()
    mounts = []
    for field, flavours in FLAVOURS.items():
        for item in getattr(said, field):
            volume = volumes[item.id]
            if volume.flavour not in flavours:
                raise Invalid(f"{volume.name} is no volume of this kind but {volume.flavour}", field=field)
            if not item.mount_path.startswith("/"):
                raise Invalid(f"{item.mount_path[:80]!r} is no absolute path", field=field)
            if item.mount_path in paths:
                raise Invalid(f"two volumes cannot both be mounted at {item.mount_path}", field=field)
            paths.add(item.mount_path)
            mounts.append(MountWish(volume_id=volume.id, path=item.mount_path, read_only=field == DATASETS))
    return tuple(mounts)

"""From Together's create and update to the house's commands. Pure.

Leans on wire, words, terms and core's commands. *Laws.* Every field means something: it becomes part of the command,
or it is refused in a sentence, never accepted and ignored; a value that asks for nothing (0, false) is no wish and
passes.
"""

from __future__ import annotations

import re
from typing import Any, Final

from muster.core.catalog.snapshot import Catalog
from muster.core.clusters.commands import AutoscaleWish, CreateCluster, MountWish, NewVolume, UpdateCluster
from muster.core.clusters.snapshot import ClusterView
from muster.dialects.together import wire
from muster.dialects.together.asking import required, word
from muster.dialects.together.config import acceptance, changed_config, new_config
from muster.dialects.together.terms import NODE_GPUS, new_end, new_term, whole_nodes
from muster.dialects.together.words import TYPE
from muster.errors import Invalid, Unsupported
from muster.model.catalog import Image
from muster.model.clusters import ClusterType

GIB_PER_TIB: Final = 1024
SIZE_TIB_MAX: Final = 1024

_DRIVER: Final = re.compile(r"CUDA_(\d+)_(\d+)_(\d+)")
_CUDA: Final = re.compile(r"(?P<cuda>\d+\.\d+)(?:[-_ ]+(?P<os>[a-zA-Z].*))?")
LEGACY_OS: Final = "ubuntu-22.04"
"""What a bare CUDA version means, where the region has it."""


# --- create ---------------------------------------------------------------------------------------------------------


def create_cluster(said: wire.NewCluster, catalog: Catalog, own_project: str | None = None) -> CreateCluster:
    """`own_project` is whose the cluster is when nothing is said."""
    required(said)
    type_ = ClusterType.KUBERNETES if said.cluster_type is None else word(said.cluster_type, TYPE, "cluster_type")
    region = _region(said.region or "", catalog)
    gpus = whole_nodes(said.num_gpus or 0, "num_gpus", least=NODE_GPUS)
    _check_type_fields(said, type_)
    term = new_term(said, gpus)
    _check_pools(said, gpus)
    return CreateCluster(
        name=said.cluster_name or "",
        type=type_,
        region=region,
        gpu_type=said.gpu_type or "",
        gpus=gpus,
        gpus_per_node=NODE_GPUS,
        autoscale=_autoscale(said, gpus),
        pool_id=said.capacity_pool_id or "",
        pool_gpus=said.num_capacity_pool_gpus if said.capacity_pool_id else None,
        image_id=_image(said, region, catalog).id,
        project_id=said.project_id or None,
        preemptible_gpus=said.num_preemptible_gpus or 0,
        failover=bool(said.gpu_node_failover_enabled),
        mounts=_mounts(said, region, said.project_id or own_project),
        acceptance=acceptance(said.acceptance_tests_params),
        config=new_config(said, type_),
        **term._asdict(),
    )


def _region(region: str, catalog: Catalog) -> str:
    if region not in catalog.regions:
        known = ", ".join(sorted(catalog.regions))
        raise Invalid(f"there is no region {region}", field="region", hint=f"Use one of {known}")
    return region


def _check_type_fields(said: wire.NewCluster, type_: ClusterType) -> None:
    """Fields that belong to one type of cluster only."""
    if type_ is ClusterType.SLURM:
        if said.slurm_shm_size_gib is None:
            raise Invalid("slurm_shm_size_gib is required for SLURM clusters", field="slurm_shm_size_gib")
        for field in ("install_traefik", "oidc_config"):
            if getattr(said, field):
                raise Invalid(f"{field} is only for KUBERNETES clusters", field=field)
        return
    for field in ("slurm_shm_size_gib", "slurm_image"):
        if getattr(said, field):
            raise Invalid(f"{field} is only for SLURM clusters", field=field)


def _autoscale(said: wire.NewCluster, gpus: int) -> AutoscaleWish | None:
    if not (said.auto_scale or said.auto_scaled):
        if said.auto_scale_max_gpus:
            raise Invalid("auto_scale_max_gpus goes with auto_scale", field="auto_scale_max_gpus")
        return None
    if said.auto_scale_max_gpus is None:
        raise Invalid("auto_scale_max_gpus is required with auto_scale", field="auto_scale_max_gpus")
    most = whole_nodes(said.auto_scale_max_gpus, "auto_scale_max_gpus")
    if most < gpus:
        raise Invalid("auto_scale_max_gpus cannot be less than num_gpus", field="auto_scale_max_gpus")
    return AutoscaleWish(max_gpus=most)


def _check_pools(said: wire.NewCluster, gpus: int) -> None:
    if said.num_capacity_pool_gpus and not said.capacity_pool_id:
        raise Invalid("num_capacity_pool_gpus goes with capacity_pool_id", field="num_capacity_pool_gpus")
    if whole_nodes(said.num_capacity_pool_gpus or 0, "num_capacity_pool_gpus") > gpus:
        raise Invalid("num_capacity_pool_gpus cannot be more than num_gpus", field="num_capacity_pool_gpus")
    if whole_nodes(said.num_preemptible_gpus or 0, "num_preemptible_gpus") and not said.project_id:
        raise Invalid("num_preemptible_gpus needs a project_id", field="project_id")


# --- images ---------------------------------------------------------------------------------------------------------


def _image(said: wire.NewCluster, region: str, catalog: Catalog) -> Image:
    """By catalogue id, by CUDA and driver version, or by the old word for both; they must agree."""
    pair = _pair(said)
    if said.nvidia_version_id is None:
        if pair is None:
            raise Invalid(
                "without nvidia_version_id, cuda version and nvidia driver version are required",
                field="cuda_version",
                hint="They are cuda_version and nvidia_driver_version; the regions list them",
            )
        return _image_of(*pair, region, catalog)
    image = catalog.images.get(said.nvidia_version_id)
    if image is None or image.region != region:
        raise Invalid(
            f"there is no NVIDIA version {said.nvidia_version_id} in {region}",
            field="nvidia_version_id",
            hint="List the regions to see what they have",
        )
    if pair is not None and not _is_of(image, *pair):
        raise Invalid(
            f"nvidia_version_id is CUDA {image.cuda_version} with driver {image.driver_version} on {image.os}, "
            f"not {pair[0]} with {pair[1]}" + (f" on {pair[2]}" if pair[2] else ""),
            field="nvidia_version_id",
            hint="Give either the id or the versions",
        )
    return image


def _pair(said: wire.NewCluster) -> tuple[str, str, str | None] | None:
    """(cuda, driver, os), or None when no version was said."""
    if (said.cuda_version is None) != (said.nvidia_driver_version is None):
        raise Invalid("cuda_version and nvidia_driver_version go together", field="cuda_version")
    old = None if said.driver_version is None else driver_pair(said.driver_version)
    if said.cuda_version is None:
        return old
    found = _CUDA.fullmatch(said.cuda_version.strip())
    if found is None:
        raise Invalid(f"{said.cuda_version} is no CUDA version", field="cuda_version", hint="For example 12.6")
    pair = (found["cuda"], said.nvidia_driver_version or "", found["os"])
    if old is not None and old[:2] != pair[:2]:
        raise Invalid("driver_version and cuda_version with nvidia_driver_version disagree", field="driver_version")
    return pair


def driver_pair(driver_version: str) -> tuple[str, str, None]:
    found = _DRIVER.fullmatch(driver_version)
    if found is None:
        raise Invalid(
            f"there is no driver_version {driver_version}", field="driver_version", hint="For example CUDA_12_6_560"
        )
    major, minor, driver = found.groups()
    return f"{major}.{minor}", driver, None


def driver_word(image: Image) -> str:
    """CUDA_12_6_560: the one word that older clients know for both versions."""
    return f"CUDA_{image.cuda_version.replace('.', '_')}_{image.driver_version.split('.')[0]}"


def _image_of(cuda: str, driver: str, os: str | None, region: str, catalog: Catalog) -> Image:
    fitting = [
        image for image in catalog.images_in(region) if image.flavour == "base" and _is_of(image, cuda, driver, os)
    ]
    if not fitting:
        have = sorted({f"{i.cuda_version} with {i.driver_version}" for i in catalog.images_in(region)})
        raise Invalid(
            f"{region} has no CUDA {cuda} with driver {driver}" + (f" on {os}" if os else ""),
            field="cuda_version",
            hint=f"It has {', '.join(have)}",
        )
    return min(fitting, key=lambda image: (image.os != LEGACY_OS, image.os, image.id))


def _is_of(image: Image, cuda: str, driver: str, os: str | None) -> bool:
    same = (image.cuda_version, image.driver_version) == (cuda, driver)
    return same and (os is None or _plain(os) == _plain(image.os))


def _plain(os: str) -> str:
    return re.sub(r"[^a-z0-9]", "", os.lower())


# --- volumes --------------------------------------------------------------------------------------------------------


def _mounts(said: wire.NewCluster, region: str, project_id: str | None) -> tuple[MountWish, ...]:
    if said.shared_volume is not None and said.volume_id:
        raise Invalid("give shared_volume or volume_id, not both", field="shared_volume")
    if said.volume_id:
        return (MountWish(volume_id=said.volume_id),)
    if said.shared_volume is None:
        return ()
    return (MountWish(new=inline_volume(said.shared_volume, region, project_id)),)


def inline_volume(said: wire.InlineVolume, region: str, project_id: str | None) -> NewVolume:
    """An inline volume outlives its cluster unless `is_lifecycle_independent: false` was said."""
    required(said, within="shared_volume")
    if said.region not in (None, region):
        raise Invalid(
            f"the shared volume is to be in {said.region} and the cluster in {region}",
            field="shared_volume.region",
            hint="A volume is mounted in its own region",
        )
    if said.project_id not in (None, "", project_id):
        raise Invalid(
            "a volume made with its cluster belongs to the cluster's project", field="shared_volume.project_id"
        )
    return NewVolume(
        name=said.volume_name or "",
        size_gib=size_gib(said.size_tib or 0, "shared_volume.size_tib"),
        region=region,
        dies_with_cluster=said.is_lifecycle_independent is False,
    )


def size_gib(size_tib: int, field: str = "size_tib") -> int:
    if not 1 <= size_tib <= SIZE_TIB_MAX:
        raise Invalid(f"{field} must be between 1 and {SIZE_TIB_MAX}", field=field)
    return size_tib * GIB_PER_TIB


def check_new_volume(said: wire.NewVolume) -> None:
    required(said)
    if said.is_lifecycle_independent is False:
        raise Unsupported(
            "a volume made on its own outlives every cluster",
            field="is_lifecycle_independent",
            hint="Make it with its cluster (shared_volume) to have it go with that cluster",
        )


# --- update ---------------------------------------------------------------------------------------------------------


def update_cluster(said: wire.ClusterChange, view: ClusterView) -> UpdateCluster:
    spec = view.cluster.spec
    if said.cluster_type is not None and word(said.cluster_type, TYPE, "cluster_type") is not spec.type:
        raise Unsupported(
            f"this cluster is {TYPE[spec.type]} and stays so", field="cluster_type", hint="Create another cluster"
        )
    if said.num_gpus is not None:
        whole_nodes(said.num_gpus, "num_gpus", least=NODE_GPUS)
    if said.num_capacity_pool_gpus and spec.pool_id is None:
        raise Invalid(
            "num_capacity_pool_gpus is only for clusters created with a capacity_pool_id",
            field="num_capacity_pool_gpus",
        )
    if said.num_preemptible_gpus is not None:
        whole_nodes(said.num_preemptible_gpus, "num_preemptible_gpus")
    fields: dict[str, Any] = {}
    if said.cluster_config is not None or said.add_ons is not None:
        fields["config"] = changed_config(spec.config, said, spec.type)
    fields["preemptible_gpus"] = said.num_preemptible_gpus
    fields["pool_gpus"] = said.num_capacity_pool_gpus if spec.pool_id is not None else None
    return UpdateCluster(gpus=said.num_gpus, ends_at=new_end(said, view), **fields)

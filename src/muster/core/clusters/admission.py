"""May this wish come in? In one order for every dialect, and said in sentences.

shape of the request -> right -> name -> could it *ever* fit -> quota -> balance -> is it free *now*. This module
holds the pure part: the shape. The service asks the rest, in that order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from muster.contracts.orchestrator import Feature, Orchestrator
from muster.core.accounts.names import clean_name
from muster.core.catalog.snapshot import Catalog
from muster.core.clusters.commands import AutoscaleWish, CreateCluster, MountWish
from muster.errors import Invalid, Unsupported
from muster.model.catalog import Image, InstanceType
from muster.model.clusters import Autoscale, ClusterConfig, ClusterType, Scripts

WORKERS_MAX = 4096
SHM_GIB_MAX = 4096
SCRIPT_BYTES_MAX = 64 * 1024
WHOLE_HOST_GPUS: Final = 8
SEE_IMAGES: Final = "muster catalog list image"

ADD_ON_FEATURES: Final[dict[str, Feature]] = {
    "dashboard": Feature.ADD_ON_DASHBOARD,
    "headlamp": Feature.ADD_ON_HEADLAMP,
    "ingress": Feature.ADD_ON_INGRESS,
    "slurm_web": Feature.ADD_ON_SLURM_WEB,
    "torchpass": Feature.ADD_ON_TORCHPASS,
}
PLAIN: Final = ClusterConfig()
"""What most clusters have; nothing in it needs to be checked."""
LOAD_BALANCERS: Final = ("none", "traefik", "nginx", "istio")


def check_name(name: str) -> str:
    """A cluster's name stands in URLs and kubeconfig contexts, so a slash is no part of it."""
    if "/" in name:
        raise Invalid("a cluster name has no slash", field="name", hint="for example: demo")
    return clean_name(name)


def choose_shape(command: CreateCluster, catalog: Catalog) -> tuple[InstanceType, int]:
    """The instance type and the number of workers behind an ask for GPUs."""
    if command.gpu_type not in catalog.gpu_types:
        known = ", ".join(sorted(catalog.gpu_types))
        raise Invalid(f"there is no GPU type {command.gpu_type}", field="gpu_type", hint=f"one of {known}")
    per_node = command.gpus_per_node or min(WHOLE_HOST_GPUS, command.gpus)
    shape = catalog.instance_type_for(command.gpu_type, per_node)
    if shape is None:
        sizes = sorted(t.gpus for t in catalog.instance_types.values() if t.gpu_type == command.gpu_type)
        raise Invalid(
            f"no instance type has {per_node} {command.gpu_type} per node",
            field="gpus",
            hint=f"nodes have {', '.join(map(str, sizes))} GPUs; larger clusters are multiples of {WHOLE_HOST_GPUS}",
        )
    return shape, check_gpus(command.gpus, shape)


def check_gpus(gpus: int, shape: InstanceType) -> int:
    """The number of workers for so many GPUs."""
    workers, rest = divmod(gpus, shape.gpus)
    if rest or workers < 1:
        raise Invalid(f"gpus must be a positive multiple of {shape.gpus}", field="gpus")
    if workers > WORKERS_MAX:
        raise Invalid(f"a cluster has at most {WORKERS_MAX} workers", field="gpus")
    return workers


def check_autoscale(
    wish: AutoscaleWish | None, shape: InstanceType, workers: int, type: ClusterType, orchestrator: Orchestrator
) -> Autoscale | None:
    """How far a cluster of so many workers may grow by itself."""
    if wish is None or wish.max_gpus == 0:
        return None
    if Feature.AUTOSCALE not in (orchestrator.features(type) or ()):
        raise Unsupported(f"this fleet cannot let a {type} cluster grow by itself", field="autoscale")
    if wish.max_gpus % shape.gpus or not workers <= wish.max_gpus // shape.gpus <= WORKERS_MAX:
        raise Invalid(
            f"autoscale.max_gpus must be a multiple of {shape.gpus}, at least {workers * shape.gpus} "
            f"and at most {WORKERS_MAX * shape.gpus}",
            field="autoscale.max_gpus",
        )
    return Autoscale(max_workers=wish.max_gpus // shape.gpus)


def check_preemptible(gpus: int, type: ClusterType, shape: InstanceType, orchestrator: Orchestrator) -> int:
    """The number of preemptible workers for so many GPUs."""
    field = "preemptible_gpus"
    workers, rest = divmod(gpus, shape.gpus)
    if rest or workers < 0:
        raise Invalid(f"{field} must be a multiple of {shape.gpus}", field=field)
    if workers > WORKERS_MAX:
        raise Invalid(f"a cluster has at most {WORKERS_MAX} preemptible workers", field=field)
    if workers and Feature.PREEMPTIBLE not in (orchestrator.features(type) or frozenset()):
        raise Unsupported(f"preemptible GPUs cannot be had on a {type} cluster", field=field, hint="only with Slurm")
    return workers


def choose_image(command: CreateCluster, region: str, catalog: Catalog) -> Image:
    image = known_image(command.image_id, catalog) if command.image_id else catalog.newest_image(region)
    if image is None or image.region != region:
        raise Invalid(
            f"there is no image {command.image_id or 'at all'} in {region}", field="image_id", hint=SEE_IMAGES
        )
    return image


def known_image(id: str, catalog: Catalog) -> Image:
    image = catalog.images.get(id)
    if image is None:
        raise Invalid(f"there is no image {id}", field="image_id", hint=SEE_IMAGES)
    return image


def check_region(region: str, catalog: Catalog) -> str:
    if region not in catalog.regions:
        raise Invalid(
            f"there is no region {region}", field="region", hint=f"one of {', '.join(sorted(catalog.regions))}"
        )
    return region


def check_features(type: ClusterType, config: ClusterConfig, orchestrator: Orchestrator) -> None:
    """What this fleet cannot honour is refused, never accepted and ignored."""
    able = orchestrator.features(type)
    if able is None:
        behind = f"its orchestrator is {orchestrator.name}"
        hint = "there is none behind this server (--fleet none)" if orchestrator.name == "none" else behind
        raise Unsupported(f"this fleet makes no {type} clusters", field="type", hint=hint)
    for feature, field in wished_features(config):
        if feature not in able:
            raise Unsupported(f"this fleet cannot honour {field} on a {type} cluster", field=field)


async def check_image(type: ClusterType, name: str, orchestrator: Orchestrator) -> None:
    """A root file system by its name: one that the fleet has."""
    known = await orchestrator.images(type) if name else None
    if known is not None and name not in known:
        names = (
            f"one of {', '.join(sorted(known))}" if known else "there are none beside the fleet's own: say nothing"
        )
        raise Invalid(f"this fleet has no image {name[:100]!r}", field="config.slurm_image", hint=names)


def wished_features(config: ClusterConfig) -> Iterable[tuple[Feature, str]]:
    if config == PLAIN:
        return
    wishes = (
        (config.scripts != Scripts(), Feature.SLURM_SCRIPTS, "config.scripts"),
        (config.accounting, Feature.SLURM_ACCOUNTING, "config.accounting"),
        (bool(config.slurm_image), Feature.SLURM_IMAGE, "config.slurm_image"),
        (config.oidc is not None, Feature.OIDC, "config.oidc"),
        (config.load_balancer != "none", Feature.LOAD_BALANCER, "config.load_balancer"),
        (config.ingress, Feature.INGRESS, "config.ingress"),
        (config.observability, Feature.OBSERVABILITY, "config.observability"),
        (config.jumphost, Feature.JUMPHOST, "config.jumphost"),
        (config.ssh_ca, Feature.SSH_CA, "config.ssh_ca"),
        (bool(config.gpu_operator_version), Feature.OPERATOR_VERSIONS, "config.gpu_operator_version"),
        (bool(config.network_operator_version), Feature.OPERATOR_VERSIONS, "config.network_operator_version"),
    )
    yield from ((feature, field) for wished, feature, field in wishes if wished)
    yield from (
        (ADD_ON_FEATURES[add_on.type], f"config.add_ons ({add_on.type})")
        for add_on in config.add_ons
        if add_on.enabled
    )


def check_config(config: ClusterConfig) -> None:
    if config == PLAIN:
        return
    if not 1 <= config.shm_gib <= SHM_GIB_MAX:
        raise Invalid(f"shm_gib must be between 1 and {SHM_GIB_MAX}", field="config.shm_gib")
    if config.load_balancer not in LOAD_BALANCERS:
        raise Invalid(
            f"there is no load balancer {config.load_balancer}",
            field="config.load_balancer",
            hint=f"one of {', '.join(LOAD_BALANCERS)}",
        )
    for add_on in config.add_ons:
        if add_on.type not in ADD_ON_FEATURES:
            known = ", ".join(ADD_ON_FEATURES)
            raise Invalid(f"there is no add-on {add_on.type}", field="config.add_ons", hint=f"one of {known}")
    if len({add_on.name for add_on in config.add_ons}) != len(config.add_ons):
        raise Invalid("two add-ons have the same name", field="config.add_ons")
    _check_scripts(config.scripts)


def _check_scripts(scripts: Scripts) -> None:
    for field in scripts.__struct_fields__:
        text = getattr(scripts, field)
        if len(text.encode()) > SCRIPT_BYTES_MAX:
            raise Invalid(f"{field} is longer than {SCRIPT_BYTES_MAX} bytes", field=f"config.scripts.{field}")
        if text and field != "extra_slurm_conf" and not text.startswith("#!"):
            raise Invalid(
                f"{field} must start with a shebang", field=f"config.scripts.{field}", hint="begin with #!/bin/bash"
            )


def check_mounts(mounts: Iterable[MountWish]) -> None:
    paths: set[str] = set()
    for mount in mounts:
        if bool(mount.volume_id) == (mount.new is not None):
            raise Invalid("a mount names a volume or a new one, not both and not neither", field="mounts")
        if mount.path:
            check_mount_path(mount.path)
            if mount.path in paths:
                raise Invalid(f"two volumes cannot both be mounted at {mount.path}", field="mounts")
            paths.add(mount.path)


def check_mount_path(path: str) -> None:
    parts = path.split("/")
    if (
        not path.startswith("/")
        or path == "/"
        or any(p in (".", "..", "") for p in parts[1:])
        or not path.isprintable()
    ):
        raise Invalid(f"{path} is no absolute path to mount at", field="mounts", hint="for example /data")
    if parts[1] in ("proc", "sys", "dev", "etc", "usr", "bin", "sbin", "lib", "lib64", "boot", "run"):
        raise Invalid(f"/{parts[1]} belongs to the node itself", field="mounts", hint="for example /data")

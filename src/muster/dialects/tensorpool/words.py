"""TensorPool's words for ours: phases, requests, instance types. Total, and a test says so.

Leans on the model and the catalogue's snapshot. Only RUNNING and the states of requests are known of the provider;
the other words are our choice, and docs/dialects/tensorpool.md says which.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from muster.core.catalog.snapshot import Catalog
from muster.errors import Invalid
from muster.model.catalog import InstanceType
from muster.model.events import RequestState
from muster.model.phases import NodePhase, Phase, VolumePhase

CLUSTER_STATUS: Final[dict[Phase, str]] = {
    Phase.QUEUED: "PENDING",
    Phase.SCHEDULED: "PENDING",
    Phase.NETWORK: "PROVISIONING",
    Phase.STORAGE: "PROVISIONING",
    Phase.CONTROL: "PROVISIONING",
    Phase.WORKERS: "PROVISIONING",
    Phase.DRIVERS: "PROVISIONING",
    Phase.TESTING: "PROVISIONING",
    Phase.FAILED: "FAILED",
    Phase.READY: "RUNNING",
    Phase.DEGRADED: "RUNNING",
    Phase.PAUSED: "STOPPED",
    Phase.UNFUNDED: "STOPPED",
    Phase.DELETING: "DESTROYING",
    Phase.GONE: "DESTROYED",
}
INSTANCE_STATUS: Final[dict[NodePhase, str]] = {
    NodePhase.PENDING: "PENDING",
    NodePhase.BOOTING: "PROVISIONING",
    NodePhase.JOINING: "PROVISIONING",
    NodePhase.RUNNING: "RUNNING",
    NodePhase.DRAINING: "RUNNING",
    NodePhase.LOST: "UNREACHABLE",
    NodePhase.FAILED: "FAILED",
    NodePhase.LEAVING: "DESTROYING",
    NodePhase.GONE: "DESTROYED",
}
STORAGE_STATUS: Final[dict[VolumePhase, str]] = {
    VolumePhase.PROVISIONING: "PROVISIONING",
    VolumePhase.AVAILABLE: "READY",
    VolumePhase.FAILED: "FAILED",
    VolumePhase.DELETING: "DESTROYING",
    VolumePhase.GONE: "DESTROYED",
}
REQUEST_STATUS: Final[dict[RequestState, str]] = {
    RequestState.PENDING: "PENDING",
    RequestState.PROCESSING: "PROCESSING",
    RequestState.COMPLETED: "COMPLETED",
    RequestState.FAILED: "FAILED",
}
RETRYING: Final = "RETRYING"
"""A create that goes on after a node of it had to be replaced."""

REQUEST_STATUSES: Final = (*REQUEST_STATUS.values(), RETRYING)

REQUEST_TYPE: Final[dict[tuple[str, str], str]] = {
    ("cluster", "create"): "CLUSTER_CLAIM",
    ("cluster", "delete"): "CLUSTER_RELEASE",
    ("cluster", "attach"): "STORAGE_ATTACH",
    ("cluster", "detach"): "STORAGE_DETACH",
    ("cluster", "resize"): "CLUSTER_EDIT",
    ("cluster", "update"): "CLUSTER_EDIT",
    ("cluster", "pause"): "CLUSTER_EDIT",
    ("cluster", "resume"): "CLUSTER_EDIT",
    ("volume", "create"): "STORAGE_CREATE",
    ("volume", "delete"): "STORAGE_DESTROY",
    ("volume", "grow"): "STORAGE_EDIT",
}
OTHER_REQUEST: Final = "CLUSTER_EDIT"
"""Any operation on a cluster that this wire has no word for changes it."""

_INSTANCE_TYPE: Final = re.compile(r"(?P<gpus>\d{1,3})x(?P<word>[A-Za-z0-9_]{1,64})")


class Shape(NamedTuple):
    """What an instance type like 8xH100 asks for."""

    gpu_type: str
    gpus: int


def request_type(kind: str, operation: str) -> str:
    return REQUEST_TYPE.get((kind, operation), OTHER_REQUEST)


def shape_of(instance_type: str, catalog: Catalog) -> Shape:
    """`8xH100` -> 8 GPUs of the catalogue's H100_SXM. The catalogue's own word is understood too."""
    said = _INSTANCE_TYPE.fullmatch(instance_type.strip())
    gpu_type = _gpu_type(said["word"], catalog) if said else None
    if said is None or gpu_type is None or catalog.instance_type_for(gpu_type, int(said["gpus"])) is None:
        raise Invalid(
            f"there is no instance type {instance_type}",
            field="instance_type",
            hint=f"this server has {', '.join(every_instance_type(catalog))}",
        )
    return Shape(gpu_type, int(said["gpus"]))


def _gpu_type(word: str, catalog: Catalog) -> str | None:
    """The type of exactly this name, else the plainest that begins with it: H100 is H100_SXM, not H100_SXM_INF."""
    wanted = word.upper()
    if wanted in catalog.gpu_types:
        return wanted
    beginning = [id for id in catalog.gpu_types if id.upper().startswith(f"{wanted}_")]
    return min(beginning, key=lambda id: (len(id), id), default=None)


def instance_type_word(shape: InstanceType | None, catalog: Catalog) -> str:
    """8xH100_SXM -> 8xH100, when that leads back to the same type."""
    if shape is None:
        return ""
    short = shape.gpu_type.split("_", 1)[0]
    word = short if _gpu_type(short, catalog) == shape.gpu_type else shape.gpu_type
    return f"{shape.gpus}x{word}"


def every_instance_type(catalog: Catalog) -> list[str]:
    shapes = sorted(catalog.instance_types.values(), key=lambda shape: (shape.gpu_type, shape.gpus))
    return [instance_type_word(shape, catalog) for shape in shapes]

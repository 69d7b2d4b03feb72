"""Everything this dialect answers, in one visible table: what each call takes and gives, and under which bases.

Leans on the handlers beside it; the door's routes and the OpenAPI document are both made from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.together import answers, wire
from muster.dialects.together.clusters import Clusters
from muster.dialects.together.legacy_calls import Legacy
from muster.dialects.together.remediations import Remediations
from muster.dialects.together.storage import Storage
from muster.dialects.together.whoami import Whoami

COMPUTE: Final = ("/v1/compute", "/compute", "/v1/v1/compute")
"""As documented; a 2.x client whose base URL lacks /v1; a 3.x client whose base URL has it."""

WHOAMI: Final = ("/v1/whoami", "/whoami", "/v1/v1/whoami")
WHOAMI_3: Final = ("/v3/whoami", "/v1/v3/whoami")
LEGACY: Final = "/api/v1"

_ONE: Final = "/clusters/{cluster_id}"
_VOLUMES: Final = "/clusters/storage/volumes"
_VOLUME: Final = f"{_VOLUMES}/{{volume_id}}"
_REPAIRS: Final = f"{_ONE}/instances/{{instance_id}}/remediations"
_REPAIR: Final = f"{_REPAIRS}/{{remediation_id}}"
_FILTERS: Final = ("mode", "state", "trigger", "order_by", "page_size", "page_token")


class Row(NamedTuple):
    """One call; `handle` is a method of its surface's room."""

    method: str
    path: str
    handle: Callable[[Any, Call], Awaitable[Reply]]
    gives: type[answers.Answer]
    takes: type[wire.Body] | None = None
    query: tuple[str, ...] = ()


class Surface(NamedTuple):
    """Calls that one room answers, under each base that people configure; the first is the documented one."""

    room: Callable[[House], object]
    bases: tuple[str, ...]
    rows: tuple[Row, ...]


SURFACES: Final = (
    Surface(
        Clusters,
        COMPUTE,
        (
            Row("POST", "/clusters", Clusters.create, answers.Cluster, wire.NewCluster),
            Row("GET", "/clusters", Clusters.list, answers.ClusterList, query=("projectId",)),
            Row("GET", _ONE, Clusters.retrieve, answers.Cluster),
            Row("PUT", _ONE, Clusters.update, answers.Cluster, wire.ClusterChange),
            Row("DELETE", _ONE, Clusters.delete, answers.ClusterId),
            Row("GET", "/regions", Clusters.regions, answers.RegionList),
        ),
    ),
    Surface(
        Storage,
        COMPUTE,
        (
            Row("POST", _VOLUMES, Storage.create, answers.Volume, wire.NewVolume),
            Row("GET", _VOLUMES, Storage.list, answers.VolumeList, query=("projectId",)),
            Row("PUT", _VOLUMES, Storage.update, answers.Volume, wire.VolumeChange),
            Row("GET", _VOLUME, Storage.retrieve, answers.Volume),
            Row("DELETE", _VOLUME, Storage.delete, answers.Deleted),
        ),
    ),
    Surface(
        Remediations,
        COMPUTE,
        (
            Row(
                "POST",
                _REPAIRS,
                Remediations.create,
                answers.Remediation,
                wire.NewRemediation,
                query=("remediation_id",),
            ),
            Row("GET", _REPAIRS, Remediations.list, answers.RemediationList, query=_FILTERS),
            Row("GET", _REPAIR, Remediations.retrieve, answers.Remediation),
            Row("POST", f"{_REPAIR}/approve", Remediations.approve, answers.Remediation, wire.Approval),
            Row("POST", f"{_REPAIR}/reject", Remediations.reject, answers.Remediation, wire.Rejection),
            Row("POST", f"{_REPAIR}/cancel", Remediations.cancel, answers.Remediation),
        ),
    ),
    Surface(Whoami, WHOAMI, (Row("GET", "", Whoami.old, answers.OldWhoami),)),
    Surface(Whoami, WHOAMI_3, (Row("GET", "", Whoami.current, answers.Whoami),)),
    Surface(
        Legacy,
        (LEGACY,),
        (
            Row("POST", "/gpu_cluster", Legacy.create, answers.LegacyAccepted, wire.LegacyNewCluster),
            Row("PUT", "/gpu_cluster", Legacy.update, answers.LegacyAccepted, wire.LegacyClusterChange),
            Row("GET", "/gpu_clusters", Legacy.list, answers.LegacyClusterList),
            Row("GET", "/gpu_cluster/{cluster_id}", Legacy.retrieve, answers.LegacyCluster),
            Row("DELETE", "/gpu_cluster/{cluster_id}", Legacy.delete, answers.ClusterId),
            Row("POST", "/shared_volume", Legacy.create_volume, answers.LegacyVolumeId, wire.LegacyNewVolume),
            Row("GET", "/shared_volumes", Legacy.volumes, answers.LegacyVolumeList),
            Row("DELETE", "/shared_volume/{volume_id}", Legacy.delete_volume, answers.Deleted),
        ),
    ),
)

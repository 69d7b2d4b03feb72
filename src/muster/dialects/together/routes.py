"""Together's dialect: one visible table of everything it answers, under each base that people configure.

Leans on the handlers beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from muster.contracts.http import Call, Handler, Reply, Route, SocketRoute
from muster.core.house import House
from muster.dialects.together import refusals
from muster.dialects.together.clusters import Clusters
from muster.dialects.together.legacy_calls import Legacy
from muster.dialects.together.remediations import Remediations
from muster.dialects.together.storage import Storage
from muster.dialects.together.whoami import Whoami
from muster.errors import CallError, Unauthenticated

COMPUTE: Final = ("/v1/compute", "/compute", "/v1/v1/compute")
"""As documented; a 2.x client whose base URL lacks /v1; a 3.x client whose base URL has it."""

WHOAMI: Final = ("/v1/whoami", "/whoami", "/v1/v1/whoami")
WHOAMI_3: Final = ("/v3/whoami", "/v1/v3/whoami")
LEGACY: Final = "/api/v1"

Row = tuple[str, str, Handler]


def compute_rows(clusters: Clusters, storage: Storage, remediations: Remediations) -> Sequence[Row]:
    one = "/clusters/{cluster_id}"
    volumes, volume = "/clusters/storage/volumes", "/clusters/storage/volumes/{volume_id}"
    repairs = f"{one}/instances/{{instance_id}}/remediations"
    repair = f"{repairs}/{{remediation_id}}"
    return (
        ("POST", "/clusters", clusters.create),
        ("GET", "/clusters", clusters.list),
        ("GET", one, clusters.retrieve),
        ("PUT", one, clusters.update),
        ("DELETE", one, clusters.delete),
        ("GET", "/regions", clusters.regions),
        ("POST", volumes, storage.create),
        ("GET", volumes, storage.list),
        ("PUT", volumes, storage.update),
        ("GET", volume, storage.retrieve),
        ("DELETE", volume, storage.delete),
        ("POST", repairs, remediations.create),
        ("GET", repairs, remediations.list),
        ("GET", repair, remediations.retrieve),
        ("POST", f"{repair}/approve", remediations.approve),
        ("POST", f"{repair}/reject", remediations.reject),
        ("POST", f"{repair}/cancel", remediations.cancel),
    )


def legacy_rows(legacy: Legacy) -> Sequence[Row]:
    return (
        ("POST", "/gpu_cluster", legacy.create),
        ("PUT", "/gpu_cluster", legacy.update),
        ("GET", "/gpu_clusters", legacy.list),
        ("GET", "/gpu_cluster/{cluster_id}", legacy.retrieve),
        ("DELETE", "/gpu_cluster/{cluster_id}", legacy.delete),
        ("POST", "/shared_volume", legacy.create_volume),
        ("GET", "/shared_volumes", legacy.volumes),
        ("DELETE", "/shared_volume/{volume_id}", legacy.delete_volume),
    )


def _under(bases: Sequence[str], rows: Sequence[Row]) -> list[Route]:
    return [
        Route(method, base + path, handle, name=f"{method} {bases[0]}{path}")
        for base in bases
        for method, path, handle in rows
    ]


class Together:
    """The dialect as the door is handed it."""

    name = "together"

    def __init__(self, house: House) -> None:
        whoami = Whoami(house)
        self._routes = (
            *_under(COMPUTE, compute_rows(Clusters(house), Storage(house), Remediations(house))),
            *_under(WHOAMI, [("GET", "", whoami.old)]),
            *_under(WHOAMI_3, [("GET", "", whoami.current)]),
            *_under([LEGACY], legacy_rows(Legacy(house))),
        )

    def routes(self) -> Sequence[Route]:
        return self._routes

    def sockets(self) -> Sequence[SocketRoute]:
        return ()

    def claims(self, path: str) -> bool:
        return path.startswith((*COMPUTE, "/v1/", "/v3/", f"{LEGACY}/gpu_cluster", f"{LEGACY}/shared_volume"))

    def credentials(self, headers: Mapping[str, str], query: str) -> str | None:
        said = headers.get("authorization")
        if said is None:
            return None
        if said[:7].lower() != "bearer ":
            raise Unauthenticated(
                "the Authorization header is not a bearer key", hint="set TOGETHER_API_KEY to a key of this server"
            )
        return said[7:].strip()

    def refuse(self, error: CallError, call: Call) -> Reply:
        return refusals.refusal(error, call)

    def crash(self, call: Call) -> Reply:
        return refusals.crash(call)

"""TIR's dialect: one visible table of everything it answers, under each address that people write.

Leans on the handlers beside it. Paths end in a slash and may leave it out; the project is in the query, or in the
path as it was while there were teams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs

from muster.contracts.http import Call, Handler, Reply, Route, SocketRoute
from muster.core.house import House
from muster.dialects.tir import refusals
from muster.dialects.tir.access import Access
from muster.dialects.tir.actions import Actions
from muster.dialects.tir.catalog import Shelf
from muster.dialects.tir.clusters import Clusters
from muster.dialects.tir.jobs import Jobs
from muster.dialects.tir.people import People
from muster.dialects.tir.storage import Storage
from muster.dialects.tir.words import BASE
from muster.errors import CallError, Unauthenticated

V2: Final = "/distributed_jobs_v2"
TEAM: Final = "/teams/{team_id}"
PROJECT: Final = "/projects/{project_id}"
LAYERS: Final = ("", PROJECT, TEAM + PROJECT)
"""Where the project is said: in the query; in the path; in the path after its team, as the SDK still has it."""

Row = tuple[str, str, Handler]


def cluster_rows(clusters: Clusters, actions: Actions, shelf: Shelf) -> Sequence[Row]:
    """Version 2, which is also answered without the base."""
    one = f"{V2}/cluster/{{cluster_id}}"
    return (
        ("POST", f"{V2}/cluster", clusters.create),
        ("GET", f"{V2}/cluster", clusters.every),
        ("GET", f"{V2}/cluster/plans", shelf.plans),
        ("GET", one, clusters.retrieve),
        ("PUT", one, actions.act),
        ("DELETE", one, clusters.delete),
        ("GET", f"{V2}/deployment_images/{{framework}}", shelf.deployment_images),
    )


def project_rows(clusters: Clusters, jobs: Jobs, sfs: Storage, pfs: Storage) -> Sequence[Row]:
    """What belongs to a project, wherever that is said."""
    return (
        ("GET", "/distributed_jobs/cluster", clusters.every),
        ("GET", "/distributed_jobs/cluster/{cluster_id}", clusters.retrieve),
        ("GET", "/dashboard/service-count", clusters.service_count),
        *_job_rows("/distributed_jobs/jobs", jobs),
        *_storage_rows("/distributed_jobs/sfs", sfs),
        *_storage_rows("/pfs", pfs),
    )


def _job_rows(path: str, jobs: Jobs) -> Sequence[Row]:
    one = f"{path}/{{job_id}}"
    return (
        ("POST", path, jobs.submit),
        ("GET", path, jobs.every),
        ("GET", one, jobs.describe),
        ("PUT", one, jobs.act),
        ("DELETE", one, jobs.delete),
        ("GET", f"{one}/pods", jobs.pods),
        ("GET", f"{one}/events", jobs.events),
        ("GET", f"{one}/logs/{{pod_name}}", jobs.logs),
    )


def _storage_rows(path: str, storage: Storage) -> Sequence[Row]:
    one = f"{path}/{{volume_id}}"
    return (
        ("GET", path, storage.every),
        ("POST", path, storage.create),
        ("GET", one, storage.retrieve),
        ("PUT", one, storage.grow),
        ("DELETE", one, storage.delete),
        ("GET", f"{one}/notebooks", storage.attached),
    )


def access_rows(access: Access) -> Sequence[Row]:
    group, ip = "/security_groups/{group_id}", "/reserved_ips/{ip_id}"
    return (
        ("POST", "/ssh_keys", access.add_key),
        ("GET", "/ssh_keys", access.keys),
        ("GET", "/ssh_keys/sync", access.keys),
        ("DELETE", "/ssh_keys/{key_id}", access.delete_key),
        ("POST", "/security_groups", access.create_group),
        ("GET", "/security_groups", access.groups),
        ("GET", group, access.group),
        ("DELETE", group, access.delete_group),
        ("PUT", f"{group}/rules", access.set_rules),
        ("DELETE", f"{group}/rules", access.delete_group),
        ("POST", "/reserved_ips", access.reserve),
        ("GET", "/reserved_ips", access.ips),
        ("GET", ip, access.ip),
        ("DELETE", ip, access.release),
    )


def people_rows(people: People, shelf: Shelf) -> Sequence[Row]:
    return (
        ("GET", "/users/iam-accounts", people.iam_accounts),
        ("GET", "/gpu_service/sku", shelf.skus),
        ("GET", "/gpu_service/image", shelf.images),
        ("GET", "/plans-and-pricing/list", shelf.pricing),
        ("GET", "/gpu/plans-and-pricing/list", shelf.pricing),
        ("GET", "/teams", people.teams),
        ("POST", "/teams", people.create_team),
        ("GET", TEAM, people.team),
        ("DELETE", TEAM, people.keep),
        *(
            row
            for layer in ("", TEAM)
            for row in (
                ("POST", f"{layer}/auth-token", people.create_token),
                ("GET", f"{layer}/auth-token", people.tokens),
                ("DELETE", f"{layer}/auth-token/{{token_id}}", people.delete_token),
                ("GET", f"{layer}/projects", people.projects),
                ("POST", f"{layer}/projects", people.create_project),
                ("GET", f"{layer}{PROJECT}", people.project),
                ("DELETE", f"{layer}{PROJECT}", people.keep),
            )
        ),
    )


def _under(bases: Sequence[str], rows: Sequence[Row]) -> Iterator[Route]:
    for base in bases:
        for method, path, handle in rows:
            for slash in ("/", ""):
                name = f"{method} {path}"
                yield Route(method, f"{base}{path}{slash}", handle, name=name)


class Tir:
    """The dialect as the door is handed it."""

    name = "tir"

    def __init__(self, house: House) -> None:
        clusters, shelf, access = Clusters(house), Shelf(house), Access(house)
        sfs, pfs = Storage(house, "SFS", ("sfs", "shared")), Storage(house, "PFS", ("pfs",))
        layers = [BASE + layer for layer in LAYERS]
        version_2 = cluster_rows(clusters, Actions(house, clusters), shelf)
        self._routes = (
            *_under(["", *layers], version_2),
            *_under(layers, project_rows(clusters, Jobs(house), sfs, pfs)),
            *_under(layers, access_rows(access)),
            *_under([BASE], people_rows(People(house), shelf)),
        )

    def routes(self) -> Sequence[Route]:
        return self._routes

    def sockets(self) -> Sequence[SocketRoute]:
        return ()

    def claims(self, path: str) -> bool:
        return path.startswith(("/myaccount/", f"{V2}/"))

    def credentials(self, headers: Mapping[str, str], query: str) -> str | None:
        """The same key in the header and in the query; either will do, two different ones are two people."""
        scheme, _, bearer = (headers.get("authorization") or "").partition(" ")
        if scheme and scheme.lower() != "bearer":
            raise Unauthenticated("the Authorization header is not a bearer token")
        secrets = {bearer.strip(), *parse_qs(query).get("apikey", ())} - {""}
        if len(secrets) > 1:
            raise Unauthenticated("the bearer token and the apikey are not the same key")
        return next(iter(secrets), None)

    def refuse(self, error: CallError, call: Call) -> Reply:
        return refusals.refusal(error, call)

    def crash(self, call: Call) -> Reply:
        return refusals.crash(call)

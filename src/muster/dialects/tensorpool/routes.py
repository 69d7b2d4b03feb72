"""TensorPool's dialect: one visible table of everything it answers.

Leans on the handlers beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from muster.contracts.http import Call, Handler, Reply, Route, SocketRoute
from muster.core.house import House
from muster.dialects.tensorpool import answers, refusals, wire
from muster.dialects.tensorpool.clusters import Clusters
from muster.dialects.tensorpool.jobs import Jobs
from muster.dialects.tensorpool.objects import Objects
from muster.dialects.tensorpool.openapi import build
from muster.dialects.tensorpool.people import People
from muster.dialects.tensorpool.requests import Requests
from muster.dialects.tensorpool.sockets import JobSockets
from muster.dialects.tensorpool.storage import Storage
from muster.errors import CallError, Unauthenticated

ROOMS: Final = ("/cluster", "/request", "/storage", "/object-storage", "/job", "/ssh", "/user", "/health")
FILE: Final = "/job/file/{job_id}/{part}/{until}/{signature}"
"""One output of one job, for whoever was given the link."""


class Row(NamedTuple):
    """One call: what it is, what it takes and what it gives."""

    method: str
    path: str
    handle: Handler
    tag: str
    summary: str
    status: int
    answer: type[msgspec.Struct]
    body: type[msgspec.Struct] | None = None
    query: tuple[str, ...] = ()


def cluster_rows(clusters: Clusters, requests: Requests) -> Sequence[Row]:
    made = answers.ClusterCreateRestResponse
    return (
        Row("POST", "/cluster/create", clusters.create, "cluster", "Create cluster", 202, made, wire.NewCluster),
        Row(
            "GET",
            "/cluster/list",
            clusters.every,
            "cluster",
            "List clusters",
            200,
            answers.ClusterList,
            query=("include_org", "instances"),
        ),
        Row("GET", "/cluster/info/{cluster_id}", clusters.info, "cluster", "One cluster", 200, answers.ClusterInfo),
        Row(
            "PATCH",
            "/cluster/edit/{cluster_id}",
            clusters.edit,
            "cluster",
            "Rename or protect a cluster",
            202,
            answers.Accepted,
            wire.ClusterChange,
        ),
        Row(
            "GET",
            "/cluster/operations/{cluster_id}",
            clusters.operations,
            "cluster",
            "What was asked of a cluster",
            200,
            answers.Operations,
            query=("type", "status"),
        ),
        Row(
            "DELETE", "/cluster/{cluster_id}", clusters.destroy, "cluster", "Destroy a cluster", 202, answers.Accepted
        ),
        Row("GET", "/ssh/{instance_id}", clusters.ssh, "ssh", "The way in", 200, answers.Ssh, query=("system",)),
        Row("GET", "/request/info/{request_id}", requests.info, "requests", "One request", 200, answers.Request),
    )


def storage_rows(storage: Storage) -> Sequence[Row]:
    one, tag = "/storage/info/{storage_id}", "storage"
    edit = "/storage/edit/{storage_id}"
    return (
        Row(
            "POST",
            "/storage/create",
            storage.create,
            tag,
            "Make storage",
            202,
            answers.StorageCreated,
            wire.NewStorage,
        ),
        Row("GET", "/storage/list", storage.every, tag, "List", 200, answers.StorageList, query=("include_org",)),
        Row("GET", one, storage.info, tag, "One storage volume", 200, answers.StorageInfo),
        Row("PATCH", edit, storage.edit, tag, "Rename, protect or grow", 202, answers.Accepted, wire.StorageChange),
        Row("POST", "/storage/attach", storage.attach, tag, "Mount at /mnt/ID", 202, answers.Attaching, wire.Attach),
        Row("POST", "/storage/detach", storage.detach, tag, "Take it off", 202, answers.Accepted, wire.Detach),
        Row("GET", "/storage/quote", storage.quote, tag, "What it costs", 200, answers.Quote, query=("size",)),
        Row("DELETE", "/storage/{storage_id}", storage.destroy, tag, "Destroy storage", 202, answers.Accepted),
    )


def people_rows(people: People) -> Sequence[Row]:
    keys, tag, prefs = "/user/ssh-key", "user", "/user/preferences"
    return (
        Row("POST", "/health", people.health, tag, "The gate before every command", 200, answers.Health, wire.Health),
        Row("GET", "/user/info", people.user, tag, "Who this key is", 200, answers.UserInfo),
        Row("GET", "/user/organization/info", people.organization, tag, "Who pays", 200, answers.OrganizationInfo),
        Row("GET", prefs, people.preferences, tag, "What this person prefers", 200, answers.Preferences),
        Row("PATCH", prefs, people.prefer, tag, "Prefer", 200, answers.Preferences, wire.PreferenceChange),
        Row("POST", f"{keys}/add", people.add_key, tag, "Save an SSH key", 200, answers.KeyAdded, wire.NewKey),
        Row("GET", f"{keys}/list", people.keys, tag, "SSH keys", 200, answers.KeyList, query=("include_org",)),
        Row("DELETE", f"{keys}/remove/{{key_id}}", people.remove_key, tag, "Forget a key", 200, answers.Said),
    )


def job_rows(jobs: Jobs) -> Sequence[Row]:
    tag, said = "job", answers.Said
    query = ("dry_run", "system", "private_key_path", "files")
    return (
        Row("GET", "/job/init", jobs.init, tag, "A configuration to begin with", 200, answers.JobTemplate),
        Row("GET", "/job/list", jobs.every, tag, "List jobs", 200, answers.JobList, query=("include_org",)),
        Row("GET", "/job/info/{job_id}", jobs.info, tag, "One job", 200, answers.JobInfo),
        Row("POST", "/job/cancel/{job_id}", jobs.cancel, tag, "End a job", 202, said),
        Row("DELETE", "/job/delete/{job_id}", jobs.delete, tag, "Hide a job that is over", 200, said),
        Row("GET", "/job/pull/{job_id}", jobs.pull, tag, "What a job left", 200, answers.Pull, query=query),
    )


def object_rows(objects: Objects) -> Sequence[Row]:
    tag, base, keys = "object-storage", "/object-storage", answers.ObjectCredentials
    one = "{bucket_name}"
    return (
        Row("POST", f"{base}/enable", objects.enable, tag, "Switch it on", 200, keys),
        Row("DELETE", f"{base}/disable", objects.disable, tag, "Switch it off", 200, answers.Said),
        Row("GET", f"{base}/credentials", objects.credentials, tag, "The keys", 200, keys),
        Row("POST", f"{base}/rotate-keys", objects.rotate, tag, "A new secret", 200, keys),
        Row("GET", f"{base}/configure/rclone", objects.rclone, tag, "For rclone", 200, answers.RcloneConfig),
        Row("GET", f"{base}/configure/aws", objects.aws, tag, "For AWS's tools", 200, answers.AwsConfig),
        Row("GET", f"{base}/bucket/list", objects.buckets, tag, "Buckets", 200, answers.BucketList),
        Row("PUT", f"{base}/bucket/create/{one}", objects.make_bucket, tag, "Make one", 201, answers.Said),
        Row("DELETE", f"{base}/bucket/delete/{one}", objects.remove_bucket, tag, "Remove one", 204, answers.Said),
    )


class TensorPool:
    """The dialect as the door is handed it."""

    name = "tensorpool"

    def __init__(self, house: House) -> None:
        jobs = Jobs(house)
        rows = (
            *cluster_rows(Clusters(house), Requests(house)),
            *storage_rows(Storage(house)),
            *people_rows(People(house)),
            *job_rows(jobs),
            *object_rows(Objects(house)),
        )
        self._sockets = JobSockets(house).routes()
        self._page = msgspec.json.encode(build(rows))
        self._routes = (
            *(Route(row.method, row.path, row.handle, name=f"{row.method} {row.path}") for row in rows),
            Route("GET", "/openapi.json", self._openapi, name="GET /openapi.json", open=True),
            Route("GET", FILE, jobs.file, name=f"GET {FILE}", open=True),
        )

    async def _openapi(self, call: Call) -> Reply:
        return Reply(200, self._page)

    def routes(self) -> Sequence[Route]:
        return self._routes

    def sockets(self) -> Sequence[SocketRoute]:
        return self._sockets

    def claims(self, path: str) -> bool:
        return any(path == room or path.startswith(f"{room}/") for room in ROOMS)

    def credentials(self, headers: Mapping[str, str], query: str) -> str | None:
        scheme, _, secret = (headers.get("authorization") or "").partition(" ")
        if scheme and scheme.lower() != "bearer":
            raise Unauthenticated("the Authorization header is not a bearer key", hint="set TENSORPOOL_KEY")
        return secret.strip() or None

    def refuse(self, error: CallError, call: Call) -> Reply:
        return refusals.refusal(error, call)

    def crash(self, call: Call) -> Reply:
        return refusals.crash(call)

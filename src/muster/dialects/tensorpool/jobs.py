"""Jobs over HTTP: templates, lists, one job, ending and hiding it, and what it left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from muster.contracts.http import Call, Reply, Stream
from muster.core.house import House
from muster.core.jobs.service import LOG
from muster.dialects.tensorpool import answers
from muster.dialects.tensorpool.asking import flag
from muster.dialects.tensorpool.people import mine
from muster.dialects.tensorpool.render import iso
from muster.dialects.tensorpool.tables import pairs, table
from muster.dialects.tensorpool.template import TEMPLATE
from muster.dialects.tensorpool.ways import download_command
from muster.dialects.tensorpool.words import instance_type_word
from muster.errors import CallError, NotFound
from muster.model.accounts import Actor
from muster.model.jobs import OVER, Job, JobState

PAGE: Final = 1_000
CHUNK: Final = 256 << 10

JOB_STATUS: Final[dict[JobState, str]] = {state: state.value for state in JobState}
"""The same words: TensorPool's are the house's own."""


class Jobs:
    def __init__(self, house: House) -> None:
        self._house = house
        self._jobs = house.jobs

    async def init(self, call: Call) -> Reply:
        return Reply(200, msgspec.json.encode(answers.JobTemplate(message="", empty_tp_config=TEMPLATE)))

    async def every(self, call: Call) -> Reply:
        org = flag(call, "include_org")
        told = [await self._told(call.actor, job) for job in await self._all(call.actor, org)]
        return Reply(200, msgspec.json.encode(answers.JobList(message=_listed(told, org), jobs=told)))

    async def _all(self, actor: Actor, org: bool) -> list[Job]:
        found: list[Job] = []
        cursor: str | None = None
        while True:
            page = await self._jobs.jobs(actor, cursor=cursor, limit=PAGE)
            found += [job for job in page.items if org or mine(actor, job.created_by)]
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def info(self, call: Call) -> Reply:
        told = await self._told(call.actor, await self._jobs.job(call.actor, call.params["job_id"]))
        return Reply(200, msgspec.json.encode(answers.JobInfo(message=_text(told), job_info=told)))

    async def cancel(self, call: Call) -> Reply:
        job = await self._jobs.cancel(call.actor, call.params["job_id"])
        return Reply(202, msgspec.json.encode(answers.Said(message=f"Job {job.id} is being canceled.")))

    async def delete(self, call: Call) -> Reply:
        job = await self._jobs.delete(call.actor, call.params["job_id"])
        return Reply(200, msgspec.json.encode(answers.Said(message=f"Job {job.id} deleted.")))

    async def pull(self, call: Call) -> Reply:
        """A live job's directory by a command; what a finished one left by links, one file each."""
        job = await self._jobs.job(call.actor, call.params["job_id"])
        if job.state in OVER:
            answer = answers.Pull(
                message=f"Job {job.id} is {job.state}: {job.because}.",
                download_map=self._links(call, job),
                command=None,
                command_show_stdout=False,
            )
        else:
            cluster = await self._house.clusters.cluster(call.actor, job.cluster_id)
            answer = answers.Pull(
                message=f"Job {job.id} is {job.state}: this is what it has so far.",
                download_map={},
                command=download_command(cluster, job.id, call.asked("private_key_path")),
                command_show_stdout=True,
            )
        return Reply(200, msgspec.json.encode(answer))

    def _links(self, call: Call, job: Job) -> dict[str, str]:
        parts = {output.path: str(number) for number, output in enumerate(job.wanted[: job.kept])}
        if job.log_bytes:
            parts[f"job-{job.id}.log"] = LOG
        wanted = call.query.get("files")
        base = f"{call.headers.get('x-forwarded-proto', 'http')}://{call.headers.get('host', '')}"
        links: dict[str, str] = {}
        for path, part in parts.items():
            if not wanted or path in wanted:
                until, signature = self._jobs.link(job, part)
                links[path] = f"{base}/job/file/{job.id}/{part}/{until}/{signature}"
        return links

    async def file(self, call: Call) -> Stream:
        """Open to whoever holds the link, until it expires."""
        until, part = call.params["until"], call.params["part"]
        if len(until) > 16 or not until.isascii() or not until.isdigit():
            raise NotFound("there is no such file")
        job = await self._jobs.by_link(call.params["job_id"], part, int(until), call.params["signature"])
        return Stream(self._bytes(job, part), content_type="application/octet-stream")

    async def _bytes(self, job: Job, part: str) -> AsyncIterator[bytes]:
        offset, size = 0, job.log_bytes if part == LOG else job.wanted[int(part)].size
        while offset < size:
            chunk = await self._jobs.read(job, part, offset, min(CHUNK, size - offset))
            if not chunk:
                return
            yield chunk
            offset += len(chunk)

    async def _told(self, actor: Actor, job: Job) -> answers.Job:
        return answers.Job(
            job_id=job.id,
            status=JOB_STATUS[job.state],
            status_message=job.because,
            exit_code=job.exit_code,
            public_message=job.because,
            cluster_id=job.cluster_id,
            cluster_name=job.cluster_name,
            instance_type=await self._instance_type(actor, job),
            teardown_cluster=job.teardown,
            created_by=job.created_by,
            created_at=iso(job.created_at),
            started_at=None if job.started_at is None else iso(job.started_at),
            ended_at=None if job.ended_at is None else iso(job.ended_at),
        )

    async def _instance_type(self, actor: Actor, job: Job) -> str:
        try:
            cluster = await self._house.clusters.cluster(actor, job.cluster_id)
        except CallError:
            return ""  # its cluster is gone, and the job outlives it
        catalog = await self._house.catalog.current()
        return instance_type_word(catalog.instance_types.get(cluster.spec.instance_type), catalog)


def _listed(jobs: list[answers.Job], org: bool) -> str:
    if not jobs:
        return f"{'Your organization has' if org else 'You have'} no jobs. Begin with: tp job init"
    rows = [(job.job_id, job.status, job.cluster_name, job.created_at, job.status_message) for job in jobs]
    return table(("JOB ID", "STATUS", "CLUSTER", "CREATED", "BECAUSE"), rows)


def _text(job: answers.Job) -> str:
    return pairs(
        [
            ("Job ID", job.job_id),
            ("Status", job.status),
            ("Because", job.status_message),
            ("Exit code", job.exit_code),
            ("Cluster", f"{job.cluster_name} ({job.cluster_id})"),
            ("Instance type", job.instance_type),
            ("Ends its cluster", job.teardown_cluster),
            ("Created", job.created_at),
            ("Started", job.started_at),
            ("Ended", job.ended_at),
        ]
    )

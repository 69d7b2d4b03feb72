"""PyTorch jobs as the SDK submits them: replicas of one job under Slurm, each a pod by name.

Leans on the house's jobs room. A pod's log is what its task printed: srun puts the task's number before each line.
"""

from __future__ import annotations

import ast
import base64
import binascii
import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.tir import answers, wire, words
from muster.dialects.tir.asking import named, number_in_path, project_of, read
from muster.dialects.tir.render import moment
from muster.dialects.tir.translate import SAID
from muster.errors import Invalid, NotFound
from muster.model.accounts import Project
from muster.model.clusters import Cluster
from muster.model.jobs import Job, JobSpec
from muster.model.volumes import Volume

PAGE: Final = 1_000
REPLICAS_MAX: Final = 4_096
LOG_BYTES_MAX: Final = 4 << 20
MASTER_PORT: Final = 29_500
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.A)
_TASK: Final = re.compile(r"^ *(\d{1,6}): ?(.*)$")


class Jobs:
    def __init__(self, house: House) -> None:
        self._house = house
        self._jobs = house.jobs

    async def submit(self, call: Call) -> Reply:
        project = await project_of(self._house, call)
        said = read(call, wire.NewJob)
        cluster = await self._cluster(call, project, said)
        job = await self._jobs.accept(call.actor, cluster.id, spec_of(said))
        job = await self._jobs.uploaded(call.actor, job.id)  # there are no files to wait for
        return answers.reply(_told(job, cluster.number), code=201, message="Job created successfully")

    async def _cluster(self, call: Call, project: Project, said: wire.NewJob) -> Cluster:
        try:
            cluster = await self._house.numbers.find(call.actor, Cluster, said.cluster_id)
        except NotFound as error:
            raise Invalid(error.message, field="cluster_id") from None
        if cluster.project_id != project.id:
            raise Invalid(f"project {project.number} has no cluster {said.cluster_id}", field="cluster_id")
        if said.sfs_id:
            volume = await named(self._house, call, project, Volume, said.sfs_id, "sfs_id")
            mounted = await self._house.volumes.attachments(call.actor, volume.id)
            if cluster.id not in {attachment.cluster_id for attachment in mounted}:
                raise Invalid(f"cluster {cluster.number} does not mount SFS {said.sfs_id}", field="sfs_id")
        return cluster

    async def every(self, call: Call) -> Reply:
        project = await project_of(self._house, call)
        return answers.reply([await self._told(call, job) async for job in self._of(call, project)])

    async def describe(self, call: Call) -> Reply:
        return answers.reply(await self._told(call, await self._asked(call)))

    async def _told(self, call: Call, job: Job) -> answers.Job:
        try:
            cluster = await self._house.clusters.cluster(call.actor, job.cluster_id)
        except NotFound:
            return _told(job, 0)  # the cluster is gone, the job's record is not
        return _told(job, cluster.number)

    async def act(self, call: Call) -> Reply:
        job = await self._asked(call)
        if call.asked("action") != "terminate":
            raise Invalid("a job can only be told to terminate", field="action", hint="send ?action=terminate")
        await self._jobs.cancel(call.actor, job.id)
        return answers.reply("Job terminated successfully")

    async def delete(self, call: Call) -> Reply:
        job = await self._asked(call)
        await self._jobs.delete(call.actor, job.id)
        return answers.reply("Job deleted successfully")

    async def pods(self, call: Call) -> Reply:
        job = await self._asked(call)
        status = words.JOB_STATUS[job.state]
        return answers.reply(
            [answers.Pod(pod_name=name, role=name.split("-")[-2], status=status) for name in pods_of(job)]
        )

    async def events(self, call: Call) -> Reply:
        job = await self._asked(call)
        found = await self._house.events.events(call.actor, project_id=job.project_id, resource_id=job.id, limit=PAGE)
        return answers.reply(
            [answers.JobEvent(at=moment(event.at), type=event.type, message=event.message) for event in found]
        )

    async def logs(self, call: Call) -> Reply:
        job = await self._asked(call)
        name, names = call.params["pod_name"], list(pods_of(job))
        if name not in names:
            raise NotFound(f"this job has no pod {name[:80]}")
        text = (await self._jobs.log(call.actor, job.id, 0, LOG_BYTES_MAX)).decode(errors="replace")
        return answers.reply(answers.JobLogs(logs=task_lines(text, names.index(name))))

    async def _of(self, call: Call, project: Project) -> Any:
        cursor: str | None = None
        while True:
            page = await self._jobs.jobs(call.actor, cursor=cursor, limit=PAGE)
            for job in page.items:
                if job.project_id == project.id:
                    yield job
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _asked(self, call: Call) -> Job:
        project, number = await project_of(self._house, call), number_in_path(call, "job_id")
        async for job in self._of(call, project):
            if job_number(job) == number:
                found: Job = job
                return found
        raise NotFound(f"there is no job {number}")


# --- pure ---------------------------------------------------------------------------------------------------------


def spec_of(said: wire.NewJob) -> JobSpec:
    """One srun over all replicas; the first of them are masters."""
    if not said.name or not said.name.isprintable() or "/" in said.name:
        raise Invalid("a job has a printable name without slashes", field="name")
    masters, workers = said.master_replica, said.worker_replica
    if masters < 1 or workers < 0 or masters + workers > REPLICAS_MAX:
        raise Invalid(f"a job has 1 to {REPLICAS_MAX} replicas, one of them a master", field="master_replica")
    master = command_in(said.master_commands, "master_commands")
    worker = command_in(said.worker_commands, "worker_commands") if workers else master
    each = f"export RANK=$SLURM_PROCID; if [ $RANK -lt {masters} ]; then exec {master}; else exec {worker}; fi"
    count = masters + workers
    lines = [
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"export MASTER_PORT={MASTER_PORT} WORLD_SIZE={count}",
        *(_exported(variable) for variable in said.environment),
        f"tasks={count}; nodes=$((tasks < SLURM_JOB_NUM_NODES ? tasks : SLURM_JOB_NUM_NODES))",
        f'srun --label --overcommit --nodes="$nodes" --ntasks="$tasks" bash -c {shlex.quote(each)}',
    ]
    kept = {"name": said.name, "master_replica": masters, "worker_replica": workers}
    return JobSpec(commands=tuple(lines), said={SAID: kept})


def _exported(variable: wire.Variable) -> str:
    if not _VARIABLE.fullmatch(variable.key):
        raise Invalid(f"{variable.key[:40]!r} is no name of a variable", field="environmentVariable")
    return f"export {variable.key}={shlex.quote(variable.value)}"


def command_in(text: str, field: str) -> str:
    """The SDK writes a list out as Python does, and that in base64."""
    try:
        listed = ast.literal_eval(base64.b64decode(text, validate=True).decode())
    except (binascii.Error, UnicodeError, ValueError, SyntaxError, MemoryError, RecursionError):
        listed = None
    if not isinstance(listed, list) or not listed or not all(isinstance(word, str) for word in listed):
        raise Invalid("this is base64 of a list of words, as ['python', 'train.py']", field=field)
    return shlex.join(listed)


def pods_of(job: Job) -> Iterator[str]:
    said = job.spec.said.get(SAID, {})
    name = said.get("name", job.id)
    for role in ("master", "worker"):
        yield from (f"{name}-{role}-{at}" for at in range(said.get(f"{role}_replica", int(role == "master"))))


def task_lines(text: str, task: int) -> str:
    """What one task printed; what no task printed is the first one's."""
    lines = []
    for line in text.splitlines():
        found = _TASK.match(line)
        if (int(found[1]) if found else 0) == task:
            lines.append(found[2] if found else line)
    return "".join(f"{line}\n" for line in lines)


def job_number(job: Job) -> int:
    """Jobs have no number of the store's; this one fits a double and belongs to the job's own id."""
    return int(job.id.replace("-", "")[:12], 16)


def _told(job: Job, cluster: int) -> answers.Job:
    said = job.spec.said.get(SAID, {})
    return answers.Job(
        id=job_number(job),
        uuid=job.id,
        name=said.get("name", job.id),
        job_type="PytorchJob",
        status=words.JOB_STATUS[job.state],
        status_reason=job.because,
        cluster_id=cluster,
        cluster_name=job.cluster_name,
        master_replica=said.get("master_replica", 1),
        worker_replica=said.get("worker_replica", 0),
        exit_code=job.exit_code,
        created_at=moment(job.created_at),
    )

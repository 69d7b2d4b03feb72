"""The use cases of a job: hand it over, look at it, end it, read what it left behind.

Leans on accounts, clusters and the store's contract; never meets a driver. *Laws.* Members may run jobs: that is the
data plane. Only who may end a cluster may ask that it end with a job.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final

from muster.contracts.clock import Clock, Entropy
from muster.contracts.jobs import Archive
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Insert, Replace, Store, Wake
from muster.core.accounts.audit import audit
from muster.core.accounts.rights import own_project, require_sees, require_write
from muster.core.guarded import guarded, submit
from muster.core.jobs.rules import checked
from muster.core.paging import Page, page_of
from muster.errors import NotFound, Unauthenticated, Unsupported, WrongPhase
from muster.model.accounts import Actor
from muster.model.base import MINUTE, Instant, changed
from muster.model.clusters import Cluster, ClusterType
from muster.model.jobs import OVER, UPLOAD_LIMIT, Job, JobSpec, JobState
from muster.model.phases import SERVING, Phase

LINK_LIVES: Final = 15 * MINUTE
LOG: Final = "log"


class JobService:
    def __init__(self, store: Store, clock: Clock, entropy: Entropy, archive: Archive | None = None) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self.archive = archive

    async def accept(self, actor: Actor, cluster_id: str, spec: JobSpec, *, teardown: bool = False) -> Job:
        """A job, waiting for its files."""
        if self.archive is None:
            raise Unsupported("this fleet runs no jobs", hint="use ssh and sbatch")
        checked(spec)
        cluster = await self._cluster(actor, cluster_id)
        if teardown:
            require_write(actor)
        if cluster.spec.type is not ClusterType.SLURM:
            raise Unsupported(f"jobs run on Slurm clusters; {cluster.name} is one of {cluster.spec.type}")
        if cluster.phase not in SERVING or cluster.delete_wished_at is not None:
            raise WrongPhase(f"cluster {cluster.name} is {cluster.phase}", hint="wait until it is ready")
        now = self._clock.now()
        job = Job(
            id=self._entropy.uuid(),
            account_id=cluster.account_id,
            project_id=cluster.project_id,
            cluster_id=cluster.id,
            cluster_name=cluster.name,
            state_since=now,
            because="its files are being uploaded",
            teardown=teardown,
            link_secret=self._entropy.token(32),
            created_by=actor.member_id or actor.key_id or actor.name,
            created_at=now,
            updated_at=now,
            spec=spec,
        )
        event = audit(actor, "job", "accepted", job, at=now, message=f"a job for cluster {cluster.name}")
        wake = Wake("job", job.id, now + UPLOAD_LIMIT)
        await submit(self._store, Batch(Step.JOB_WISH, [Insert(job), wake], [event]))
        return job

    async def _cluster(self, actor: Actor, id: str) -> Cluster:
        cluster = await self._store.get(Cluster, id)
        if cluster is None or cluster.phase is Phase.GONE:
            raise NotFound(f"there is no cluster {id}")
        require_sees(actor, cluster.project_id, "cluster", id)
        return cluster

    async def uploaded(self, actor: Actor, id: str) -> Job:
        """Its files are there; it may run."""
        return await self._wish(actor, id, "uploaded", "it waits for its turn", uploaded_at=self._clock.now())

    async def give_up(self, actor: Actor, id: str, because: str) -> Job:
        """Its files did not arrive."""

        async def fail() -> Job:
            job = await self.job(actor, id)
            if job.state in OVER or job.uploaded_at is not None:
                return job
            now = self._clock.now()
            later = job.advance(JobState.FAILED, because=because, at=now)
            event = audit(actor, "job", "failed", later, at=now, message=because)
            await submit(self._store, Batch(Step.JOB_WISH, [Replace(later), Wake("job", id, now)], [event]))
            return later

        return await guarded(fail)

    async def cancel(self, actor: Actor, id: str) -> Job:
        """The wish that it end. Asking twice is asking once; of what is over already it is refused."""
        job = await self.job(actor, id)
        if job.state in OVER:
            raise WrongPhase(f"job {id} is {job.state} already")
        if job.cancel_wished_at is not None:
            return job
        return await self._wish(actor, id, "cancel_wished", "it was asked to end", cancel_wished_at=self._clock.now())

    async def _wish(self, actor: Actor, id: str, what: str, because: str, **fields: Any) -> Job:
        async def wish() -> Job:
            job = await self.job(actor, id)
            if job.state in OVER:
                return job
            now = self._clock.now()
            later = changed(job, because=because, updated_at=now, **fields)
            event = audit(actor, "job", what, later, at=now, message=f"job {id}: {because}")
            await submit(self._store, Batch(Step.JOB_WISH, [Replace(later), Wake("job", id, now)], [event]))
            return later

        return await guarded(wish)

    async def delete(self, actor: Actor, id: str) -> Job:
        """Hide what is over; its record stays in the log of events."""

        async def hide() -> Job:
            job = await self.job(actor, id)
            if job.state not in OVER:
                raise WrongPhase(f"job {id} is {job.state}", hint="cancel it first")
            now = self._clock.now()
            later = changed(job, hidden_at=now, updated_at=now)
            event = audit(actor, "job", "deleted", later, at=now, message=f"job {id} deleted")
            await submit(self._store, Batch(Step.JOB_WISH, [Replace(later)], [event]))
            return later

        return await guarded(hide)

    # --- read -----------------------------------------------------------------------------------------------------

    async def job(self, actor: Actor, id: str) -> Job:
        job = await self._store.get(Job, id)
        if job is None or job.hidden_at is not None:
            raise NotFound(f"there is no job {id}")
        require_sees(actor, job.project_id, "job", id)
        return job

    async def jobs(self, actor: Actor, *, cursor: str | None = None, limit: int | None = None) -> Page[Job]:
        equals: dict[str, str | None] = {"hidden_at": None}
        if not actor.is_operator:
            equals["project_id"] = own_project(actor, None)
        return await page_of(self._store, Job, equals, cursor=cursor, limit=limit)

    async def log(self, actor: Actor, id: str, offset: int, limit: int) -> bytes:
        """What it printed, as far as it is home."""
        job = await self.job(actor, id)
        return await self.read(job, LOG, offset, min(limit, job.log_bytes - offset))

    async def read(self, job: Job, part: str, offset: int, limit: int) -> bytes:
        if self.archive is None or limit <= 0:
            return b""
        return await self.archive.read(job.id, part, offset, limit)

    # --- links to outputs: whoever holds one may read that one file for a while

    def link(self, job: Job, part: str) -> tuple[Instant, str]:
        """(until when, signature)"""
        until = self._clock.now() + LINK_LIVES
        return until, _signature(job, part, until)

    async def by_link(self, id: str, part: str, until: Instant, signature: str) -> Job:
        job = await self._store.get(Job, id)
        good = job is not None and hmac.compare_digest(_signature(job, part, until).encode(), signature.encode())
        if job is None or not good or until < self._clock.now() or job.hidden_at is not None:
            raise Unauthenticated("this link is not good, or not any more", hint="pull the job again")
        return job


def _signature(job: Job, part: str, until: Instant) -> str:
    return hmac.new(job.link_secret.encode(), f"{job.id}\n{part}\n{until}".encode(), hashlib.sha256).hexdigest()

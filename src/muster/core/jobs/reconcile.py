"""Carry a job to its end: one step at a time, each written down under the claim.

Leans on the store's and the workshop's contracts, and on clusters for the teardown. *Laws.* The input is an id and
nothing else. That a job is to be submitted is written before it is; what was brought home is written at its offset
first and then counted, so that a crash brings it home again and not twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from muster.contracts.clock import Clock
from muster.contracts.jobs import Archive, Errand, Workshop
from muster.contracts.orchestrator import Target
from muster.contracts.reconciler import Advance, Gone, Outcome, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Find, Replace, Store
from muster.contracts.substrate import Fence
from muster.core.accounts.audit import audit
from muster.core.clusters.service import ClusterService
from muster.core.clusters.wishes import target_of
from muster.core.jobs import plan as planning
from muster.core.jobs.plan import after_looking, before_looking
from muster.core.jobs.rules import worth_keeping
from muster.core.jobs.service import LOG
from muster.errors import CallError, DriverError, VersionMismatch
from muster.model.accounts import SYSTEM
from muster.model.base import SECOND, Instant, changed
from muster.model.clusters import Cluster
from muster.model.jobs import Job

LOOK_AGAIN: Final = 1 * SECOND
TROUBLE_AGAIN: Final = 5 * SECOND


@dataclass(frozen=True, slots=True)
class Turn:
    """One run: what the store says, and the hold we have on it."""

    job: Job
    target: Target | None
    claim: Claim
    now: Instant

    @property
    def errand(self) -> Errand:
        job = self.job
        return Errand(job.id, job.spec, job.submitted_at or 0, stopped=job.cancel_wished_at is not None)

    @property
    def fence(self) -> Fence:
        return Fence(self.job.id, self.claim.token)


class JobReconciler:
    kind = "job"

    def __init__(
        self, store: Store, clock: Clock, clusters: ClusterService, workshop: Workshop, archive: Archive
    ) -> None:
        self._store = store
        self._clock = clock
        self._clusters = clusters
        self._workshop = workshop
        self._archive = archive

    async def everything(self) -> list[str]:
        open_jobs = await self._store.find(Find(Job, equals={"ended_at": None}))
        owing = await self._store.find(Find(Job, equals={"teardown": True, "torn_down_at": None}))
        return sorted({job.id for job in (*open_jobs, *owing)})

    async def reconcile(self, id: str, claim: Claim) -> Outcome:
        job = await self._store.get(Job, id)
        if job is None:
            return Gone()
        cluster = await self._store.get(Cluster, job.cluster_id)
        now = self._clock.now()
        try:
            step = before_looking(job, cluster, now)
            target = None if cluster is None or step is not None else await self._target(cluster.id)
            turn = Turn(job, target, claim, now)
            return await self._perform(step or await self._look(turn), turn)
        except VersionMismatch:
            return Advance("a wish changed meanwhile")
        except DriverError as error:
            return Wait(error.because, now + TROUBLE_AGAIN)

    async def _target(self, cluster_id: str) -> Target:
        return target_of(await self._clusters.view(SYSTEM, cluster_id))

    async def _look(self, turn: Turn) -> planning.JobStep:
        assert turn.target is not None
        sight = await self._workshop.look(turn.target, turn.errand)
        return after_looking(turn.job, sight, turn.now)

    async def _perform(self, step: planning.JobStep, turn: Turn) -> Outcome:
        match step:
            case planning.Done():
                return Gone()
            case planning.WaitUntil(at, because):
                return Wait(because, at)
            case planning.Intend():
                return await self._write(turn, changed(turn.job, submitted_at=turn.now), "submitted")
            case planning.Move(state, because):
                return await self._write(turn, turn.job.advance(state, because=because, at=turn.now), state)
            case planning.Finish():
                return await self._finish(turn, step)
            case planning.TearDown():
                return await self._tear_down(turn)
            case planning.BringHome(then):
                return await self._bring_home(turn, then)
        return await self._at_work(step, turn)

    async def _at_work(self, step: planning.JobStep, turn: Turn) -> Outcome:
        assert turn.target is not None
        if isinstance(step, planning.Submit):
            await self._workshop.submit(turn.target, turn.errand, turn.fence)
        elif isinstance(step, planning.Stop):
            await self._workshop.stop(turn.target, turn.errand, turn.fence)
        if await self._more_log(turn):
            return Advance("there is more to read")
        return Wait(turn.job.because, turn.now + LOOK_AGAIN)

    async def _finish(self, turn: Turn, step: planning.Finish) -> Outcome:
        ended = turn.job.advance(step.state, because=step.because, at=turn.now)
        return await self._write(turn, replace(ended, exit_code=step.exit_code), step.state)

    async def _more_log(self, turn: Turn) -> bool:
        """Bring home the next piece of the log; whether there was one."""
        assert turn.target is not None
        piece = await self._workshop.log(turn.target, turn.errand, turn.job.log_bytes)
        if not piece:
            return False
        await self._archive.write(turn.job.id, LOG, turn.job.log_bytes, piece)
        await self._record(turn, changed(turn.job, log_bytes=turn.job.log_bytes + len(piece), updated_at=turn.now))
        return True

    async def _bring_home(self, turn: Turn, then: planning.Finish) -> Outcome:
        assert turn.target is not None
        job = turn.job
        if await self._more_log(turn):
            return Advance("the rest of the log")
        if not job.wanted:
            found = worth_keeping(await self._workshop.outputs(turn.target, turn.errand))
            if found:
                await self._record(turn, changed(job, wanted=found, updated_at=turn.now))
                return Advance(f"{len(found)} outputs")
        if job.kept < len(job.wanted):
            await self._fetch(turn, job.kept)
            await self._record(turn, changed(job, kept=job.kept + 1, updated_at=turn.now))
            return Advance(f"{job.kept + 1} of {len(job.wanted)} outputs are home")
        return await self._finish(turn, then)

    async def _fetch(self, turn: Turn, number: int) -> None:
        """One output, to the size it had when it was found: a file that still grows is not followed for ever."""
        assert turn.target is not None
        output, offset = turn.job.wanted[number], 0
        while offset < output.size:
            piece = await self._workshop.piece(turn.target, turn.errand, output.path, offset)
            if not piece:
                break
            await self._archive.write(turn.job.id, str(number), offset, piece[: output.size - offset])
            offset += len(piece)

    async def _tear_down(self, turn: Turn) -> Outcome:
        """End the cluster, as its owner asked; one that is gone or protected is left as it is."""
        try:
            await self._clusters.delete(SYSTEM, turn.job.cluster_id)
            because = "its cluster is being deleted"
        except CallError as refused:
            because = refused.message
        return await self._write(turn, changed(turn.job, torn_down_at=turn.now), "torn_down", because)

    async def _write(self, turn: Turn, job: Job, what: str, because: str | None = None) -> Outcome:
        message = because or job.because
        event = audit(SYSTEM, "job", what, job, at=turn.now, message=message, data=_facts(job))
        await self._store.apply(Batch(Step.JOB_RECORD, [Replace(job)], [event], turn.claim))
        return Advance(message)

    async def _record(self, turn: Turn, job: Job) -> None:
        await self._store.apply(Batch(Step.JOB_RECORD, [Replace(job)], (), turn.claim))


def _facts(job: Job) -> dict[str, Any]:
    return {} if job.exit_code is None else {"exit_code": job.exit_code}

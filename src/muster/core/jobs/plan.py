"""What is to be done for a job now: one step, decided purely from the row, the cluster and what was seen.

*Laws.* Total: every state and every sight has a step. What is over stays over; a job whose cluster ends has failed; a
cancelled job is cancelled even when its cluster does not answer in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from muster.contracts.jobs import Going, Sight
from muster.model.base import Instant
from muster.model.clusters import Cluster
from muster.model.jobs import CANCEL_LIMIT, OVER, UPLOAD_LIMIT, Job, JobState
from muster.model.phases import SERVING


@dataclass(frozen=True, slots=True)
class Finish:
    """The last move."""

    state: JobState
    because: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    state: JobState
    because: str


@dataclass(frozen=True, slots=True)
class Intend:
    """Write down that it is to be submitted, before it is."""


@dataclass(frozen=True, slots=True)
class Submit:
    pass


@dataclass(frozen=True, slots=True)
class Stop:
    pass


@dataclass(frozen=True, slots=True)
class Follow:
    """Bring home what it printed since, and look again."""


@dataclass(frozen=True, slots=True)
class BringHome:
    """It has ended: the rest of its log, then its outputs, one after the other, then `then`."""

    then: Finish


@dataclass(frozen=True, slots=True)
class TearDown:
    pass


@dataclass(frozen=True, slots=True)
class WaitUntil:
    at: Instant
    because: str


@dataclass(frozen=True, slots=True)
class Done:
    pass


JobStep: TypeAlias = Finish | Move | Intend | Submit | Stop | Follow | BringHome | TearDown | WaitUntil | Done


def before_looking(job: Job, cluster: Cluster | None, now: Instant) -> JobStep | None:
    """The step that needs no look at the cluster; None when it must be looked at."""
    if job.state in OVER:
        return TearDown() if job.teardown and job.torn_down_at is None else Done()
    if job.submitted_at is None and job.cancel_wished_at is not None:
        return (
            Finish(JobState.CANCELED, "canceled before it began") if job.state is JobState.CANCELING else _canceling()
        )
    if job.uploaded_at is None:
        late = job.created_at + UPLOAD_LIMIT
        return WaitUntil(late, "its files are being uploaded") if now < late else _failed("its files never arrived")
    if cluster is None or cluster.gone_at is not None or cluster.delete_wished_at is not None:
        return _over_with_cluster(job, "its cluster was deleted")
    if cluster.phase not in SERVING:
        return _over_with_cluster(job, f"its cluster is {cluster.phase}")
    if job.cancel_wished_at is not None and job.state is not JobState.CANCELING:
        return _canceling()
    return Intend() if job.submitted_at is None else None


def after_looking(job: Job, sight: Sight, now: Instant) -> JobStep:
    if job.state is JobState.CANCELING:
        return _cancel(job, sight, now)
    match sight.going:
        case Going.ABSENT:
            return Submit()
        case Going.QUEUED:
            return Follow()
        case Going.RUNNING:
            return Follow() if job.state is JobState.RUNNING else Move(JobState.RUNNING, "its commands run")
        case Going.ENDED:
            return BringHome(_verdict(sight.exit_code))
        case Going.LOST:
            return BringHome(_failed("it vanished from the cluster's queue without a word"))


def _cancel(job: Job, sight: Sight, now: Instant) -> JobStep:
    ended = BringHome(Finish(JobState.CANCELED, "canceled", sight.exit_code))
    if sight.going in (Going.ABSENT, Going.ENDED, Going.LOST):
        return ended
    return Stop() if now < job.state_since + CANCEL_LIMIT else ended


def _canceling() -> Move:
    return Move(JobState.CANCELING, "it was asked to end")


def _over_with_cluster(job: Job, because: str) -> JobStep:
    if job.cancel_wished_at is None:
        return _failed(because)
    return Finish(JobState.CANCELED, because) if job.state is JobState.CANCELING else _canceling()


def _failed(because: str) -> Finish:
    return Finish(JobState.FAILED, because)


def _verdict(exit_code: int | None) -> Finish:
    if exit_code == 0:
        return Finish(JobState.COMPLETED, "its commands ended well", 0)
    return Finish(JobState.ERROR, f"its commands ended with exit code {exit_code}", exit_code)

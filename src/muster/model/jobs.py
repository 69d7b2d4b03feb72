"""Jobs: work that a tenant hands over to be run on a cluster, with its log and its outputs."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from msgspec.structs import replace

from muster.model.base import HOUR, MINUTE, Instant, Noun, Part
from muster.model.phases import IllegalMove


class JobState(StrEnum):
    PENDING = "pending"  # accepted; being uploaded, or waiting for its turn on the cluster
    RUNNING = "running"
    COMPLETED = "completed"  # its commands ended with 0
    ERROR = "error"  # its commands ended with something else: the tenant's own doing
    FAILED = "failed"  # the house could not run it to its end
    CANCELING = "canceling"
    CANCELED = "canceled"


OVER: Final = (JobState.COMPLETED, JobState.ERROR, JobState.FAILED, JobState.CANCELED)

_ENDS = {JobState.COMPLETED, JobState.ERROR, JobState.FAILED}
JOB_MOVES: Final[dict[JobState, frozenset[JobState]]] = {
    JobState.PENDING: frozenset({JobState.RUNNING, JobState.CANCELING} | _ENDS),
    JobState.RUNNING: frozenset({JobState.CANCELING} | _ENDS),
    JobState.CANCELING: frozenset({JobState.CANCELED, JobState.FAILED}),
    JobState.COMPLETED: frozenset(),
    JobState.ERROR: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELED: frozenset(),
}
UPLOAD_LIMIT: Final = HOUR
"""How long an upload may take before the job is given up."""

CANCEL_LIMIT: Final = 5 * MINUTE
"""How long a cancelled job may linger on its cluster before it is called cancelled all the same."""


class JobSpec(Part, frozen=True, kw_only=True):
    """What to run. Globs are relative to the uploaded directory."""

    commands: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    # What one dialect must echo and the core has no use for, under the dialect's name.
    said: dict[str, Any] = {}


class Output(Part, frozen=True, kw_only=True):
    """A file that was brought home; kept under its number, because its name is somebody else's."""

    path: str
    size: int


class Job(Noun, frozen=True, kw_only=True):
    account_id: str
    project_id: str
    cluster_id: str
    cluster_name: str
    state: JobState = JobState.PENDING
    state_since: Instant
    because: str = ""
    teardown: bool = False  # the cluster is deleted when the job is over
    torn_down_at: Instant | None = None
    uploaded_at: Instant | None = None
    submitted_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    cancel_wished_at: Instant | None = None
    hidden_at: Instant | None = None  # deleted by its owner
    exit_code: int | None = None
    log_bytes: int = 0  # of the log, brought home so far
    link_secret: str  # what links to its outputs are signed with
    created_by: str = ""
    created_at: Instant
    updated_at: Instant
    spec: JobSpec
    wanted: tuple[Output, ...] = ()  # outputs found at its end
    kept: int = 0  # how many of them are home

    def advance(self, state: JobState, *, because: str, at: Instant) -> Job:
        """The job in its next state; an illegal move is our own bug and raises."""
        if state not in JOB_MOVES[self.state]:
            raise IllegalMove(f"job {self.id}: {self.state} -> {state}")
        return replace(
            self,
            version=self.version + 1,
            state=state,
            state_since=at,
            because=because,
            started_at=at if state is JobState.RUNNING else self.started_at,
            ended_at=at if state in OVER else self.ended_at,
            updated_at=at,
        )

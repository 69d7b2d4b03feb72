"""Where jobs run, and where what is left of them is kept.

*Laws of the workshop.*
| rule | mandatory |
|---|---|
| a job is named by its id; submitting it twice runs it once | yes |
| no call waits for a job: `look` tells how far it is | yes |
| unreachable raises `TryLater` and is never read as ended | yes |
| whatever a job prints stays readable from any offset until the cluster is gone | yes |
| `stop` of what does not run is success | yes |

*Laws of the archive.* Writing at an offset twice is writing once; what is kept outlives cluster and process; no name
of somebody else's is ever a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from muster.contracts.orchestrator import Target
from muster.contracts.substrate import Fence
from muster.model.base import Instant
from muster.model.jobs import JobSpec, Output


def files_of(job_id: str) -> str:
    """Where a job's files are uploaded to, and where its commands run: beneath the home of the cluster's user."""
    return f"jobs/{job_id}/files"


class Going(StrEnum):
    ABSENT = "absent"  # never submitted here
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"  # `exit_code` says how
    LOST = "lost"  # it was there, is not any more, and left no word


class Sight(NamedTuple):
    going: Going
    exit_code: int | None = None


class Errand(NamedTuple):
    """A job as the workshop is told of it."""

    id: str
    spec: JobSpec
    submitted_at: Instant
    stopped: bool = False


class Workshop(Protocol):
    @property
    def uploads(self) -> bool:
        """Whether there is a directory to upload to; a simulated one has none."""

    async def submit(self, target: Target, errand: Errand, fence: Fence) -> None: ...

    async def look(self, target: Target, errand: Errand) -> Sight: ...

    async def stop(self, target: Target, errand: Errand, fence: Fence) -> None: ...

    async def log(self, target: Target, errand: Errand, offset: int) -> bytes:
        """The next piece of what it printed; b"" when there is no more now."""

    async def outputs(self, target: Target, errand: Errand) -> Sequence[Output]:
        """The files its globs match, inside its directory, in a fixed order."""

    async def piece(self, target: Target, errand: Errand, path: str, offset: int) -> bytes:
        """The next piece of an output; b"" at its end."""


class Archive(Protocol):
    """`part` is "log", or the number of an output."""

    async def write(self, job_id: str, part: str, offset: int, data: bytes) -> None: ...

    async def read(self, job_id: str, part: str, offset: int, limit: int) -> bytes: ...

"""What happened, to whom, when, because of what, by whom; and the requests a client can poll."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from muster.model.base import Instant, Noun


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the event log. `seq` is given by the store in commit order; readers resume from it.

    `kind` is the noun ("cluster"), `type` what happened to it ("cluster.phase"). Never carries a secret.
    """

    seq: int = 0
    at: Instant
    kind: str
    resource_id: str
    type: str
    account_id: str | None = None
    project_id: str | None = None
    actor: str
    cause: str = ""
    message: str = ""
    data: dict[str, Any] = {}


class RequestState(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


class Request(Noun, frozen=True, kw_only=True):
    """One asynchronous operation. Done when its resource has observed `generation`."""

    account_id: str
    project_id: str
    kind: str  # cluster | volume
    resource_id: str
    operation: str  # create | resize | update | pause | resume | delete | attach | detach | grow
    generation: int
    state: RequestState = RequestState.PENDING
    message: str = ""
    created_by: str = ""
    created_at: Instant
    updated_at: Instant
    finished_at: Instant | None = None


class IdempotencyKey(Noun, frozen=True, kw_only=True):
    """A client's own key for one mutating call: `id` is scope + key, `digest` that of the body.

    Written in the same batch as the effect it stands for, so a replay finds either both or neither.
    """

    digest: str
    kind: str
    resource_id: str
    created_at: Instant

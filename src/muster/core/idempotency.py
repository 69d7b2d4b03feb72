"""A client's own key for one mutating call, kept in the same batch as the effect it stands for."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from muster.contracts.store import Store
from muster.errors import IdempotencyMismatch
from muster.model.base import MINUTE, Instant, Part
from muster.model.events import IdempotencyKey

REPEAT_WINDOW = 10 * MINUTE
"""Same project, name and body within this time is the same create, key or no key."""

_encoder = msgspec.json.Encoder(order="deterministic")


def digest_of(command: Part | dict[str, object]) -> str:
    """The same wish has the same digest, whatever dialect it came through."""
    return hashlib.sha256(_encoder.encode(command)).hexdigest()


class Once(NamedTuple):
    """What a client said to be told twice the same: its key, in the scope of its project."""

    key: str
    digest: str

    def scoped(self, project_id: str) -> str:
        return f"{project_id}:{self.key}"

    def record(self, project_id: str, kind: str, resource_id: str, at: Instant) -> IdempotencyKey:
        return IdempotencyKey(
            id=self.scoped(project_id), digest=self.digest, kind=kind, resource_id=resource_id, created_at=at
        )

    async def first_answer(self, store: Store, project_id: str) -> str | None:
        """The id of what the first call made, None when this is the first."""
        known = await store.get(IdempotencyKey, self.scoped(project_id))
        if known is None:
            return None
        if known.digest != self.digest:
            raise IdempotencyMismatch(
                "this Idempotency-Key was used for another request", hint="use a new key for a new request"
            )
        return known.resource_id

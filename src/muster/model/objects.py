"""An account's access to object storage."""

from __future__ import annotations

from muster.model.base import Instant, Noun


class ObjectAccess(Noun, frozen=True, kw_only=True):
    """`id` is the account's. The secret is kept, because S3 clients are shown it again; it is in no event."""

    account_id: str
    access_key: str
    secret_key: str
    created_at: Instant
    updated_at: Instant

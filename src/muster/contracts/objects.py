"""Object storage: an S3 server whose users are the house's accounts.

*Laws.* Admitting the same key twice is admitting it once, and a new secret replaces the old one. A user sees and
changes its own buckets only. A bucket that holds something is not removed (`Protected`). Unreachable is `TryLater`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ObjectKey(NamedTuple):
    access: str
    secret: str


class ObjectStore(Protocol):
    @property
    def endpoint(self) -> str:
        """Where clients reach it."""

    @property
    def region(self) -> str: ...

    async def admit(self, key: ObjectKey) -> None: ...

    async def expel(self, access: str) -> None:
        """Of the unknown: success."""

    async def buckets(self, key: ObjectKey) -> list[str]: ...

    async def make_bucket(self, key: ObjectKey, name: str) -> None:
        """Of one that is the caller's own already: success; of another's: `NameTaken`."""

    async def remove_bucket(self, key: ObjectKey, name: str) -> None: ...

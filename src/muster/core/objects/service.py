"""Object storage per account: switched on and off, keys shown and rotated, buckets made and removed.

Leans on accounts, the store's contract and the object store's. *Laws.* The keys are written down before the S3 server
learns them, and told to it again whenever they are used here, so that a crash between the two heals by itself.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Final

from muster.contracts.clock import Clock, Entropy
from muster.contracts.objects import ObjectKey, ObjectStore
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Insert, Remove, Replace, Store
from muster.core.accounts.audit import audit
from muster.core.accounts.rights import require_write
from muster.core.guarded import guarded, submit
from muster.errors import DriverError, Invalid, NotFound, Protected, Unavailable, UniqueViolation, Unsupported
from muster.model.accounts import Actor
from muster.model.base import changed
from muster.model.objects import ObjectAccess

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


class ObjectService:
    def __init__(self, store: Store, clock: Clock, entropy: Entropy, objects: ObjectStore | None = None) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._objects = objects

    @property
    def behind(self) -> ObjectStore:
        """The S3 server; refused in a sentence where there is none."""
        if self._objects is None:
            raise Unsupported(
                "this server has no object storage", hint="its operator starts it with --object-storage on"
            )
        return self._objects

    async def enable(self, actor: Actor) -> ObjectAccess:
        """The account's keys; enabling twice is enabling once."""
        behind, account_id = self.behind, _account(actor)
        require_write(actor)
        known = await self._store.get(ObjectAccess, account_id)
        if known is None:
            now = self._clock.now()
            known = ObjectAccess(
                id=account_id,
                account_id=account_id,
                access_key=f"mo{self._entropy.uuid().replace('-', '')[:18]}",
                secret_key=self._entropy.token(30),
                created_at=now,
                updated_at=now,
            )
            event = audit(actor, "object_storage", "enabled", known, at=now, message="object storage enabled")
            try:
                await submit(self._store, Batch(Step.OBJECTS_WRITE, [Insert(known)], [event]))
            except UniqueViolation:
                return await self.access(actor)
        await self._admit(behind, known)
        return known

    async def access(self, actor: Actor) -> ObjectAccess:
        behind = self.behind
        known = await self._store.get(ObjectAccess, _account(actor))
        if known is None:
            raise NotFound("object storage is not enabled", hint="enable it first")
        await self._admit(behind, known)
        return known

    async def rotate(self, actor: Actor) -> ObjectAccess:
        """A new secret under the same access key; the old one ends at once."""

        async def rotate() -> ObjectAccess:
            known = await self.access(actor)
            require_write(actor)
            now = self._clock.now()
            later = changed(known, secret_key=self._entropy.token(30), updated_at=now)
            event = audit(actor, "object_storage", "rotated", later, at=now, message="object storage keys rotated")
            await submit(self._store, Batch(Step.OBJECTS_WRITE, [Replace(later)], [event]))
            return later

        later = await guarded(rotate)
        await self._admit(self.behind, later)
        return later

    async def disable(self, actor: Actor) -> None:
        known = await self.access(actor)
        require_write(actor)
        if held := await self.buckets(actor):
            raise Protected(f"there are {len(held)} buckets", hint="delete them first", details={"buckets": held})
        now = self._clock.now()
        await self._told(self.behind.expel(known.access_key))
        event = audit(actor, "object_storage", "disabled", known, at=now, message="object storage disabled")
        batch = Batch(Step.OBJECTS_WRITE, [Remove(ObjectAccess, known.id, known.version)], [event])
        await submit(self._store, batch)

    async def buckets(self, actor: Actor) -> list[str]:
        key = _key(await self.access(actor))
        try:
            return await self.behind.buckets(key)
        except DriverError as error:
            raise _away(error) from error

    async def make_bucket(self, actor: Actor, name: str) -> None:
        key = _key(await self.access(actor))
        await self._told(self.behind.make_bucket(key, _checked(name)))

    async def remove_bucket(self, actor: Actor, name: str) -> None:
        key = _key(await self.access(actor))
        await self._told(self.behind.remove_bucket(key, _checked(name)))

    async def _admit(self, behind: ObjectStore, known: ObjectAccess) -> None:
        await self._told(behind.admit(_key(known)))

    async def _told(self, deed: Awaitable[None]) -> None:
        try:
            await deed
        except DriverError as error:
            raise _away(error) from error


def _account(actor: Actor) -> str:
    if actor.account_id is None:
        raise Invalid("this key belongs to no account", hint="use a key of a project")
    return actor.account_id


def _key(known: ObjectAccess) -> ObjectKey:
    return ObjectKey(known.access_key, known.secret_key)


def _checked(name: str) -> str:
    if not _BUCKET.fullmatch(name):
        raise Invalid("a bucket's name has 3 to 63 small letters, digits and hyphens", field="bucket_name")
    return name


def _away(error: DriverError) -> Unavailable:
    return Unavailable(f"object storage does not answer: {error.because}", hint="ask again in a moment")

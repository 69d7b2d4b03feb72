"""Accounts, projects, members and API keys: who pays, what owns, who may act, how a client proves it.

Leans on the store's contract. Keeps these laws: others' things do not exist (NotFound); a key never grants more than
its maker has; only the operator makes operator keys, accounts, projects and quotas; taking a member away takes its
keys away in the same batch; every change leaves its line in the audit log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

from muster.contracts.clock import Clock, Entropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Op, Remove, Replace, Store
from muster.core.accounts.audit import audit
from muster.core.accounts.keys import (
    NOTE_USE_MS,
    Recognised,
    actor_of,
    checked_secret,
    digest_of_secret,
    new_secret,
    prefix_of,
    same_digest,
)
from muster.core.accounts.names import clean_email, clean_name, slug_of
from muster.core.accounts.rights import own_project, require_operator, require_sees, require_write
from muster.core.accounts.rules import check_member, check_quota, taken
from muster.core.guarded import first_made, guarded, insert, require_version, submit
from muster.core.idempotency import Once
from muster.core.paging import Page, page_of
from muster.errors import Invalid, NotFound, StoreError, Unauthenticated, UniqueViolation
from muster.model.access import SshKey
from muster.model.accounts import Account, Actor, ApiKey, Member, Project, Role
from muster.model.base import Instant, N, changed
from muster.model.events import Event

_OPERATOR_SCOPE = "operator"  # of idempotency keys on things that belong to no project


class AccountService:
    def __init__(self, store: Store, clock: Clock, entropy: Entropy) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._recognised = Recognised()
        self._notes: set[asyncio.Task[None]] = set()

    # -- how a client proves it ---------------------------------------------------------------------------------

    async def authenticate(self, secret: str) -> Actor:
        """Whose key this is. On the path of every request: a dictionary look-up, a read every two seconds."""
        digest = digest_of_secret(secret)
        now = self._clock.now()
        return self._recognised.actor(digest, now) or await self._recognise(digest, now)

    async def _recognise(self, digest: str, now: Instant) -> Actor:
        forgotten = self._recognised.forgotten
        found = await self._store.find(Find(ApiKey, equals={"digest": digest}, limit=1))
        key = found[0] if found and same_digest(found[0].digest, digest) else None
        if key is None or key.revoked_at is not None:
            raise Unauthenticated("this API key is not known here", hint="check the key, or ask for a new one")
        actor = actor_of(key)
        self._recognised.remember(digest, actor, now, forgotten=forgotten)
        if key.last_used_at is None or now - key.last_used_at >= NOTE_USE_MS:
            self._note_use(key, now)
        return actor

    def _note_use(self, key: ApiKey, now: Instant) -> None:
        """Written beside the call, which does not wait for it."""
        task = asyncio.get_running_loop().create_task(self._write_use(key, now))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _write_use(self, key: ApiKey, now: Instant) -> None:
        try:
            await self._store.apply(Batch(Step.KEY_WRITE, [Replace(changed(key, last_used_at=now))]))
        except StoreError:
            return  # someone else noted it, or revoked the key, or the disk is full: no reason to fail a call

    async def close(self) -> None:
        """Let the notes beside the calls be finished, before the store is closed."""
        await asyncio.gather(*self._notes, return_exceptions=True)

    # -- accounts -----------------------------------------------------------------------------------------------

    async def create_account(
        self, actor: Actor, *, name: str, postpaid: bool = False, once: Once | None = None
    ) -> Account:
        require_operator(actor)
        now = self._clock.now()
        account = Account(id=self._entropy.uuid(), name=clean_name(name), postpaid=postpaid, created_at=now)
        event = audit(actor, "account", "created", account, at=now, message=f"account {account.name} created")
        return await self._insert(account, event, once, _OPERATOR_SCOPE)

    async def accounts(
        self, actor: Actor, *, name: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> Page[Account]:
        equals = {} if actor.is_operator else {"id": actor.account_id or ""}
        return await page_of(self._store, Account, equals | _given(name=name), cursor=cursor, limit=limit)

    async def account(self, actor: Actor, id: str) -> Account:
        account = await self._store.get(Account, id)
        if account is None or not (actor.is_operator or actor.account_id == id):
            raise NotFound(f"there is no account {id}")
        return account

    # -- projects -----------------------------------------------------------------------------------------------

    async def create_project(
        self,
        actor: Actor,
        *,
        name: str,
        account_id: str | None = None,
        gpu_quota: int | None = None,
        once: Once | None = None,
    ) -> Project:
        require_operator(actor)
        name = clean_name(name)
        check_quota(gpu_quota)
        if (owner := account_id or actor.account_id) is None:
            raise Invalid(
                "a project belongs to an account: name one",
                field="account_id",
                hint="say account_id, or --account NAME",
            )
        account = await self.account(actor, owner)
        project = Project(
            id=self._entropy.uuid(),
            account_id=account.id,
            name=name,
            slug=slug_of(name),
            gpu_quota=gpu_quota,
            created_at=self._clock.now(),
        )
        event = audit(actor, "project", "created", project, at=project.created_at, message=f"project {name} created")
        return await self._insert(project, event, once, _OPERATOR_SCOPE)

    async def projects(
        self,
        actor: Actor,
        *,
        account_id: str | None = None,
        name: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Project]:
        equals = {} if actor.is_operator else {"id": actor.project_id or ""}
        wanted = equals | _given(account_id=account_id, name=name)
        return await page_of(self._store, Project, wanted, cursor=cursor, limit=limit)

    async def project(self, actor: Actor, id: str) -> Project:
        require_sees(actor, id, "project", id)
        project = await self._store.get(Project, id)
        if project is None:
            raise NotFound(f"there is no project {id}")
        return project

    async def update_project(
        self,
        actor: Actor,
        id: str,
        *,
        name: str | None = None,
        gpu_quota: int | EllipsisType | None = ...,
        if_version: int | None = None,
    ) -> Project:
        """`gpu_quota` ... = keep, None = no limit. The quota is the operator's to set, the name an admin's too."""

        async def update() -> Project:
            project = await self.project(actor, id)
            require_write(actor)
            require_version(project, if_version)
            changes: dict[str, Any] = {}
            if name is not None:
                cleaned = clean_name(name)
                changes |= {"name": cleaned, "slug": slug_of(cleaned)}
            if not isinstance(gpu_quota, EllipsisType):
                require_operator(actor)
                check_quota(gpu_quota)
                changes["gpu_quota"] = gpu_quota
            if all(getattr(project, field) == value for field, value in changes.items()):
                return project
            later = changed(project, **changes)
            message = ", ".join(f"{field} is now {value}" for field, value in changes.items())
            event = audit(actor, "project", "updated", later, at=self._clock.now(), message=message)
            await self._apply(Step.ACCOUNT_WRITE, [Replace(later)], event)
            return later

        return await guarded(update)

    # -- members ------------------------------------------------------------------------------------------------

    async def add_member(
        self,
        actor: Actor,
        *,
        name: str,
        role: Role,
        email: str = "",
        project_id: str | None = None,
        once: Once | None = None,
    ) -> Member:
        project = await self.project(actor, own_project(actor, project_id))
        require_write(actor)
        if role is Role.OPERATOR:
            raise Invalid("a project has admins and members", field="role", hint="use admin or member")
        member = Member(
            id=self._entropy.uuid(),
            account_id=project.account_id,
            project_id=project.id,
            name=clean_name(name),
            email=clean_email(email),
            role=role,
            created_at=self._clock.now(),
        )
        message = f"{member.name} joined as {role}"
        event = audit(actor, "member", "added", member, at=member.created_at, message=message)
        return await self._insert(member, event, once, project.id)

    async def members(
        self,
        actor: Actor,
        project_id: str | None = None,
        *,
        name: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Member]:
        wanted = _within(actor, project_id) | _given(name=name)
        return await page_of(self._store, Member, wanted, cursor=cursor, limit=limit)

    async def member(self, actor: Actor, id: str) -> Member:
        member = await self._store.get(Member, id)
        if member is None:
            raise NotFound(f"there is no member {id}")
        require_sees(actor, member.project_id, "member", id)
        return member

    async def remove_member(self, actor: Actor, id: str, *, if_version: int | None = None) -> None:
        """The member goes, and with it every key it could come back with, in one batch."""

        async def remove() -> list[ApiKey]:
            member = await self.member(actor, id)
            require_write(actor)
            require_version(member, if_version)
            now = self._clock.now()
            keys = await self._store.find(Find(ApiKey, equals={"member_id": id, "revoked_at": None}))
            saved = await self._store.find(Find(SshKey, equals={"member_id": id}))
            ops: list[Op] = [Remove(Member, id, member.version)]
            ops += [Replace(changed(key, revoked_at=now)) for key in keys]
            ops += [Remove(SshKey, key.id, key.version) for key in saved]
            events = [audit(actor, "member", "removed", member, at=now, message=f"{member.name} left")]
            events += [_revoked(actor, key, now, cause=f"member {id} left") for key in keys]
            await self._apply(Step.ACCOUNT_WRITE, ops, *events)
            return keys

        for key in await guarded(remove):
            self._recognised.forget(key.digest)

    # -- keys ---------------------------------------------------------------------------------------------------

    async def create_key(
        self,
        actor: Actor,
        *,
        name: str,
        role: Role | None = None,
        project_id: str | None = None,
        member_id: str | None = None,
        secret: str | None = None,
        once: Once | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key and its secret, told this once. `role` None = the member's, or admin. A repeated call (`once`)
        gets its first key again, with "" for the secret: nobody has it any more."""
        require_write(actor)
        if role is Role.OPERATOR:
            require_operator(actor)
        if secret is not None:
            require_operator(actor)  # people's own secrets are for the operator's files, not for tenants
        scope = project_id or actor.project_id or _OPERATOR_SCOPE
        if (first := await first_made(self._store, ApiKey, once, scope)) is not None:
            return first, ""
        told = checked_secret(secret) if secret is not None else new_secret(self._entropy)

        async def create() -> ApiKey:
            key, also = await self._new_key(actor, clean_name(name), role, project_id, member_id, told)
            message = f"key {key.name} ({key.prefix}…) made for {key.role}"
            event = audit(actor, "key", "created", key, at=key.created_at, message=message)
            return await self._insert(key, event, once, scope, also=also, step=Step.KEY_WRITE)

        key = await guarded(create)
        return key, told if same_digest(key.digest, digest_of_secret(told)) else ""

    async def _new_key(
        self,
        actor: Actor,
        name: str,
        role: Role | None,
        project_id: str | None,
        member_id: str | None,
        secret: str,
    ) -> tuple[ApiKey, list[Op]]:
        member = await self.member(actor, member_id) if member_id is not None else None
        role = role or (member.role if member else Role.ADMIN)
        project = await self._project_of_key(actor, role, project_id or (member.project_id if member else None))
        if member is not None:
            check_member(member, role, project)
        key = ApiKey(
            id=self._entropy.uuid(),
            digest=digest_of_secret(secret),
            prefix=prefix_of(secret),
            name=name,
            role=role,
            account_id=project.account_id if project else None,
            project_id=project.id if project else None,
            member_id=member_id,
            created_at=self._clock.now(),
        )
        # Raising the member's version makes a removal that did not see this key look again.
        return key, [Replace(changed(member))] if member is not None else []

    async def _project_of_key(self, actor: Actor, role: Role, project_id: str | None) -> Project | None:
        """Every key belongs to a project, except the operator's, which belongs to none."""
        if role is Role.OPERATOR:
            if project_id is not None:
                raise Invalid("an operator's key belongs to no project", field="project_id", hint="leave it out")
            return None
        return await self.project(actor, own_project(actor, project_id))

    async def keys(
        self,
        actor: Actor,
        project_id: str | None = None,
        *,
        name: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[ApiKey]:
        wanted = _within(actor, project_id) | _given(name=name)
        return await page_of(self._store, ApiKey, wanted, cursor=cursor, limit=limit)

    async def key(self, actor: Actor, id: str) -> ApiKey:
        key = await self._store.get(ApiKey, id)
        if key is None:
            raise NotFound(f"there is no key {id}")
        require_sees(actor, key.project_id, "key", id)
        return key

    async def revoke_key(self, actor: Actor, id: str, *, if_version: int | None = None) -> ApiKey:
        """From now on nobody gets in with it; the row stays for the record. Revoking twice is once."""

        async def revoke() -> ApiKey:
            key = await self.key(actor, id)
            require_write(actor)
            if key.revoked_at is not None:
                return key
            require_version(key, if_version)
            now = self._clock.now()
            later = changed(key, revoked_at=now)
            await self._apply(Step.KEY_WRITE, [Replace(later)], _revoked(actor, key, now))
            return later

        key = await guarded(revoke)
        self._recognised.forget(key.digest)
        return key

    # -- writing ------------------------------------------------------------------------------------------------

    async def _apply(self, step: Step, ops: list[Op], *events: Event) -> None:
        try:
            await submit(self._store, Batch(step, ops, events))
        except UniqueViolation as refused:
            raise taken(refused) from refused

    async def _insert(
        self,
        noun: N,
        event: Event,
        once: Once | None,
        scope: str,
        *,
        also: Sequence[Op] = (),
        step: Step = Step.ACCOUNT_WRITE,
    ) -> N:
        try:
            return await insert(self._store, step, noun, [event], also=also, once=once, scope=scope)
        except UniqueViolation as refused:
            raise taken(refused) from refused


def _revoked(actor: Actor, key: ApiKey, at: Instant, *, cause: str | None = None) -> Event:
    message = f"key {key.name} ({key.prefix}…) revoked"
    return audit(actor, "key", "revoked", key, at=at, message=message, cause=cause)


def _within(actor: Actor, project_id: str | None) -> dict[str, Any]:
    """Which project a list is about; the operator who names none sees all."""
    if actor.is_operator and project_id is None:
        return {}
    return {"project_id": own_project(actor, project_id)}


def _given(**fields: str | None) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}

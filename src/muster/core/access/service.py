"""SSH keys, security groups and reserved addresses: how people and packets get in.

Leans on accounts (rights, names, audit) and the store's contract. Keeps these laws: the same SSH key twice is one
key; a change of rules wakes every living cluster under them in the same batch; nothing in use is taken away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from muster.contracts.clock import Clock, Entropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Op, Remove, Replace, Store, Wake
from muster.core.access.pool import Network, Pools, free_address, no_pools
from muster.core.access.rules import checked_rules
from muster.core.access.ssh import read_public_key
from muster.core.accounts.audit import audit
from muster.core.accounts.names import NAME_CHARS_MAX, clean_name
from muster.core.accounts.rights import own_project, require_sees, require_write
from muster.core.guarded import first_made, guarded, insert, require_version, submit
from muster.core.idempotency import Once
from muster.core.paging import Page, page_of
from muster.errors import (
    Invalid,
    NameTaken,
    NotFound,
    OutOfStock,
    Protected,
    QuotaExceeded,
    Stale,
    UniqueViolation,
    Unsupported,
)
from muster.model.access import ReservedIp, Rule, SecurityGroup, SshKey
from muster.model.accounts import Actor, Member, Project
from muster.model.base import changed
from muster.model.catalog import Region
from muster.model.clusters import Cluster

SSH_KEYS_MAX: Final = 500  # each of these per project
SECURITY_GROUPS_MAX: Final = 200
RESERVED_IPS_MAX: Final = 64
ADDRESS_ATTEMPTS_MAX: Final = 8

A = TypeVar("A", SshKey, SecurityGroup, ReservedIp)

_WORDS: Final = {SshKey: "ssh key", SecurityGroup: "security group", ReservedIp: "reserved ip"}


class AccessService:
    def __init__(self, store: Store, clock: Clock, entropy: Entropy, pools: Pools = no_pools) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._pools = pools

    # -- ssh keys -----------------------------------------------------------------------------------------------

    async def add_ssh_key(
        self,
        actor: Actor,
        *,
        public_key: str,
        name: str | None = None,
        project_id: str | None = None,
        member_id: str | None = None,
        once: Once | None = None,
    ) -> SshKey:
        """A key for new clusters of the project. Without a name it takes its comment's, or its fingerprint's."""
        project = await self._project(actor, project_id)
        read = read_public_key(public_key)
        await self._room_for(SshKey, project, SSH_KEYS_MAX)

        async def add() -> SshKey:
            member = await self._member(project, member_id)
            key = SshKey(
                id=self._entropy.uuid(),
                account_id=project.account_id,
                project_id=project.id,
                member_id=member_id,
                name=clean_name(name if name is not None else (read.comment or read.fingerprint)[:NAME_CHARS_MAX]),
                public_key=read.text,
                fingerprint=read.fingerprint,
                created_at=self._clock.now(),
            )
            message = f"ssh key {key.name} ({key.fingerprint}) added"
            # Raising the member's version makes a removal that did not see this key look again.
            also: list[Op] = [Replace(changed(member))] if member is not None else []
            also += await self._keys_changed(project.id)
            return await self._insert(actor, "ssh_key", "added", key, message, once, also)

        try:
            return await guarded(add)
        except UniqueViolation:
            return await self._known_key(project, read.fingerprint)

    async def _known_key(self, project: Project, fingerprint: str) -> SshKey:
        query = Find(SshKey, equals={"project_id": project.id, "fingerprint": fingerprint}, limit=1)
        for key in await self._store.find(query):
            return key
        raise Stale("this key was being removed at the same time", hint="repeat the request")

    async def ssh_keys(
        self,
        actor: Actor,
        project_id: str | None = None,
        *,
        name: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[SshKey]:
        return await self._page(SshKey, actor, project_id, name=name, cursor=cursor, limit=limit)

    async def ssh_key(self, actor: Actor, id: str) -> SshKey:
        return await self._get(SshKey, actor, id)

    async def remove_ssh_key(self, actor: Actor, id: str, *, if_version: int | None = None) -> None:
        """Clusters that were made with it keep it until their own keys are changed."""

        async def remove() -> None:
            key = await self._writable(SshKey, actor, id, if_version)
            message = f"ssh key {key.name} ({key.fingerprint}) removed"
            await self._remove(actor, "ssh_key", "removed", key, message, await self._keys_changed(key.project_id))

        await guarded(remove)

    async def _keys_changed(self, project_id: str) -> list[Op]:
        """A project's saved keys are part of it: its version tells whoever remembers them that they changed."""
        project = await self._store.get(Project, project_id)
        return [Replace(changed(project))] if project is not None else []

    # -- security groups ----------------------------------------------------------------------------------------

    async def create_security_group(
        self,
        actor: Actor,
        *,
        name: str,
        rules: Sequence[Rule] = (),
        project_id: str | None = None,
        once: Once | None = None,
    ) -> SecurityGroup:
        project = await self._project(actor, project_id)
        await self._room_for(SecurityGroup, project, SECURITY_GROUPS_MAX)
        now = self._clock.now()
        group = SecurityGroup(
            id=self._entropy.uuid(),
            account_id=project.account_id,
            project_id=project.id,
            name=clean_name(name),
            rules=checked_rules(rules),
            created_at=now,
            updated_at=now,
        )
        message = f"security group {group.name} created with {len(group.rules)} rules"
        try:
            return await self._insert(actor, "security_group", "created", group, message, once)
        except UniqueViolation as refused:
            raise _name_taken() from refused

    async def security_groups(
        self,
        actor: Actor,
        project_id: str | None = None,
        *,
        name: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[SecurityGroup]:
        return await self._page(SecurityGroup, actor, project_id, name=name, cursor=cursor, limit=limit)

    async def security_group(self, actor: Actor, id: str) -> SecurityGroup:
        return await self._get(SecurityGroup, actor, id)

    async def set_rules(
        self,
        actor: Actor,
        id: str,
        rules: Sequence[Rule],
        *,
        name: str | None = None,
        if_version: int | None = None,
    ) -> SecurityGroup:
        """All rules at once; every living cluster under the group is woken to take them over."""

        async def replace() -> SecurityGroup:
            group = await self._writable(SecurityGroup, actor, id, if_version)
            now = self._clock.now()
            called = clean_name(name) if name is not None else group.name
            checked = checked_rules(rules)
            if (called, checked) == (group.name, group.rules):
                return group
            later = changed(group, name=called, rules=checked, updated_at=now)
            users = await self._users(group)
            message = f"security group {called} has {len(checked)} rules now, for {len(users)} clusters"
            event = audit(actor, "security_group", "rules_set", later, at=now, message=message)
            ops: list[Op] = [Replace(later), *(Wake("cluster", cluster.id, now) for cluster in users)]
            try:
                await submit(self._store, Batch(Step.ACCESS_WRITE, ops, [event]))
            except UniqueViolation as refused:
                raise _name_taken() from refused
            return later

        return await guarded(replace)

    async def remove_security_group(self, actor: Actor, id: str, *, if_version: int | None = None) -> None:
        async def remove() -> None:
            group = await self._writable(SecurityGroup, actor, id, if_version)
            if users := await self._users(group):
                raise Protected(
                    f"security group {group.name} is used by {', '.join(sorted(c.name for c in users)[:5])}",
                    hint="take it off those clusters first",
                    details={"cluster_ids": [cluster.id for cluster in users]},
                )
            message = f"security group {group.name} removed"
            await self._remove(actor, "security_group", "removed", group, message)

        await guarded(remove)

    async def _users(self, group: SecurityGroup) -> list[Cluster]:
        """The living clusters under this group. Whoever puts a cluster under one has to raise the group's version in
        the same batch: then a removal that did not see that cluster is refused, and looks again."""
        living = Find(Cluster, equals={"project_id": group.project_id, "gone_at": None})
        return [c for c in await self._store.find(living) if group.id in c.spec.security_group_ids]

    # -- reserved addresses -------------------------------------------------------------------------------------

    async def reserve_ip(
        self, actor: Actor, *, region: str, project_id: str | None = None, once: Once | None = None
    ) -> ReservedIp:
        """The lowest free address of the region; two who reach for the same one are told apart by the store."""
        project = await self._project(actor, project_id)
        if (first := await first_made(self._store, ReservedIp, once, project.id)) is not None:
            return first
        pool = await self._pool(region)
        await self._room_for(ReservedIp, project, RESERVED_IPS_MAX)
        for _ in range(ADDRESS_ATTEMPTS_MAX):
            reserved = await self._next_address(project, region, pool)
            message = f"{reserved.address} reserved in {region}"
            try:
                return await self._insert(actor, "reserved_ip", "reserved", reserved, message, once)
            except UniqueViolation:
                continue
        raise Stale("others are reserving addresses here too fast", hint="repeat the request")

    async def _next_address(self, project: Project, region: str, pool: Network) -> ReservedIp:
        taken = {ip.address for ip in await self._store.find(Find(ReservedIp, equals={"region": region}))}
        if (address := free_address(pool, taken)) is None:
            raise OutOfStock(f"every address of {region} is taken", field="region", hint="try another region")
        return ReservedIp(
            id=self._entropy.uuid(),
            account_id=project.account_id,
            project_id=project.id,
            region=region,
            address=address,
            created_at=self._clock.now(),
        )

    async def _pool(self, name: str) -> Network:
        region = await self._store.get(Region, name)
        if region is None:
            raise Invalid(f"there is no region {name}", field="region", hint="list the regions")
        pool = self._pools(region)
        if pool is None:
            raise Unsupported(f"{name} has no addresses to reserve", field="region", hint="try another region")
        return pool

    async def reserved_ips(
        self,
        actor: Actor,
        project_id: str | None = None,
        *,
        region: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[ReservedIp]:
        return await self._page(ReservedIp, actor, project_id, region=region, cursor=cursor, limit=limit)

    async def reserved_ip(self, actor: Actor, id: str) -> ReservedIp:
        return await self._get(ReservedIp, actor, id)

    async def release_ip(self, actor: Actor, id: str, *, if_version: int | None = None) -> None:
        async def release() -> None:
            reserved = await self._writable(ReservedIp, actor, id, if_version)
            if reserved.cluster_id is not None:
                raise Protected(
                    f"{reserved.address} is attached to a cluster",
                    hint="delete that cluster first",
                    details={"cluster_id": reserved.cluster_id},
                )
            await self._remove(actor, "reserved_ip", "released", reserved, f"{reserved.address} released")

        await guarded(release)

    # -- what they share ----------------------------------------------------------------------------------------

    async def _project(self, actor: Actor, project_id: str | None) -> Project:
        """The project to write in."""
        project = await self._store.get(Project, own_project(actor, project_id))
        require_write(actor)
        if project is None:
            raise NotFound(f"there is no project {project_id}")
        return project

    async def _member(self, project: Project, id: str | None) -> Member | None:
        if id is None:
            return None
        member = await self._store.get(Member, id)
        if member is None or member.project_id != project.id:
            raise NotFound(f"there is no member {id}")
        return member

    async def _room_for(self, noun: type[A], project: Project, most: int) -> None:
        held = await self._store.count(Find(noun, equals={"project_id": project.id}))
        if held >= most:
            raise QuotaExceeded(
                f"a project has at most {most} of these: {_WORDS[noun]}", hint="remove one that is not used"
            )

    async def _page(
        self,
        noun: type[A],
        actor: Actor,
        project_id: str | None,
        *,
        cursor: str | None,
        limit: int | None,
        **fields: str | None,
    ) -> Page[A]:
        equals: dict[str, Any] = {field: value for field, value in fields.items() if value is not None}
        if project_id is not None or not actor.is_operator:
            equals["project_id"] = own_project(actor, project_id)
        return await page_of(self._store, noun, equals, cursor=cursor, limit=limit)

    async def _get(self, noun: type[A], actor: Actor, id: str) -> A:
        found = await self._store.get(noun, id)
        if found is None:
            raise NotFound(f"there is no {_WORDS[noun]} {id}")
        require_sees(actor, found.project_id, _WORDS[noun], id)
        return found

    async def _writable(self, noun: type[A], actor: Actor, id: str, if_version: int | None) -> A:
        found = await self._get(noun, actor, id)
        require_write(actor)
        require_version(found, if_version)
        return found

    async def _insert(
        self,
        actor: Actor,
        kind: str,
        what: str,
        noun: A,
        message: str,
        once: Once | None,
        also: Sequence[Op] = (),
    ) -> A:
        event = audit(actor, kind, what, noun, at=noun.created_at, message=message)
        return await insert(
            self._store, Step.ACCESS_WRITE, noun, [event], also=also, once=once, scope=noun.project_id
        )

    async def _remove(
        self, actor: Actor, kind: str, what: str, noun: A, message: str, also: Sequence[Op] = ()
    ) -> None:
        event = audit(actor, kind, what, noun, at=self._clock.now(), message=message)
        gone = Remove(type(noun), noun.id, noun.version)
        await submit(self._store, Batch(Step.ACCESS_WRITE, [gone, *also], [event]))


def _name_taken() -> NameTaken:
    return NameTaken("the project has a security group of this name", field="name", hint="choose another name")

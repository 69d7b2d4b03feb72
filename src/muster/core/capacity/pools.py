"""Pools: hosts that the operator sets apart for an account, or for one project of it.

Leans on accounts (rights, audit), hosts and the placement index. *Laws.* Only a host that nobody holds, and that no
promise counts on, joins a pool; only one that nobody holds leaves it. The lines that lose or gain a host are written
in the same batch, so that whoever chose that host by an older look is refused. A stranger's pool does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from muster.contracts.clock import Clock, Entropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Op, Remove, Replace, Store
from muster.core.accounts.audit import audit
from muster.core.accounts.names import clean_name
from muster.core.accounts.rights import require_operator
from muster.core.capacity.placement import Ask, LineKey
from muster.core.capacity.service import Capacity
from muster.core.guarded import guarded, insert, submit
from muster.core.idempotency import Once
from muster.core.paging import Page, page_of
from muster.errors import Invalid, NameTaken, NotFound, Protected, UniqueViolation
from muster.model.accounts import Account, Actor, Project
from muster.model.base import changed
from muster.model.catalog import GpuType, Region
from muster.model.hosts import Host, HostRole, Lease, Pool

HOSTS_PER_CALL_MAX: Final = 1_000
_SCOPE: Final = "operator"


class PoolWish(NamedTuple):
    name: str
    region: str
    gpu_type: str
    account_id: str | None = None
    project_id: str | None = None


class PoolService:
    def __init__(self, store: Store, clock: Clock, entropy: Entropy, capacity: Capacity) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._capacity = capacity

    # ---- reading

    async def pools(
        self, actor: Actor, *, name: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> Page[Pool]:
        equals = {} if name is None else {"name": name}
        if actor.is_operator:
            return await page_of(self._store, Pool, equals, cursor=cursor, limit=limit)
        mine = await self._store.find(Find(Pool, equals={**equals, "account_id": actor.account_id or ""}))
        return Page([pool for pool in mine if _sees(actor, pool)], None)

    async def pool(self, actor: Actor, id: str) -> Pool:
        found = await self._store.get(Pool, id)
        if found is None or not _sees(actor, found):
            raise NotFound(f"there is no pool {id}")
        return found

    async def stock(self, pool: Pool) -> tuple[int, int]:
        """Its GPUs: free, and in all."""
        await self._capacity.sync()
        return self._capacity.pool_stock(pool)

    # ---- making and ending

    async def create(self, actor: Actor, wish: PoolWish, once: Once | None = None) -> Pool:
        require_operator(actor)
        account_id = await self._owner(wish)
        for noun, id, field in ((Region, wish.region, "region"), (GpuType, wish.gpu_type, "gpu_type")):
            if await self._store.get(noun, id) is None:
                raise Invalid(f"there is no {field.replace('_', ' ')} {id}", field=field)
        now = self._clock.now()
        pool = Pool(
            id=self._entropy.uuid(),
            name=clean_name(wish.name),
            account_id=account_id,
            project_id=wish.project_id,
            region=wish.region,
            gpu_type=wish.gpu_type,
            created_at=now,
            updated_at=now,
        )
        event = audit(actor, "pool", "created", pool, at=now, message=f"pool {pool.name} in {pool.region}")
        try:
            return await insert(self._store, Step.POOL_WRITE, pool, [event], once=once, scope=_SCOPE)
        except UniqueViolation as taken:
            raise NameTaken(f"there is a pool named {pool.name}", field="name") from taken

    async def _owner(self, wish: PoolWish) -> str:
        if wish.project_id is not None:
            project = await self._store.get(Project, wish.project_id)
            if project is None or wish.account_id not in (None, project.account_id):
                raise NotFound(f"there is no project {wish.project_id}")
            return project.account_id
        if wish.account_id is None or await self._store.get(Account, wish.account_id) is None:
            raise Invalid("a pool is for an account or a project: name one", field="account_id")
        return wish.account_id

    async def delete(self, actor: Actor, id: str) -> None:
        await guarded(lambda: self._delete(actor, id))

    async def _delete(self, actor: Actor, id: str) -> None:
        pool = await self.pool(actor, id)
        require_operator(actor)
        hosts = await self._hosts_in(pool)
        if hosts:
            words = f"pool {pool.name} still has {len(hosts)} hosts"
            raise Protected(words, hint=f"muster pool remove-host {pool.name} {hosts[0].name}")
        event = audit(actor, "pool", "deleted", pool, at=self._clock.now(), message=f"pool {pool.name}")
        await submit(self._store, Batch(Step.POOL_WRITE, [Remove(Pool, pool.id, pool.version)], [event]))

    # ---- hosts in and out

    async def add(self, actor: Actor, id: str, names: Sequence[str], count: int = 0) -> Pool:
        """These hosts, and so many others that are free, are set apart from now on."""
        return await guarded(lambda: self._add(actor, id, names, count))

    async def _add(self, actor: Actor, id: str, names: Sequence[str], count: int) -> Pool:
        pool = await self.pool(actor, id)
        require_operator(actor)
        if not 1 <= len(names) + count <= HOSTS_PER_CALL_MAX:
            raise Invalid(f"name 1 to {HOSTS_PER_CALL_MAX} hosts, or say how many", field="hosts")
        hosts = [await self._named(name) for name in names] + await self._some(pool, count)
        fresh = {host.id: host for host in hosts if host.pool_id != pool.id}
        for host in fresh.values():
            _check_fits(host, pool)
        return await self._move(actor, pool, list(fresh.values()), pool.id, "joined")

    async def _some(self, pool: Pool, count: int) -> list[Host]:
        """Free hosts as a cluster would get them: near to each other."""
        if not count:
            return []
        slots = max((key.slots for key in await self._lines(pool)), default=8)
        ask = Ask(pool.region, pool.gpu_type, slots, count, at=self._clock.now())
        placement = await self._capacity.place(ask)
        self._capacity.give_back(placement)
        return [await self._named(grant.host_id) for grant in placement.workers]

    async def _lines(self, pool: Pool) -> list[LineKey]:
        await self._capacity.sync()
        return [key for key in self._capacity.line_keys() if key[:2] == (pool.region, pool.gpu_type)]

    async def remove(self, actor: Actor, id: str, name: str) -> Pool:
        """This host is everybody's again."""
        return await guarded(lambda: self._remove(actor, id, name))

    async def _remove(self, actor: Actor, id: str, name: str) -> Pool:
        pool = await self.pool(actor, id)
        require_operator(actor)
        host = await self._named(name)
        if host.pool_id is None:
            return pool
        if host.pool_id != pool.id:
            raise NotFound(f"there is no host {name} in pool {pool.name}")
        return await self._move(actor, pool, [host], None, "left")

    async def _move(self, actor: Actor, pool: Pool, hosts: Sequence[Host], to: str | None, what: str) -> Pool:
        if not hosts:
            return pool
        await self._require_free(hosts)
        now = self._clock.now()
        after = changed(pool, updated_at=now)
        names = ", ".join(host.name for host in hosts[:5]) + (" …" if len(hosts) > 5 else "")
        event = audit(actor, "pool", f"hosts_{what}", after, at=now, message=f"{len(hosts)} hosts {what}: {names}")
        moved: list[Op] = [Replace(changed(host, pool_id=to)) for host in hosts]
        lines = await self._capacity.lines_of(hosts, leaving=to is not None, at=now)
        try:
            await submit(self._store, Batch(Step.POOL_WRITE, [Replace(after), *moved, *lines.ops], [event]))
        except BaseException:
            self._capacity.lines.doubt(lines.keys)
            raise
        return after

    async def _require_free(self, hosts: Sequence[Host]) -> None:
        held = await self._store.find(Find(Lease, one_of={"host_id": [host.id for host in hosts]}, limit=1))
        if held:
            name = next(host.name for host in hosts if host.id == held[0].host_id)
            raise Protected(f"host {name} is in use", hint=f"muster host cordon {name}, and wait until it is empty")

    async def _named(self, id_or_name: str) -> Host:
        found = await self._store.get(Host, id_or_name)
        if found is None:
            named = await self._store.find(Find(Host, equals={"name": id_or_name}))
            found = named[0] if named else None
        if found is None:
            raise NotFound(f"there is no host {id_or_name}")
        return found

    async def _hosts_in(self, pool: Pool) -> list[Host]:
        return await self._store.find(Find(Host, equals={"pool_id": pool.id}))


async def pool_for(store: Store, project: Project, id: str) -> Pool:
    """The pool that a project draws from by its id, if it may."""
    found = await store.get(Pool, id)
    if found is None or not found.for_project(project.account_id, project.id):
        raise NotFound(f"there is no pool {id}", field="pool_id")
    return found


def _sees(actor: Actor, pool: Pool) -> bool:
    return actor.is_operator or pool.for_project(actor.account_id or "", actor.project_id or "")


def _check_fits(host: Host, pool: Pool) -> None:
    if host.role is not HostRole.GPU or (host.region, host.gpu_type) != (pool.region, pool.gpu_type):
        words = f"host {host.name} is no {pool.gpu_type} host in {pool.region}"
        raise Invalid(words, field="hosts")
    if host.pool_id is not None:
        raise Protected(f"host {host.name} is in another pool", hint="take it out of that one first")

"""Pools on the native wire: hosts set apart for an account or a project."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.contracts.http import Call, Reply
from muster.core.capacity.pools import HOSTS_PER_CALL_MAX, PoolWish
from muster.core.house import House
from muster.dialects.native import wire
from muster.dialects.native.asking import once, paging, read, text
from muster.dialects.native.replies import answer, listing, nothing
from muster.dialects.native.translate import shown
from muster.dialects.native.views import Stamp, View
from muster.model import hosts as model


class NewPool(wire.Body, frozen=True, kw_only=True):
    """For all projects of `account_id`, or for `project_id` alone."""

    name: wire.Name
    region: wire.Word
    gpu_type: wire.Word
    account_id: wire.Id | None = None
    project_id: wire.Id | None = None


class PoolHosts(wire.Body, frozen=True, kw_only=True):
    """Hosts by name or id; or a `count` of them, whichever are free."""

    hosts: tuple[wire.Word, ...] = ()
    count: Annotated[int, Meta(ge=0, le=HOSTS_PER_CALL_MAX)] = 0


class PoolView(View, frozen=True, kw_only=True):
    id: str
    version: int
    name: str
    account_id: str
    project_id: str | None
    region: str
    gpu_type: str
    gpus: int
    free_gpus: int
    created_at: Stamp
    updated_at: Stamp


class Pools:
    def __init__(self, house: House) -> None:
        self._pools = house.pools

    async def list(self, call: Call) -> Reply:
        page = await self._pools.pools(call.actor, name=text(call, "name"), **paging(call))
        return listing([await self._view(pool) for pool in page.items], page.next_cursor)

    async def create(self, call: Call) -> Reply:
        said = read(call, NewPool)
        wish = PoolWish(said.name, said.region, said.gpu_type, said.account_id, said.project_id)
        made = await self._pools.create(call.actor, wish, once(call, said, "pool"))
        return answer(await self._view(made), status=201, tag=made.version, location=f"pools/{made.id}")

    async def get(self, call: Call) -> Reply:
        return await self._told(await self._pools.pool(call.actor, call.params["id"]))

    async def delete(self, call: Call) -> Reply:
        await self._pools.delete(call.actor, call.params["id"])
        return nothing()

    async def add(self, call: Call) -> Reply:
        said = read(call, PoolHosts)
        return await self._told(await self._pools.add(call.actor, call.params["id"], said.hosts, said.count))

    async def remove(self, call: Call) -> Reply:
        pool = await self._pools.remove(call.actor, call.params["id"], call.params["host_id"])
        return await self._told(pool)

    async def _told(self, pool: model.Pool) -> Reply:
        return answer(await self._view(pool), tag=pool.version)

    async def _view(self, pool: model.Pool) -> PoolView:
        free, gpus = await self._pools.stock(pool)
        return shown(pool, PoolView, gpus=gpus, free_gpus=free)

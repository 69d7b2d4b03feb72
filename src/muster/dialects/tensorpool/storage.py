"""Shared storage on TensorPool's wire: volumes, mounted at /mnt/ID. A GB of theirs is a GiB of ours."""

from __future__ import annotations

from typing import Final

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.clusters.commands import MountWish
from muster.core.house import House
from muster.dialects.tensorpool import answers, render, wire
from muster.dialects.tensorpool.asking import count, flag, read
from muster.dialects.tensorpool.people import mine
from muster.dialects.tensorpool.places import region_for_storage
from muster.dialects.tensorpool.requests import request_behind
from muster.errors import CallError
from muster.model.accounts import Actor
from muster.model.volumes import Volume

PAGE: Final = 1_000
SIZE_GB_MAX: Final = 1 << 20
HOURS_PER_MONTH: Final = 730
MICRO: Final = 1_000_000


class Storage:
    def __init__(self, house: House) -> None:
        self._house = house
        self._volumes = house.volumes

    async def create(self, call: Call) -> Reply:
        said = read(call, wire.NewStorage)
        volume = await self._volumes.create(
            call.actor,
            name=said.name or f"storage-{self._house.entropy.uuid()[:8]}",
            region=await region_for_storage(self._house, call.actor),
            size_gib=said.size,
            deletion_protection=bool(said.deletion_protection),
        )
        answer = answers.StorageCreated(
            message=f"Storage {volume.name} ({volume.id}) of {said.size} GB is being made in {volume.region}.",
            storage_id=volume.id,
            request_id=await request_behind(self._house, call.actor, volume),
        )
        return Reply(202, msgspec.json.encode(answer))

    async def every(self, call: Call) -> Reply:
        org = flag(call, "include_org")
        found = [volume for volume in await self._all(call.actor) if org or mine(call.actor, volume.created_by)]
        told = [await self._told(call.actor, volume) for volume in found]
        answer = answers.StorageList(message=render.storage_list(told, org=org), storage=told)
        return Reply(200, msgspec.json.encode(answer))

    async def _all(self, actor: Actor) -> list[Volume]:
        found: list[Volume] = []
        cursor: str | None = None
        while True:
            page = await self._volumes.volumes(actor, cursor=cursor, limit=PAGE)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def _told(self, actor: Actor, volume: Volume) -> answers.Storage:
        mounts = await self._volumes.attachments(actor, volume.id)
        return render.storage_of(volume, [mount.cluster_id for mount in mounts])

    async def info(self, call: Call) -> Reply:
        told = await self._told(call.actor, await self._volumes.volume(call.actor, call.params["storage_id"]))
        return Reply(200, msgspec.json.encode(answers.StorageInfo(message=render.storage_text(told), storage=told)))

    async def edit(self, call: Call) -> Reply:
        said = read(call, wire.StorageChange)
        id = call.params["storage_id"]
        volume = await self._volumes.edit(
            call.actor, id, name=said.tp_storage_name, deletion_protection=said.deletion_protection
        )
        request_id = None
        if said.size_gb is not None:
            volume = await self._volumes.grow(call.actor, id, said.size_gb)
            request_id = await request_behind(self._house, call.actor, volume)
        guard = "protected from deletion" if volume.deletion_protection else "not protected from deletion"
        message = f"Storage {volume.id} is named {volume.name}, {volume.size_gib} GB, {guard}."
        return Reply(202, msgspec.json.encode(answers.Accepted(message=message, request_id=request_id)))

    async def destroy(self, call: Call) -> Reply:
        volume = await self._volumes.delete(call.actor, call.params["storage_id"])
        answer = answers.Accepted(
            message=f"Storage {volume.name} ({volume.id}) is being destroyed.",
            request_id=await request_behind(self._house, call.actor, volume),
        )
        return Reply(202, msgspec.json.encode(answer))

    async def attach(self, call: Call) -> Reply:
        said = read(call, wire.Attach)
        volume = await self._volumes.volume(call.actor, said.storage_id)
        ids = list(dict.fromkeys(said.cluster_ids))
        for id in ids:  # nothing is attached anywhere while one of the names is wrong
            await self._house.clusters.cluster(call.actor, id)
        request_ids = [await self._attach(call.actor, volume, id, ids) for id in ids]
        answer = answers.Attaching(
            message=f"Storage {volume.name} is being mounted at {render.mount_path(volume.id)}.",
            request_ids=[request_id for request_id in request_ids if request_id is not None],
        )
        return Reply(202, msgspec.json.encode(answer))

    async def _attach(self, actor: Actor, volume: Volume, cluster_id: str, ids: list[str]) -> str | None:
        wish = MountWish(volume_id=volume.id, path=render.mount_path(volume.id))
        try:
            cluster = await self._house.clusters.attach(actor, cluster_id, wish)
        except CallError as refused:
            if before := ids[: ids.index(cluster_id)]:
                refused.message += f" (cluster {cluster_id}; it is being mounted on {', '.join(before)})"
            raise
        return await request_behind(self._house, actor, cluster)

    async def detach(self, call: Call) -> Reply:
        said = read(call, wire.Detach)
        cluster = await self._house.clusters.detach(call.actor, said.cluster_id, said.storage_id)
        answer = answers.Accepted(
            message=f"Storage {said.storage_id} is being taken off cluster {cluster.name}. What is in it stays.",
            request_id=await request_behind(self._house, call.actor, cluster),
        )
        return Reply(202, msgspec.json.encode(answer))

    async def quote(self, call: Call) -> Reply:
        size = count(call, "size_gb" if call.asked("size_gb") else "size", most=SIZE_GB_MAX)
        region = await region_for_storage(self._house, call.actor)
        catalog = await self._house.catalog.current()
        price = catalog.price_of("volume", region, "on_demand", self._house.clock.now())
        monthly = price.micro * size / MICRO if price is not None else 0.0
        currency = price.currency if price is not None else "USD"
        hourly = round(monthly / HOURS_PER_MONTH, 6)
        answer = answers.Quote(
            message=f"{size} GB in {region}: {hourly:.4f} {currency} an hour, {monthly:.2f} a month.",
            size_gb=size,
            hourly_rate=hourly,
            monthly_rate=round(monthly, 6),
            currency=currency,
        )
        return Reply(200, msgspec.json.encode(answer))

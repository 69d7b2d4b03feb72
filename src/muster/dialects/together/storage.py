"""Shared volumes on Together's wire, under /clusters/storage."""

from __future__ import annotations

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.together import answers, wire
from muster.dialects.together.asking import read, required
from muster.dialects.together.clusters import PAGE, check_neighbour, foreign, project_asked
from muster.dialects.together.render import volume_of
from muster.dialects.together.translate import check_new_volume, size_gib
from muster.model.accounts import Actor
from muster.model.volumes import Volume


class Storage:
    def __init__(self, house: House) -> None:
        self._house = house
        self._volumes = house.volumes

    async def create(self, call: Call) -> Reply:
        asked = read(call, wire.NewVolume)
        said = asked.said
        check_new_volume(said)
        if said.instance_cluster_id:
            await check_neighbour(self._house, call.actor, said.instance_cluster_id, said.region or "")
        volume = await self._volumes.create(
            call.actor,
            name=said.volume_name or "",
            region=said.region or "",
            size_gib=size_gib(said.size_tib or 0),
            project_id=said.project_id,
        )
        return Reply(200, await self._told(call.actor, volume), headers=asked.headers)

    async def list(self, call: Call) -> Reply:
        found = await every_volume(self._house, call)
        mounted = await self._volumes.mounted([volume.id for volume in found])
        told = [volume_of(volume, mounted=volume.id in mounted) for volume in found]
        return Reply(200, msgspec.json.encode(answers.VolumeList(volumes=told)))

    async def retrieve(self, call: Call) -> Reply:
        volume = await self._volumes.volume(call.actor, call.params["volume_id"])
        return Reply(200, await self._told(call.actor, volume))

    async def update(self, call: Call) -> Reply:
        asked = read(call, wire.VolumeChange)
        required(asked.said)
        volume = await self._volumes.volume(call.actor, asked.said.volume_id or "")
        if asked.said.size_tib is not None:
            volume = await self._volumes.grow(call.actor, volume.id, size_gib(asked.said.size_tib))
        return Reply(200, await self._told(call.actor, volume), headers=asked.headers)

    async def delete(self, call: Call) -> Reply:
        await self._volumes.delete(call.actor, call.params["volume_id"])
        return Reply(200, msgspec.json.encode(answers.Deleted(success=True)))

    async def _told(self, actor: Actor, volume: Volume) -> bytes:
        mounted = volume.id in await self._volumes.mounted([volume.id])
        return msgspec.json.encode(volume_of(volume, mounted=mounted))


async def every_volume(house: House, call: Call) -> list[Volume]:
    """All of them: this wire has no pages."""
    project_id = project_asked(call)
    volumes: list[Volume] = []
    cursor: str | None = None
    while not foreign(call.actor, project_id):
        page = await house.volumes.volumes(call.actor, project_id, cursor=cursor, limit=PAGE)
        volumes += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return volumes

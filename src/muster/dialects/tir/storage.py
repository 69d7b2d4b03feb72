"""Shared (SFS) and parallel (PFS) file systems on TIR's wire: one kind of volume here, by two names.

Leans on the house's volumes room.
"""

from __future__ import annotations

from typing import Final

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.tir import answers, wire, words
from muster.dialects.tir.asking import location_of, number_in_path, project_of, read
from muster.dialects.tir.render import volume_of
from muster.errors import NotFound
from muster.model.accounts import Project
from muster.model.volumes import Volume

PAGE: Final = 1_000


class Storage:
    """`flavours`: the one that is made here first, then what else belongs on this list."""

    def __init__(self, house: House, word: str, flavours: tuple[str, ...]) -> None:
        self._house = house
        self._volumes = house.volumes
        self._word = word
        self._flavours = flavours

    async def create(self, call: Call) -> Reply:
        project = await project_of(self._house, call)
        location = await location_of(self._house, call)
        said = read(call, wire.NewVolume)
        volume = await self._volumes.create(
            call.actor,
            name=said.name,
            region=location,
            size_gib=said.disk_size,
            flavour=self._flavours[0],
            project_id=project.id,
        )
        return answers.reply(volume_of(volume, project), message=f"{self._word} created successfully")

    async def every(self, call: Call) -> Reply:
        project = await project_of(self._house, call)
        volumes: list[Volume] = []
        cursor: str | None = None
        while True:
            page = await self._volumes.volumes(call.actor, project.id, cursor=cursor, limit=PAGE)
            volumes += [volume for volume in page.items if volume.flavour in self._flavours]
            cursor = page.next_cursor
            if cursor is None:
                return answers.reply([volume_of(volume, project) for volume in volumes])

    async def retrieve(self, call: Call) -> Reply:
        project, volume = await self._asked(call)
        return answers.reply(volume_of(volume, project))

    async def grow(self, call: Call) -> Reply:
        project, volume = await self._asked(call)
        volume = await self._volumes.grow(call.actor, volume.id, read(call, wire.VolumeSize).disk_size)
        return answers.reply(volume_of(volume, project), message=f"{self._word} updated successfully")

    async def delete(self, call: Call) -> Reply:
        _, volume = await self._asked(call)
        await self._volumes.delete(call.actor, volume.id)
        return answers.reply(f"{self._word} deleted successfully")

    async def attached(self, call: Call) -> Reply:
        """Theirs is named after notebooks; ours are mounted on clusters."""
        _, volume = await self._asked(call)
        told = []
        for attachment in await self._volumes.attachments(call.actor, volume.id):
            cluster = await self._house.clusters.cluster(call.actor, attachment.cluster_id)
            told.append(
                answers.Attached(
                    id=cluster.number,
                    name=cluster.name,
                    resource_type="training_cluster",
                    status=words.STATUS[cluster.phase],
                    mount_path=attachment.mount_path,
                )
            )
        return answers.reply(told)

    async def _asked(self, call: Call) -> tuple[Project, Volume]:
        project = await project_of(self._house, call)
        number = number_in_path(call, "volume_id")
        volume = await self._house.numbers.find(call.actor, Volume, number)
        if volume.project_id != project.id or volume.flavour not in self._flavours:
            raise NotFound(f"there is no {self._word} {number}")
        return project, volume

"""Volumes on the native wire."""

from __future__ import annotations

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.native import views, wire
from muster.dialects.native.asking import if_match, once, paging, patience, read, seen_version, text
from muster.dialects.native.replies import answer, listing
from muster.dialects.native.translate import shown, volume_view
from muster.dialects.native.watch import Watch
from muster.model.phases import VolumePhase
from muster.model.volumes import Volume


class Volumes:
    def __init__(self, house: House, watch: Watch) -> None:
        self._volumes = house.volumes
        self._clock = house.clock
        self._watch = watch

    async def list(self, call: Call) -> Reply:
        page = await self._volumes.volumes(call.actor, text(call, "project_id"), text(call, "name"), **paging(call))
        now = self._clock.now()
        return listing((volume_view(volume, now) for volume in page.items), page.next_cursor)

    async def get(self, call: Call) -> Reply:
        id = call.params["id"]
        seconds = patience(call)
        if seconds is not None:
            known = seen_version(call)
            await self._watch.until(
                lambda: self._volumes.volume(call.actor, id),
                at_rest if known is None else lambda volume: volume.version != known,
                seconds,
            )
        volume = await self._volumes.volume(call.actor, id)
        attachments = await self._volumes.attachments(call.actor, id)
        view = shown(
            volume,
            views.VolumeWithMounts,
            stuck=volume.stuck_since(self._clock.now()) is not None,
            attachments=[shown(each, views.Attached) for each in attachments],
        )
        return answer(view, tag=volume.version)

    async def create(self, call: Call) -> Reply:
        said = read(call, wire.NewVolume)
        volume = await self._volumes.create(
            call.actor,
            name=said.name,
            region=said.region,
            size_gib=said.size_gib,
            flavour=said.flavour,
            deletion_protection=said.deletion_protection,
            project_id=said.project_id,
            once=once(call, said, "volume"),
        )
        return self._told(volume, 201, location=f"volumes/{volume.id}")

    async def grow(self, call: Call) -> Reply:
        said = read(call, wire.VolumeChange)
        id, pinned = call.params["id"], if_match(call)
        volume = await self._volumes.edit(
            call.actor, id, name=said.name, deletion_protection=said.deletion_protection, if_version=pinned
        )
        if said.size_gib is not None:
            volume = await self._volumes.grow(call.actor, id, said.size_gib)
        return self._told(volume, 202)

    async def delete(self, call: Call) -> Reply:
        return self._told(await self._volumes.delete(call.actor, call.params["id"], if_version=if_match(call)), 202)

    def _told(self, volume: Volume, status: int, location: str | None = None) -> Reply:
        return answer(volume_view(volume, self._clock.now()), status=status, tag=volume.version, location=location)


def at_rest(volume: Volume) -> bool:
    if volume.delete_wished_at is not None:
        return False
    grown = volume.actual_gib >= volume.size_gib
    return volume.phase is VolumePhase.FAILED or (volume.phase is VolumePhase.AVAILABLE and grown)

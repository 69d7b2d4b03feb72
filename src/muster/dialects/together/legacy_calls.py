"""The legacy routes' handlers: the same services, the older words."""

from __future__ import annotations

from typing import Final

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.together import answers, legacy, wire
from muster.dialects.together.asking import read, required
from muster.dialects.together.clusters import PAGE
from muster.dialects.together.storage import every_volume
from muster.dialects.together.translate import size_gib

KEPT_AS: Final = "together.legacy"


class Legacy:
    def __init__(self, house: House) -> None:
        self._house = house
        self._clusters = house.clusters

    async def create(self, call: Call) -> Reply:
        asked = read(call, wire.LegacyNewCluster)
        command = legacy.create_cluster(asked.said, await self._house.catalog.current())
        cluster = await self._clusters.create(call.actor, command, note=asked.note)
        return Reply(200, msgspec.json.encode(legacy.accepted(cluster)), headers=asked.headers)

    async def update(self, call: Call) -> Reply:
        asked = read(call, wire.LegacyClusterChange)
        required(asked.said)
        cluster = await self._clusters.change(
            call.actor,
            asked.said.cluster_id or "",
            lambda view: legacy.update_cluster(asked.said, view),
            note=asked.note,
        )
        return Reply(200, msgspec.json.encode(legacy.accepted(cluster)), headers=asked.headers)

    async def list(self, call: Call) -> Reply:
        documents: list[bytes] = []
        cursor: str | None = None
        while True:
            page, cursor = await self._clusters.rendered_page(
                call.actor, KEPT_AS, legacy.render_cluster, cursor=cursor, limit=PAGE
            )
            documents += page
            if cursor is None:
                return Reply(200, b'{"clusters":[' + b",".join(documents) + b"]}")

    async def retrieve(self, call: Call) -> Reply:
        view = await self._clusters.view(call.actor, call.params["cluster_id"])
        kubeconfig = await self._clusters.kubeconfig(call.actor, view.cluster.id)
        return Reply(200, msgspec.json.encode(legacy.cluster_of(view, kubeconfig)))

    async def delete(self, call: Call) -> Reply:
        cluster = await self._clusters.delete(call.actor, call.params["cluster_id"])
        return Reply(200, msgspec.json.encode(answers.ClusterId(cluster_id=cluster.id)))

    async def create_volume(self, call: Call) -> Reply:
        asked = read(call, wire.LegacyNewVolume)
        required(asked.said)
        volume = await self._house.volumes.create(
            call.actor,
            name=asked.said.volume_name or "",
            region=asked.said.region or "",
            size_gib=size_gib(asked.said.size_tib or 0),
        )
        return Reply(200, msgspec.json.encode(answers.LegacyVolumeId(volume_id=volume.id)), headers=asked.headers)

    async def volumes(self, call: Call) -> Reply:
        told = [legacy.volume(volume) for volume in await every_volume(self._house, call)]
        return Reply(200, msgspec.json.encode(answers.LegacyVolumeList(volumes=told)))

    async def delete_volume(self, call: Call) -> Reply:
        await self._house.volumes.delete(call.actor, call.params["volume_id"])
        return Reply(200, msgspec.json.encode(answers.Deleted(success=True)))

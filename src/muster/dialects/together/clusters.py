"""Clusters and regions on Together's wire. Reading one is a kept document, one row's head, and the kubeconfig.

Leans on the house's services and the pure parts beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.clusters.snapshot import ClusterView
from muster.core.house import House
from muster.dialects.together import answers, wire
from muster.dialects.together.asking import read
from muster.dialects.together.render import is_old, may_have_kubeconfig, render_cluster, told, told_list
from muster.dialects.together.terms import NODE_GPUS
from muster.dialects.together.translate import create_cluster, driver_word, update_cluster
from muster.errors import Invalid
from muster.model.accounts import Actor
from muster.model.base import HOUR
from muster.model.catalog import Image

KEPT_AS: Final = "together"
KEPT_TERSE: Final = "together.go"
PAGE: Final = 1_000
OLD_SDKS: Final = ("2.0.", "2.1.", "2.2.", "2.3.", "2.4.", "2.5.", "2.6.")
"""SDKs whose regions have driver versions as words; they tell their version in a header."""


def foreign(actor: Actor, project_id: str | None) -> bool:
    """Whether a list was asked of a project that this key does not belong to: it is empty, not refused."""
    return project_id is not None and not actor.is_operator and project_id != actor.project_id


def project_asked(call: Call) -> str | None:
    return call.asked("projectId") or call.asked("project_id") or None


def wants_terse(call: Call) -> bool:
    """Whether a Go client asks, as Terraform's provider is: it gets the document without what is off."""
    return call.says(b"x-stainless-lang", b"go")


class Clusters:
    def __init__(self, house: House) -> None:
        self._house = house
        self._clusters = house.clusters
        self._clock = house.clock
        self._simulated = house.fleet.simulated

    def _render(self, view: ClusterView) -> bytes:
        return render_cluster(view, self._clock.now(), self._simulated)

    def _render_terse(self, view: ClusterView) -> bytes:
        return render_cluster(view, self._clock.now(), self._simulated, terse=True)

    def _way(self, call: Call) -> tuple[str, Callable[[ClusterView], bytes]]:
        """Under which name the caller's document is kept, and how it is made."""
        return (KEPT_TERSE, self._render_terse) if wants_terse(call) else (KEPT_AS, self._render)

    async def _document(self, call: Call, id: str, *, accepted: bool = False) -> bytes:
        name, render = self._way(call)
        document = await self._clusters.rendered(call.actor, id, name, render, accepted=accepted)
        if is_old(document, now := self._clock.now()):
            document = await self._clusters.rendered(call.actor, id, f"{name}.{now // HOUR}", render)
        return document

    async def retrieve(self, call: Call) -> Reply:
        id = call.params["cluster_id"]
        return Reply(200, await self._whole(call, id))

    async def _whole(self, call: Call, id: str) -> bytes:
        document = await self._document(call, id)
        return told(
            document, await self._clusters.kubeconfig(call.actor, id) if may_have_kubeconfig(document) else ""
        )

    async def create(self, call: Call) -> Reply:
        asked = read(call, wire.NewCluster)
        command = create_cluster(asked.said, await self._house.catalog.current(), call.actor.project_id)
        await self._check_neighbour(call.actor, asked.said.shared_volume, command.region)
        cluster = await self._clusters.create(call.actor, command, note=asked.note)
        document = await self._document(call, cluster.id, accepted=True)
        return Reply(200, told(document), headers=asked.headers)

    async def _check_neighbour(self, actor: Actor, volume: wire.InlineVolume | None, region: str) -> None:
        if volume is not None and volume.instance_cluster_id:
            await check_neighbour(self._house, actor, volume.instance_cluster_id, region)

    async def update(self, call: Call) -> Reply:
        id = call.params["cluster_id"]
        asked = read(call, wire.ClusterChange)
        await self._clusters.change(call.actor, id, lambda view: update_cluster(asked.said, view), note=asked.note)
        return Reply(200, await self._whole(call, id), headers=asked.headers)

    async def delete(self, call: Call) -> Reply:
        cluster = await self._clusters.delete(call.actor, call.params["cluster_id"])
        return Reply(200, msgspec.json.encode(answers.ClusterId(cluster_id=cluster.id)))

    async def regions(self, call: Call) -> Reply:
        if call.headers.get("x-stainless-package-version", "").startswith(OLD_SDKS):
            return Reply(200, msgspec.json.encode(await self._old_regions()))
        catalog, gpus = await self._house.catalog.current(), await self._gpus_by_region()
        regions = [
            answers.Region(
                name=name,
                supported_instance_types=gpus.get(name, []),
                driver_versions=[_driver(image) for image in catalog.images_in(name) if image.flavour == "base"],
            )
            for name in sorted(catalog.regions)
        ]
        return Reply(200, msgspec.json.encode(answers.RegionList(regions=regions)))

    async def _old_regions(self) -> answers.OldRegionList:
        catalog, gpus = await self._house.catalog.current(), await self._gpus_by_region()
        return answers.OldRegionList(
            regions=[
                answers.OldRegion(
                    id=name,
                    name=name,
                    availability_zones=[],
                    supported_instance_types=gpus.get(name, []),
                    driver_versions=sorted(
                        {driver_word(image) for image in catalog.images_in(name) if image.flavour == "base"}
                    ),
                )
                for name in sorted(catalog.regions)
            ]
        )

    async def _gpus_by_region(self) -> dict[str, list[str]]:
        """GPU types that the region has in whole nodes, used or free."""
        await self._house.capacity.sync()
        found: dict[str, list[str]] = {}
        for row in sorted(self._house.capacity.summary(), key=lambda row: row.gpu_type):
            if row.gpus_per_node == NODE_GPUS and row.total_nodes:
                found.setdefault(row.region, []).append(row.gpu_type)
        return found

    async def list(self, call: Call) -> Reply:
        documents: list[bytes] = []
        cursor: str | None = None
        while not foreign(call.actor, project_asked(call)):
            page, cursor = await self._page(call, cursor)
            documents += page
            if cursor is None:
                break
        return Reply(200, told_list(documents))

    async def _page(self, call: Call, cursor: str | None) -> tuple[Sequence[bytes], str | None]:
        """Kept documents; all anew, under this hour's name, once one of them is old."""
        name, render = self._way(call)
        now, about = self._clock.now(), {"project_id": project_asked(call), "cursor": cursor}
        page = await self._clusters.rendered_page(call.actor, name, render, limit=PAGE, **about)
        if any(is_old(document, now) for document in page[0]):
            name = f"{name}.{now // HOUR}"
            page = await self._clusters.rendered_page(call.actor, name, render, limit=PAGE, **about)
        return page


async def check_neighbour(house: House, actor: Actor, cluster_id: str, region: str) -> None:
    """`instance_cluster_id` asks for storage near a cluster: here a region is one place, so they must share it."""
    cluster = await house.clusters.cluster(actor, cluster_id)
    if cluster.region != region:
        raise Invalid(
            f"cluster {cluster.name} is in {cluster.region} and the volume is to be in {region}",
            field="instance_cluster_id",
            hint="Shared volume does not exist in the datacenter; make it in the cluster's region",
        )


def _driver(image: Image) -> answers.DriverVersion:
    return answers.DriverVersion(
        id=image.id, cuda_version=image.cuda_version, nvidia_driver_version=image.driver_version, os=image.os
    )

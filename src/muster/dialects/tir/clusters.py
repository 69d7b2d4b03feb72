"""Training clusters on TIR's wire: create, list, detail, delete. What is done to a running one is in actions.

Leans on the house's services and the pure parts beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from muster.contracts.http import Call, Reply
from muster.core.clusters.snapshot import ClusterView
from muster.core.house import House
from muster.dialects.tir import answers, wire
from muster.dialects.tir.asking import all_named, count, location_of, named, number_in_path, project_of, read
from muster.dialects.tir.render import Beside, cluster_of
from muster.dialects.tir.translate import FLAVOURS, Found, create_cluster
from muster.errors import NotFound
from muster.model.access import SecurityGroup, SshKey
from muster.model.accounts import Actor, Project
from muster.model.clusters import Billing, Cluster
from muster.model.volumes import Volume

PER_PAGE_MAX: Final = 1_000
PER_PAGE: Final = 100
PAGES_MAX: Final = 10_000


class Clusters:
    def __init__(self, house: House) -> None:
        self._house = house

    async def create(self, call: Call) -> Reply:
        project = await project_of(self._house, call)
        location = await location_of(self._house, call)
        said = read(call, wire.NewCluster)
        command = create_cluster(
            said, await self._found(call, project, location, said), await self._house.catalog.current()
        )
        made = await self._house.clusters.create(call.actor, command)
        view = await self._house.clusters.view(call.actor, made.id)
        [told] = await self.told(call.actor, project, [view])
        return answers.reply(told, code=201, message="Cluster created successfully")

    async def _found(self, call: Call, project: Project, location: str, said: wire.NewCluster) -> Found:
        house = self._house
        return Found(
            project=project,
            location=location,
            keys=await all_named(house, call, project, SshKey, said.ssh_key_ids, "ssh_key_ids"),
            group=await named(house, call, project, SecurityGroup, said.security_group_id, "security_group_id"),
            volumes={
                item.id: await named(house, call, project, Volume, item.id, field)
                for field in FLAVOURS
                for item in getattr(said, field)
            },
        )

    async def every(self, call: Call) -> Reply:
        project = await project_of(self._house, call)
        await location_of(self._house, call)
        page_no = count(call, "page_no", 1, most=PAGES_MAX)
        per_page = count(call, "per_page", PER_PAGE, most=PER_PAGE_MAX)
        views = await self._page(call.actor, project, page_no, per_page)
        return answers.reply(await self.told(call.actor, project, views))

    async def _page(self, actor: Actor, project: Project, page_no: int, per_page: int) -> list[ClusterView]:
        """The house pages by cursor, so that earlier pages are walked over."""
        cursor: str | None = None
        for _ in range(page_no):
            views, cursor = await self._house.clusters.views(
                actor, project_id=project.id, cursor=cursor, limit=per_page
            )
            page_no -= 1
            if cursor is None:
                break
        return views if page_no == 0 else []

    async def retrieve(self, call: Call) -> Reply:
        project, cluster = await self.asked(call)
        [told] = await self.told(call.actor, project, [await self._house.clusters.view(call.actor, cluster.id)])
        return answers.reply(told)

    async def delete(self, call: Call) -> Reply:
        _, cluster = await self.asked(call)
        await self._house.clusters.delete(call.actor, cluster.id)
        return answers.reply("Cluster deleted successfully")

    async def service_count(self, call: Call) -> Reply:
        """dashboard/service-count/: the SDK asks it to see whether it gets in."""
        project = await project_of(self._house, call)
        views = await self._page(call.actor, project, 1, PER_PAGE_MAX)
        return answers.reply({"training_cluster": len(views)})

    async def asked(self, call: Call) -> tuple[Project, Cluster]:
        """The cluster in the path, which must be one of the project's."""
        project = await project_of(self._house, call)
        await location_of(self._house, call)
        number = number_in_path(call, "cluster_id")
        cluster = await self._house.numbers.find(call.actor, Cluster, number)
        if cluster.project_id != project.id:
            raise NotFound(f"there is no cluster {number}")
        return project, cluster

    async def told(self, actor: Actor, project: Project, views: Iterable[ClusterView]) -> list[answers.Cluster]:
        views = list(views)
        beside = await self._beside(actor, project, views)
        return [cluster_of(view, beside) for view in views]

    async def _beside(self, actor: Actor, project: Project, views: list[ClusterView]) -> Beside:
        access, most = self._house.access, PER_PAGE_MAX
        catalog, now = await self._house.catalog.current(), self._house.clock.now()
        places = {(view.cluster.spec.instance_type, view.cluster.spec.region) for view in views}
        prices = {(at, where): catalog.price_of(at, where, Billing.ON_DEMAND, now) for at, where in places}
        keys = (await access.ssh_keys(actor, project.id, limit=most)).items
        groups = (await access.security_groups(actor, project.id, limit=most)).items
        ips = (await access.reserved_ips(actor, project.id, limit=most)).items
        return Beside(
            project=project,
            keys={key.public_key: key for key in keys},
            groups={group.id: group for group in groups},
            ips={ip.cluster_id: ip for ip in ips if ip.cluster_id},
            makers={maker: await self._name(actor, maker) for maker in {v.cluster.created_by for v in views}},
            prices={f"{at}@{where}": price for (at, where), price in prices.items() if price is not None},
        )

    async def _name(self, actor: Actor, maker: str) -> str:
        """Whoever made a cluster is kept by the id of a key or a member; people know their names."""
        try:
            return (await self._house.accounts.key(actor, maker)).name
        except NotFound:
            pass
        try:
            return (await self._house.accounts.member(actor, maker)).name
        except NotFound:
            return maker

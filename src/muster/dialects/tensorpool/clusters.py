"""Clusters on TensorPool's wire, and the way into their instances.

Leans on the house's services and the pure parts beside it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.clusters.commands import CreateCluster, UpdateCluster
from muster.core.clusters.snapshot import ClusterView
from muster.core.house import House
from muster.dialects.tensorpool import answers, render, wire
from muster.dialects.tensorpool.asking import Misshapen, flag, read
from muster.dialects.tensorpool.people import mine
from muster.dialects.tensorpool.places import image_for, region_for_cluster
from muster.dialects.tensorpool.requests import request_behind
from muster.dialects.tensorpool.ways import ssh_command
from muster.dialects.tensorpool.words import REQUEST_STATUSES, REQUEST_TYPE, shape_of
from muster.model.accounts import Actor
from muster.model.clusters import Cluster, ClusterType

PAGE: Final = 1_000
OPERATIONS_MAX: Final = 1_000


class Clusters:
    def __init__(self, house: House) -> None:
        self._house = house
        self._clusters = house.clusters

    async def create(self, call: Call) -> Reply:
        said = read(call, wire.NewCluster)
        command = await self._command(call.actor, said)
        cluster = await self._clusters.create(call.actor, command)
        if said.save_keys is not False:
            await self._save_keys(call.actor, said.public_keys or ())
        view = await self._clusters.view(call.actor, cluster.id)
        request_id = await request_behind(self._house, call.actor, cluster)
        told = (
            f"Cluster {cluster.name} ({cluster.id}) is being made: {cluster.spec.workers} x {said.instance_type} in "
            f"{cluster.region}. See it with `tp cluster info {cluster.id}`."
        )
        answer = answers.ClusterCreateRestResponse(
            message=told,
            cluster_id=cluster.id,
            instance_ids=[node.id for node in render.instances(view)],
            request_id=request_id,
        )
        return Reply(202, msgspec.json.encode(answer))

    async def _command(self, actor: Actor, said: wire.NewCluster) -> CreateCluster:
        catalog = await self._house.catalog.current()
        shape = shape_of(said.instance_type, catalog)
        nodes = said.num_nodes or 1
        region = await region_for_cluster(self._house, actor, shape, nodes)
        return CreateCluster(
            name=said.tp_cluster_name or f"cluster-{self._house.entropy.uuid()[:8]}",
            type=ClusterType.SLURM,
            region=region,
            gpu_type=shape.gpu_type,
            gpus=shape.gpus * nodes,
            gpus_per_node=shape.gpus,
            single_node=nodes == 1,
            image_id=image_for(said.container, region, catalog) if said.container else "",
            deletion_protection=bool(said.deletion_protection),
            ssh_keys=said.public_keys or (),
        )

    async def _save_keys(self, actor: Actor, texts: tuple[str, ...]) -> None:
        for text in texts:
            await self._house.access.add_ssh_key(actor, public_key=text, member_id=actor.member_id)

    async def every(self, call: Call) -> Reply:
        org = flag(call, "include_org")
        told = [await self._told(view) for view in await self._all(call.actor) if org or _is_mine(call.actor, view)]
        message = render.cluster_list(told, with_instances=flag(call, "instances"), org=org)
        return Reply(200, msgspec.json.encode(answers.ClusterList(message=message, clusters=told)))

    async def _all(self, actor: Actor) -> list[ClusterView]:
        found: list[ClusterView] = []
        cursor: str | None = None
        while True:
            page, cursor = await self._clusters.views(actor, cursor=cursor, limit=PAGE)
            found += page
            if cursor is None:
                return found

    async def info(self, call: Call) -> Reply:
        told = await self._told(await self._clusters.view(call.actor, call.params["cluster_id"]))
        return Reply(200, msgspec.json.encode(answers.ClusterInfo(message=render.cluster_text(told), cluster=told)))

    async def _told(self, view: ClusterView) -> answers.Cluster:
        catalog = await self._house.catalog.current()
        return render.cluster_of(view, catalog, simulated=self._house.fleet.simulated)

    async def edit(self, call: Call) -> Reply:
        said = read(call, wire.ClusterChange)
        command = UpdateCluster(name=said.cluster_name, deletion_protection=said.deletion_protection)
        cluster = await self._clusters.update(call.actor, call.params["cluster_id"], command)
        guard = "protected from deletion" if cluster.spec.deletion_protection else "not protected from deletion"
        return await self._accepted(call.actor, cluster, f"Cluster {cluster.id} is named {cluster.name}, {guard}.")

    async def destroy(self, call: Call) -> Reply:
        cluster = await self._clusters.delete(call.actor, call.params["cluster_id"])
        return await self._accepted(call.actor, cluster, f"Cluster {cluster.name} ({cluster.id}) is being destroyed.")

    async def _accepted(self, actor: Actor, cluster: Cluster, message: str) -> Reply:
        request_id = await request_behind(self._house, actor, cluster)
        return Reply(202, msgspec.json.encode(answers.Accepted(message=message, request_id=request_id)))

    async def operations(self, call: Call) -> Reply:
        cluster = await self._clusters.cluster(call.actor, call.params["cluster_id"])
        page = await self._house.requests.requests(call.actor, resource_id=cluster.id, limit=OPERATIONS_MAX)
        kinds = _filter(call, "type", frozenset(REQUEST_TYPE.values()))
        states = _filter(call, "status", frozenset(REQUEST_STATUSES))
        told = [render.request_of(request, cluster) for request in page.items]
        told = [each for each in told if each.request_type in kinds and each.status in states]
        answer = answers.Operations(message=render.operations_text(told), operations=told)
        return Reply(200, msgspec.json.encode(answer))

    async def ssh(self, call: Call) -> Reply:
        view = await self._clusters.view_of_node(call.actor, call.params["instance_id"])
        command = ssh_command(view, call.params["instance_id"])
        return Reply(200, msgspec.json.encode(answers.Ssh(message="", command=command)))


def _is_mine(actor: Actor, view: ClusterView) -> bool:
    return mine(actor, view.cluster.created_by)


def _filter(call: Call, name: str, known: frozenset[str]) -> frozenset[str]:
    """The values asked for, or all; joined by commas or repeated."""
    given = {part.upper() for value in call.query.get(name, ()) for part in value.split(",") if part}
    if unknown := given - known:
        raise Misshapen(f"{name} cannot be {min(unknown)}: use {', '.join(sorted(known))}", ["query", name])
    return frozenset(given) or known

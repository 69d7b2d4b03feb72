"""Clusters on the native wire. Reading one is the hottest road of the house: a kept document and one row's head."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.clusters.boots import EVERYONE, WORKERS
from muster.core.clusters.snapshot import ClusterView
from muster.core.house import House
from muster.core.idempotency import Once, digest_of
from muster.dialects.native import views, wire
from muster.dialects.native.asking import (
    flag,
    if_match,
    once,
    paging,
    patience,
    read,
    seen_version,
    text,
    without_null,
)
from muster.dialects.native.replies import BASE, answer, listing
from muster.dialects.native.translate import (
    changed_config,
    create_cluster,
    explained,
    mount_wish,
    nodes,
    render_cluster,
    shown,
    tag_of,
    told,
    told_page,
    update_cluster,
)
from muster.dialects.native.watch import Watch
from muster.errors import WrongPhase
from muster.model.accounts import Actor
from muster.model.clusters import Cluster, ClusterConfig
from muster.model.phases import SERVING, STOPPED, Phase

KEPT_AS = "native"


class Clusters:
    def __init__(self, house: House, watch: Watch) -> None:
        self._house = house
        self._clusters = house.clusters
        self._clock = house.clock
        self._watch = watch
        self._simulated = house.fleet.simulated

    def _render(self, view: ClusterView) -> bytes:
        return render_cluster(view, self._simulated)

    async def list(self, call: Call) -> Reply:
        documents, next_cursor = await self._clusters.rendered_page(
            call.actor,
            KEPT_AS,
            self._render,
            project_id=text(call, "project_id"),
            cluster_name=text(call, "name"),
            **paging(call),
        )
        return Reply(200, told_page(documents, next_cursor, self._clock.now()))

    async def get(self, call: Call) -> Reply:
        id = call.params["id"]
        seconds = patience(call)
        if seconds is not None:
            await self._wait(call, id, seconds)
        return await self._told(call, id)

    async def _wait(self, call: Call, id: str, seconds: float) -> None:
        """Until it is at rest; for a caller who tells the version it knows, until there is another."""
        known = seen_version(call)
        if known is None:
            await self._watch.until(lambda: self._rests(call.actor, id), bool, seconds)
        else:
            moved = self._clusters.cluster
            await self._watch.until(lambda: moved(call.actor, id), lambda seen: seen.version != known, seconds)

    async def _rests(self, actor: Actor, id: str) -> bool:
        """A stopped cluster rests once its nodes have let go of their hosts; only then can it be resumed."""
        cluster = await self._clusters.cluster(actor, id)
        if cluster.phase in STOPPED and at_rest(cluster):
            return not (await self._clusters.view(actor, id)).nodes
        return at_rest(cluster)

    async def _told(self, call: Call, id: str, status: int = 200, place: bool = False) -> Reply:
        document = await self._clusters.rendered(call.actor, id, KEPT_AS, self._render, accepted=place)
        headers = [("etag", tag_of(document))]
        if place:
            headers.append(("location", f"{BASE}/clusters/{id}"))
        return Reply(status, told(document, self._clock.now()), headers=headers)

    async def create(self, call: Call) -> Reply:
        command = create_cluster(read(call, wire.NewCluster))
        key = once(call, None, "cluster")
        cluster = await self._clusters.create(
            call.actor, command, None if key is None else Once(key.key, digest_of(command))
        )
        return await self._told(call, cluster.id, 201, place=True)

    async def update(self, call: Call) -> Reply:
        id = call.params["id"]
        said = read(call, wire.ClusterChange)
        config = await self._config(call, id) if said.config is not None else None
        await self._clusters.update(call.actor, id, update_cluster(said, config), if_version=if_match(call))
        return await self._told(call, id, 202)

    async def _config(self, call: Call, id: str) -> ClusterConfig:
        """What was said of the configuration, already known to be well formed, over what it is."""
        said: dict[str, Any] = without_null(msgspec.json.decode(call.body))["config"]
        return changed_config((await self._clusters.cluster(call.actor, id)).spec.config, said)

    async def delete(self, call: Call) -> Reply:
        id = call.params["id"]
        await self._clusters.delete(call.actor, id, if_version=if_match(call), force=flag(call, "force"))
        return await self._told(call, id, 202)

    async def pause(self, call: Call) -> Reply:
        await self._clusters.pause(call.actor, call.params["id"], if_version=if_match(call))
        return await self._told(call, call.params["id"], 202)

    async def resume(self, call: Call) -> Reply:
        await self._clusters.resume(call.actor, call.params["id"], if_version=if_match(call))
        return await self._told(call, call.params["id"], 202)

    async def restart(self, call: Call) -> Reply:
        roles = EVERYONE if read(call, wire.RestartBody).control else WORKERS
        await self._clusters.restart(call.actor, call.params["id"], roles, if_version=if_match(call))
        return await self._told(call, call.params["id"], 202)

    async def attach_ip(self, call: Call) -> Reply:
        said = read(call, wire.AddressBody)
        await self._clusters.attach_ip(call.actor, call.params["id"], said.reserved_ip_id)
        return await self._told(call, call.params["id"], 202)

    async def detach_ip(self, call: Call) -> Reply:
        await self._clusters.detach_ip(call.actor, call.params["id"], call.params["ip_id"])
        return await self._told(call, call.params["id"], 202)

    async def attach(self, call: Call) -> Reply:
        await self._clusters.attach(call.actor, call.params["id"], mount_wish(read(call, wire.MountBody)))
        return await self._told(call, call.params["id"], 202)

    async def detach(self, call: Call) -> Reply:
        await self._clusters.detach(call.actor, call.params["id"], call.params["volume_id"])
        return await self._told(call, call.params["id"], 202)

    async def nodes(self, call: Call) -> Reply:
        return listing(nodes(await self._clusters.view(call.actor, call.params["id"])))

    async def explain(self, call: Call) -> Reply:
        cluster = await self._clusters.cluster(call.actor, call.params["id"])
        return answer(explained(cluster, await self._clusters.explain(call.actor, cluster.id)))

    async def access(self, call: Call) -> Reply:
        return answer(shown(await self._clusters.access(call.actor, call.params["id"]), views.Access))

    async def kubeconfig(self, call: Call) -> Reply:
        config = await self._clusters.kubeconfig(call.actor, call.params["id"])
        if not config:
            raise WrongPhase(
                "this cluster has no kubeconfig now", hint="only Kubernetes clusters have one, once they are ready"
            )
        return Reply(200, config.encode(), "application/yaml")


def at_rest(cluster: Cluster) -> bool:
    """Nothing more will happen by itself: wish and observation agree, or it failed."""
    if cluster.delete_wished_at is not None:
        return False
    if cluster.phase is Phase.FAILED:
        return True
    if cluster.spec.paused:
        return cluster.phase in STOPPED
    return cluster.phase in SERVING and cluster.status.observed_generation >= cluster.generation

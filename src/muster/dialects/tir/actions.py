"""The nine actions on a running cluster: PUT distributed_jobs_v2/cluster/{id}/ with `action` and its fields.

Leans on the house's services. One table of actions; each is one call of the cluster service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from muster.contracts.http import Call, Reply
from muster.core.clusters.boots import EVERYONE, WORKERS
from muster.core.clusters.commands import UpdateCluster
from muster.core.clusters.snapshot import ClusterView
from muster.core.house import House
from muster.dialects.tir import answers, wire
from muster.dialects.tir.asking import all_named, named, read
from muster.dialects.tir.clusters import Clusters
from muster.dialects.tir.render import ip_of
from muster.dialects.tir.translate import image_of
from muster.errors import Invalid
from muster.model.access import ReservedIp, SecurityGroup, SshKey
from muster.model.accounts import Project
from muster.model.clusters import Cluster

Act: TypeAlias = Callable[[Call, Project, Cluster], Awaitable[Reply]]

ADDED_MAX: Final = 4_096


class Actions:
    def __init__(self, house: House, clusters: Clusters) -> None:
        self._house = house
        self._shown = clusters
        self._clusters = house.clusters
        self._acts: dict[str, Act] = {
            "update_ssh_keys": self._update_ssh_keys,
            "update_image": self._update_image,
            "restart_workers": self._restart_workers,
            "restart_cluster": self._restart_cluster,
            "scale_cluster": self._scale_cluster,
            "attach_ip": self._attach_ip,
            "detach_ip": self._detach_ip,
            "add_security_group": self._add_security_group,
            "remove_security_group": self._remove_security_group,
        }

    async def act(self, call: Call) -> Reply:
        project, cluster = await self._shown.asked(call)
        action = read(call, wire.Action).action
        if action not in self._acts:
            raise Invalid(f"there is no action {action[:40]}", field="action", hint=f"one of {', '.join(self._acts)}")
        return await self._acts[action](call, project, cluster)

    async def _told(self, call: Call, project: Project, cluster: Cluster, message: str) -> Reply:
        view = await self._clusters.view(call.actor, cluster.id)
        [told] = await self._shown.told(call.actor, project, [view])
        return answers.reply(told, message=message)

    async def _update_ssh_keys(self, call: Call, project: Project, cluster: Cluster) -> Reply:
        """Replaces the keys of every node."""
        numbers = read(call, wire.UpdateSshKeys).ssh_key_ids
        if not numbers:
            raise Invalid("name at least one SSH key", field="ssh_key_ids")
        keys = await all_named(self._house, call, project, SshKey, numbers, "ssh_key_ids")
        wish = UpdateCluster(ssh_keys=tuple(key.public_key for key in keys))
        await self._clusters.update(call.actor, cluster.id, wish)
        return await self._told(call, project, cluster, "SSH keys updated successfully")

    async def _update_image(self, call: Call, project: Project, cluster: Cluster) -> Reply:
        number = read(call, wire.UpdateImage).image_version_id
        image = image_of(number, cluster.region, await self._house.catalog.current())
        await self._clusters.update(call.actor, cluster.id, UpdateCluster(image_id=image.id))
        return await self._told(call, project, cluster, "Cluster image updated successfully")

    async def _restart_workers(self, call: Call, project: Project, cluster: Cluster) -> Reply:
        await self._clusters.restart(call.actor, cluster.id, WORKERS)
        return await self._told(call, project, cluster, "Workers are being restarted")

    async def _restart_cluster(self, call: Call, project: Project, cluster: Cluster) -> Reply:
        await self._clusters.restart(call.actor, cluster.id, EVERYONE)
        return await self._told(call, project, cluster, "Cluster is being restarted")

    async def _scale_cluster(self, call: Call, project: Project, cluster: Cluster) -> Reply:
        more = read(call, wire.ScaleCluster).additional_nodes
        if not 1 <= more <= ADDED_MAX:
            raise Invalid("at least one node is added", field="additional_nodes", hint="this wire only adds nodes")

        def larger(view: ClusterView) -> UpdateCluster:
            per_node = view.instance_type.gpus if view.instance_type else 0
            return UpdateCluster(gpus=(view.cluster.spec.workers + more) * per_node)

        await self._clusters.change(call.actor, cluster.id, larger)
        return await self._told(call, project, cluster, "Cluster scaled successfully")

    async def _attach_ip(self, call: Call, project: Project, cluster: Cluster) -> Reply:
        number = read(call, wire.AttachIp).reserved_ip_id
        ip = await named(self._house, call, project, ReservedIp, number, "reserved_ip_id")
        await self._clusters.attach_ip(call.actor, cluster.id, ip.id)
        attached = await self._house.access.reserved_ip(call.actor, ip.id)
        return answers.reply(ip_of(attached, cluster.number), message="Reserved IP attached successfully")

    async def _detach_ip(self, call: Call, project: Project, cluster: Cluster) -> Reply:
        number = read(call, wire.DetachIp).reserved_ip_id
        ip = await named(self._house, call, project, ReservedIp, number, "reserved_ip_id")
        if ip.cluster_id != cluster.id:
            raise Invalid(f"{ip.address} is not attached to this cluster", field="reserved_ip_id")
        await self._clusters.detach_ip(call.actor, cluster.id, ip.id)
        return answers.reply({}, message="Reserved IP detached successfully")

    async def _add_security_group(self, call: Call, project: Project, cluster: Cluster) -> Reply:
        field = "security_groups_ids"
        numbers = read(call, wire.AddSecurityGroup).security_groups_ids
        if not numbers:
            raise Invalid("name at least one security group", field=field)
        groups = await all_named(self._house, call, project, SecurityGroup, numbers, field)
        ids = [group.id for group in groups]

        def guarded(view: ClusterView) -> UpdateCluster:
            return UpdateCluster(
                security_group_ids=tuple(dict.fromkeys([*view.cluster.spec.security_group_ids, *ids]))
            )

        await self._clusters.change(call.actor, cluster.id, guarded)
        return answers.reply("Security group attached successfully")

    async def _remove_security_group(self, call: Call, project: Project, cluster: Cluster) -> Reply:
        field = "security_group_id"
        number = read(call, wire.RemoveSecurityGroup).security_group_id
        group = await named(self._house, call, project, SecurityGroup, number, field)

        def open_(view: ClusterView) -> UpdateCluster:
            ids = view.cluster.spec.security_group_ids
            if group.id not in ids:
                raise Invalid(f"security group {number} is not on this cluster", field=field)
            if len(ids) == 1:
                raise Invalid("a cluster keeps at least one security group", field=field, hint="add another first")
            return UpdateCluster(security_group_ids=tuple(id for id in ids if id != group.id))

        await self._clusters.change(call.actor, cluster.id, open_)
        return answers.reply("Security group detached successfully")

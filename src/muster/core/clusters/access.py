"""Who and what gets into a cluster: its SSH keys, security groups and reserved address, looked up and checked."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contracts.store import Find, Op, Replace, Store
from muster.core.access.ssh import read_public_key
from muster.errors import Invalid, NotFound, Protected
from muster.model.access import ReservedIp, SecurityGroup, SshKey
from muster.model.base import changed
from muster.model.clusters import Cluster


async def saved_keys(store: Store, project_id: str) -> list[SshKey]:
    return await store.find(Find(SshKey, equals={"project_id": project_id}, order="created_at"))


def public_keys(known: Sequence[SshKey], *, texts: Sequence[str], ids: Sequence[str], saved: bool) -> tuple[str, ...]:
    """The keys given as text, those of the `known` named by id, and all the known if wished; each once."""
    by_id = {key.id: key for key in known}
    for id in ids:
        if id not in by_id:
            raise NotFound(f"there is no ssh key {id}")
    keys = [read_public_key(text).text for text in texts]
    keys += [by_id[id].public_key for id in ids]
    keys += [key.public_key for key in known] if saved else []
    return tuple(dict.fromkeys(keys))


async def group_ops(store: Store, project_id: str, ids: Sequence[str]) -> list[Op]:
    """The groups exist, and are written anew with the batch: one that is removed at this moment refuses it."""
    if not ids:
        return []
    groups = await store.find(Find(SecurityGroup, equals={"project_id": project_id}, one_of={"id": ids}))
    missing = set(ids) - {group.id for group in groups}
    if missing:
        raise NotFound(f"there is no security group {min(missing)}")
    return [Replace(changed(group)) for group in groups]


async def address_region(store: Store, project_id: str, ip_id: str | None) -> str:
    """Where a cluster must be to have this address; "" when there is none."""
    ip = None if ip_id is None else await store.get(ReservedIp, ip_id)
    return ip.region if ip is not None and ip.project_id == project_id else ""


async def bind_address(store: Store, project_id: str, cluster_id: str, ip_id: str | None, region: str) -> list[Op]:
    """The reserved address now belongs to this cluster; the row's version guards against two takers."""
    if ip_id is None:
        return []
    ip = await store.get(ReservedIp, ip_id)
    if ip is None or ip.project_id != project_id:
        raise NotFound(f"there is no reserved ip {ip_id}")
    if ip.cluster_id not in (None, cluster_id):
        raise Protected(f"{ip.address} is attached to another cluster", field="reserved_ip_id")
    if ip.region != region:
        raise Invalid(f"{ip.address} is an address of {ip.region}, not of {region}", field="reserved_ip_id")
    return [Replace(changed(ip, cluster_id=cluster_id))]


async def unbind_address(store: Store, cluster: Cluster, ip_id: str) -> list[Op]:
    """The reserved address is free for another cluster again."""
    ip = await store.get(ReservedIp, ip_id)
    if ip is None or ip.cluster_id != cluster.id:
        raise NotFound(f"there is no reserved ip {ip_id} on cluster {cluster.name}")
    return [Replace(changed(ip, cluster_id=None))]


async def unbind_addresses(store: Store, cluster_id: str) -> list[Op]:
    ips = await store.find(Find(ReservedIp, equals={"cluster_id": cluster_id}))
    return [Replace(changed(ip, cluster_id=None)) for ip in ips]

"""Volumes on clusters: which rows a mount is, whether the volume exists already or is made along with the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contracts.clock import Entropy
from muster.contracts.store import Expect, Find, Insert, Op, Remove, Store
from muster.core.accounts.rights import require_sees
from muster.core.clusters.commands import MountWish, NewVolume
from muster.core.volumes.wishes import Wished, new_volume
from muster.errors import Invalid, NotFound, Protected
from muster.model.accounts import Actor, Project
from muster.model.base import Instant
from muster.model.clusters import Cluster, ClusterType
from muster.model.events import Event
from muster.model.volumes import Attachment, Volume


async def mount_ops(
    store: Store, entropy: Entropy, actor: Actor, cluster: Cluster, mounts: Sequence[MountWish], at: Instant
) -> tuple[list[Op], list[Event]]:
    """The rows and audit lines behind the mounts of a new cluster."""
    ops: list[Op] = []
    events: list[Event] = []
    for index, mount in enumerate(mounts):
        more, lines = await attach_ops(store, entropy, actor, cluster, mount, at, first=index == 0)
        ops += more
        events += lines
    return ops, events


async def mounted_region(store: Store, project: Project, mounts: Sequence[MountWish]) -> str:
    """Where a cluster must be to have its volumes; "" when they do not say."""
    for mount in mounts:
        volume = await store.get(Volume, mount.volume_id) if mount.new is None else None
        if volume is not None and volume.project_id == project.id:
            return volume.region
        if mount.new is not None and mount.new.region:
            return mount.new.region
    return ""


async def attach_ops(
    store: Store,
    entropy: Entropy,
    actor: Actor,
    cluster: Cluster,
    mount: MountWish,
    at: Instant,
    *,
    first: bool = False,
) -> tuple[list[Op], Sequence[Event]]:
    made: Sequence[Op]
    events: Sequence[Event] = ()
    if mount.new is not None:
        wished = _new(entropy, actor, cluster, mount.new, at)
        made, volume, dies = wished.ops(), wished.volume, mount.new.dies_with_cluster
        events = wished.events
    else:
        volume = await _known(store, actor, cluster, mount.volume_id)
        made, dies = [Expect(Volume, volume.id, volume.version)], False
    attachment = Attachment(
        id=entropy.uuid(),
        volume_id=volume.id,
        cluster_id=cluster.id,
        project_id=cluster.project_id,
        mount_path=mount.path or _default_path(cluster, volume, first),
        read_only=mount.read_only,
        dies_with_cluster=dies,
        created_at=at,
    )
    return [*made, Insert(attachment)], events


def _new(entropy: Entropy, actor: Actor, cluster: Cluster, new: NewVolume, at: Instant) -> Wished:
    return new_volume(
        id=entropy.uuid(),
        request_id=entropy.uuid(),
        account_id=cluster.account_id,
        project_id=cluster.project_id,
        name=new.name,
        region=new.region or cluster.region,
        size_gib=new.size_gib,
        actor=actor,
        at=at,
        cause=f"cluster {cluster.id}",
    )


async def _known(store: Store, actor: Actor, cluster: Cluster, volume_id: str) -> Volume:
    volume = await store.get(Volume, volume_id)
    if volume is None or volume.gone_at is not None or volume.project_id != cluster.project_id:
        raise NotFound(f"there is no volume {volume_id}")
    require_sees(actor, volume.project_id, "volume", volume_id)
    if volume.region != cluster.region:
        raise Invalid(
            f"volume {volume.name} is in {volume.region} and the cluster in {cluster.region}",
            field="mounts",
            hint="volumes are mounted in their own region",
        )
    if volume.delete_wished_at is not None:
        raise Protected(f"volume {volume.name} is being deleted")
    if volume.unfunded_since is not None:
        raise Protected(f"volume {volume.name} is kept but not lent: its account has no credit", hint="top up")
    return volume


def _default_path(cluster: Cluster, volume: Volume, first: bool) -> str:
    """Slurm users expect their shared storage at /home; whatever comes after has a place of its own."""
    if first and cluster.spec.type is ClusterType.SLURM:
        return "/home"
    return f"/mnt/{volume.id}"


async def detach_ops(store: Store, cluster: Cluster, volume_id: str) -> list[Op]:
    found = await store.find(Find(Attachment, equals={"cluster_id": cluster.id, "volume_id": volume_id}))
    if not found:
        raise NotFound(f"volume {volume_id} is not mounted on cluster {cluster.name}")
    return [Remove(Attachment, found[0].id)]

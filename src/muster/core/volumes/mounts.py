"""Which clusters a volume is mounted on, and what they must be told when it changes."""

from __future__ import annotations

from muster.contracts.store import Find, Op, Replace, Store, Wake
from muster.model.base import Instant, changed
from muster.model.clusters import Cluster
from muster.model.events import Request, RequestState
from muster.model.volumes import Attachment


async def mounts_of(store: Store, volume_id: str) -> list[Attachment]:
    return await store.find(Find(Attachment, equals={"volume_id": volume_id}))


async def staying_clusters(store: Store, mounts: list[Attachment]) -> list[str]:
    """Those of the clusters behind these mounts that nobody has wished away."""
    ids = sorted({mount.cluster_id for mount in mounts})
    if not ids:
        return []
    query = Find(Cluster, equals={"gone_at": None, "delete_wished_at": None}, one_of={"id": ids})
    return sorted(cluster.id for cluster in await store.find(query))


async def tell_clusters(store: Store, mounts: list[Attachment], at: Instant) -> list[Op]:
    """A cluster's view shows its volumes and is cached by its version: raise that in the same batch, and wake it."""
    ids = sorted({mount.cluster_id for mount in mounts})
    if not ids:
        return []
    clusters = await store.find(Find(Cluster, equals={"gone_at": None}, one_of={"id": ids}))
    return [op for cluster in clusters for op in (Replace(changed(cluster)), Wake("cluster", cluster.id, at))]


async def open_requests(store: Store, volume_id: str) -> list[Request]:
    states = (RequestState.PENDING.value, RequestState.PROCESSING.value)
    return await store.find(Find(Request, equals={"resource_id": volume_id}, one_of={"state": states}))

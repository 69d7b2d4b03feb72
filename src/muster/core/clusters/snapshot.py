"""A cluster with everything that belongs to it, as the store has it: what a view shows and what a plan decides on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import msgspec.structs

from muster.contracts.store import Find, Store
from muster.core.catalog.snapshot import Catalog
from muster.core.idempotency import digest_of
from muster.model.access import ReservedIp, Rule, SecurityGroup
from muster.model.catalog import GpuType, Image, InstanceType
from muster.model.clusters import Cluster, Node, NodeRole, Share
from muster.model.events import Request, RequestState
from muster.model.health import Remediation
from muster.model.hosts import Lease
from muster.model.phases import NodePhase, Phase
from muster.model.volumes import Attachment, Volume


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as it is shown: every dialect renders this and nothing else. `nodes` are the live ones."""

    cluster: Cluster
    nodes: list[Node]
    gone_nodes: list[Node] = field(default_factory=list)
    mounts: list[tuple[Attachment, Volume]] = field(default_factory=list)
    remediations: list[Remediation] = field(default_factory=list)  # oldest first
    leases: Mapping[str, Lease] = field(default_factory=dict)
    instance_type: InstanceType | None = None
    image: Image | None = None
    gpu_type: GpuType | None = None
    address: str = ""  # the reserved address that leads to its login node

    @property
    def gpus(self) -> int:
        """GPUs wished for."""
        per_node = self.instance_type.gpus if self.instance_type else 0
        return self.cluster.spec.workers * per_node

    @property
    def lent_wished(self) -> int:
        """Preemptible GPUs wished for."""
        return self.cluster.spec.preemptible_workers * (self.instance_type.gpus if self.instance_type else 0)

    @property
    def lent_gpus(self) -> int:
        """Preemptible GPUs that it can use now."""
        at_work = (NodePhase.RUNNING, NodePhase.DRAINING)
        lent = [node for node in self.nodes if node.share is Share.PREEMPTIBLE and node.phase in at_work]
        return len(lent) * (self.instance_type.gpus if self.instance_type else 0)

    @property
    def pool_gpus(self) -> int:
        """Of its GPUs, how many come from its pool."""
        return self.cluster.spec.pool_workers * (self.instance_type.gpus if self.instance_type else 0)

    def workers(self) -> list[Node]:
        return [node for node in self.nodes if node.role is NodeRole.WORKER]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A view, and what else the reconciler weighs: packet rules and the requests that wait for it."""

    view: ClusterView
    rules: tuple[Rule, ...] | None  # None: it has no security group
    requests: list[Request]

    @property
    def cluster(self) -> Cluster:
        return self.view.cluster

    @property
    def nodes(self) -> list[Node]:
        return self.view.nodes

    def entering(self, phase: Phase) -> Snapshot:
        """The same, with the cluster in that phase."""
        return replace(self, view=replace(self.view, cluster=msgspec.structs.replace(self.cluster, phase=phase)))

    def with_nodes(self, nodes: Sequence[Node]) -> Snapshot:
        """The same, with these nodes as they are now."""
        news = {node.id: node for node in nodes}
        return replace(self, view=replace(self.view, nodes=[news.get(node.id, node) for node in self.nodes]))

    @property
    def rules_digest(self) -> str:
        return digest_of({"rules": self.rules})


_RANK = attrgetter("role", "ordinal", "created_at", "id")


async def load_view(store: Store, catalog: Catalog, cluster: Cluster) -> ClusterView:
    nodes = await store.find(Find(Node, equals={"cluster_id": cluster.id}, order="created_at"))
    leases = await store.find(Find(Lease, equals={"cluster_id": cluster.id}))
    repairs = await store.find(Find(Remediation, equals={"cluster_id": cluster.id}, order="created_at"))
    mounts, address = await load_mounts(store, cluster.id), await _address(store, cluster)
    return _view(catalog, cluster, nodes, leases, mounts, repairs, address)


def first_view(catalog: Catalog, cluster: Cluster, nodes: list[Node], leases: list[Lease]) -> ClusterView:
    """The view of a cluster without mounts, from the rows that were just written for it: all live, and in order."""
    return _view_of(catalog, cluster, nodes, [], {lease.id: lease for lease in leases}, [], [])


def _view(
    catalog: Catalog,
    cluster: Cluster,
    nodes: list[Node],
    leases: list[Lease],
    mounts: list[tuple[Attachment, Volume]],
    remediations: list[Remediation],
    address: str = "",
) -> ClusterView:
    nodes = sorted(nodes, key=_RANK)
    live = [node for node in nodes if node.phase is not NodePhase.GONE]
    gone = [node for node in nodes if node.phase is NodePhase.GONE] if len(live) < len(nodes) else []
    known = {lease.id: lease for lease in leases}
    return _view_of(catalog, cluster, live, gone, known, mounts, remediations, address)


def _view_of(
    catalog: Catalog,
    cluster: Cluster,
    live: list[Node],
    gone: list[Node],
    leases: Mapping[str, Lease],
    mounts: list[tuple[Attachment, Volume]],
    remediations: list[Remediation],
    address: str = "",
) -> ClusterView:
    return ClusterView(
        cluster=cluster,
        nodes=live,
        gone_nodes=gone,
        mounts=mounts,
        remediations=remediations,
        leases=leases,
        instance_type=catalog.instance_types.get(cluster.spec.instance_type),
        image=catalog.images.get(cluster.spec.image_id),
        gpu_type=catalog.gpu_types.get(cluster.spec.gpu_type),
        address=address,
    )


async def _address(store: Store, cluster: Cluster) -> str:
    ip_id = cluster.spec.reserved_ip_id
    ip = await store.get(ReservedIp, ip_id) if ip_id is not None else None
    return ip.address if ip is not None and ip.cluster_id == cluster.id else ""


async def load_mounts(store: Store, cluster_id: str) -> list[tuple[Attachment, Volume]]:
    attachments = await store.find(Find(Attachment, equals={"cluster_id": cluster_id}, order="created_at"))
    if not attachments:
        return []
    ids = sorted({attachment.volume_id for attachment in attachments})
    volumes = {volume.id: volume for volume in await store.find(Find(Volume, one_of={"id": ids}))}
    return [(attachment, volumes[attachment.volume_id]) for attachment in attachments]


async def load_snapshot(store: Store, catalog: Catalog, cluster: Cluster) -> Snapshot:
    group_ids = cluster.spec.security_group_ids
    groups = await store.find(Find(SecurityGroup, one_of={"id": group_ids})) if group_ids else []
    open_requests = await store.find(
        Find(
            Request,
            equals={"resource_id": cluster.id},
            one_of={"state": [RequestState.PENDING, RequestState.PROCESSING]},
            order="created_at",
        )
    )
    return Snapshot(
        view=await load_view(store, catalog, cluster),
        rules=tuple(rule for group in groups for rule in group.rules) if group_ids else None,
        requests=open_requests,
    )

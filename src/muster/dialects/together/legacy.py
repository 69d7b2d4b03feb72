"""The first Together API (/api/v1/gpu_cluster…): its words, over the same clusters. Pure.

Leans on translate and render. *Laws.* Required fields are required, duration_days too; UNKNOWN_TYPE means absent and
every other UNKNOWN_ or UNSPECIFIED value is refused; a shared volume's region is the cluster's by default.
"""

from __future__ import annotations

import base64
from typing import Final

import msgspec
from msgspec import UNSET

from muster.core.catalog.snapshot import Catalog
from muster.core.clusters.commands import CreateCluster, UpdateCluster
from muster.core.clusters.snapshot import ClusterView
from muster.core.clusters.wishes import CONTROL_CPUS, CONTROL_MEMORY_GIB
from muster.dialects.together import answers, translate, wire
from muster.dialects.together.asking import required, word
from muster.dialects.together.render import size_tib, volume_of
from muster.dialects.together.terms import lasting
from muster.dialects.together.words import BILLING, LEGACY_STATUS, NODE_STATUS, TYPE
from muster.errors import Invalid
from muster.model.base import HOUR
from muster.model.clusters import Billing, Cluster, ClusterConfig, ClusterType, Node, NodeRole
from muster.model.volumes import Volume

DRIVERS: Final = (
    "CUDA_12_4_550",
    "CUDA_12_5_555",
    "CUDA_12_6_560",
    "CUDA_12_6_565",
    "CUDA_12_8_570",
    "CUDA_12_9_575",
)
BILLINGS: Final = {billing: BILLING[billing] for billing in (Billing.RESERVED, Billing.ON_DEMAND)}
"""A window in time has no fields here."""

UNKNOWN_TYPE: Final = "UNKNOWN_TYPE"


def create_cluster(said: wire.LegacyNewCluster, catalog: Catalog) -> CreateCluster:
    required(said)
    type_ = _type(said.cluster_type)
    known(said.gpu_type, "gpu_type")
    known(said.billing_type, "billing_type")
    word(said.billing_type or "", BILLINGS, "billing_type")
    if said.driver_version not in DRIVERS:
        raise Invalid(
            f"driver_version cannot be {said.driver_version}",
            field="driver_version",
            hint=f"Use one of {', '.join(DRIVERS)}",
        )
    current = wire.NewCluster(
        cluster_name=said.cluster_name,
        region=said.region,
        gpu_type=said.gpu_type,
        num_gpus=said.num_gpus,
        billing_type=said.billing_type,
        duration_days=said.duration_days,
        driver_version=said.driver_version,
        cluster_type=TYPE[type_],
        slurm_shm_size_gib=ClusterConfig().shm_gib if type_ is ClusterType.SLURM else None,
        shared_volume=None if said.shared_volume is None else _inline(said.shared_volume),
        volume_id=said.volume_id or None,
    )
    return translate.create_cluster(current, catalog)


def _inline(said: wire.LegacyVolume) -> wire.InlineVolume:
    return wire.InlineVolume(volume_name=said.volume_name, size_tib=said.size_tib, region=said.region or None)


def known(said: str | None, field: str) -> None:
    if said is not None and (said.startswith("UNKNOWN_") or said == "UNSPECIFIED"):
        raise Invalid(f"{field} cannot be {said}", field=field, hint="Say which")


def _type(said: str | None) -> ClusterType:
    if said is None or said == UNKNOWN_TYPE:
        return ClusterType.KUBERNETES
    return word(said, TYPE, "cluster_type")


def update_cluster(said: wire.LegacyClusterChange, view: ClusterView) -> UpdateCluster:
    type_ = None if said.cluster_type == UNKNOWN_TYPE else said.cluster_type
    return translate.update_cluster(wire.ClusterChange(cluster_type=type_, num_gpus=said.num_gpus), view)


# --- answers --------------------------------------------------------------------------------------------------------


def accepted(cluster: Cluster) -> answers.LegacyAccepted:
    return answers.LegacyAccepted(cluster_id=cluster.id, status=LEGACY_STATUS[cluster.phase])


def cluster_of(view: ClusterView, kubeconfig: str = "") -> answers.LegacyCluster:
    cluster, spec = view.cluster, view.cluster.spec
    return answers.LegacyCluster(
        cluster_id=cluster.id,
        cluster_type=TYPE[spec.type],
        region=cluster.region,
        gpu_type=spec.gpu_type,
        cluster_name=cluster.name,
        duration_hours=lasting(cluster) // HOUR,
        driver_version=translate.driver_word(view.image) if view.image else "",
        volumes=[volume_of(volume, mounted=True) for _, volume in view.mounts],
        status=LEGACY_STATUS[cluster.phase],
        control_plane_nodes=[_node(view, node) for node in view.nodes if node.role is not NodeRole.WORKER],
        gpu_worker_nodes=[_node(view, node) for node in view.workers()],
        num_gpus=view.gpus,
        kube_config=base64.b64encode(kubeconfig.encode()).decode(),
    )


def _node(view: ClusterView, node: Node) -> answers.LegacyNode:
    shape = view.instance_type if node.role is NodeRole.WORKER else None
    return answers.LegacyNode(
        node_id=node.id,
        node_name=node.name,
        status=NODE_STATUS[node.phase],
        host_name=node.name,
        num_cpu_cores=shape.cpus if shape else CONTROL_CPUS,
        memory_gib=shape.memory_gib if shape else CONTROL_MEMORY_GIB,
        networks=[node.address] if node.address else [],
        num_gpus=shape.gpus if shape else UNSET,
    )


def render_cluster(view: ClusterView) -> bytes:
    return msgspec.json.encode(cluster_of(view))


def volume(volume: Volume) -> answers.LegacyVolume:
    return answers.LegacyVolume(volume_id=volume.id, volume_name=volume.name, size_tib=size_tib(volume))

"""From the house's views to TensorPool's answers and the text that `tp` prints. Pure.

Leans on words, answers and tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from muster.core.catalog.snapshot import Catalog
from muster.core.clusters.snapshot import ClusterView
from muster.dialects.tensorpool import answers, words
from muster.dialects.tensorpool.tables import pairs, table
from muster.model.access import SshKey
from muster.model.base import Instant
from muster.model.clusters import Cluster, Node
from muster.model.events import Request, RequestState
from muster.model.volumes import Attachment, Volume


def iso(at: Instant) -> str:
    return datetime.fromtimestamp(at / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def mount_path(volume_id: str) -> str:
    return f"/mnt/{volume_id}"


# --- clusters -------------------------------------------------------------------------------------------------------


def instances(view: ClusterView) -> list[Node]:
    """The nodes somebody asked for: workers. Controllers and logins are the house's own."""
    return view.workers()


def cluster_of(view: ClusterView, catalog: Catalog, *, simulated: bool) -> answers.Cluster:
    cluster = view.cluster
    return answers.Cluster(
        cluster_id=cluster.id,
        tp_cluster_name=cluster.name,
        status=words.CLUSTER_STATUS[cluster.phase],
        status_message=cluster.because,
        instance_type=words.instance_type_word(view.instance_type, catalog),
        num_nodes=cluster.spec.workers,
        region=cluster.region,
        container=cluster.spec.image_id,
        deletion_protection=cluster.spec.deletion_protection,
        organization_id=cluster.account_id,
        created_by=cluster.created_by,
        created_at=iso(cluster.created_at),
        instances=[instance_of(node) for node in instances(view)],
        storage=[mounted_of(mount, volume) for mount, volume in view.mounts],
        simulated=simulated,
    )


def instance_of(node: Node) -> answers.Instance:
    return answers.Instance(
        instance_id=node.id,
        name=node.name,
        role=node.role,
        status=words.INSTANCE_STATUS[node.phase],
        ip_address=node.address,
        created_at=iso(node.created_at),
    )


def mounted_of(mount: Attachment, volume: Volume) -> answers.Mounted:
    return answers.Mounted(
        storage_id=volume.id,
        name=volume.name,
        mount_path=mount.mount_path,
        size_gb=volume.size_gib,
        status=words.STORAGE_STATUS[volume.phase],
    )


def cluster_list(clusters: Sequence[answers.Cluster], *, with_instances: bool, org: bool) -> str:
    if not clusters:
        whose = "Your organization has" if org else "You have"
        return f"{whose} no clusters. Make one: tp cluster create 8xH100"
    listed = table(
        ("CLUSTER ID", "NAME", "STATUS", "TYPE", "NODES", "REGION", "CREATED"),
        (
            (c.cluster_id, c.tp_cluster_name, c.status, c.instance_type, c.num_nodes, c.region, c.created_at)
            for c in clusters
        ),
    )
    if not with_instances:
        return listed
    rows = [(c.tp_cluster_name, i.instance_id, i.name, i.status, i.ip_address) for c in clusters for i in c.instances]
    return f"{listed}\n\n{table(('CLUSTER', 'INSTANCE ID', 'NAME', 'STATUS', 'ADDRESS'), rows)}"


def cluster_text(cluster: answers.Cluster) -> str:
    head = pairs(
        [
            ("Cluster ID", cluster.cluster_id),
            ("Name", cluster.tp_cluster_name),
            ("Status", cluster.status),
            ("Because", cluster.status_message),
            ("Instance type", cluster.instance_type),
            ("Nodes", cluster.num_nodes),
            ("Region", cluster.region),
            ("Deletion protection", cluster.deletion_protection),
            ("Created", cluster.created_at),
            ("Simulated", cluster.simulated or None),
        ]
    )
    parts = [head]
    if cluster.instances:
        rows = [(i.instance_id, i.name, i.status, i.ip_address) for i in cluster.instances]
        parts.append(table(("INSTANCE ID", "NAME", "STATUS", "ADDRESS"), rows))
    if cluster.storage:
        mounts = [(s.storage_id, s.name, s.size_gb, s.mount_path) for s in cluster.storage]
        parts.append(table(("STORAGE ID", "NAME", "GB", "MOUNTED AT"), mounts))
    return "\n\n".join(parts)


# --- requests -------------------------------------------------------------------------------------------------------

OVER = (RequestState.COMPLETED, RequestState.FAILED)


def request_of(request: Request, cluster: Cluster | None) -> answers.Request:
    """`cluster` is the one the request is about, when there is one still."""
    status = words.REQUEST_STATUS[request.state]
    if request.state is RequestState.PROCESSING and cluster is not None and cluster.status.replacements:
        status = words.RETRYING
    message = request.message or (cluster.because if cluster is not None else "")
    if message and cluster is not None:
        message = f"Cluster {cluster.name} ({cluster.id}): {message}"
    return answers.Request(
        request_id=request.id,
        request_type=words.request_type(request.kind, request.operation),
        status=status,
        created_at=iso(request.created_at),
        object_id=request.resource_id,
        external_message=message or None,
        message=message or f"{request.operation}: {status.lower()}",
    )


def operations_text(operations: Sequence[answers.Request]) -> str:
    if not operations:
        return "No operations."
    rows = [(o.request_id, o.request_type, o.status, o.created_at, o.message) for o in operations]
    return table(("REQUEST ID", "TYPE", "STATUS", "CREATED", "MESSAGE"), rows)


# --- storage --------------------------------------------------------------------------------------------------------


def storage_of(volume: Volume, cluster_ids: Sequence[str]) -> answers.Storage:
    return answers.Storage(
        storage_id=volume.id,
        tp_storage_name=volume.name,
        status=words.STORAGE_STATUS[volume.phase],
        status_message=volume.because,
        size_gb=volume.size_gib,
        region=volume.region,
        deletion_protection=volume.deletion_protection,
        organization_id=volume.account_id,
        created_by=volume.created_by,
        created_at=iso(volume.created_at),
        cluster_ids=list(cluster_ids),
        mount_path=mount_path(volume.id),
    )


def storage_list(volumes: Sequence[answers.Storage], *, org: bool) -> str:
    if not volumes:
        whose = "Your organization has" if org else "You have"
        return f"{whose} no storage. Make some: tp storage create 100"
    rows = [(v.storage_id, v.tp_storage_name, v.status, v.size_gb, v.region, v.created_at) for v in volumes]
    return table(("STORAGE ID", "NAME", "STATUS", "GB", "REGION", "CREATED"), rows)


def storage_text(storage: answers.Storage) -> str:
    return pairs(
        [
            ("Storage ID", storage.storage_id),
            ("Name", storage.tp_storage_name),
            ("Status", storage.status),
            ("Because", storage.status_message),
            ("Size", f"{storage.size_gb} GB"),
            ("Region", storage.region),
            ("Deletion protection", storage.deletion_protection),
            ("Mounted at", storage.mount_path),
            ("Attached to", ", ".join(storage.cluster_ids) or "nothing"),
            ("Created", storage.created_at),
        ]
    )


# --- keys -----------------------------------------------------------------------------------------------------------


def key_of(key: SshKey) -> answers.Key:
    return answers.Key(
        key_id=key.id,
        name=key.name,
        fingerprint=key.fingerprint,
        public_key=key.public_key,
        created_at=iso(key.created_at),
    )


def key_list(keys: Sequence[answers.Key]) -> str:
    if not keys:
        return "No SSH keys. Add one: tp me sshkey add ~/.ssh/id_ed25519.pub"
    return table(
        ("KEY ID", "NAME", "FINGERPRINT", "ADDED"), ((k.key_id, k.name, k.fingerprint, k.created_at) for k in keys)
    )

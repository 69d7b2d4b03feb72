"""Events about a cluster that nobody asked for: what the house itself did or saw. Pure."""

from __future__ import annotations

from typing import Any

from muster.model.base import Instant
from muster.model.clusters import Cluster, Node
from muster.model.events import Event


def cluster_event(cluster: Cluster, type: str, message: str, at: Instant, **data: Any) -> Event:
    return Event(
        at=at,
        kind="cluster",
        resource_id=cluster.id,
        type=f"cluster.{type}",
        account_id=cluster.account_id,
        project_id=cluster.project_id,
        actor="system",
        message=message,
        data=data,
    )


def node_event(node: Node, type: str, message: str, at: Instant, **data: Any) -> Event:
    """Told of its cluster, and which node it was."""
    return Event(
        at=at,
        kind="cluster",
        resource_id=node.cluster_id,
        type=f"node.{type}",
        project_id=node.project_id,
        actor="system",
        message=message,
        data={"node": node.name, "node_id": node.id, **data},
    )

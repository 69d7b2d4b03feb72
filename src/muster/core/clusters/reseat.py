"""Seats for a whole cluster that gave all of its own back, and for nodes in the place of others. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contracts.clock import Entropy
from muster.core.capacity.placement import Ask, Grant, Placement
from muster.core.clusters.nodes import Seat, free_ordinals, seat
from muster.core.clusters.snapshot import ClusterView
from muster.core.clusters.terms import held_until
from muster.model.base import Instant
from muster.model.catalog import InstanceType
from muster.model.clusters import Billing, Cluster, Node, NodeRole, Repair

CONTROL = (NodeRole.CONTROLLER, NodeRole.LOGIN)


def whole_ask(cluster: Cluster, shape: InstanceType | None, now: Instant) -> Ask:
    """What the wish needs when nothing of it is seated; what was promised to it stands against nobody else."""
    spec = cluster.spec
    return Ask(
        spec.region,
        spec.gpu_type,
        shape.gpus if shape else 8,
        spec.workers,
        control=0 if spec.single_node else len(CONTROL),
        ends_at=held_until(cluster),
        at=now,
        promised=spec.billing is not Billing.ON_DEMAND,
    )


def whole_seats(
    entropy: Entropy, cluster: Cluster, nodes: Sequence[Node], placement: Placement, because: str, at: Instant
) -> list[Seat]:
    grants: list[tuple[NodeRole, int, Grant]] = [
        (role, 0, grant) for role, grant in zip(CONTROL, placement.control, strict=False)
    ]
    ordinals = free_ordinals(nodes, len(placement.workers))
    grants += [(NodeRole.WORKER, n, grant) for n, grant in zip(ordinals, placement.workers, strict=True)]
    return [
        seat(
            entropy,
            cluster_id=cluster.id,
            project_id=cluster.project_id,
            role=role,
            ordinal=ordinal,
            grant=grant,
            because=because,
            at=at,
            ends_at=held_until(cluster),
        )
        for role, ordinal, grant in grants
    ]


def substitute_ask(view: ClusterView, nodes: Sequence[Node], now: Instant) -> Ask:
    """Hosts for others in the place of these nodes."""
    cluster, shape = view.cluster, view.instance_type
    workers = [node for node in nodes if node.role is NodeRole.WORKER]
    return Ask(
        region=cluster.region,
        gpu_type=cluster.spec.gpu_type,
        gpus_per_node=shape.gpus if shape else 8,
        nodes=len(workers),
        control=len(nodes) - len(workers),
        avoid=frozenset(node.host_id for node in nodes if node.host_id and node.mending.wish is not Repair.ANYWHERE),
        ends_at=held_until(cluster),
        at=now,
        spare=cluster.spec.billing is not Billing.ON_DEMAND,
    )


def substitute_seats(
    entropy: Entropy, view: ClusterView, nodes: Sequence[Node], placement: Placement, now: Instant
) -> list[Seat]:
    """A worker's substitute gets a new name; a control node keeps its own."""
    workers, control = iter(placement.workers), iter(placement.control)
    ordinals = iter(free_ordinals(view.nodes, len(placement.workers)))
    return [
        _in_place(entropy, view.cluster, node, next(workers), next(ordinals), now)
        if node.role is NodeRole.WORKER
        else _in_place(entropy, view.cluster, node, next(control), node.ordinal, now)
        for node in nodes
    ]


def _in_place(entropy: Entropy, cluster: Cluster, node: Node, grant: Grant, ordinal: int, now: Instant) -> Seat:
    return seat(
        entropy,
        cluster_id=cluster.id,
        project_id=cluster.project_id,
        role=node.role,
        ordinal=ordinal,
        grant=grant,
        because=f"in place of {node.name}: {node.because}",
        at=now,
        replaces=node.id,
        ends_at=held_until(cluster),
        share=node.share,
    )

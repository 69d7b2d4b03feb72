"""Seats for a whole cluster that gave all of its own back, and for nodes in the place of others. Pure.

*Law.* A worker's seat is where its share is: one of a pool on that pool's hosts, the others on everybody's.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.contracts.clock import Entropy
from muster.core.capacity.placement import Ask, Grant, Placement
from muster.core.clusters.nodes import Seat, free_ordinals, seat
from muster.core.clusters.snapshot import ClusterView
from muster.core.clusters.terms import held_until
from muster.errors import Invalid
from muster.model.base import Instant
from muster.model.catalog import InstanceType
from muster.model.clusters import Billing, Cluster, ClusterSpec, Node, NodeRole, Repair, Share

CONTROL = (NodeRole.CONTROLLER, NodeRole.LOGIN)


def whole_ask(cluster: Cluster, shape: InstanceType | None, now: Instant) -> Ask:
    """What the wish needs when nothing of it is seated; what was promised to it stands against nobody else."""
    spec = cluster.spec
    return Ask(
        spec.region,
        spec.gpu_type,
        shape.gpus if shape else 8,
        spec.workers - spec.pool_workers,
        control=0 if spec.single_node else len(CONTROL),
        ends_at=held_until(cluster),
        at=now,
        promised=promised_workers(spec),
        pool_id=spec.pool_id or "",
        pool_nodes=spec.pool_workers,
    )


def worker_grants(placement: Placement) -> list[tuple[Grant, Share]]:
    """What workers were granted, by the share they are held for."""
    own = [(grant, Share.OWN) for grant in placement.workers]
    return own + [(grant, Share.POOL) for grant in placement.pooled]


def promised_workers(spec: ClusterSpec) -> int:
    """How many of its workers its reservation is for; those above are on demand."""
    if spec.billing is Billing.ON_DEMAND:
        return 0
    return spec.workers if spec.reserved_workers is None else min(spec.workers, spec.reserved_workers)


def check_not_below_promise(spec: ClusterSpec, workers: int) -> None:
    promised = promised_workers(spec)
    if workers < promised:
        raise Invalid(
            f"{promised} of its nodes are reserved and paid for until its end",
            field="gpus",
            hint="delete it when none of them is needed",
        )


def whole_seats(
    entropy: Entropy, cluster: Cluster, nodes: Sequence[Node], placement: Placement, because: str, at: Instant
) -> list[Seat]:
    grants: list[tuple[NodeRole, int, Grant, Share]] = [
        (role, 0, grant, Share.OWN) for role, grant in zip(CONTROL, placement.control, strict=False)
    ]
    workers = worker_grants(placement)
    ordinals = free_ordinals(nodes, len(workers))
    grants += [(NodeRole.WORKER, n, grant, share) for n, (grant, share) in zip(ordinals, workers, strict=True)]
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
            share=share,
        )
        for role, ordinal, grant, share in grants
    ]


def substitute_ask(view: ClusterView, nodes: Sequence[Node], now: Instant) -> Ask:
    """Hosts for others in the place of these nodes."""
    cluster, shape = view.cluster, view.instance_type
    workers = [node for node in nodes if node.role is NodeRole.WORKER]
    pooled = sum(node.share is Share.POOL for node in workers)
    return Ask(
        region=cluster.region,
        gpu_type=cluster.spec.gpu_type,
        gpus_per_node=shape.gpus if shape else 8,
        nodes=len(workers) - pooled,
        control=len(nodes) - len(workers),
        avoid=frozenset(node.host_id for node in nodes if node.host_id and node.mending.wish is not Repair.ANYWHERE),
        ends_at=held_until(cluster),
        at=now,
        spare=cluster.spec.billing is not Billing.ON_DEMAND,
        pool_id=cluster.spec.pool_id or "",
        pool_nodes=pooled,
    )


def substitute_seats(
    entropy: Entropy, view: ClusterView, nodes: Sequence[Node], placement: Placement, now: Instant
) -> list[Seat]:
    """A worker's substitute gets a new name; a control node keeps its own."""
    workers, pooled, control = iter(placement.workers), iter(placement.pooled), iter(placement.control)
    ordinals = iter(free_ordinals(view.nodes, len(placement.workers) + len(placement.pooled)))
    return [
        _in_place(
            entropy, view.cluster, node, next(pooled if node.share is Share.POOL else workers), next(ordinals), now
        )
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

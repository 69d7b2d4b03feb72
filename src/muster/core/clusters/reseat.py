"""Seats for a whole cluster that gave all of its own back: the rows it comes back on. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contracts.clock import Entropy
from muster.core.capacity.placement import Ask, Grant, Placement
from muster.core.clusters.nodes import Seat, free_ordinals, seat
from muster.core.clusters.terms import held_until
from muster.model.base import Instant
from muster.model.catalog import InstanceType
from muster.model.clusters import Billing, Cluster, Node, NodeRole

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

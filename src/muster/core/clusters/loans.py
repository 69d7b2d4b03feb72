"""A wish for preemptible workers as it is written down: which line's idle hosts they come from, and what it may cost.

Leans on the capacity room. *Law.* The wish, the line it looks to and the wake-up of whoever lends are
one batch.
"""

from __future__ import annotations

from muster.contracts.metering import Want
from muster.contracts.store import Op, Wake
from muster.core.capacity.placement import Ask
from muster.core.capacity.service import Capacity
from muster.errors import Invalid
from muster.model.base import Instant
from muster.model.billing import PREEMPTIBLE
from muster.model.catalog import InstanceType
from muster.model.clusters import Cluster, ClusterSpec


def lending_line(capacity: Capacity, spec: ClusterSpec, gpus: int) -> str:
    """The line whose idle hosts can be lent to this cluster: its nodes must be whole hosts."""
    key = capacity.whole_host_key(spec.region, spec.gpu_type, gpus)
    if key is None:
        raise Invalid(
            f"preemptible workers are whole hosts; a node of {gpus} {spec.gpu_type} is part of one",
            field="preemptible_gpus",
            hint="choose gpus_per_node as large as the hosts are",
        )
    return key.id


def loan_wants(spec: ClusterSpec, more: int) -> list[Want]:
    """What so many more preemptible workers would cost."""
    return [Want(spec.instance_type, spec.region, more, PREEMPTIBLE)] if more > 0 else []


async def loan_fields(
    capacity: Capacity, cluster: Cluster, spec: ClusterSpec, shape: InstanceType | None
) -> dict[str, str]:
    """The cluster's own fields behind a changed wish. Who wishes for none any more is let go of by whoever lends."""
    if spec.preemptible_workers == cluster.spec.preemptible_workers or not spec.preemptible_workers:
        return {}
    if not capacity.loaded:
        await capacity.sync()
    return {"preemptible_line": lending_line(capacity, spec, shape.gpus if shape else 8)}


def waits_for_lent(capacity: Capacity, ask: Ask) -> str | None:
    """The line to wait for, if what is asked would fit once hosts that are lent came back."""
    key = capacity.line_for(ask.region, ask.gpu_type, ask.gpus_per_node)
    return key.id if key is not None and capacity.reclaimable(ask) else None


def loan_wakes(cluster: Cluster, before: Cluster, now: Instant) -> list[Op]:
    """Whoever lends looks at once when the wish changed, or when somebody waits for what is lent."""
    changed = cluster.spec.preemptible_workers != before.spec.preemptible_workers
    lines = {cluster.preemptible_line if changed else None, cluster.short_line} - {None}
    return [Wake("preemption", line, now) for line in sorted(filter(None, lines))]

"""A wish for preemptible workers as it is written down: which line's idle hosts they come from, and what it may cost.

Leans on the capacity room and the purse. *Law.* The wish, the line it looks to and the wake-up of whoever lends are
one batch.
"""

from __future__ import annotations

from muster.contracts.metering import Purse, Want
from muster.contracts.store import Op, Wake
from muster.core.capacity.placement import Ask
from muster.core.capacity.service import Capacity
from muster.core.clusters.seating import Seating
from muster.core.clusters.snapshot import ClusterView
from muster.errors import Invalid
from muster.model.base import Instant
from muster.model.billing import PREEMPTIBLE
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


async def loan_fields(
    capacity: Capacity, purse: Purse, seating: Seating, view: ClusterView, spec: ClusterSpec
) -> dict[str, str]:
    """The cluster's own fields behind a changed wish, if that can be paid for. Who wishes for none any more is let go
    of by whoever lends."""
    more = spec.preemptible_workers - view.cluster.spec.preemptible_workers
    if not more or not spec.preemptible_workers:
        return {}
    if more > 0:
        want = Want(spec.instance_type, spec.region, more, PREEMPTIBLE)
        await purse.require(await seating.project(view.cluster.project_id), [want])
    if not capacity.loaded:
        await capacity.sync()
    return {"preemptible_line": lending_line(capacity, spec, view.instance_type.gpus if view.instance_type else 8)}


def waits_for_lent(capacity: Capacity, ask: Ask) -> str | None:
    """The line to wait for, if what is asked would fit once hosts that are lent came back."""
    key = capacity.line_for(ask.region, ask.gpu_type, ask.gpus_per_node)
    helps = not ask.pool_nodes and capacity.reclaimable(ask)
    return key.id if key is not None and helps else None


def loan_wakes(cluster: Cluster, before: Cluster, now: Instant) -> list[Op]:
    """Whoever lends looks at once when the wish changed, or when somebody waits for what is lent."""
    changed = cluster.spec.preemptible_workers != before.spec.preemptible_workers
    lines = {cluster.preemptible_line if changed else None, cluster.short_line} - {None}
    return [Wake("preemption", line, now) for line in sorted(filter(None, lines))]

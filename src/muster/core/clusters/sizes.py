"""What a change of the wish makes of a cluster's workers: from its pool, by its queue, lent. Pure."""

from __future__ import annotations

import msgspec.structs

from muster.contracts.orchestrator import Orchestrator
from muster.core.clusters import admission
from muster.core.clusters.commands import UpdateCluster
from muster.core.clusters.drawing import redrawn
from muster.core.clusters.snapshot import ClusterView
from muster.errors import Invalid, WrongPhase
from muster.model.catalog import InstanceType
from muster.model.clusters import ClusterSpec
from muster.model.phases import SERVING


def drawn(view: ClusterView, command: UpdateCluster, workers: int) -> int:
    """How many of so many workers come from its pool."""
    spec, shape = view.cluster.spec, view.instance_type
    drawn = spec.pool_workers if shape is None else redrawn(spec, command.pool_gpus, shape, workers)
    if drawn != spec.pool_workers and view.cluster.phase not in SERVING:
        raise WrongPhase(f"a cluster that is {view.cluster.phase} cannot be moved", hint="wait until it is ready")
    return drawn


def autoscaled(
    view: ClusterView, command: UpdateCluster, spec: ClusterSpec, orchestrator: Orchestrator
) -> ClusterSpec:
    """How far it may grow by itself. What has grown so counts towards a larger wish."""
    before, shape = view.cluster.spec, view.instance_type
    if shape is None or (before.autoscale is None and command.autoscale is None):
        return spec
    limit = before.autoscale
    if command.autoscale is not None:
        limit = admission.check_autoscale(command.autoscale, shape, spec.workers, spec.type, orchestrator)
    if limit is not None and spec.workers > limit.max_workers:
        words = f"it grows to {limit.max_workers * shape.gpus} GPUs at the most"
        raise Invalid(words, field="gpus", hint="raise autoscale.max_gpus first")
    grown = max(0, before.autoscaled_workers - max(0, spec.workers - before.workers)) if limit is not None else 0
    return msgspec.structs.replace(spec, autoscale=limit, autoscaled_workers=grown)


def lent(spec: ClusterSpec, gpus: int, shape: InstanceType, orchestrator: Orchestrator) -> dict[str, int]:
    wished = admission.check_preemptible(gpus, spec.type, shape, orchestrator)
    return {"preemptible_workers": wished, "preemptible_granted": min(spec.preemptible_granted, wished)}

"""How big a cluster is to be that may grow by itself: what its queue lacks, who has long been idle. Pure.

Leans on the orchestrator's queue. *Laws.* Never below what its owner wishes for, never above what the owner allows;
only who has been idle for long leaves, so no running job is cut short; after each change it rests for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from muster.contracts.orchestrator import Pending, Queue, Standing
from muster.core.clusters.deeds import Grow, Shrink, Sight
from muster.core.clusters.snapshot import Snapshot
from muster.core.clusters.surplus import staying
from muster.model.base import MINUTE, SECOND, Instant
from muster.model.clusters import Cluster, Node, Share
from muster.model.phases import SERVING, NodePhase

COMING = (NodePhase.PENDING, NodePhase.BOOTING, NodePhase.JOINING)


class Scaling(NamedTuple):
    """How soon a cluster follows its queue."""

    idle_ms: Instant = 10 * MINUTE  # a worker idle for so long leaves
    cool_down_ms: Instant = 1 * MINUTE  # after a change, before the next
    look_ms: Instant = 15 * SECOND


def scale(snapshot: Snapshot, sight: Sight, now: Instant, scaling: Scaling) -> Grow | Shrink | None:
    """The change that its queue asks for now, if any."""
    cluster, queue = snapshot.cluster, sight.queue
    if cluster.spec.autoscale is None or queue is None or not _rested(cluster, now, scaling):
        return None
    jobs = [job for job in queue.pending if job.nodes <= cluster.spec.autoscale.max_workers]
    needed, free = _needed(jobs, snapshot), _free(snapshot, queue)
    if needed > free:
        return _grow(cluster, jobs, needed - free, free)
    return _shrink(cluster, _idle(snapshot, sight, now - scaling.idle_ms), free - needed)


def _rested(cluster: Cluster, now: Instant, scaling: Scaling) -> bool:
    scaled_at = cluster.status.scaled_at
    return cluster.phase in SERVING and (scaled_at is None or now >= scaled_at + scaling.cool_down_ms)


def _needed(jobs: Sequence[Pending], snapshot: Snapshot) -> int:
    """Workers for all that waits: by their GPUs, and for the widest job by its nodes."""
    shape = snapshot.view.instance_type
    gpus = sum(job.gpus for job in jobs)
    return max(-(-gpus // (shape.gpus if shape else 1)), *(job.nodes for job in jobs), 0)


def _free(snapshot: Snapshot, queue: Queue) -> int:
    """Workers that could take what waits: those without work, and those on their way up."""
    return sum(node.phase in COMING or node.id in queue.idle_since for node in staying(snapshot))


def _grow(cluster: Cluster, jobs: Sequence[Pending], lacking: int, free: int) -> Grow | None:
    """As much as it lacks and may have; but never so little that none of the jobs could run."""
    spec = cluster.spec
    room = spec.autoscale.max_workers - spec.own_workers if spec.autoscale is not None else 0
    least = max(1, min(job.nodes for job in jobs) - free)
    if room < least:
        return None
    because = f"{len(jobs)} jobs wait for {sum(job.gpus for job in jobs)} GPUs"
    return Grow(min(lacking, room), least, because)


def _idle(snapshot: Snapshot, sight: Sight, before: Instant) -> list[Node]:
    """Workers of its own that have had no work since then, or are lost for as long; the youngest first."""
    own = [node for node in staying(snapshot) if node.share is Share.OWN]
    found = [node for node in own if _idle_since(node, sight, before + 1) <= before]
    return sorted(found, key=lambda node: -node.ordinal)


def _idle_since(node: Node, sight: Sight, otherwise: Instant) -> Instant:
    if node.phase is NodePhase.LOST:
        return node.phase_since
    if node.phase is not NodePhase.RUNNING or sight.standing.get(node.id) is not Standing.IDLE or not sight.queue:
        return otherwise
    since = sight.queue.idle_since.get(node.id, otherwise)
    return max(since, node.phase_since)


def _shrink(cluster: Cluster, idle: Sequence[Node], unneeded: int) -> Shrink | None:
    lost = sum(node.phase is NodePhase.LOST for node in idle)  # who is lost was not counted as free
    leaving = idle[: max(0, min(cluster.spec.autoscaled_workers, unneeded + lost))]
    if not leaving:
        return None
    return Shrink(tuple(node.id for node in leaving), f"{len(leaving)} workers have been idle")

"""A cluster's rows one move further, and the events that tell of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec.structs

from muster.core.clusters.boots import booted
from muster.core.clusters.conditions import with_status
from muster.core.clusters.deeds import Move, NodeMove
from muster.core.clusters.telling import cluster_event, node_event
from muster.model.base import Instant
from muster.model.clusters import Cluster, Node, Repair
from muster.model.events import Event
from muster.model.phases import NodePhase


def at_rest(cluster: Cluster) -> Cluster:
    return with_status(
        cluster,
        waiting_for="",
        waiting_until=None,
        growth_waits="",
        observed_generation=cluster.status.converged_generation,
    )


def moved(move: NodeMove, now: Instant) -> Node:
    node = move.node.advance(move.phase, because=move.because, at=now)
    if move.address is not None:
        node = msgspec.structs.replace(node, address=move.address)
    return _mended(node, move.node.phase)


def booting(node: Node, before: Node, cluster: Cluster) -> Node:
    """Whoever goes down to boot again will boot by this wish; of what was found booting already, nobody knows."""
    anew = node.phase is NodePhase.BOOTING and before.phase is not NodePhase.PENDING
    return booted(node, cluster.spec) if anew else node


def _mended(node: Node, before: NodePhase) -> Node:
    """Booted anew it is of another generation; back at work, nothing more is wished for it."""
    if node.phase is NodePhase.BOOTING and before is not NodePhase.PENDING:
        return msgspec.structs.replace(node, generation=node.generation + 1)
    if node.phase is NodePhase.RUNNING and node.mending.wish is not Repair.NONE:
        return msgspec.structs.replace(node, mending=msgspec.structs.replace(node.mending, wish=Repair.NONE))
    return node


def was_drained(node: Node) -> bool:
    """Whether it was drained at our word since it last served, so that taking it back is up to us too."""
    served_or_drained = (
        m.phase for m in reversed(node.history) if m.phase in (NodePhase.RUNNING, NodePhase.DRAINING)
    )
    return next(served_or_drained, None) == NodePhase.DRAINING


def passing(cluster: Cluster, moves: Sequence[Move], now: Instant) -> tuple[Cluster, list[Event]]:
    """Phase after phase, each with its event, for one batch: one version further however many they are."""
    version, events = cluster.version + 1, []
    for move in moves:
        cluster = cluster.advance(move.phase, because=move.because, at=now)
        events.append(moved_event(cluster, now))
    return msgspec.structs.replace(cluster, version=version), events


def moved_event(cluster: Cluster, now: Instant) -> Event:
    return cluster_event(cluster, "phase", cluster.because, now, phase=cluster.phase)


def node_moved_event(node: Node, now: Instant) -> Event:
    return node_event(node, "phase", node.because, now, phase=node.phase)

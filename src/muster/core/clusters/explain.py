"""Why is it as it is? Phase, reason, since when, what it waits for and until when, and the last steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.clusters.snapshot import ClusterView
from muster.model.base import Instant, Part
from muster.model.clusters import Condition, Node
from muster.model.events import Event


class Explanation(Part, frozen=True, kw_only=True, omit_defaults=False):
    phase: str
    because: str
    since: Instant
    stuck_since: Instant | None
    waiting_for: str
    waiting_until: Instant | None
    conditions: tuple[Condition, ...]
    nodes: dict[str, int]  # phase -> how many
    troubled: tuple[str, ...]  # nodes that are late, lost or failed, in words
    steps: tuple[Event, ...]  # newest first


def explain(view: ClusterView, steps: Sequence[Event], now: Instant) -> Explanation:
    cluster = view.cluster
    phases: dict[str, int] = {}
    for node in view.nodes:
        phases[node.phase] = phases.get(node.phase, 0) + 1
    return Explanation(
        phase=cluster.phase,
        because=cluster.because,
        since=cluster.phase_since,
        stuck_since=cluster.stuck_since(now),
        waiting_for=cluster.status.waiting_for,
        waiting_until=cluster.status.waiting_until,
        conditions=cluster.status.conditions,
        nodes=phases,
        troubled=tuple(f"{node.name}: {node.phase}, {node.because}" for node in view.nodes if _troubled(node, now)),
        steps=tuple(steps),
    )


def _troubled(node: Node, now: Instant) -> bool:
    return node.phase in ("lost", "failed") or node.stuck_since(now) is not None

"""Giving preemptible workers back: what to do next with those that were asked for. Pure, a part of the plan.

*Laws.* Work is warned before anything else happens to it, and cut short only when its notice is over. Whoever has
finished goes at once. A preemptible worker that breaks is not replaced: its host was only lent.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec.structs

from muster.contracts.orchestrator import Standing
from muster.core.clusters.deeds import Evict, NodeMove, Note, Sight, Step, WaitFor, Warn
from muster.core.clusters.snapshot import Snapshot
from muster.core.clusters.telling import node_event
from muster.core.moments import said_at
from muster.model.base import SECOND, Instant, changed
from muster.model.clusters import Node, Share
from muster.model.events import Event
from muster.model.phases import NodePhase

WATCH_EVERY = 2 * SECOND
BROKEN = (NodePhase.LOST, NodePhase.FAILED)
AT_WORK = (NodePhase.RUNNING, NodePhase.DRAINING)
OVER = "its notice is over"
NO_WORK = (Standing.DRAINED, Standing.DOWN, Standing.ABSENT)


def lent(node: Node) -> bool:
    return node.share is Share.PREEMPTIBLE


def reclaim(snapshot: Snapshot, sight: Sight, now: Instant) -> Step | None:
    guests = [node for node in snapshot.nodes if lent(node) and node.phase is not NodePhase.LEAVING]
    asked = [node for node in guests if node.reclaim_at is not None]
    out = [NodeMove(node, NodePhase.LEAVING, node.because) for node in guests if node.phase in BROKEN]
    out += [_leaves(node, "it had not begun") for node in asked if node.phase not in (*AT_WORK, *BROKEN)]
    told = [node for node in asked if node.phase is NodePhase.DRAINING and node.warned_at is not None]
    out += [_leaves(node, _done(node, now)) for node in told if sight.standing.get(node.id) in NO_WORK]
    if out:
        return Note(tuple(out))
    untold = [node for node in asked if node.phase in AT_WORK and node.warned_at is None]
    if untold:
        return Warn(tuple(untold))
    return _await_end(told, now)


def _await_end(told: Sequence[Node], now: Instant) -> Step | None:
    over = [node for node in told if node.reclaim_at is not None and now >= node.reclaim_at]
    if over:
        return Evict(tuple(over))
    ends = [node.reclaim_at for node in told if node.reclaim_at is not None]
    return WaitFor(f"{told[0].name} to be given back", min(now + WATCH_EVERY, *ends)) if ends else None


def _done(node: Node, now: Instant) -> str:
    return OVER if node.reclaim_at is not None and now >= node.reclaim_at else "its work is done"


def _leaves(node: Node, because: str) -> NodeMove:
    return NodeMove(node, NodePhase.LEAVING, because)


def warned(node: Node, now: Instant, notice_ms: Instant) -> Node:
    """The node once its work was told: the notice runs in full from now, however late the word came."""
    reclaim_at = max(node.reclaim_at or 0, now + notice_ms)
    if node.phase is NodePhase.RUNNING:
        because = f"others need its host; it is given back by {said_at(reclaim_at)}"
        node = node.advance(NodePhase.DRAINING, because=because, at=now)
    else:
        node = changed(node)
    return msgspec.structs.replace(node, reclaim_at=reclaim_at, warned_at=now)


def notice_event(node: Node, now: Instant) -> Event:
    words = f"{node.name} is given back by {said_at(node.reclaim_at or now)}; its jobs got SIGTERM"
    return node_event(node, "reclaim_notice", words, now, reclaim_at=node.reclaim_at)

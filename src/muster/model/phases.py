"""The phases of clusters, nodes and volumes: which moves are legal, and how long each may last.

A phase moves only along these tables. Every phase that is not a resting place has a limit, so that "stuck" is a
computed fact and not an opinion.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from muster.model.base import DAY, MINUTE, Instant


class Phase(StrEnum):
    """Of a cluster; its word in each wire is in docs/glossary.md."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    NETWORK = "network"
    STORAGE = "storage"
    CONTROL = "control"
    WORKERS = "workers"
    DRIVERS = "drivers"
    TESTING = "testing"
    FAILED = "failed"
    READY = "ready"
    DEGRADED = "degraded"
    PAUSED = "paused"
    UNFUNDED = "unfunded"
    DELETING = "deleting"
    GONE = "gone"


PROVISIONING: Final = (
    Phase.NETWORK,
    Phase.STORAGE,
    Phase.CONTROL,
    Phase.WORKERS,
    Phase.DRIVERS,
    Phase.TESTING,
)
SERVING: Final = (Phase.READY, Phase.DEGRADED)
STOPPED: Final = (Phase.PAUSED, Phase.UNFUNDED)

_ENDS = {Phase.FAILED, Phase.DELETING}
CLUSTER_MOVES: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.QUEUED: frozenset({Phase.SCHEDULED, Phase.NETWORK} | _ENDS),
    Phase.SCHEDULED: frozenset({Phase.NETWORK} | _ENDS),
    Phase.NETWORK: frozenset({Phase.STORAGE} | _ENDS),
    Phase.STORAGE: frozenset({Phase.CONTROL} | _ENDS),
    Phase.CONTROL: frozenset({Phase.WORKERS} | _ENDS),
    Phase.WORKERS: frozenset({Phase.DRIVERS} | _ENDS),
    Phase.DRIVERS: frozenset({Phase.TESTING, Phase.WORKERS} | _ENDS),
    Phase.TESTING: frozenset({Phase.READY, Phase.WORKERS} | _ENDS),
    Phase.FAILED: frozenset({Phase.DELETING}),
    Phase.READY: frozenset({Phase.DEGRADED, Phase.PAUSED, Phase.UNFUNDED, Phase.DELETING}),
    Phase.DEGRADED: frozenset({Phase.READY, Phase.PAUSED, Phase.UNFUNDED, Phase.DELETING}),
    Phase.PAUSED: frozenset({Phase.NETWORK, Phase.UNFUNDED, Phase.DELETING}),
    Phase.UNFUNDED: frozenset({Phase.NETWORK, Phase.PAUSED, Phase.DELETING}),
    Phase.DELETING: frozenset({Phase.GONE}),
    Phase.GONE: frozenset(),
}
CLUSTER_LIMITS: Final[dict[Phase, Instant | None]] = {
    Phase.QUEUED: None,
    Phase.SCHEDULED: None,
    Phase.NETWORK: 5 * MINUTE,
    Phase.STORAGE: 15 * MINUTE,
    Phase.CONTROL: 20 * MINUTE,
    Phase.WORKERS: 45 * MINUTE,
    Phase.DRIVERS: 30 * MINUTE,
    Phase.TESTING: 45 * MINUTE,
    Phase.FAILED: None,
    Phase.READY: None,
    Phase.DEGRADED: 1 * DAY,
    Phase.PAUSED: None,
    Phase.UNFUNDED: None,
    Phase.DELETING: 30 * MINUTE,
    Phase.GONE: None,
}


class NodePhase(StrEnum):
    PENDING = "pending"  # a row and a lease; nothing asked of the substrate yet
    BOOTING = "booting"  # the substrate was asked
    JOINING = "joining"  # it is up; the orchestrator is taking it in
    RUNNING = "running"
    DRAINING = "draining"  # told to finish its work before it leaves
    LOST = "lost"  # was up, is not seen any more
    FAILED = "failed"  # never came up, or failed its tests
    LEAVING = "leaving"  # being powered off; the lease is still held
    GONE = "gone"  # powered off, lease freed; kept for the record


_NODE_ENDS = {NodePhase.LEAVING}
NODE_MOVES: Final[dict[NodePhase, frozenset[NodePhase]]] = {
    NodePhase.PENDING: frozenset({NodePhase.BOOTING} | _NODE_ENDS),
    NodePhase.BOOTING: frozenset({NodePhase.JOINING, NodePhase.FAILED, NodePhase.LOST} | _NODE_ENDS),
    NodePhase.JOINING: frozenset(
        {NodePhase.RUNNING, NodePhase.FAILED, NodePhase.LOST, NodePhase.BOOTING} | _NODE_ENDS
    ),
    NodePhase.RUNNING: frozenset(
        {NodePhase.DRAINING, NodePhase.LOST, NodePhase.FAILED, NodePhase.BOOTING} | _NODE_ENDS
    ),
    NodePhase.DRAINING: frozenset(
        {NodePhase.RUNNING, NodePhase.LOST, NodePhase.BOOTING, NodePhase.FAILED} | _NODE_ENDS
    ),
    NodePhase.LOST: frozenset(
        {NodePhase.JOINING, NodePhase.RUNNING, NodePhase.BOOTING, NodePhase.FAILED} | _NODE_ENDS
    ),
    NodePhase.FAILED: frozenset({NodePhase.BOOTING} | _NODE_ENDS),
    NodePhase.LEAVING: frozenset({NodePhase.GONE}),
    NodePhase.GONE: frozenset(),
}
NODE_LIMITS: Final[dict[NodePhase, Instant | None]] = {
    NodePhase.PENDING: 30 * MINUTE,
    NodePhase.BOOTING: 20 * MINUTE,
    NodePhase.JOINING: 20 * MINUTE,
    NodePhase.RUNNING: None,
    NodePhase.DRAINING: 1 * DAY,
    NodePhase.LOST: 1 * DAY,
    NodePhase.FAILED: 1 * DAY,
    NodePhase.LEAVING: 15 * MINUTE,
    NodePhase.GONE: None,
}


class VolumePhase(StrEnum):
    PROVISIONING = "provisioning"
    AVAILABLE = "available"
    FAILED = "failed"
    DELETING = "deleting"
    GONE = "gone"


VOLUME_MOVES: Final[dict[VolumePhase, frozenset[VolumePhase]]] = {
    VolumePhase.PROVISIONING: frozenset({VolumePhase.AVAILABLE, VolumePhase.FAILED, VolumePhase.DELETING}),
    VolumePhase.AVAILABLE: frozenset({VolumePhase.DELETING}),
    VolumePhase.FAILED: frozenset({VolumePhase.PROVISIONING, VolumePhase.DELETING}),
    VolumePhase.DELETING: frozenset({VolumePhase.GONE}),
    VolumePhase.GONE: frozenset(),
}
VOLUME_LIMITS: Final[dict[VolumePhase, Instant | None]] = {
    VolumePhase.PROVISIONING: 15 * MINUTE,
    VolumePhase.AVAILABLE: None,
    VolumePhase.FAILED: None,
    VolumePhase.DELETING: 15 * MINUTE,
    VolumePhase.GONE: None,
}


class IllegalMove(AssertionError):
    """A move that is not in the table: always our own mistake, never a caller's."""


def stuck_since(since: Instant, limit: Instant | None, now: Instant) -> Instant | None:
    """When the phase's limit ran out, or None while it has not (or has none)."""
    if limit is None or now <= since + limit:
        return None
    return since + limit

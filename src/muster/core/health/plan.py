"""What to do next for the repairs of one cluster: pure, no await, one step at a time.

Leans on model only. *Laws.* A repair acts by changing what the cluster's own plan already understands: a node that is
to be replaced or booted anew, a wish for one worker less. It begins once, ends once, and says why. A dead worker
never goes unrecorded: where the tenant wants failover the record follows the deed, elsewhere it awaits approval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from muster.model.base import HOUR, MINUTE, SECOND, Instant
from muster.model.clusters import Cluster, Node, NodeRole, Repair
from muster.model.health import OPEN, Remediation, RemediationMode, RemediationState
from muster.model.phases import SERVING, NodePhase

LOOK_AGAIN: Final = 2 * SECOND
LOOK_AGAIN_SLOW: Final = 60 * SECOND
RUNNING_LIMIT: Final = 2 * HOUR
RECORDED_LATE: Final = 10 * MINUTE
"""How long after a replaced node is gone its repair is still recorded."""

_GOING: Final = (NodePhase.LEAVING, NodePhase.GONE)
_REPLACES: Final = (RemediationMode.VM_ONLY, RemediationMode.HOST_AWARE)
REPAIRS: Final[dict[RemediationMode, Repair]] = {
    RemediationMode.VM_ONLY: Repair.ANYWHERE,
    RemediationMode.HOST_AWARE: Repair.ELSEWHERE,
    RemediationMode.EVICT: Repair.NONE,
    RemediationMode.REBOOT: Repair.REBOOT,
    RemediationMode.POWER_CYCLE: Repair.REBOOT,
}


@dataclass(frozen=True, slots=True)
class Ward:
    """A cluster, all its nodes, also those that are gone, and its repairs, oldest first."""

    cluster: Cluster
    nodes: Sequence[Node]
    remediations: Sequence[Remediation]

    def node(self, id: str) -> Node | None:
        return next((node for node in self.nodes if node.id == id), None)

    def successor(self, node: Node) -> Node | None:
        """The last of those that came in this node's place; None when nobody did."""
        last: Node | None = None
        seeker: Node | None = node
        while seeker is not None:
            seeker = next((other for other in self.nodes if other.mending.replaces == seeker.id), None)
            last = seeker or last
        return last


@dataclass(frozen=True, slots=True)
class Propose:
    """A dead worker that nobody has spoken for; `approved` where failover replaces it without asking."""

    node: Node
    approved: bool


@dataclass(frozen=True, slots=True)
class Begin:
    remediation: Remediation
    node: Node


@dataclass(frozen=True, slots=True)
class End:
    remediation: Remediation
    state: RemediationState
    because: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Something is under way, or a person must decide."""

    because: str
    until: Instant


@dataclass(frozen=True, slots=True)
class Well:
    """Nothing is open."""


Step: TypeAlias = Propose | Begin | End | Watch | Well


def plan(ward: Ward, now: Instant) -> Step:
    steps = [_next(ward, remediation, now) for remediation in ward.remediations if remediation.state in OPEN]
    for step in steps:
        if not isinstance(step, Watch):
            return step
    unspoken = _unspoken(ward, now)
    if unspoken is not None:
        return unspoken
    return min((step for step in steps if isinstance(step, Watch)), key=lambda watch: watch.until, default=Well())


def _next(ward: Ward, remediation: Remediation, now: Instant) -> Step:
    node = ward.node(remediation.node_id)
    match remediation.state:
        case RemediationState.PENDING_APPROVAL:
            return _awaiting(ward, remediation, node, now)
        case RemediationState.PENDING:
            return _pending(ward, remediation, node, now)
        case _:
            return _running(ward, remediation, node, now)


def _awaiting(ward: Ward, remediation: Remediation, node: Node | None, now: Instant) -> Step:
    if ward.cluster.phase not in SERVING:
        return End(remediation, RemediationState.CANCELLED, f"the cluster is {ward.cluster.phase}")
    if node is None or node.phase in _GOING:
        return End(remediation, RemediationState.AUTO_RESOLVED, "the instance has left the cluster")
    if node.phase is NodePhase.RUNNING:
        return End(remediation, RemediationState.AUTO_RESOLVED, f"{node.name} is back: {node.because}")
    still = node.phase in (NodePhase.LOST, NodePhase.FAILED)
    return Watch(f"an approval for {remediation.node_name}", now + (LOOK_AGAIN_SLOW if still else LOOK_AGAIN))


def _pending(ward: Ward, remediation: Remediation, node: Node | None, now: Instant) -> Step:
    if ward.cluster.phase not in SERVING:
        return End(remediation, RemediationState.FAILED, f"the cluster is {ward.cluster.phase}")
    if node is None or node.phase in _GOING:
        return _left(remediation, "the instance had left the cluster before the repair began")
    if remediation.mode is RemediationMode.EVICT and ward.cluster.spec.workers <= 1:
        return End(remediation, RemediationState.FAILED, "the last worker of a cluster is not evicted")
    if node.phase in (NodePhase.PENDING, NodePhase.BOOTING, NodePhase.DRAINING):
        return Watch(f"{node.name}, which is {node.phase}", now + LOOK_AGAIN)
    return Begin(remediation, node)


def _left(remediation: Remediation, because: str) -> Step:
    gone_is_good = remediation.mode is RemediationMode.EVICT
    return End(remediation, RemediationState.SUCCEEDED if gone_is_good else RemediationState.FAILED, because)


def _running(ward: Ward, remediation: Remediation, node: Node | None, now: Instant) -> Step:
    verdict = _verdict(ward, remediation, node)
    if verdict is not None:
        return verdict
    if ward.cluster.phase not in SERVING:
        return End(remediation, RemediationState.FAILED, f"the cluster is {ward.cluster.phase}")
    if now - (remediation.started_at or now) > RUNNING_LIMIT:
        waiting = ward.cluster.status.waiting_for or ward.cluster.because
        return End(remediation, RemediationState.FAILED, f"it was not done within two hours; waiting for: {waiting}")
    return Watch(f"the repair of {remediation.node_name}", now + LOOK_AGAIN)


def _verdict(ward: Ward, remediation: Remediation, node: Node | None) -> Step | None:
    """How it ended, if what is seen of the node says so."""
    if node is None:
        return End(remediation, RemediationState.FAILED, "nothing is known of the instance any more")
    if remediation.mode is RemediationMode.EVICT:
        if node.phase is NodePhase.GONE:
            return End(remediation, RemediationState.SUCCEEDED, f"{node.name} left the cluster and is powered off")
        return None
    if remediation.mode in _REPLACES:
        return _replaced(ward, remediation, node)
    return _rebooted(remediation, node)


def _replaced(ward: Ward, remediation: Remediation, node: Node) -> Step | None:
    other = ward.successor(node)
    if other is not None and other.phase is NodePhase.RUNNING:
        where = "on the same host" if other.host_id == node.host_id else "on another host"
        return End(remediation, RemediationState.SUCCEEDED, f"{other.name} ({other.id}) runs in its place, {where}")
    if other is None and node.phase in _GOING:
        return End(
            remediation, RemediationState.FAILED, "the instance left the cluster and nothing came in its place"
        )
    return None


def _rebooted(remediation: Remediation, node: Node) -> Step | None:
    if node.generation >= remediation.generation and node.phase is NodePhase.RUNNING:
        return End(remediation, RemediationState.SUCCEEDED, f"{node.name} booted anew and joined: {node.because}")
    if node.phase in (NodePhase.LOST, NodePhase.FAILED, *_GOING):
        return End(remediation, RemediationState.FAILED, f"{node.name} did not come back: {node.because}")
    return None


# --- dead workers that nobody has spoken for ------------------------------------------------------------------------


def _unspoken(ward: Ward, now: Instant) -> Propose | None:
    if ward.cluster.phase not in SERVING:
        return None
    failover = ward.cluster.spec.failover
    for node in ward.nodes:
        lost_at = _lost_at(node, now, replaced_too=failover)
        if lost_at is not None and not any(_speaks_for(known, node, lost_at) for known in ward.remediations):
            return Propose(node, approved=failover)
    return None


def _lost_at(node: Node, now: Instant, *, replaced_too: bool) -> Instant | None:
    """Since when this worker is dead; None when it is not, or was let go for another reason."""
    if node.role is not NodeRole.WORKER:
        return None
    if node.phase is NodePhase.LOST:
        return node.phase_since
    phases = [moved for moved in node.history if moved.phase not in _GOING]
    recent = node.gone_at is None or now - node.gone_at < RECORDED_LATE
    if replaced_too and node.phase in _GOING and recent and phases and phases[-1].phase == NodePhase.LOST:
        return phases[-1].at
    return None


def _speaks_for(remediation: Remediation, node: Node, lost_at: Instant) -> bool:
    return remediation.node_id == node.id and (remediation.is_open or remediation.updated_at >= lost_at)

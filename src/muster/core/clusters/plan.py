"""What to do next for a cluster: pure, no await, one step at a time.

`plan(snapshot, sight, now)` looks at the wish, at what the store says and at what the drivers see, and names exactly
one step. The same road serves the first start, a retry after a crash, a repair and the end: whatever was already done
is seen to be done, and the plan goes on from there.

*Laws.* A node's key is written before anything is asked of the substrate for it. Power off precedes freeing: a lease
goes only when its node is no longer seen. Unknown is never read as gone. Drain precedes expel unless forced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from muster.contracts.orchestrator import Standing
from muster.contracts.substrate import Power, Seen
from muster.core.clusters.autoscale import Scaling, scale
from muster.core.clusters.boots import outdated, under_way
from muster.core.clusters.deeds import (
    Converge,
    Drain,
    EnsureFabric,
    EnsureNodes,
    Finish,
    Free,
    Move,
    NodeMove,
    Note,
    PowerOff,
    Rest,
    RunTests,
    SeatMore,
    Sight,
    Step,
    Substitute,
    TakeSeats,
    WaitFor,
)
from muster.core.clusters.moves import moved
from muster.core.clusters.reclaim import lent, reclaim
from muster.core.clusters.shorts import unseated
from muster.core.clusters.snapshot import Snapshot
from muster.core.clusters.surplus import staying, surplus
from muster.core.clusters.terms import waits_because
from muster.model.base import SECOND, Instant
from muster.model.clusters import Cluster, Node, NodeRole, Repair
from muster.model.phases import PROVISIONING, SERVING, STOPPED, NodePhase, Phase, VolumePhase

LOOK_AGAIN = 2 * SECOND
LOOK_AGAIN_SLOW = 15 * SECOND
REPLACEMENTS_MIN = 3
"""A cluster may replace this many nodes, or as many as it has, before its first start is called a failure."""


def plan(snapshot: Snapshot, sight: Sight, now: Instant, scaling: Scaling = Scaling()) -> Step:
    cluster = snapshot.cluster
    if cluster.phase is Phase.GONE:
        return Finish()
    if cluster.phase is not Phase.DELETING:
        if cluster.delete_wished_at is not None:
            return Move(Phase.DELETING, "its owner wished it gone")
        if cluster.ends_at is not None and now >= cluster.ends_at:
            return Move(Phase.DELETING, "its term ended")
    if cluster.phase in (Phase.DELETING, Phase.FAILED, *STOPPED):
        return _take_down(snapshot, sight, now)
    if cluster.spec.unfunded_since is not None and cluster.phase in SERVING:
        return Move(Phase.UNFUNDED, "it cannot be paid for")
    if cluster.spec.paused and cluster.phase in SERVING:
        return Move(Phase.PAUSED, "its owner paused it")
    news = _news(snapshot, sight, now)
    if news:
        return _noted(news, snapshot, sight, now)
    if cluster.phase in PROVISIONING:
        return _provision(snapshot, sight, now)
    if cluster.phase in SERVING:
        return _serve(snapshot, sight, now, scaling)
    begins_at = cluster.spec.begins_at or now
    return TakeSeats(waits_because(cluster.spec)) if now >= begins_at else WaitFor("its window to begin", begins_at)


# --- what changed -----------------------------------------------------------------------------------------------


def _news(snapshot: Snapshot, sight: Sight, now: Instant) -> tuple[NodeMove, ...]:
    moves = (_node_news(node, sight.seen.get(node.id), now) for node in snapshot.nodes)
    return tuple(move for move in moves if move is not None)


def _noted(news: tuple[NodeMove, ...], snapshot: Snapshot, sight: Sight, now: Instant) -> Note:
    """On the way up, the same look that brings the news may end a phase."""
    if snapshot.cluster.phase not in PROVISIONING:
        return Note(news)
    onward = _provision(snapshot.with_nodes([moved(move, now) for move in news]), sight, now)
    return Note(news, onward if isinstance(onward, Move) and onward.phase in PROVISIONING else None)


def _node_news(node: Node, seen: Seen | None, now: Instant) -> NodeMove | None:
    """The next phase of one node, if what is seen of it says so."""
    current = seen is not None and seen.generation >= node.generation
    match node.phase:
        case NodePhase.PENDING if seen is not None and current:
            return NodeMove(node, NodePhase.BOOTING, "the substrate has it")
        case NodePhase.BOOTING if seen is not None and current:
            return _boot_news(node, seen, now)
        case NodePhase.JOINING | NodePhase.RUNNING | NodePhase.DRAINING:
            if seen is None or seen.power is Power.DEAD:
                return NodeMove(node, NodePhase.LOST, seen.because if seen else "it is no longer there")
        case NodePhase.LOST if seen is not None and seen.power is Power.UP and current:
            return NodeMove(node, NodePhase.JOINING, "it is back", seen.address)
    return None


def _boot_news(node: Node, seen: Seen, now: Instant) -> NodeMove | None:
    if seen.power is Power.UP:
        return NodeMove(node, NodePhase.JOINING, "it booted", seen.address)
    if seen.power in (Power.FAILED, Power.DEAD):
        return NodeMove(node, NodePhase.FAILED, seen.because or "it did not boot")
    if node.stuck_since(now) is not None:
        return NodeMove(node, NodePhase.FAILED, "it did not boot in time")
    return None


# --- the way up -------------------------------------------------------------------------------------------------


def _provision(snapshot: Snapshot, sight: Sight, now: Instant) -> Step:
    """The step of this phase; where that is to go on, as far on as the same look allows."""
    phase = snapshot.cluster.phase
    step = _PROVISION[phase](snapshot, sight, now)
    if not isinstance(step, Move) or step.phase not in PROVISIONING[PROVISIONING.index(phase) + 1 :]:
        return step
    onward = _provision(snapshot.entering(step.phase), sight, now)
    return replace(onward, via=(step, *onward.via)) if isinstance(onward, Move) else step


def _network(snapshot: Snapshot, sight: Sight, now: Instant) -> Step:
    seen = sight.seen.get(snapshot.cluster.id)
    if seen is None:
        stored = all(volume.phase is VolumePhase.AVAILABLE for _, volume in snapshot.view.mounts)
        return EnsureFabric(tuple(node for node in snapshot.nodes if stored and node.phase is NodePhase.PENDING))
    if seen.power is Power.UP:
        return Move(Phase.STORAGE, "its network is up")
    if seen.power is Power.FAILED:
        return Move(Phase.FAILED, f"its network could not be made: {seen.because}")
    return WaitFor("its network", _look_again(sight, [snapshot.cluster.id], now))


def _storage(snapshot: Snapshot, sight: Sight, now: Instant) -> Step:
    for _, volume in snapshot.view.mounts:
        if volume.phase is VolumePhase.FAILED:
            return Move(Phase.FAILED, f"volume {volume.name} failed: {volume.because}")
        if volume.phase is not VolumePhase.AVAILABLE:
            return WaitFor(f"volume {volume.name}", now + LOOK_AGAIN)
    return Move(Phase.CONTROL, "its storage is ready")


def _control(snapshot: Snapshot, sight: Sight, now: Instant) -> Step:
    step = _boot(snapshot, sight, now)
    if step is not None:
        return step
    control = [node for node in snapshot.nodes if node.role is not NodeRole.WORKER]
    late = [node for node in control if node.phase in (NodePhase.PENDING, NodePhase.BOOTING)]
    if late:
        return WaitFor(_so_far("control plane nodes", control, late), _look_again(sight, _ids(late), now))
    return Move(Phase.WORKERS, "its control plane nodes are up")


def _workers(snapshot: Snapshot, sight: Sight, now: Instant) -> Step:
    step = _boot(snapshot, sight, now)
    if step is not None:
        return step
    late = [node for node in snapshot.nodes if node.phase in (NodePhase.PENDING, NodePhase.BOOTING)]
    if late:
        return WaitFor(_so_far("nodes", snapshot.nodes, late), _look_again(sight, _ids(late), now))
    count = len(snapshot.view.workers())
    return Move(Phase.DRIVERS, f"{count} workers are up" if count != 1 else "its worker is up")


def _drivers(snapshot: Snapshot, sight: Sight, now: Instant) -> Step:
    if _broken(snapshot) or under_way(snapshot):
        return Move(Phase.WORKERS, "a node was lost, or boots anew, while drivers were installed")
    return _boot(snapshot, sight, now) or _converge(snapshot) or Move(Phase.TESTING, "drivers and daemons are up")


def _testing(snapshot: Snapshot, sight: Sight, now: Instant) -> Step:
    cluster = snapshot.cluster
    if _broken(snapshot) or under_way(snapshot):
        return Move(Phase.WORKERS, "a node did not pass, or boots anew")
    if not cluster.spec.acceptance.enabled:
        return Move(Phase.READY, "acceptance tests were not wanted")
    return RunTests(f"{cluster.generation}.{cluster.status.replacements}")


_PROVISION: dict[Phase, Callable[[Snapshot, Sight, Instant], Step]] = {
    Phase.NETWORK: _network,
    Phase.STORAGE: _storage,
    Phase.CONTROL: _control,
    Phase.WORKERS: _workers,
    Phase.DRIVERS: _drivers,
    Phase.TESTING: _testing,
}


def _boot(snapshot: Snapshot, sight: Sight, now: Instant) -> Step | None:
    """Whatever all phases with nodes share: clear leavers away, replace the broken, boot the outdated and pending."""
    leaving = _leave(snapshot, sight, now)
    if leaving is not None and not isinstance(leaving, WaitFor):
        return leaving
    broken = _broken(snapshot)
    if broken:
        most = max(REPLACEMENTS_MIN, snapshot.cluster.spec.own_workers)
        if snapshot.cluster.phase in PROVISIONING and snapshot.cluster.status.replacements + len(broken) > most:
            return Move(Phase.FAILED, f"too many nodes failed; the last: {broken[0].name}: {broken[0].because}")
        return Substitute(tuple(broken))
    old = outdated(snapshot)
    if old:
        return Note(tuple(NodeMove(node, NodePhase.BOOTING, "it is booted anew") for node in old))
    asleep = [node for node in snapshot.nodes if _to_power_on(node, sight.seen.get(node.id))]
    return EnsureNodes(tuple(asleep)) if asleep else None


def _to_power_on(node: Node, seen: Seen | None) -> bool:
    if node.phase is NodePhase.PENDING:
        return True
    return node.phase is NodePhase.BOOTING and (seen is None or seen.generation < node.generation)


def _broken(snapshot: Snapshot) -> list[Node]:
    """Nodes to be replaced without asking: during the first start all, later control nodes, workers by choice."""
    cluster = snapshot.cluster
    return [
        node
        for node in snapshot.nodes
        if node.phase in (NodePhase.FAILED, NodePhase.LOST)
        and not lent(node)
        and (
            cluster.phase in PROVISIONING
            or cluster.spec.failover
            or node.role is not NodeRole.WORKER
            or node.phase is NodePhase.FAILED
            or node.mending.wish in (Repair.ANYWHERE, Repair.ELSEWHERE)
        )
    ]


def _converge(snapshot: Snapshot) -> Step | None:
    joining = [node.name for node in snapshot.nodes if node.phase is NodePhase.JOINING]
    if joining:
        return Converge(f"{len(joining)} nodes join")
    if snapshot.cluster.status.converged_generation < snapshot.cluster.generation:
        return Converge("its configuration changed")
    if snapshot.cluster.status.rules_digest != snapshot.rules_digest:
        return Converge("its security rules changed")
    return None


# --- steady -----------------------------------------------------------------------------------------------------


def _serve(snapshot: Snapshot, sight: Sight, now: Instant, scaling: Scaling) -> Step:
    given_back = reclaim(snapshot, sight, now)
    if given_back is not None and not isinstance(given_back, WaitFor):
        return given_back
    hurt = _hurt(snapshot)
    if hurt is not None:
        return hurt
    over = surplus(snapshot, sight.standing)
    if over:
        return Note(tuple(NodeMove(node, _first_step_out(snapshot, node), "the cluster shrinks") for node in over))
    step = _drain(snapshot, sight, now) or _boot(snapshot, sight, now) or given_back
    if step is not None and not isinstance(step, WaitFor):
        return step
    at_hand = _converge_serving(snapshot, sight) or _health(snapshot) or _seat_more(snapshot)
    return at_hand or scale(snapshot, sight, now, scaling) or step or _await(snapshot, sight, now)


def _seat_more(snapshot: Snapshot) -> Step | None:
    lacking = unseated(snapshot.cluster, snapshot.nodes)
    return SeatMore(lacking) if lacking else None


def _converge_serving(snapshot: Snapshot, sight: Sight) -> Step | None:
    """Converge also mends: a daemon that is down on a node that is up is started again.

    While the controller itself comes up there is nobody to join.
    """
    if any(node.role is NodeRole.CONTROLLER for node in under_way(snapshot)):
        return None
    fallen = [
        node.name
        for node in snapshot.nodes
        if node.phase is NodePhase.RUNNING and sight.standing.get(node.id) in (Standing.DOWN, Standing.ABSENT)
    ]
    return _converge(snapshot) or (Converge(f"{', '.join(fallen)} is down") if fallen else None)


def _hurt(snapshot: Snapshot) -> Step | None:
    """A cluster that misses a node says so before anything is done about it."""
    missing = [node for node in snapshot.nodes if _missing(node)]
    if missing and snapshot.cluster.phase is Phase.READY:
        return Move(Phase.DEGRADED, f"{missing[0].name}: {missing[0].because}")
    return None


def _missing(node: Node) -> bool:
    if node.phase in (NodePhase.LOST, NodePhase.FAILED):
        return True
    return node.mending.wish is not Repair.NONE and node.phase not in (NodePhase.RUNNING, NodePhase.LEAVING)


def _health(snapshot: Snapshot) -> Step | None:
    own = [node for node in staying(snapshot) if not lent(node)]
    whole = len(own) >= snapshot.cluster.spec.own_workers
    settled = all(
        node.phase in (NodePhase.RUNNING, NodePhase.DRAINING) for node in _not_leaving(snapshot) if not lent(node)
    )
    if snapshot.cluster.phase is Phase.DEGRADED and whole and settled:
        return Move(Phase.READY, "all nodes are back")
    return None


def _await(snapshot: Snapshot, sight: Sight, now: Instant) -> Step:
    moving = [node for node in snapshot.nodes if node.phase not in (NodePhase.RUNNING, NodePhase.LOST)]
    if moving:
        return WaitFor(_so_far("nodes", snapshot.nodes, moving), _look_again(sight, _ids(moving), now))
    return Rest()


def _not_leaving(snapshot: Snapshot) -> list[Node]:
    return [node for node in snapshot.nodes if node.phase is not NodePhase.LEAVING]


def _first_step_out(snapshot: Snapshot, node: Node) -> NodePhase:
    if node.phase is NodePhase.RUNNING and not snapshot.cluster.spec.force:
        return NodePhase.DRAINING
    return NodePhase.LEAVING


_AFTER_DRAIN: dict[Repair, NodePhase] = {
    Repair.NONE: NodePhase.LEAVING,
    Repair.ANYWHERE: NodePhase.FAILED,  # which is replaced
    Repair.ELSEWHERE: NodePhase.FAILED,
    Repair.REBOOT: NodePhase.BOOTING,
}


def _drain(snapshot: Snapshot, sight: Sight, now: Instant) -> Step | None:
    draining = [node for node in snapshot.nodes if node.phase is NodePhase.DRAINING and node.reclaim_at is None]
    if not draining:
        return None
    done = (Standing.DRAINED, Standing.DOWN, Standing.ABSENT)
    out = [n for n in draining if snapshot.cluster.spec.force or sight.standing.get(n.id) in done]
    if out:
        return Note(tuple(NodeMove(node, _AFTER_DRAIN[node.mending.wish], "its work is done") for node in out))
    untold = [node for node in draining if sight.standing.get(node.id) in (Standing.IDLE, Standing.BUSY)]
    if untold:
        return Drain(tuple(untold))
    return WaitFor(f"running work on {draining[0].name} to end", now + LOOK_AGAIN)


# --- the way down -----------------------------------------------------------------------------------------------


def _leave(snapshot: Snapshot, sight: Sight, now: Instant, *, also: Sequence[str] = ()) -> Step | None:
    """Leaving nodes (and `also` these keys): power off, see it, free."""
    leaving = [node for node in snapshot.nodes if node.phase is NodePhase.LEAVING]
    off = [node for node in leaving if node.id not in sight.seen]
    if off:
        return Free(tuple(off))
    on = [key for key in (*_ids(leaving), *also) if key in sight.seen and sight.seen[key].power is not Power.STOPPING]
    if on:
        return PowerOff(tuple(node for node in leaving if node.id in on), tuple(on))
    stopping = [key for key in (*_ids(leaving), *also) if key in sight.seen]
    if stopping:
        return WaitFor(f"{len(stopping)} to power off", _look_again(sight, stopping, now))
    return None


def _take_down(snapshot: Snapshot, sight: Sight, now: Instant) -> Step:
    cluster = snapshot.cluster
    staying = [node for node in snapshot.nodes if node.phase is not NodePhase.LEAVING]
    if cluster.phase is Phase.PAUSED and not cluster.spec.paused and unseated(cluster, snapshot.nodes):
        return TakeSeats("its owner resumed it")
    if cluster.phase is Phase.PAUSED and not cluster.spec.paused:
        return Move(Phase.NETWORK, "its owner resumed it")
    if staying:
        return Note(tuple(NodeMove(node, NodePhase.LEAVING, f"the cluster is {cluster.phase}") for node in staying))
    step = _leave(snapshot, sight, now, also=[cluster.id])
    if step is not None:
        return step
    return Finish() if cluster.phase is Phase.DELETING else _stopped(cluster)


def _stopped(cluster: Cluster) -> Step:
    """All is off. What can be paid for again comes back, unless its owner had paused it."""
    if cluster.phase is not Phase.UNFUNDED or cluster.spec.unfunded_since is not None:
        return Rest()
    return Move(Phase.PAUSED, "its owner had paused it") if cluster.spec.paused else TakeSeats("it is paid for again")


# --- small words ------------------------------------------------------------------------------------------------


def _ids(nodes: Sequence[Node]) -> list[str]:
    return [node.id for node in nodes]


def _so_far(what: str, all_nodes: Sequence[Node], late: Sequence[Node]) -> str:
    return f"{len(all_nodes) - len(late)} of {len(all_nodes)} {what} up; next {late[0].name}"


def _look_again(sight: Sight, keys: Sequence[str], now: Instant) -> Instant:
    """The earliest instant at which one of these may change, as the driver says; else soon."""
    hints = [seen.look_again_at for key in keys if (seen := sight.seen.get(key)) and seen.look_again_at]
    return max(now + 1, min(hints)) if hints else now + LOOK_AGAIN

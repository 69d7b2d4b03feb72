"""What a repair does next, told by a cluster, its nodes and the time alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.core.health.plan import (
    RECORDED_LATE,
    RUNNING_LIMIT,
    Begin,
    End,
    Propose,
    Ward,
    Watch,
    Well,
    plan,
)
from muster.model.clusters import Cluster, ClusterSpec, ClusterType, Mending, Moved, Node, NodeRole
from muster.model.health import (
    REMEDIATION_MOVES,
    Remediation,
    RemediationMode,
    RemediationState,
    RemediationTrigger,
)
from muster.model.phases import IllegalMove, NodePhase, Phase

NOW = 10_000_000
S, M = RemediationState, RemediationMode


def cluster(phase: Phase = Phase.READY, **spec: Any) -> Cluster:
    wish = {"type": ClusterType.SLURM, "region": "r", "gpu_type": "g", "instance_type": "i", "workers": 2}
    return Cluster(
        id="c",
        account_id="a",
        project_id="p",
        name="c",
        live_name="c",
        region="r",
        phase=phase,
        phase_since=0,
        spec=ClusterSpec(image_id="x", **(wish | spec)),
        digest="",
        created_at=0,
        updated_at=0,
    )


def node(id: str = "n", phase: NodePhase = NodePhase.RUNNING, **more: Any) -> Node:
    fields: dict[str, Any] = {
        "cluster_id": "c",
        "project_id": "p",
        "role": NodeRole.WORKER,
        "name": f"worker-{id}",
        "ordinal": 0,
        "host_id": f"host-{id}",
        "phase_since": NOW - 5,
        "because": "so it is",
        "created_at": 0,
    }
    return Node(id=id, phase=phase, **(fields | more))


def repair(mode: M = M.VM_ONLY, state: S = S.PENDING, **more: Any) -> Remediation:
    fields: dict[str, Any] = {
        "account_id": "a",
        "project_id": "p",
        "cluster_id": "c",
        "node_id": "n",
        "node_name": "worker-n",
        "open_node_id": "n",
        "trigger": RemediationTrigger.MANUAL,
        "requested_by": "ada",
        "started_at": NOW - 1 if state is S.RUNNING else None,
        "generation": 2,
        "created_at": NOW - 10,
        "updated_at": NOW - 10,
    }
    return Remediation(id="r", mode=mode, state=state, **(fields | more))


def step(nodes: list[Node], *repairs: Remediation, of: Cluster | None = None, now: int = NOW) -> Any:
    return plan(Ward(of or cluster(), nodes, repairs), now)


def ended(found: Any) -> S:
    assert isinstance(found, End), found
    assert found.because
    return found.state


def test_nothing_open_and_nobody_dead_is_well() -> None:
    assert step([node()]) == Well()
    assert step([node()], repair(state=S.SUCCEEDED)) == Well()


@pytest.mark.parametrize("mode", list(M))
def test_a_pending_repair_begins(mode: M) -> None:
    pending = repair(mode)
    assert step([node()], pending) == Begin(pending, node())


@pytest.mark.parametrize("phase", [NodePhase.PENDING, NodePhase.BOOTING, NodePhase.DRAINING])
def test_a_node_in_motion_is_waited_for(phase: NodePhase) -> None:
    assert isinstance(step([node(phase=phase)], repair()), Watch)


@pytest.mark.parametrize("mode", list(M))
def test_a_repair_of_what_has_left_ends_at_once(mode: M) -> None:
    good = S.SUCCEEDED if mode is M.EVICT else S.FAILED
    assert ended(step([node(phase=NodePhase.GONE)], repair(mode))) is good


def test_no_repair_begins_where_nothing_serves_and_the_last_worker_is_not_evicted() -> None:
    assert ended(step([node()], repair(), of=cluster(Phase.PAUSED))) is S.FAILED
    assert ended(step([node()], repair(M.EVICT), of=cluster(workers=1))) is S.FAILED


@pytest.mark.parametrize("mode", [M.VM_ONLY, M.HOST_AWARE])
def test_a_replacement_succeeds_when_the_last_of_its_line_runs(mode: M) -> None:
    running = repair(mode, S.RUNNING)
    old = node(phase=NodePhase.LEAVING)
    first = node("m", NodePhase.FAILED, mending=Mending(replaces="n"))
    last = node("o", NodePhase.BOOTING, mending=Mending(replaces="m"))
    assert isinstance(step([old, first, last], running), Watch)
    done = step([old, first, replace(last, phase=NodePhase.RUNNING)], running)
    assert ended(done) is S.SUCCEEDED
    assert "(o)" in done.because
    assert ended(step([old], running)) is S.FAILED


@pytest.mark.parametrize("mode", [M.REBOOT, M.POWER_CYCLE])
def test_a_reboot_succeeds_in_the_next_generation_only(mode: M) -> None:
    running = repair(mode, S.RUNNING)
    assert isinstance(step([node(phase=NodePhase.DRAINING)], running), Watch)
    assert isinstance(step([node(generation=1)], running), Watch)
    assert ended(step([node(generation=2)], running)) is S.SUCCEEDED
    for phase in (NodePhase.LOST, NodePhase.FAILED, NodePhase.LEAVING):
        assert ended(step([node(phase=phase, generation=2)], running)) is S.FAILED


def test_an_eviction_succeeds_when_the_node_is_gone() -> None:
    running = repair(M.EVICT, S.RUNNING)
    assert isinstance(step([node(phase=NodePhase.LEAVING)], running), Watch)
    assert ended(step([node(phase=NodePhase.GONE)], running)) is S.SUCCEEDED


def test_a_repair_that_takes_too_long_or_loses_its_cluster_fails() -> None:
    running = repair(M.EVICT, S.RUNNING)
    assert ended(step([node()], running, now=NOW + RUNNING_LIMIT)) is S.FAILED
    assert ended(step([node()], running, of=cluster(Phase.DELETING))) is S.FAILED
    assert ended(step([], running)) is S.FAILED


def test_what_waits_for_approval_is_resolved_when_it_heals() -> None:
    waiting = repair(state=S.PENDING_APPROVAL)
    assert isinstance(step([node(phase=NodePhase.LOST)], waiting), Watch)
    assert ended(step([node()], waiting)) is S.AUTO_RESOLVED
    assert ended(step([node(phase=NodePhase.LEAVING)], waiting)) is S.AUTO_RESOLVED
    assert ended(step([node()], waiting, of=cluster(Phase.DELETING))) is S.CANCELLED


# --- dead workers -----------------------------------------------------------------------------------------------


def test_a_dead_worker_is_spoken_for_once() -> None:
    lost = node(phase=NodePhase.LOST)
    assert step([lost]) == Propose(lost, approved=False)
    rejected = repair(state=S.CANCELLED, open_node_id=None, updated_at=NOW)
    assert step([lost], rejected) == Well()
    before = repair(state=S.SUCCEEDED, open_node_id=None, updated_at=NOW - 100)
    assert step([lost], before) == Propose(lost, approved=False)


def test_a_dead_control_node_and_a_cluster_that_does_not_serve_need_no_proposal() -> None:
    assert step([node(phase=NodePhase.LOST, role=NodeRole.LOGIN)]) == Well()
    assert step([node(phase=NodePhase.LOST)], of=cluster(Phase.WORKERS)) == Well()


def test_failover_is_recorded_even_when_the_node_has_gone() -> None:
    lost_at = NOW - 50
    history = (
        Moved(phase=NodePhase.RUNNING, at=1),
        Moved(phase=NodePhase.LOST, at=lost_at),
        Moved(phase=NodePhase.LEAVING, at=NOW - 40),
        Moved(phase=NodePhase.GONE, at=NOW - 30),
    )
    gone = node(phase=NodePhase.GONE, history=history, gone_at=NOW - 30)
    on = cluster(failover=True)
    assert step([gone], of=on) == Propose(gone, approved=True)
    assert step([gone], repair(state=S.SUCCEEDED, updated_at=lost_at), of=on) == Well()
    assert step([gone], of=cluster()) == Well()
    assert step([gone], of=on, now=NOW + RECORDED_LATE) == Well()
    shrunk = replace(gone, history=(history[0], history[2], history[3]))
    assert step([shrunk], of=on) == Well()


# --- the table --------------------------------------------------------------------------------------------------


def test_a_repair_moves_only_along_its_table() -> None:
    assert set(REMEDIATION_MOVES) == set(S)
    for state in S:
        for to in S:
            known = repair(state=state)
            if to in REMEDIATION_MOVES[state]:
                assert known.advance(to, at=NOW).state is to
            else:
                with pytest.raises(IllegalMove):
                    known.advance(to, at=NOW)


def test_a_repair_that_is_over_lets_the_next_one_in() -> None:
    over = repair(state=S.RUNNING).advance(S.FAILED, at=NOW, evidence="seen", error="why")
    assert (over.open_node_id, over.ended_at, over.error, over.evidence) == (None, NOW, "why", ("seen",))
    begun = repair().advance(S.RUNNING, at=NOW)
    assert (begun.open_node_id, begun.started_at, begun.ended_at) == ("n", NOW, None)

"""The tables of phases: whatever walk is taken along them is legal, every walk can end, and stuck is a fact."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.clusters import Cluster, ClusterSpec, ClusterType, Node, NodeRole
from muster.model.phases import (
    CLUSTER_LIMITS,
    CLUSTER_MOVES,
    NODE_LIMITS,
    NODE_MOVES,
    PROVISIONING,
    VOLUME_LIMITS,
    VOLUME_MOVES,
    IllegalMove,
    NodePhase,
    Phase,
    VolumePhase,
    stuck_since,
)

TABLES: list[tuple[type[StrEnum], Mapping[Any, frozenset[Any]], Mapping[Any, int | None]]] = [
    (Phase, CLUSTER_MOVES, CLUSTER_LIMITS),
    (NodePhase, NODE_MOVES, NODE_LIMITS),
    (VolumePhase, VOLUME_MOVES, VOLUME_LIMITS),
]
SPEC = ClusterSpec(type=ClusterType.SLURM, region="r", gpu_type="g", instance_type="8xg", workers=1, image_id="image")


def cluster(phase: Phase) -> Cluster:
    owners = {"account_id": "a", "project_id": "p", "name": "n", "live_name": "n", "digest": "d", "region": "r"}
    return Cluster(id="c", phase=phase, phase_since=0, spec=SPEC, created_at=0, updated_at=0, **owners)


def node(phase: NodePhase) -> Node:
    return Node(
        id="n",
        cluster_id="c",
        project_id="p",
        name="w",
        role=NodeRole.WORKER,
        ordinal=0,
        phase=phase,
        phase_since=0,
        created_at=0,
    )


@pytest.mark.parametrize(("phases", "moves", "limits"), TABLES)
def test_the_tables_are_total(phases: type[StrEnum], moves: Mapping[Any, Any], limits: Mapping[Any, Any]) -> None:
    assert set(moves) == set(limits) == set(phases)
    assert {phase for phase in phases if not moves[phase]} == {"gone"}
    assert not [phase for phase in phases if phase in moves[phase]], "staying is no move"


@pytest.mark.parametrize(("phases", "moves", "limits"), TABLES)
def test_from_everywhere_there_is_a_way_out(
    phases: type[StrEnum], moves: Mapping[Any, frozenset[Any]], limits: Mapping[Any, Any]
) -> None:
    for start in phases:
        seen, todo = set(), {start}
        while todo:
            seen |= todo
            todo = {after for phase in todo for after in moves[phase]} - seen
        assert "gone" in seen, f"{start} can never end"


def test_work_in_progress_always_has_a_limit() -> None:
    for phase in (*PROVISIONING, Phase.DEGRADED, Phase.DELETING):
        assert CLUSTER_LIMITS[phase], phase
    for step in (NodePhase.PENDING, NodePhase.BOOTING, NodePhase.JOINING, NodePhase.DRAINING, NodePhase.LEAVING):
        assert NODE_LIMITS[step], step


@given(st.lists(st.sampled_from(list(Phase)), max_size=12))
def test_a_cluster_walks_only_along_the_table(wishes: list[Phase]) -> None:
    walker, walked = cluster(Phase.NETWORK), [Phase.NETWORK]
    for at, wish in enumerate(wishes, 1):
        if wish not in CLUSTER_MOVES[walker.phase]:
            with pytest.raises(IllegalMove):
                walker.advance(wish, because="b", at=at)
            continue
        before, walker = walker, walker.advance(wish, because="b", at=at)
        walked.append(wish)
        assert (walker.version, walker.phase_since) == (before.version + 1, at)
    assert [moved.phase for moved in walker.status.history] == walked[1:]


@given(st.lists(st.sampled_from(list(NodePhase)), max_size=12))
def test_a_node_walks_only_along_the_table(wishes: list[NodePhase]) -> None:
    walker = node(NodePhase.PENDING)
    for at, wish in enumerate(wishes, 1):
        if wish not in NODE_MOVES[walker.phase]:
            with pytest.raises(IllegalMove):
                walker.advance(wish, because="b", at=at)
            continue
        walker = walker.advance(wish, because="b", at=at)
        assert (walker.gone_at is not None) == (wish is NodePhase.GONE)


@given(st.integers(0, 10**12), st.none() | st.integers(0, 10**9), st.integers(0, 10**12))
def test_stuck_is_since_the_moment_the_limit_ran_out(since: int, limit: int | None, now: int) -> None:
    told = stuck_since(since, limit, now)
    assert (told is None) == (limit is None or now - since <= limit)
    assert told is None or since <= told < now

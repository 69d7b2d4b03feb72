"""The plan is total and honest: whatever the store says and the drivers see, it names one step, never a bad one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.contracts.orchestrator import Standing
from muster.contracts.substrate import Power, Seen
from muster.core.clusters import deeds
from muster.core.clusters.deeds import Sight
from muster.core.clusters.plan import plan
from muster.core.clusters.snapshot import ClusterView, Snapshot
from muster.model.catalog import InstanceType
from muster.model.clusters import (
    Boots,
    Cluster,
    ClusterSpec,
    ClusterStatus,
    ClusterType,
    Mending,
    Moved,
    Node,
    NodeRole,
)
from muster.model.phases import CLUSTER_MOVES, NODE_MOVES, SERVING, NodePhase, Phase

NOW = 1_000_000_000
LIVE_NODE_PHASES = [phase for phase in NodePhase if phase is not NodePhase.GONE]

shape = InstanceType(id="8xH100_SXM", gpu_type="H100_SXM", gpus=8, cpus=1, memory_gib=1, scratch_gib=1)
powers = st.sampled_from(list(Power))
sightings = st.builds(Seen, power=powers, because=st.just("seen"), generation=st.integers(1, 2))


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    made = []
    workers = draw(st.integers(0, 4))
    for n, role in enumerate([NodeRole.CONTROLLER, NodeRole.LOGIN, *[NodeRole.WORKER] * workers]):
        phase = draw(st.sampled_from(LIVE_NODE_PHASES))
        made.append(
            Node(
                id=f"n{n}",
                cluster_id="c",
                project_id="p",
                role=role,
                name=f"{role}-{n}",
                ordinal=n,
                host_id=f"h{n}",
                lease_id=f"l{n}",
                phase=phase,
                phase_since=NOW - draw(st.sampled_from([0, 10**8])),
                mending=Mending(boot=draw(st.integers(0, 1))),
                created_at=0,
            )
        )
    return made


@st.composite
def situations(draw: st.DrawFn) -> tuple[Snapshot, Sight]:
    phase = draw(st.sampled_from([phase for phase in Phase if phase is not Phase.GONE]))
    spec = ClusterSpec(
        type=ClusterType.SLURM,
        region="r",
        gpu_type="H100_SXM",
        instance_type=shape.id,
        workers=draw(st.integers(1, 4)),
        image_id="i",
        failover=draw(st.booleans()),
        paused=draw(st.booleans()),
        force=draw(st.booleans()),
        ends_at=draw(st.sampled_from([None, NOW - 1, NOW + 1])),
        boots=draw(st.builds(Boots, control=st.integers(0, 1), workers=st.integers(0, 1))),
    )
    status = ClusterStatus(
        converged_generation=draw(st.integers(0, 2)),
        history=(Moved(phase=phase, at=0),),
        replacements=draw(st.integers(0, 5)),
    )
    cluster = Cluster(
        id="c",
        account_id="a",
        project_id="p",
        name="n",
        live_name="n",
        region="r",
        phase=phase,
        phase_since=0,
        spec=spec,
        status=status,
        generation=draw(st.integers(1, 2)),
        digest="d",
        delete_wished_at=draw(st.sampled_from([None, 5])),
        created_at=0,
        updated_at=0,
    )
    members = draw(nodes())
    keys = ["c", *(node.id for node in members)]
    seen = draw(st.dictionaries(st.sampled_from(keys), sightings))
    standing = draw(st.dictionaries(st.sampled_from(keys), st.sampled_from(list(Standing))))
    return Snapshot(ClusterView(cluster, members, instance_type=shape), (), []), Sight(seen, standing)


def _legal(phase: Phase, step: deeds.Move) -> bool:
    """Every phase on the way, and the last, follows from the one before."""
    way = [phase, *(move.phase for move in step.via), step.phase]
    return all(after in CLUSTER_MOVES[before] for before, after in pairwise(way))


@settings(max_examples=600, deadline=None)
@given(situations())
def test_the_plan_names_one_legal_step(situation: tuple[Snapshot, Sight]) -> None:
    snapshot, sight = situation
    step = plan(snapshot, sight, NOW)
    match step:
        case deeds.Move():
            assert _legal(snapshot.cluster.phase, step)
        case deeds.Note(moves=moves, onward=onward):
            assert moves
            assert all(move.phase in NODE_MOVES[move.node.phase] for move in moves)
            assert onward is None or _legal(snapshot.cluster.phase, onward)
        case deeds.Free(nodes=freed):
            assert freed
            assert all(node.phase is NodePhase.LEAVING and node.id not in sight.seen for node in freed)
        case deeds.PowerOff(nodes=off, keys=keys):
            assert keys
            assert all(node.phase is NodePhase.LEAVING for node in off)
            assert all(key in sight.seen for key in keys)
        case deeds.EnsureNodes(nodes=asked):
            assert asked
            assert all(node.phase in (NodePhase.PENDING, NodePhase.BOOTING) for node in asked)
        case deeds.Substitute(nodes=broken):
            assert broken
            assert all(node.phase in (NodePhase.FAILED, NodePhase.LOST) for node in broken)
        case deeds.Drain(nodes=drained):
            assert all(node.phase is NodePhase.DRAINING for node in drained)
            assert not snapshot.cluster.spec.force
        case deeds.WaitFor(until=until):
            assert until > NOW
        case deeds.Finish():
            assert snapshot.cluster.phase is Phase.DELETING
            assert not snapshot.nodes
            assert "c" not in sight.seen


@settings(max_examples=200, deadline=None)
@given(situations())
def test_the_same_situation_gets_the_same_step(situation: tuple[Snapshot, Sight]) -> None:
    assert plan(*situation, NOW) == plan(*situation, NOW)


@settings(max_examples=200, deadline=None)
@given(situations())
def test_unknown_is_never_read_as_gone(situation: tuple[Snapshot, Sight]) -> None:
    """A node of which nothing is known keeps its phase, unless the cluster itself is on its way down."""
    snapshot, sight = situation
    unknown = {
        node.id for node in snapshot.nodes if node.id in sight.seen and sight.seen[node.id].power is Power.UNKNOWN
    }
    step = plan(snapshot, sight, NOW)
    if isinstance(step, deeds.Note):
        lost = {move.node.id for move in step.moves if move.phase is NodePhase.LOST}
        assert not lost & unknown
    if isinstance(step, deeds.Free):
        assert not {node.id for node in step.nodes} & unknown


@settings(max_examples=400, deadline=None)
@given(situations())
def test_only_what_was_booted_for_an_older_wish_is_booted_anew(situation: tuple[Snapshot, Sight]) -> None:
    snapshot, sight = situation
    step, boots = plan(snapshot, sight, NOW), snapshot.cluster.spec.boots
    if isinstance(step, deeds.Note):
        anew = [move.node for move in step.moves if move.because == "it is booted anew"]
        wished = {True: boots.workers, False: boots.control}
        assert all(node.mending.boot < wished[node.role is NodeRole.WORKER] for node in anew)
    if isinstance(step, deeds.Converge) and snapshot.cluster.phase in SERVING:
        late = (NodePhase.PENDING, NodePhase.BOOTING)
        assert not any(node.role is NodeRole.CONTROLLER and node.phase in late for node in snapshot.nodes)

"""The way up in as few looks as it takes: what is asked together, and which phases one look ends."""

from __future__ import annotations

from muster.contracts.substrate import Power, Seen
from muster.core.clusters import deeds
from muster.core.clusters.deeds import Sight
from muster.core.clusters.plan import plan
from muster.core.clusters.snapshot import ClusterView, Snapshot
from muster.model.catalog import InstanceType
from muster.model.clusters import Cluster, ClusterSpec, ClusterStatus, ClusterType, Node, NodeRole
from muster.model.phases import NodePhase, Phase, VolumePhase
from muster.model.volumes import Attachment, Volume

NOW = 1_000_000
UP = Seen(Power.UP, "", address="10.0.0.1", generation=1)
SHAPE = InstanceType(id="8xH100_SXM", gpu_type="H100_SXM", gpus=8, cpus=1, memory_gib=1, scratch_gib=1)


def node(name: str, role: NodeRole, phase: NodePhase) -> Node:
    return Node(
        id=name,
        cluster_id="c",
        project_id="p",
        role=role,
        name=name,
        ordinal=0,
        host_id="h",
        lease_id="l",
        phase=phase,
        phase_since=NOW,
        created_at=0,
    )


def snapshot(phase: Phase, nodes: NodePhase, *, volume: VolumePhase | None = None) -> Snapshot:
    spec = ClusterSpec(
        type=ClusterType.SLURM,
        region="r",
        gpu_type="H100_SXM",
        instance_type=SHAPE.id,
        workers=2,
        image_id="i",
    )
    cluster = Cluster(
        id="c",
        account_id="a",
        project_id="p",
        name="n",
        live_name="n",
        region="r",
        phase=phase,
        phase_since=NOW,
        spec=spec,
        status=ClusterStatus(),
        digest="d",
        created_at=0,
        updated_at=0,
    )
    roles = {"controller": NodeRole.CONTROLLER, "worker-0": NodeRole.WORKER, "worker-1": NodeRole.WORKER}
    members = [node(name, role, nodes) for name, role in roles.items()]
    mounts = [] if volume is None else [_mount(volume)]
    return Snapshot(ClusterView(cluster, members, mounts=mounts, instance_type=SHAPE), (), [])


def _mount(phase: VolumePhase) -> tuple[Attachment, Volume]:
    volume = Volume(
        id="v",
        account_id="a",
        project_id="p",
        name="data",
        live_name="data",
        region="r",
        size_gib=1,
        phase=phase,
        phase_since=0,
        created_at=0,
        updated_at=0,
    )
    attachment = Attachment(id="t", cluster_id="c", volume_id="v", project_id="p", mount_path="/data", created_at=0)
    return attachment, volume


def names(nodes: tuple[Node, ...]) -> list[str]:
    return [node.name for node in nodes]


def test_nodes_are_asked_for_together_with_their_network() -> None:
    step = plan(snapshot(Phase.NETWORK, NodePhase.PENDING), Sight({}), NOW)
    assert isinstance(step, deeds.EnsureFabric)
    assert names(step.nodes) == ["controller", "worker-0", "worker-1"]


def test_but_not_before_their_volumes_are_there() -> None:
    step = plan(snapshot(Phase.NETWORK, NodePhase.PENDING, volume=VolumePhase.PROVISIONING), Sight({}), NOW)
    assert step == deeds.EnsureFabric(())
    step = plan(snapshot(Phase.NETWORK, NodePhase.PENDING, volume=VolumePhase.AVAILABLE), Sight({}), NOW)
    assert isinstance(step, deeds.EnsureFabric)
    assert len(step.nodes) == 3


def test_one_look_ends_every_phase_whose_work_it_sees_done() -> None:
    sight = Sight(dict.fromkeys(["c", "controller", "worker-0", "worker-1"], UP))
    step = plan(snapshot(Phase.NETWORK, NodePhase.JOINING), sight, NOW)
    assert isinstance(step, deeds.Move)
    assert [move.phase for move in (*step.via, step)] == [
        *(Phase.STORAGE, Phase.CONTROL, Phase.WORKERS, Phase.DRIVERS),
    ]


def test_the_news_of_the_last_node_ends_them_too() -> None:
    sight = Sight(dict.fromkeys(["c", "controller", "worker-0", "worker-1"], UP))
    step = plan(snapshot(Phase.CONTROL, NodePhase.BOOTING), sight, NOW)
    assert isinstance(step, deeds.Note)
    assert all(move.phase is NodePhase.JOINING for move in step.moves)
    assert step.onward is not None
    assert step.onward.phase is Phase.DRIVERS


def test_a_node_that_is_late_holds_up_its_phase() -> None:
    starting = Seen(Power.STARTING, "", generation=1)
    sight = Sight({"c": UP, "controller": UP, "worker-0": UP, "worker-1": starting})
    step = plan(snapshot(Phase.NETWORK, NodePhase.BOOTING), sight, NOW)
    assert isinstance(step, deeds.Note)
    assert {move.node.name for move in step.moves} == {"controller", "worker-0"}
    assert step.onward is not None
    assert step.onward.phase is Phase.WORKERS


def test_nothing_is_passed_without_its_network() -> None:
    sight = Sight({"c": Seen(Power.STARTING, ""), "controller": UP, "worker-0": UP, "worker-1": UP})
    step = plan(snapshot(Phase.NETWORK, NodePhase.BOOTING), sight, NOW)
    assert isinstance(step, deeds.Note)
    assert step.onward is None

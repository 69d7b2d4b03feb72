"""The plan's part in giving back: told before anything else, cut short only when the notice is over."""

from __future__ import annotations

from msgspec.structs import replace

from muster.contracts.orchestrator import Standing
from muster.core.clusters.deeds import Evict, Note, Sight, WaitFor, Warn
from muster.core.clusters.reclaim import OVER, reclaim, warned
from muster.core.clusters.snapshot import ClusterView, Snapshot
from muster.model.base import MINUTE, SECOND
from muster.model.clusters import Cluster, ClusterSpec, ClusterType, Node, NodeRole, Share
from muster.model.phases import NodePhase, Phase

NOW, NOTICE = 1_000_000_000, 5 * MINUTE
CLUSTER = Cluster(
    id="c",
    account_id="a",
    project_id="p",
    name="c",
    live_name="c",
    region="r",
    phase=Phase.READY,
    phase_since=0,
    spec=ClusterSpec(
        type=ClusterType.SLURM,
        region="r",
        gpu_type="g",
        instance_type="8xg",
        workers=1,
        image_id="i",
        force=True,  # the owner's impatience with a shrink is no reason to lose the notice of a loan
    ),
    digest="",
    created_at=0,
    updated_at=0,
)
LENT = Node(
    id="n",
    cluster_id="c",
    project_id="p",
    role=NodeRole.WORKER,
    name="worker-1",
    ordinal=1,
    phase=NodePhase.RUNNING,
    phase_since=0,
    share=Share.PREEMPTIBLE,
    reclaim_at=NOW + NOTICE,
    created_at=0,
)


def look(node: Node, standing: Standing, now: int) -> object:
    return reclaim(Snapshot(ClusterView(CLUSTER, [node]), None, []), Sight({}, {"n": standing}), now)


def test_nobody_is_disturbed_who_was_not_asked() -> None:
    assert look(replace(LENT, reclaim_at=None), Standing.BUSY, NOW) is None


def test_work_is_told_first_even_when_it_drains_already() -> None:
    assert look(LENT, Standing.BUSY, NOW) == Warn((LENT,))
    draining = replace(LENT, phase=NodePhase.DRAINING)
    assert look(draining, Standing.DRAINED, NOW + NOTICE) == Warn((draining,))


def test_the_notice_runs_in_full_from_when_it_was_told() -> None:
    late = warned(LENT, NOW + 20 * MINUTE, NOTICE)
    assert (late.phase, late.warned_at, late.reclaim_at) == (NodePhase.DRAINING, NOW + 20 * MINUTE, NOW + 25 * MINUTE)


def test_it_is_cut_short_only_when_its_notice_is_over() -> None:
    told = warned(LENT, NOW, NOTICE)
    for seconds in range(0, 300, 7):
        assert isinstance(look(told, Standing.DRAINING, NOW + seconds * SECOND), WaitFor)
    assert look(told, Standing.DRAINING, NOW + NOTICE) == Evict((told,))
    cut = look(told, Standing.DOWN, NOW + NOTICE + SECOND)
    assert isinstance(cut, Note)
    assert (cut.moves[0].phase, cut.moves[0].because) == (NodePhase.LEAVING, OVER)


def test_whoever_is_done_goes_at_once() -> None:
    done = look(warned(LENT, NOW, NOTICE), Standing.DRAINED, NOW + SECOND)
    assert isinstance(done, Note)
    assert (done.moves[0].phase, done.moves[0].because) == (NodePhase.LEAVING, "its work is done")


def test_whoever_had_not_begun_goes_without_notice() -> None:
    for phase in (NodePhase.PENDING, NodePhase.BOOTING, NodePhase.JOINING):
        assert isinstance(look(replace(LENT, phase=phase), Standing.ABSENT, NOW), Note)

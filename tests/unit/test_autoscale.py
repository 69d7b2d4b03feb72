"""Clusters that follow their queue: what it lacks is grown, who is idle for long leaves, nobody at work is hurt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.contracts.faults import Fault, FaultKind
from muster.contracts.orchestrator import Pending, Queue, Standing
from muster.contracts.store import Find
from muster.core.clusters.autoscale import Scaling, scale
from muster.core.clusters.commands import AutoscaleWish, UpdateCluster
from muster.core.clusters.deeds import Grow, Shrink, Sight
from muster.core.clusters.snapshot import ClusterView, Snapshot
from muster.errors import Invalid, Unsupported
from muster.model.accounts import SYSTEM
from muster.model.base import MINUTE
from muster.model.billing import Usage, UsageClass
from muster.model.catalog import InstanceType
from muster.model.clusters import (
    Autoscale,
    Billing,
    Cluster,
    ClusterSpec,
    ClusterStatus,
    ClusterType,
    Node,
    NodeRole,
    Share,
)
from muster.model.phases import NodePhase, Phase
from muster.orchestrators.none import NoOrchestrator
from muster.testing.simulation.cast import Cast, play

NOW = 10_000 * MINUTE
LONG_AGO = NOW - 60 * MINUTE
SHAPE = InstanceType(id="8xH100_SXM", gpu_type="H100_SXM", gpus=8, cpus=1, memory_gib=1, scratch_gib=1)


def cluster_of(workers: int, grown: int, most: int, **status: Any) -> Cluster:
    spec = ClusterSpec(
        type=ClusterType.SLURM,
        region="r",
        gpu_type="H100_SXM",
        instance_type=SHAPE.id,
        workers=workers,
        image_id="i",
        autoscale=Autoscale(max_workers=most),
        autoscaled_workers=grown,
    )
    return Cluster(
        id="c",
        account_id="a",
        project_id="p",
        name="n",
        live_name="n",
        region="r",
        phase=Phase.READY,
        phase_since=0,
        spec=spec,
        status=ClusterStatus(**status),
        digest="d",
        created_at=0,
        updated_at=0,
    )


def worker(n: int, phase: NodePhase = NodePhase.RUNNING, since: int = LONG_AGO, share: Share = Share.OWN) -> Node:
    return Node(
        id=f"w{n}",
        cluster_id="c",
        project_id="p",
        role=NodeRole.WORKER,
        name=f"worker-{n}",
        ordinal=n,
        phase=phase,
        phase_since=since,
        share=share,
        created_at=0,
    )


def decided(
    nodes: list[Node],
    queue: Queue | None,
    *,
    workers: int = 1,
    most: int = 4,
    standing: dict[str, Standing] | None = None,
    **status: Any,
) -> Grow | Shrink | None:
    cluster = cluster_of(workers, max(0, len(nodes) - workers), most, **status)
    snapshot = Snapshot(ClusterView(cluster, nodes, instance_type=SHAPE), (), [])
    idle = dict.fromkeys(queue.idle_since, Standing.IDLE) if queue else {}
    return scale(snapshot, Sight({}, {**idle, **(standing or {})}, queue), NOW, Scaling())


def idle(*numbers: int, since: int = LONG_AGO, pending: tuple[Pending, ...] = ()) -> Queue:
    return Queue(pending, {f"w{n}": since for n in numbers})


def grown(step: Grow | Shrink | None) -> int:
    return step.workers if isinstance(step, Grow) else 0


def left(step: Grow | Shrink | None) -> tuple[str, ...]:
    return step.node_ids if isinstance(step, Shrink) else ()


def test_it_grows_by_what_the_queue_lacks() -> None:
    assert grown(decided([worker(0)], idle(pending=(Pending(8),)))) == 1
    assert grown(decided([worker(0)], idle(pending=(Pending(1),) * 9))) == 2
    assert grown(decided([worker(0)], idle(pending=(Pending(2, 3),)))) == 3
    assert grown(decided([worker(0)], idle(pending=(Pending(8),) * 99))) == 3, "as far as it may"


def test_idle_workers_and_those_that_come_are_counted_first() -> None:
    one = (Pending(8),)
    assert decided([worker(0)], idle(0, pending=one)) is None
    assert decided([worker(0), worker(1, NodePhase.BOOTING)], idle(pending=one)) is None
    assert grown(decided([worker(0), worker(1, NodePhase.DRAINING)], idle(pending=one))) == 1


def test_a_job_that_never_fits_grows_nothing() -> None:
    assert decided([worker(0)], idle(pending=(Pending(80, 10),))) is None
    assert decided([worker(0), worker(1)], idle(pending=(Pending(32, 4),)), workers=2, most=4) is None
    step = decided([worker(0)], idle(pending=(Pending(24, 3),)))
    assert isinstance(step, Grow)
    assert step.least == 3, "two of three would idle"


def test_who_is_idle_for_long_leaves_the_youngest_first() -> None:
    nodes = [worker(n) for n in range(4)]
    assert left(decided(nodes, idle(0, 1, 2, 3))) == ("w3", "w2", "w1")
    assert left(decided(nodes, idle(0, 1))) == ("w1", "w0"), "whoever it is: two of four stay at work"
    assert left(decided(nodes, idle(0, 1, 2, 3, since=NOW - MINUTE))) == ()
    assert left(decided(nodes, idle(1, pending=(Pending(8),)))) == (), "it is meant for what waits"


def test_who_just_joined_has_not_been_idle_for_long() -> None:
    assert decided([worker(0), worker(1, since=NOW - MINUTE)], idle(1)) is None


def test_who_is_not_seen_idle_stays() -> None:
    busy = {"w1": Standing.BUSY}
    assert decided([worker(0), worker(1)], idle(1), standing=busy) is None
    unknown = {"w1": Standing.UNKNOWN}
    assert decided([worker(0), worker(1)], idle(1), standing=unknown) is None


def test_a_lost_worker_that_was_grown_leaves() -> None:
    assert left(decided([worker(0), worker(1, NodePhase.LOST)], idle())) == ("w1",)


def test_others_than_its_own_are_not_its_to_give() -> None:
    nodes = [worker(0), worker(1, share=Share.POOL), worker(2, share=Share.PREEMPTIBLE)]
    assert left(decided(nodes, idle(1, 2))) == ()


def test_after_a_change_it_rests() -> None:
    lacking = idle(pending=(Pending(8),))
    assert decided([worker(0)], lacking, scaled_at=NOW - MINUTE // 2) is None
    assert grown(decided([worker(0)], lacking, scaled_at=NOW - MINUTE)) == 1


def test_what_cannot_be_asked_changes_nothing() -> None:
    assert decided([worker(0), worker(1)], None) is None


@settings(max_examples=300, deadline=None)
@given(
    phases=st.lists(st.sampled_from([phase for phase in NodePhase if phase is not NodePhase.GONE]), max_size=6),
    asks=st.lists(st.builds(Pending, st.integers(1, 40), st.integers(1, 6)), max_size=5),
    resting=st.sets(st.integers(0, 5)),
    bounds=st.tuples(st.integers(1, 4), st.integers(0, 4)),
)
def test_it_stays_within_its_bounds_and_takes_only_the_idle(
    phases: list[NodePhase], asks: list[Pending], resting: set[int], bounds: tuple[int, int]
) -> None:
    workers, more = bounds
    nodes = [worker(n, phase) for n, phase in enumerate(phases)]
    queue = idle(*(n for n in resting if n < len(nodes)), pending=tuple(asks))
    step = decided(nodes, queue, workers=workers, most=workers + more)
    before = workers + max(0, len(nodes) - workers)
    if isinstance(step, Grow):
        assert 1 <= step.least <= step.workers
        assert before + step.workers <= workers + more
    if isinstance(step, Shrink):
        assert before - len(step.node_ids) >= workers
        gone = {node.id for node in nodes if node.phase is NodePhase.LOST}
        assert set(step.node_ids) <= {*queue.idle_since, *gone}


# --- the whole way, with engine and store ---------------------------------------------------------------------------


async def load(cast: Cast, cluster: Cluster, gpus: int) -> Fault:
    return await cast.image.desk.inject(Fault(kind=FaultKind.LOAD, target=cluster.id, count=gpus))


async def running(cast: Cast, cluster: Cluster) -> int:
    live = await cast.house.store.find(Find(Node, equals={"cluster_id": cluster.id, "gone_at": None}))
    return sum(node.role is NodeRole.WORKER and node.phase is NodePhase.RUNNING for node in live)


async def until_running(cast: Cast, cluster: Cluster, workers: int, minutes: int = 30) -> Cluster:
    for _ in range(minutes * 6):
        if await running(cast, cluster) == workers:
            return await cast.look(cluster)
        await cast.clock.sleep(10)
    raise AssertionError(f"{await running(cast, cluster)} run, not {workers}: {await cast.look(cluster)}")


def test_load_grows_it_and_rest_shrinks_it(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.create("elastic", 8, autoscale=AutoscaleWish(max_gpus=32))
        await cast.until(made, Phase.READY)
        fault = await load(cast, made, 24)
        big = await until_running(cast, made, 3)
        assert (big.spec.workers, big.spec.own_workers) == (1, 3)
        used = await cast.house.store.find(Find(Usage, equals={"resource_id": made.id, "closed_at": None}))
        serving = [usage for usage in used if usage.usage_class is UsageClass.SERVING]
        assert [(usage.billing, usage.quantity) for usage in serving] == [(Billing.ON_DEMAND, 3)]
        await cast.clock.sleep(1_800)
        assert await running(cast, made) == 3, "at work they stay"
        await cast.image.desk.clear(fault.id)
        await cast.clock.sleep(300)
        assert await running(cast, made) == 3, "five minutes are not long"
        small = await until_running(cast, made, 1)
        assert small.spec.autoscaled_workers == 0
        events = await cast.house.store.events(after=0, limit=500, resource_id=made.id)
        told = [event.message for event in events if event.type == "cluster.autoscaled"]
        assert told == ["2 more workers: 1 jobs wait for 16 GPUs", "2 workers have been idle"]

    play(tmp_path, story)


def test_growth_that_finds_no_hosts_waits_and_says_so(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.create("elastic", 8, autoscale=AutoscaleWish(max_gpus=64))
        other = await cast.create("other", 48)
        await cast.until(made, Phase.READY)
        await cast.until(other, Phase.READY)
        await load(cast, made, 24)
        await until_running(cast, made, 2)
        await cast.clock.sleep(120)
        waits = await cast.look(made)
        assert [held.type for held in waits.status.conditions] == ["GrowthWaits"]
        assert "more workers" in waits.status.conditions[0].message
        await cast.house.clusters.delete(cast.tenant, other.id)
        done = await until_running(cast, made, 3)
        await cast.clock.sleep(60)
        assert (await cast.look(done)).status.conditions == ()

    play(tmp_path, story)


def test_quota_bounds_growth_as_any_wish(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        await cast.house.accounts.update_project(SYSTEM, cast.tenant.project_id or "", gpu_quota=16)
        made = await cast.create("elastic", 8, autoscale=AutoscaleWish(max_gpus=64))
        await cast.until(made, Phase.READY)
        await load(cast, made, 32)
        await until_running(cast, made, 2)
        await cast.clock.sleep(300)
        full = await cast.look(made)
        assert full.spec.own_workers == 2
        assert "may hold 16 GPUs" in full.status.growth_waits

    play(tmp_path, story)


def test_its_owner_raises_the_wish_over_what_has_grown(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.create("elastic", 8, autoscale=AutoscaleWish(max_gpus=32))
        await cast.until(made, Phase.READY)
        await load(cast, made, 24)
        await until_running(cast, made, 3)
        wished = await cast.house.clusters.update(cast.tenant, made.id, UpdateCluster(gpus=16))
        assert (wished.spec.workers, wished.spec.autoscaled_workers) == (2, 1)
        with pytest.raises(Invalid, match="32 GPUs at the most"):
            await cast.house.clusters.update(cast.tenant, made.id, UpdateCluster(gpus=40))
        off = UpdateCluster(autoscale=AutoscaleWish(max_gpus=0))
        plain = await cast.house.clusters.update(cast.tenant, made.id, off)
        assert (plain.spec.autoscale, plain.spec.own_workers) == (None, 2)
        await until_running(cast, made, 2)

    play(tmp_path, story)


def test_what_it_grew_is_given_back_when_it_pauses(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        made = await cast.create("elastic", 8, autoscale=AutoscaleWish(max_gpus=32))
        await cast.until(made, Phase.READY)
        fault = await load(cast, made, 24)
        await until_running(cast, made, 3)
        await cast.house.clusters.pause(cast.tenant, made.id)
        await cast.until(made, Phase.PAUSED)
        await cast.image.desk.clear(fault.id)
        for _ in range(60):
            if not await cast.leases(made):
                break
            await cast.clock.sleep(5)
        await cast.house.clusters.resume(cast.tenant, made.id)
        await cast.until(made, Phase.READY)
        again = await until_running(cast, made, 1)
        assert again.spec.own_workers == 1

    play(tmp_path, story)


@pytest.mark.parametrize("most", [4, 12, 7_992_000])
def test_a_limit_that_makes_no_sense_is_refused(tmp_path: Path, most: int) -> None:
    async def story(cast: Cast) -> None:
        with pytest.raises(Invalid, match=r"autoscale\.max_gpus"):
            await cast.create("elastic", 16, autoscale=AutoscaleWish(max_gpus=most))

    play(tmp_path, story)


def test_a_fleet_that_cannot_says_so() -> None:
    from muster.core.clusters.admission import check_autoscale

    with pytest.raises(Unsupported):
        check_autoscale(AutoscaleWish(max_gpus=16), SHAPE, 1, ClusterType.SLURM, NoOrchestrator())

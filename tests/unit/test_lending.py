"""Preemptible workers under the virtual clock: lent when idle, asked back with notice, lent again; and who pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.contracts.faults import Fault, FaultKind
from muster.contracts.store import Find
from muster.core.capacity.preemption import NOTICE
from muster.core.clusters.commands import AutoscaleWish, UpdateCluster
from muster.errors import Invalid, OutOfStock, Unsupported
from muster.model.accounts import SYSTEM, Actor, Role
from muster.model.base import DAY, HOUR, MINUTE
from muster.model.billing import Usage, UsageClass
from muster.model.capacity import ReservationState
from muster.model.clusters import Billing, Cluster, ClusterType, Node, Share
from muster.model.events import Event
from muster.model.phases import NodePhase, Phase
from muster.testing.simulation.cast import Cast, play


async def lent(cast: Cast, cluster: Cluster, *phases: NodePhase) -> list[Node]:
    nodes = await cast.house.store.find(
        Find(Node, equals={"cluster_id": cluster.id, "gone_at": None, "share": Share.PREEMPTIBLE})
    )
    return [node for node in nodes if not phases or node.phase in phases]


async def until_lent(cast: Cast, cluster: Cluster, workers: int, *, minutes: int = 60) -> list[Node]:
    for _ in range(minutes * 6):
        running = await lent(cast, cluster, NodePhase.RUNNING)
        if len(running) == workers == len(await lent(cast, cluster)):
            return running
        await cast.clock.sleep(10)
    raise AssertionError(f"{[(node.name, node.phase, node.because) for node in await lent(cast, cluster)]}")


async def events(cast: Cast, cluster: Cluster, type: str) -> list[Event]:
    told = await cast.house.store.events(after=0, limit=1000, resource_id=cluster.id)
    return [event for event in told if event.type == type]


async def another_tenant(cast: Cast) -> Actor:
    account = await cast.house.accounts.create_account(SYSTEM, name="globex", postpaid=True)
    project = await cast.house.accounts.create_project(SYSTEM, account_id=account.id, name="lab")
    return Actor(role=Role.ADMIN, name="bob", account_id=account.id, project_id=project.id)


async def assert_told_in_full(cast: Cast, cluster: Cluster) -> int:
    """Every worker that was taken back was told, and had its notice unless done before. How many they were."""
    nodes = await cast.house.store.find(Find(Node, equals={"cluster_id": cluster.id, "share": Share.PREEMPTIBLE}))
    gone = [node for node in nodes if node.warned_at is not None and node.phase is NodePhase.GONE]
    cut = 0
    for node in gone:
        [left] = [move for move in node.history if move.phase == NodePhase.LEAVING]
        assert node.reclaim_at is not None
        assert node.warned_at is not None
        assert node.reclaim_at - node.warned_at >= NOTICE
        assert left.at <= node.reclaim_at + MINUTE
        cut += left.at >= node.reclaim_at
    notices = await events(cast, cluster, "node.reclaim_notice")
    assert {event.data["node_id"] for event in notices} >= {node.id for node in gone}
    return len(gone)


def test_idle_hosts_are_lent_and_the_wish_is_never_exceeded(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        cluster = await cast.until(await cast.create("guest", 8, preemptible_gpus=24), Phase.READY)
        nodes = await until_lent(cast, cluster, 3)
        assert len({node.host_id for node in nodes}) == 3
        after = await cast.look(cluster)
        assert (after.spec.preemptible_granted, after.phase) == (3, Phase.READY)
        [granted, *_] = await events(cast, cluster, "cluster.preemptible_granted")
        assert granted.data["workers"] == 3

    play(tmp_path, story)


def test_on_demand_work_waits_for_the_notice_and_then_has_its_hosts(tmp_path: Path) -> None:
    """Eight hosts: one is the guest's own, seven are lent; three are needed."""

    async def story(cast: Cast) -> None:
        guest = await cast.until(await cast.create("guest", 8, preemptible_gpus=64), Phase.READY)
        await until_lent(cast, guest, 7)
        asked_at = cast.clock.now()
        cluster = await cast.create("needy", 24)
        assert cluster.phase is Phase.QUEUED
        assert "24 preemptible GPUs are being given back by" in cluster.because
        ready = await cast.until(cluster, Phase.READY)
        seated = next(move.at for move in ready.status.history if move.phase == Phase.NETWORK)
        assert seated - asked_at <= NOTICE + 2 * MINUTE
        await until_lent(cast, guest, 4)
        assert await assert_told_in_full(cast, guest) == 3
        after = await cast.look(guest)
        assert (after.phase, after.status.loans.reclaimed, after.spec.preemptible_granted) == (Phase.READY, 3, 4)
        await cast.house.clusters.delete(cast.tenant, cluster.id)
        await until_lent(cast, guest, 7)

    play(tmp_path, story)


def test_more_workers_wait_for_the_notice_and_then_come(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        needy = await cast.until(await cast.create("needy", 8), Phase.READY)
        guest = await cast.until(await cast.create("guest", 8, preemptible_gpus=64), Phase.READY)
        await until_lent(cast, guest, 6)
        await cast.house.clusters.update(cast.tenant, needy.id, UpdateCluster(gpus=32))
        waiting = await cast.look(needy)
        assert (waiting.spec.workers, waiting.phase) == (4, Phase.READY)
        assert waiting.short_line is not None
        for _ in range(200):
            await cast.clock.sleep(10)
            nodes = await cast.house.store.find(Find(Node, equals={"cluster_id": needy.id, "gone_at": None}))
            if sum(node.phase is NodePhase.RUNNING for node in nodes) == 6:
                break
        else:
            raise AssertionError(f"{(await cast.look(needy)).status.waiting_for}")
        after = await cast.look(needy)
        assert after.short_line is None
        assert await assert_told_in_full(cast, guest) == 3
        await until_lent(cast, guest, 3)

    play(tmp_path, story)


def test_who_resumes_waits_for_the_notice_and_then_comes_back(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        needy = await cast.until(await cast.create("needy", 16), Phase.READY)
        await cast.house.clusters.pause(cast.tenant, needy.id)
        await cast.until(needy, Phase.PAUSED)
        guest = await cast.until(await cast.create("guest", 8, preemptible_gpus=64), Phase.READY)
        await until_lent(cast, guest, 7)
        await cast.house.clusters.resume(cast.tenant, needy.id)
        await cast.until(needy, Phase.READY)
        assert await assert_told_in_full(cast, guest) == 2
        await until_lent(cast, guest, 5)

    play(tmp_path, story)


def test_a_promise_is_kept_though_everything_was_lent(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        guest = await cast.until(await cast.create("guest", 8, preemptible_gpus=64), Phase.READY)
        await until_lent(cast, guest, 7)
        now = cast.clock.now()
        starts_at, ends_at = now + 5 * HOUR, now + 7 * HOUR
        night = await cast.create("night", 32, billing=Billing.SCHEDULED, starts_at=starts_at, ends_at=ends_at)
        await until_lent(cast, guest, 7)
        ready = await cast.until(night, Phase.READY, hours=6)
        seated = next(move.at for move in ready.status.history if move.phase == Phase.NETWORK)
        assert ready.spec.begins_at is not None
        assert seated <= ready.spec.begins_at + 1_000
        await assert_told_in_full(cast, guest)
        await cast.until(night, Phase.GONE, hours=4)
        await until_lent(cast, guest, 7, minutes=90)

    play(tmp_path, story)


def test_a_reserved_cluster_waits_for_the_notice_and_nobody_else_gets_its_hosts(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        guest = await cast.until(await cast.create("guest", 8, preemptible_gpus=64), Phase.READY)
        await until_lent(cast, guest, 8)
        reserved = await cast.create("reserved", 32, billing=Billing.RESERVED, duration_days=2)
        assert reserved.phase is Phase.QUEUED
        with pytest.raises(OutOfStock):
            await cast.create("greedy", 32)
        other = await cast.create("other", 16)
        await cast.until(reserved, Phase.READY)
        await cast.until(other, Phase.READY)
        assert (await cast.reservation(reserved)).state is ReservationState.ACTIVE
        assert await assert_told_in_full(cast, guest) == 7, "six are needed, and one is the spare"
        await until_lent(cast, guest, 1)

    play(tmp_path, story, hosts=9)


def test_growth_by_the_queue_waits_for_the_notice_too(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        fields: dict[str, Any] = {"autoscale": AutoscaleWish(max_gpus=24)}
        elastic = await cast.until(await cast.create("elastic", 8, **fields), Phase.READY)
        guest = await cast.until(await cast.create("guest", 8, preemptible_gpus=64), Phase.READY)
        await until_lent(cast, guest, 6)
        await cast.image.desk.inject(Fault(kind=FaultKind.LOAD, target=elastic.id, count=16))
        for _ in range(200):
            await cast.clock.sleep(10)
            nodes = await cast.house.store.find(Find(Node, equals={"cluster_id": elastic.id, "gone_at": None}))
            if sum(node.role == "worker" and node.phase is NodePhase.RUNNING for node in nodes) >= 2:
                break
        else:
            raise AssertionError((await cast.look(elastic)).status.waiting_for)
        assert await assert_told_in_full(cast, guest) >= 1

    play(tmp_path, story)


def test_what_is_lent_stands_in_nobodys_way(tmp_path: Path) -> None:
    """The calendar counts lent hosts as free; who would need more than there is is still refused."""

    async def story(cast: Cast) -> None:
        guest = await cast.until(await cast.create("guest", 8, preemptible_gpus=64), Phase.READY)
        await until_lent(cast, guest, 7)
        now = cast.clock.now()
        await cast.create("later", 32, billing=Billing.SCHEDULED, starts_at=now + 2 * DAY, ends_at=now + 3 * DAY)
        with pytest.raises(OutOfStock):
            await cast.create("greedy", 56)

    play(tmp_path, story)


def test_two_tenants_share_what_is_idle(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        first = await cast.until(await cast.create("first", 8, preemptible_gpus=64), Phase.READY)
        await until_lent(cast, first, 7)
        cast.tenant, ann = await another_tenant(cast), cast.tenant
        second = await cast.until(await cast.create("second", 8, preemptible_gpus=64), Phase.READY)
        cast.tenant = ann
        big = await cast.until(await cast.create("big", 32), Phase.READY)
        await cast.house.clusters.delete(ann, big.id)
        await cast.until(big, Phase.GONE)
        await cast.clock.sleep(20 * 60)
        held = [len(await lent(cast, cluster, NodePhase.RUNNING)) for cluster in (first, second)]
        assert sum(held) == 6
        assert max(held) - min(held) <= 1

    play(tmp_path, story)


def test_the_wish_can_be_changed_and_taken_back(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        cluster = await cast.until(await cast.create("guest", 8), Phase.READY)
        update = cast.house.clusters.update
        await update(cast.tenant, cluster.id, UpdateCluster(preemptible_gpus=16))
        await until_lent(cast, cluster, 2)
        await update(cast.tenant, cluster.id, UpdateCluster(preemptible_gpus=0))
        await until_lent(cast, cluster, 0)
        await cast.clock.sleep(300)
        after = await cast.look(cluster)
        assert (after.preemptible_line, after.spec.preemptible_granted, after.phase) == (None, 0, Phase.READY)

    play(tmp_path, story)


def test_a_broken_one_is_not_replaced_but_lent_anew_elsewhere(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        cluster = await cast.until(await cast.create("guest", 8, preemptible_gpus=16), Phase.READY)
        nodes = await until_lent(cast, cluster, 2)
        await cast.image.desk.inject(Fault(kind=FaultKind.HOST_DEATH, target=nodes[0].host_name))
        await cast.clock.sleep(900)
        again = await until_lent(cast, cluster, 2)
        assert nodes[0].host_id not in {node.host_id for node in again}
        history = (await cast.look(cluster)).status.history
        assert Phase.DEGRADED not in [move.phase for move in history]

    play(tmp_path, story)


def test_a_paused_cluster_gives_all_of_it_back_and_gets_some_again(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        cluster = await cast.until(await cast.create("guest", 8, preemptible_gpus=16), Phase.READY)
        await until_lent(cast, cluster, 2)
        await cast.house.clusters.pause(cast.tenant, cluster.id)
        await until_lent(cast, cluster, 0)
        await cast.until(cluster, Phase.PAUSED)
        await cast.clock.sleep(300)
        assert not await lent(cast, cluster)
        await cast.house.clusters.resume(cast.tenant, cluster.id)
        await until_lent(cast, cluster, 2)

    play(tmp_path, story)


def test_lent_hosts_are_metered_apart_and_the_books_hold(tmp_path: Path) -> None:
    async def story(cast: Cast) -> None:
        cluster = await cast.until(await cast.create("guest", 8, preemptible_gpus=16), Phase.READY)
        await until_lent(cast, cluster, 2)
        await cast.clock.sleep(3600)
        usages = await cast.house.store.find(Find(Usage, equals={"resource_id": cluster.id, "closed_at": None}))
        serving = {usage.billing: usage.quantity for usage in usages if usage.usage_class is UsageClass.SERVING}
        assert serving == {"on_demand": 1, "preemptible": 2}
        await cast.house.clusters.delete(cast.tenant, cluster.id)
        await cast.until(cluster, Phase.GONE)
        verdict = await cast.house.billing.verify(SYSTEM)
        assert verdict.holds, verdict.faults

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"preemptible_gpus": 12}, Invalid),
        ({"preemptible_gpus": -8}, Invalid),
        ({"preemptible_gpus": 8, "type": ClusterType.KUBERNETES}, Unsupported),
        ({"preemptible_gpus": 8, "gpus_per_node": 4}, Invalid),
        ({"preemptible_gpus": 8, "single_node": True}, Invalid),
    ],
)
def test_what_cannot_be_lent_is_refused(tmp_path: Path, fields: dict[str, Any], error: type[Exception]) -> None:
    async def story(cast: Cast) -> None:
        with pytest.raises(error) as refusal:
            await cast.create("guest", 8, **fields)
        assert refusal.value.field == "preemptible_gpus"  # type: ignore[attr-defined]

    play(tmp_path, story)

"""Remediations against a real store: who may ask, approve, reject and cancel, and what is written when."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.clock import SeededEntropy
from muster.contracts.reconciler import Advance, Gone, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Insert, Replace
from muster.core.health.reconcile import HealthReconciler
from muster.core.health.service import RemediationService, Wanted
from muster.errors import CallError, FenceLost, Forbidden, Invalid, NotFound, Protected, Unsupported, WrongPhase
from muster.model.accounts import Actor, Role
from muster.model.base import changed
from muster.model.clusters import Cluster, ClusterSpec, ClusterType, Node, NodeRole, Repair
from muster.model.health import Remediation, RemediationMode, RemediationState, RemediationTrigger
from muster.model.hosts import Host, Lease
from muster.model.phases import NodePhase, Phase
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock

ADMIN = Actor(role=Role.ADMIN, name="ada", account_id="a", project_id="p", key_id="k")
MEMBER = Actor(role=Role.MEMBER, name="mia", account_id="a", project_id="p")
STRANGER = Actor(role=Role.ADMIN, name="eve", account_id="a", project_id="other")
M, S = RemediationMode, RemediationState


class Clinic:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.service = RemediationService(store, self.clock, SeededEntropy(1))
        self.reconciler = HealthReconciler(store, self.clock, SeededEntropy(2))

    async def open(self, phase: Phase = Phase.READY, workers: int = 2, slots: int = 255, **spec: Any) -> None:
        wish = ClusterSpec(
            type=ClusterType.SLURM,
            region="r",
            gpu_type="g",
            instance_type="i",
            workers=workers,
            image_id="x",
            **spec,
        )
        cluster = Cluster(
            id="c",
            account_id="a",
            project_id="p",
            name="c",
            live_name="c",
            region="r",
            phase=phase,
            phase_since=1,
            spec=wish,
            digest="",
            created_at=1,
            updated_at=1,
        )
        ops: list[Any] = [Insert(cluster)]
        for i in range(workers):
            ops += [
                Insert(
                    Host(
                        id=f"h{i}",
                        name=f"h{i}",
                        region="r",
                        slots=8,
                        cpus=1,
                        memory_gib=1,
                        substrate="s",
                        created_at=1,
                    )
                ),
                Insert(
                    Node(
                        id=f"n{i}",
                        cluster_id="c",
                        project_id="p",
                        role=NodeRole.WORKER,
                        name=f"worker-{i}",
                        ordinal=i,
                        host_id=f"h{i}",
                        lease_id=f"l{i}",
                        phase=NodePhase.RUNNING,
                        phase_since=1,
                        created_at=1,
                    )
                ),
                Insert(
                    Lease(
                        id=f"l{i}",
                        host_id=f"h{i}",
                        slots=slots,
                        node_id=f"n{i}",
                        cluster_id="c",
                        project_id="p",
                        taken_at=1,
                    )
                ),
            ]
        await self.store.apply(Batch(Step.CLUSTER_ACCEPT, ops))

    async def create(
        self, mode: M = M.HOST_AWARE, node: str = "n0", actor: Actor = ADMIN, **more: Any
    ) -> Remediation:
        return await self.service.create(actor, "c", node, mode=mode, **more)

    async def turn(self) -> Any:
        """One claimed turn of the reconciler, as the engine would give it."""
        [claim] = [
            claim
            for claim in await self.store.claim(worker="w", now=self.clock.now(), lease_ms=1_000, limit=10)
            if claim.kind == "health"
        ]
        outcome = await self.reconciler.reconcile(claim.id, claim)
        await self.store.release(claim, due_at=self.clock.now(), failed=False)
        return outcome

    async def lose(self, node: str) -> None:
        known = await self.get(Node, node)
        lost = known.advance(NodePhase.LOST, because="its host died", at=self.clock.now())
        await self.store.apply(Batch(Step.NODES_RECORD, [Replace(lost)]))

    async def get(self, noun: Any, id: str) -> Any:
        found = await self.store.get(noun, id)
        assert found is not None
        return found


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Clinic]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True)
    yield Clinic(store)
    asyncio.run(store.close())


def refused(error: type[CallError], ask: Coroutine[Any, Any, Any]) -> CallError:
    async def story() -> CallError:
        with pytest.raises(error) as caught:
            await ask
        return caught.value

    return asyncio.run(story())


def test_a_create_is_written_with_its_work_its_line_and_a_new_version_of_its_cluster(clinic: Clinic) -> None:
    async def story() -> None:
        await clinic.open()
        made = await clinic.create(reason="it smells")
        assert (made.state, made.trigger, made.requested_by) == (S.PENDING, RemediationTrigger.MANUAL, "ada")
        assert await clinic.get(Remediation, made.id) == made
        assert (await clinic.get(Cluster, "c")).version == 2
        [event] = await clinic.store.events(after=0, limit=10)
        assert (event.type, event.actor, event.data["mode"]) == ("remediation.created", "ada", "host_aware")
        claims = await clinic.store.claim(worker="w", now=clinic.clock.now(), lease_ms=1, limit=10)
        assert [(claim.kind, claim.id) for claim in claims] == [("health", "c")]

    asyncio.run(story())


def test_one_repair_at_a_time_and_the_same_id_is_the_same_repair(clinic: Clinic) -> None:
    async def story() -> None:
        await clinic.open()
        first = await clinic.create(id="own")
        assert (await clinic.create(id="own")).id == first.id
        with pytest.raises(Protected):
            await clinic.create()
        with pytest.raises(Protected):
            await clinic.create(node="n1", id="own")
        await clinic.service.cancel(ADMIN, "c", "n0", "own")
        again = await clinic.create()
        assert again.id != first.id

    asyncio.run(story())


def test_who_may_not(clinic: Clinic) -> None:
    asyncio.run(clinic.open())
    refused(Forbidden, clinic.create(actor=MEMBER))
    refused(NotFound, clinic.create(actor=STRANGER))
    refused(NotFound, clinic.create(node="nobody"))
    refused(Invalid, clinic.create(reason="x" * 3_000))
    made = asyncio.run(clinic.create())
    refused(NotFound, clinic.service.remediation(STRANGER, "c", None, made.id))
    refused(NotFound, clinic.service.remediations(STRANGER, "c"))
    refused(NotFound, clinic.service.remediation(ADMIN, "c", "n1", made.id))
    refused(NotFound, clinic.service.remediation(ADMIN, "other", None, made.id))
    refused(Forbidden, clinic.service.cancel(MEMBER, "c", None, made.id))
    assert asyncio.run(clinic.service.remediation(MEMBER, "c", None, made.id)) == made


def test_what_makes_no_sense_now(clinic: Clinic) -> None:
    asyncio.run(clinic.open(workers=1, slots=1))
    refused(WrongPhase, clinic.create(M.EVICT))
    refused(Unsupported, clinic.create(M.POWER_CYCLE))

    async def leave() -> None:
        node = await clinic.get(Node, "n0")
        leaving = node.advance(NodePhase.LEAVING, because="x", at=2)
        await clinic.store.apply(Batch(Step.NODES_RECORD, [Replace(leaving)]))

    asyncio.run(leave())
    refused(WrongPhase, clinic.create())


def test_a_cluster_that_is_not_up_is_not_repaired(clinic: Clinic) -> None:
    asyncio.run(clinic.open(Phase.WORKERS))
    refused(WrongPhase, clinic.create())


def test_only_what_waits_for_approval_is_approved_or_rejected(clinic: Clinic) -> None:
    asyncio.run(clinic.open())
    made = asyncio.run(clinic.create())
    refused(WrongPhase, clinic.service.approve(ADMIN, "c", "n0", made.id))
    refused(WrongPhase, clinic.service.reject(ADMIN, "c", "n0", made.id))
    cancelled = asyncio.run(clinic.service.cancel(ADMIN, "c", "n0", made.id))
    assert (cancelled.state, cancelled.open_node_id) == (S.CANCELLED, None)
    refused(WrongPhase, clinic.service.cancel(ADMIN, "c", "n0", made.id))


def test_lists_are_filtered_and_paged(clinic: Clinic) -> None:
    async def story() -> None:
        await clinic.open()
        made = []
        for mode in (M.REBOOT, M.VM_ONLY, M.HOST_AWARE):
            one = await clinic.create(mode)
            made.append((await clinic.service.cancel(ADMIN, "c", None, one.id)).id)
            clinic.clock.advance(1)
        listed = await clinic.service.remediations(ADMIN, "c", limit=2)
        assert [item.id for item in listed.items] == made[:0:-1]
        rest = await clinic.service.remediations(ADMIN, "c", limit=2, cursor=listed.next_cursor)
        assert ([item.id for item in rest.items], rest.next_cursor) == (made[:1], None)
        oldest = await clinic.service.remediations(ADMIN, "c", Wanted(newest_first=False))
        assert [item.id for item in oldest.items] == made
        some = await clinic.service.remediations(ADMIN, "c", Wanted(modes=[M.REBOOT], states=[S.CANCELLED]))
        assert [item.id for item in some.items] == made[:1]
        assert (await clinic.service.remediations(ADMIN, "c", Wanted(states=[]))).items == []
        assert (await clinic.service.remediations(ADMIN, "c", Wanted(node_id="n1"))).items == []

    asyncio.run(story())


# --- what it does to the fleet ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "wish", "cordons"),
    [
        (M.VM_ONLY, Repair.ANYWHERE, False),
        (M.HOST_AWARE, Repair.ELSEWHERE, True),
        (M.REBOOT, Repair.REBOOT, False),
        (M.POWER_CYCLE, Repair.REBOOT, True),
    ],
)
def test_a_node_at_work_drains_first(clinic: Clinic, mode: M, wish: Repair, cordons: bool) -> None:
    async def story() -> None:
        await clinic.open()
        made = await clinic.create(mode)
        assert isinstance(await clinic.turn(), Advance)
        node, host = await clinic.get(Node, "n0"), await clinic.get(Host, "h0")
        assert (node.phase, node.mending.wish, node.generation) == (NodePhase.DRAINING, wish, 1)
        assert host.cordoned is cordons
        begun = await clinic.get(Remediation, made.id)
        assert (begun.state, begun.cordoned, begun.generation) == (S.RUNNING, cordons, 2)
        assert isinstance(await clinic.turn(), Wait)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("mode", "phase", "generation"),
    [
        (M.HOST_AWARE, NodePhase.FAILED, 1),
        (M.VM_ONLY, NodePhase.FAILED, 1),
        (M.REBOOT, NodePhase.BOOTING, 2),
        (M.POWER_CYCLE, NodePhase.BOOTING, 2),
    ],
)
def test_a_dead_node_is_not_drained(clinic: Clinic, mode: M, phase: NodePhase, generation: int) -> None:
    async def story() -> None:
        await clinic.open()
        await clinic.lose("n0")
        await clinic.create(mode)
        await clinic.turn()
        node = await clinic.get(Node, "n0")
        assert (node.phase, node.generation) == (phase, generation)

    asyncio.run(story())


def test_an_eviction_is_a_wish_for_one_worker_less(clinic: Clinic) -> None:
    async def story() -> None:
        await clinic.open()
        await clinic.create(M.EVICT)
        before = await clinic.get(Cluster, "c")
        await clinic.turn()
        after = await clinic.get(Cluster, "c")
        assert (after.spec.workers, after.spec.leave_first) == (1, ("n0",))
        assert after.generation == before.generation + 1
        assert (await clinic.get(Node, "n0")).phase is NodePhase.RUNNING

    asyncio.run(story())


def test_a_power_cycled_host_is_given_back_and_one_that_was_cordoned_before_is_not(clinic: Clinic) -> None:
    async def cycle(node_id: str) -> Host:
        made = await clinic.create(M.POWER_CYCLE, node_id)
        await clinic.turn()
        node = await clinic.get(Node, node_id)
        back = changed(node, phase=NodePhase.RUNNING, generation=2)
        await clinic.store.apply(Batch(Step.NODES_RECORD, [Replace(back)]))
        await clinic.turn()
        assert (await clinic.get(Remediation, made.id)).state is S.SUCCEEDED
        host = await clinic.get(Host, f"h{node_id[1]}")
        assert isinstance(host, Host)
        return host

    async def story() -> None:
        await clinic.open()
        assert (await cycle("n0")).cordoned is False
        known = await clinic.get(Host, "h1")
        bad = changed(known, cordoned=True, cordon_reason="a bad fan")
        await clinic.store.apply(Batch(Step.HOST_WRITE, [Replace(bad)]))
        after = await cycle("n1")
        assert (after.cordoned, after.cordon_reason) == (True, "a bad fan")

    asyncio.run(story())


def test_a_dead_worker_is_proposed_approved_and_mended(clinic: Clinic) -> None:
    async def story() -> None:
        await clinic.open()
        await clinic.lose("n1")
        assert await clinic.reconciler.everything() == ["c"]
        claim = Claim("health", "c", 0, 0, 0, 0)
        with pytest.raises(FenceLost):  # a claim that is not held writes nothing
            await clinic.reconciler.reconcile("c", claim)
        assert (await clinic.service.remediations(ADMIN, "c")).items == []

        await clinic.create(node="n0")  # which wakes the cluster's health
        await clinic.service.cancel(ADMIN, "c", None, (await clinic.service.remediations(ADMIN, "c")).items[0].id)
        clinic.clock.advance(1)
        await clinic.turn()
        [proposed, _] = (await clinic.service.remediations(ADMIN, "c")).items
        assert (proposed.state, proposed.trigger) == (S.PENDING_APPROVAL, RemediationTrigger.AUTOMATED)
        assert proposed.node_id == "n1"
        approved = await clinic.service.approve(ADMIN, "c", "n1", proposed.id, comment="ok", mode=M.VM_ONLY)
        assert (approved.mode, approved.reviewed_by, approved.review_comment) == (M.VM_ONLY, "ada", "ok")
        await clinic.turn()
        assert (await clinic.get(Node, "n1")).phase is NodePhase.FAILED

    asyncio.run(story())


def test_where_failover_is_on_the_record_is_approved_already(clinic: Clinic) -> None:
    async def story() -> None:
        await clinic.open(failover=True)
        await clinic.lose("n1")
        made = await clinic.create(node="n0")
        await clinic.service.cancel(ADMIN, "c", None, made.id)
        clinic.clock.advance(1)
        await clinic.turn()
        [record, _] = (await clinic.service.remediations(ADMIN, "c")).items
        assert (record.state, record.reviewed_by, record.mode) == (S.RUNNING, "Auto-Approved", M.HOST_AWARE)
        assert (await clinic.get(Node, "n1")).phase is NodePhase.LOST  # the cluster itself replaces it

    asyncio.run(story())


def test_a_cluster_that_is_well_needs_no_more_turns(clinic: Clinic) -> None:
    async def story() -> None:
        await clinic.open()
        made = await clinic.create()
        await clinic.service.cancel(ADMIN, "c", None, made.id)
        assert isinstance(await clinic.turn(), Gone)
        assert await clinic.reconciler.everything() == []

    asyncio.run(story())

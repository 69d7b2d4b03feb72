"""What the simulated orchestrator adds to the contract's laws: believable files, reports and durations."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from muster.contracts.faults import FaultKind
from muster.contracts.orchestrator import Feature, Standing, Target
from muster.contracts.substrate import FabricWish, Fence, Power
from muster.errors import TryLater
from muster.model.base import SECOND
from muster.model.clusters import Acceptance, ClusterConfig, ClusterType, Scripts
from muster.testing.orchestrator_suite import acceptance, converge, running, without, worker_ids
from muster.testing.simulated import REGION, SimulatedOrchestratorRig

Story = Callable[[SimulatedOrchestratorRig], Awaitable[None]]
CLUSTER = Fence("cluster-1", 1)


def tell(tmp_path: Path, story: Story, type: ClusterType = ClusterType.SLURM) -> None:
    rig = SimulatedOrchestratorRig(tmp_path / "world.db", type)
    try:
        asyncio.run(story(rig))  # type: ignore[arg-type]
    finally:
        rig.close()


def configured(target: Target, config: ClusterConfig) -> Target:
    return replace(target, spec=replace(target.spec, config=config), generation=target.generation + 1)


def test_slurm_conf_reads_like_one(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await rig.target(2)
        scripts = Scripts(worker_prolog="#!/bin/sh\ntrue\n", extra_slurm_conf="MaxArraySize=5000")
        files = rig.orchestrator.render(configured(target, ClusterConfig(scripts=scripts, accounting=True))).files
        conf = files["all:/etc/slurm/slurm.conf"]
        address = {member.name: member.address for member in target.members}
        assert "ClusterName=the-cluster-1\n" in conf
        assert f"SlurmctldHost=controller({address['controller']})\n" in conf
        assert f"NodeName=w-0 NodeAddr={address['w-0']} CPUs=8 RealMemory=65536 Gres=gpu:h100_sxm:1\n" in conf
        assert "PartitionName=gpu Nodes=w-0,w-1 " in conf
        assert "slurmdbd" in conf
        assert conf.endswith("\nMaxArraySize=5000\n")
        assert files["worker:/etc/slurm/prolog.d/tenant"] == "#!/bin/sh\ntrue\n"
        assert "Simulated" in conf

    tell(tmp_path, story)


def test_the_order_in_which_members_are_told_does_not_matter(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await rig.target(3)
        shuffled = replace(target, members=tuple(reversed(target.members)))
        assert rig.orchestrator.render(shuffled) == rig.orchestrator.render(target)

    for type in ClusterType:
        (tmp_path / type).mkdir()
        tell(tmp_path / type, story, type)


def test_the_first_convergence_is_slow_and_later_ones_quick(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await rig.target(2)
        first = await rig.orchestrator.converge(target, CLUSTER)
        assert not first.done
        assert first.look_again_at is not None
        assert 30 * SECOND <= first.look_again_at - rig.now() <= 60 * SECOND
        await converge(rig, target)
        later = await rig.orchestrator.converge(configured(target, ClusterConfig(shm_gib=64)), CLUSTER)
        assert not later.done
        assert later.look_again_at is not None
        assert 2 * SECOND <= later.look_again_at - rig.now() <= 4 * SECOND
        assert set((await rig.orchestrator.observe(target)).values()) == {Standing.IDLE}, "it serves meanwhile"

    tell(tmp_path, story)


def test_look_again_at_leads_to_done_and_not_a_moment_before(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await rig.target(1)
        progress = await rig.orchestrator.converge(target, CLUSTER)
        while not progress.done:
            assert progress.look_again_at is not None
            rig.clock.advance_to(progress.look_again_at - 1)
            assert not (await rig.orchestrator.converge(target, CLUSTER)).done
            rig.clock.advance_to(progress.look_again_at)
            progress = await rig.orchestrator.converge(target, CLUSTER)
        assert set((await rig.orchestrator.observe(target)).values()) == {Standing.IDLE}

    tell(tmp_path, story)


def test_a_node_booted_again_must_join_again(tmp_path: Path) -> None:
    """Also when it went away and came back under the same key and generation, as after a pause."""

    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await running(rig, 1)
        ids = [member.node_id for member in target.members]
        await rig.substrate.ensure_absent(ids, CLUSTER)
        rig.clock.advance(60)
        assert set((await rig.orchestrator.observe(target)).values()) == {Standing.DOWN}
        again = await rig.target(1)
        assert set((await rig.orchestrator.observe(again)).values()) == {Standing.DOWN}
        assert not (await rig.orchestrator.converge(again, CLUSTER)).done
        await converge(rig, again)
        assert set((await rig.orchestrator.observe(again)).values()) == {Standing.IDLE}

    tell(tmp_path, story)


@pytest.mark.parametrize("timed", [True, False])
def test_a_node_back_from_the_dead_must_join_again(tmp_path: Path, timed: bool) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await running(rig, 1)
        (node,) = worker_ids(target)
        fault = await rig.inject(FaultKind.HOST_DEATH, 0, seconds=30 if timed else None)
        rig.clock.advance(20)
        assert (await rig.orchestrator.observe(target))[node] is Standing.DOWN
        rig.clock.advance(10)
        if not timed:
            assert await rig.desk.clear(fault.id)
        assert (await rig.substrate.observe([node]))[node].power is Power.UP
        assert (await rig.orchestrator.observe(target))[node] is Standing.DOWN
        await converge(rig, target)
        assert (await rig.orchestrator.observe(target))[node] is Standing.IDLE

    tell(tmp_path, story)


def test_expel_told_too_early_drains_and_then_lets_go(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await running(rig, 2)
        node = worker_ids(target)[-1]
        smaller = without(target, node)
        with pytest.raises(TryLater, match="drain"):
            await rig.orchestrator.expel(smaller, [node], CLUSTER)
        assert (await rig.orchestrator.observe(target))[node] is Standing.DRAINING
        rig.clock.advance(5)
        await rig.orchestrator.expel(smaller, [node], CLUSTER)
        assert (await rig.orchestrator.observe(target))[node] is Standing.ABSENT

    tell(tmp_path, story)


def test_a_member_of_an_older_boot_is_refused(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await running(rig, 1)
        raised = tuple(replace(member, generation=2) for member in target.members)
        await rig.orchestrator.converge(replace(target, members=raised), CLUSTER)
        with pytest.raises(TryLater, match="generation 2"):
            await rig.orchestrator.converge(target, CLUSTER)

    tell(tmp_path, story)


def test_tests_fail_on_a_node_that_died_and_say_so(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await running(rig, 2)
        first = await rig.orchestrator.test(target, "run-1", CLUSTER)
        assert first.look_again_at is not None
        assert 40 * SECOND <= first.look_again_at - rig.now() <= 80 * SECOND
        dead, alive = worker_ids(target)
        await rig.kill_node(dead)
        done = await acceptance(rig, target, "run-1")
        assert {result.node_id for result in done.results if not result.passed} == {dead}
        assert {result.test for result in done.results if result.node_id == alive} == {
            "dcgm_diag",
            "gpu_burn",
            "nccl_single_node",
            "nccl_multi_node",
            "storage",
        }
        assert "did not answer" in next(result.detail for result in done.results if not result.passed)

    tell(tmp_path, story)


def test_an_earlier_run_is_still_known_after_a_later_one(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await running(rig, 1)
        first = await acceptance(rig, target, "run-1")
        await acceptance(rig, target, "run-2")
        assert await rig.orchestrator.test(target, "run-1", CLUSTER) == first

    tell(tmp_path, story)


def test_a_longer_burn_takes_longer_and_no_tests_take_none(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await running(rig, 1)
        burning = replace(target, spec=replace(target.spec, acceptance=Acceptance(gpu_burn_seconds=300)))
        run = await rig.orchestrator.test(burning, "run-1", CLUSTER)
        assert run.look_again_at is not None
        assert run.look_again_at - rig.now() >= 340 * SECOND
        without_tests = replace(target, spec=replace(target.spec, acceptance=Acceptance(enabled=False)))
        assert (await rig.orchestrator.test(without_tests, "run-2", CLUSTER)).done

    tell(tmp_path, story)


def test_there_is_nothing_to_test_before_there_is_a_cluster(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        with pytest.raises(TryLater):
            await rig.orchestrator.test(await rig.target(1), "run-1", CLUSTER)

    tell(tmp_path, story)


def test_a_dead_node_may_be_expelled_without_draining(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await running(rig, 2)
        dead = worker_ids(target)[0]
        await rig.kill_node(dead)
        await rig.orchestrator.expel(without(target, dead), [dead], CLUSTER)
        assert (await rig.orchestrator.observe(target))[dead] is Standing.ABSENT

    tell(tmp_path, story)


@pytest.mark.parametrize("type", list(ClusterType))
def test_kubeconfig_is_complete_and_marked(tmp_path: Path, type: ClusterType) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = replace(await rig.target(1), cluster_id="0f8c2d4e-aaaa", name='odd: "name" #1')
        text = await rig.orchestrator.kubeconfig(target)
        config = yaml.safe_load(text)
        assert text.startswith("# Simulated")
        assert config["current-context"] == 'odd: "name" #1'
        assert config["users"][0]["name"] == "muster-0f8c2d4e"
        assert config["users"][0]["user"]["token"].startswith("simulated-")
        cluster = config["clusters"][0]["cluster"]
        assert cluster["server"] == (await rig.orchestrator.access(target)).kube_api
        authority = base64.b64decode(cluster["certificate-authority-data"], validate=True)
        assert authority.startswith(b"-----BEGIN CERTIFICATE-----\n")

    tell(tmp_path, story, type)


def test_features_fit_the_type(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        slurm = rig.orchestrator.features(ClusterType.SLURM)
        kubernetes = rig.orchestrator.features(ClusterType.KUBERNETES)
        assert slurm is not None
        assert kubernetes is not None
        assert Feature.SLURM_SCRIPTS in slurm
        assert Feature.SLURM_SCRIPTS not in kubernetes
        assert Feature.OIDC in kubernetes

    tell(tmp_path, story)


def test_the_notes_survive_another_process(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await running(rig, 1)
        other = type(rig.orchestrator)(rig.open_world(), rig.clock)
        assert await other.observe(target) == await rig.orchestrator.observe(target)
        assert await other.kubeconfig(target) == await rig.orchestrator.kubeconfig(target)

    tell(tmp_path, story)


def test_a_cluster_that_is_gone_leaves_no_notes(tmp_path: Path) -> None:
    async def story(rig: SimulatedOrchestratorRig) -> None:
        target = await running(rig, 1)
        ids = [member.node_id for member in target.members]
        await rig.substrate.ensure_absent([*ids, "cluster-1"], CLUSTER)
        rig.clock.advance(60)
        await rig.substrate.ensure([FabricWish(key="next", region=REGION)], Fence("next", 1))
        assert rig.world.recall("cluster-1") is None

    tell(tmp_path, story)

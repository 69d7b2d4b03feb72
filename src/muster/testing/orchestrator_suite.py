"""The laws of contracts/orchestrator.py, one test each. Whoever turns hosts into clusters passes these.

Use: subclass `OrchestratorSuite` in a test module and give it a fixture `rigs` that returns a factory of rigs, once
per type of cluster the orchestrator makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from muster.contracts.orchestrator import Feature, Orchestrator, Progress, Queue, Standing, Target, Tested
from muster.contracts.substrate import Fence
from muster.errors import DriverError, FencedOff
from muster.model.clusters import Acceptance, ClusterType
from muster.testing.laws import Capability, Rig, law, until

__all__ = ["OrchestratorRig", "OrchestratorSuite"]


class OrchestratorRig(Rig, Protocol):
    """An orchestrator, and nodes that are up for it to work with."""

    @property
    def orchestrator(self) -> Orchestrator: ...

    @property
    def type(self) -> ClusterType: ...

    async def target(self, workers: int, *, generation: int = 1, cluster: str = "cluster-1") -> Target:
        """A cluster whose members are all powered up. Asked again with more workers, the first ones are the same
        nodes; the rig can power at least three workers in all."""

    async def submit(self, target: Target, gpus: int) -> None:
        """Work that asks so many GPUs for a long time; of no matter which nodes."""

    async def cancel_all(self, target: Target) -> None: ...

    async def kill_node(self, node_id: str) -> None: ...

    async def hide_node(self, node_id: str) -> None:
        """Cut it off: it runs, but does not answer."""


def fence(target: Target, token: int = 1) -> Fence:
    return Fence(target.cluster_id, token)


def worker_ids(target: Target) -> list[str]:
    return [member.node_id for member in target.members if member.role == "worker"]


def without(target: Target, node_id: str) -> Target:
    members = tuple(member for member in target.members if member.node_id != node_id)
    return replace(target, members=members, generation=target.generation + 1)


async def converge(rig: OrchestratorRig, target: Target, token: int = 1) -> Progress:
    progress = Progress(False)

    async def done() -> bool:
        nonlocal progress
        progress = await rig.orchestrator.converge(target, fence(target, token))
        return progress.done

    await until(rig, done, f"{target.name} converged")
    return progress


async def until_standing(rig: OrchestratorRig, target: Target, node_id: str, *wanted: Standing) -> None:
    async def met() -> bool:
        return (await rig.orchestrator.observe(target))[node_id] in wanted

    await until(rig, met, f"{node_id} {' or '.join(wanted)}")


async def running(rig: OrchestratorRig, workers: int = 2) -> Target:
    """A converged cluster whose workers all wait for work."""
    target = await rig.target(workers)
    await converge(rig, target)
    for node_id in worker_ids(target):
        await until_standing(rig, target, node_id, Standing.IDLE)
    return target


async def acceptance(rig: OrchestratorRig, target: Target, run: str) -> Tested:
    found = Tested(False)

    async def done() -> bool:
        nonlocal found
        found = await rig.orchestrator.test(target, run, fence(target))
        return found.done

    await until(rig, done, f"run {run} done")
    return found


async def until_queue(rig: OrchestratorRig, target: Target, met: Callable[[Queue], bool], what: str) -> Queue:
    found = Queue()

    async def so() -> bool:
        nonlocal found
        queue = await rig.orchestrator.queue(target)
        found = queue or found
        return queue is not None and met(queue)

    await until(rig, so, what)
    return found


def per_node(target: Target) -> int:
    return next(member.gpus for member in target.members if member.role == "worker")


class OrchestratorSuite:
    @law()
    async def test_it_says_what_it_can_honour(self, rig: OrchestratorRig) -> None:
        features = rig.orchestrator.features(rig.type)
        assert features is not None
        assert features <= frozenset(Feature)
        images = await rig.orchestrator.images(rig.type)
        assert images is None or all(images), "an image has a name; the fleet's own has none"

    @law()
    async def test_render_is_pure(self, rig: OrchestratorRig) -> None:
        target = await rig.target(2)
        twin = msgspec.json.decode(msgspec.json.encode(target), type=Target)
        first, second = rig.orchestrator.render(target), rig.orchestrator.render(twin)
        assert first == second
        assert first.files
        smaller = without(target, worker_ids(target)[-1])
        assert rig.orchestrator.render(smaller).digest != first.digest

    @law()
    async def test_converge_makes_it_so(self, rig: OrchestratorRig) -> None:
        target = await running(rig)
        standing = await rig.orchestrator.observe(target)
        assert set(standing) == {member.node_id for member in target.members}

    @law()
    async def test_converge_may_be_repeated(self, rig: OrchestratorRig) -> None:
        target = await running(rig)
        again = await rig.orchestrator.converge(target, fence(target))
        assert again.done
        assert not again.failed
        standing = await rig.orchestrator.observe(target)
        assert all(standing[node_id] is Standing.IDLE for node_id in worker_ids(target))

    @law()
    async def test_a_node_serves_only_after_it_was_taken_in(self, rig: OrchestratorRig) -> None:
        target = await rig.target(1)
        standing = await rig.orchestrator.observe(target)
        assert standing[worker_ids(target)[0]] in (Standing.ABSENT, Standing.DOWN, Standing.UNKNOWN)

    @law()
    async def test_an_older_plan_is_refused(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 1)
        newer = await rig.target(2, generation=2)
        await converge(rig, newer)
        with pytest.raises(DriverError):
            await rig.orchestrator.converge(target, fence(target))
        for node_id in worker_ids(newer):
            await until_standing(rig, newer, node_id, Standing.IDLE)

    @law()
    async def test_it_grows_without_disturbing_who_is_there(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 1)
        bigger = await rig.target(2, generation=2)
        first, second = worker_ids(bigger)
        assert worker_ids(target) == [first]

        async def grown() -> bool:
            progress = await rig.orchestrator.converge(bigger, fence(bigger))
            assert (await rig.orchestrator.observe(bigger))[first] is Standing.IDLE
            return progress.done

        await until(rig, grown, "two workers")
        await until_standing(rig, bigger, second, Standing.IDLE)

    @law()
    async def test_members_that_left_the_target_are_forgotten(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        leaver = worker_ids(target)[-1]
        await rig.orchestrator.drain(target, [leaver], "it leaves", fence(target))
        await until_standing(rig, target, leaver, Standing.DRAINED)
        smaller = without(target, leaver)
        await converge(rig, smaller)
        await until_standing(rig, target, leaver, Standing.ABSENT)

    @law()
    async def test_drain_and_admit(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        node, other = worker_ids(target)
        await rig.orchestrator.drain(target, [node], "looking at it", fence(target))
        await until_standing(rig, target, node, Standing.DRAINED)
        await rig.orchestrator.drain(target, [node], "looking at it", fence(target))
        await rig.orchestrator.converge(target, fence(target))
        standing = await rig.orchestrator.observe(target)
        assert standing[node] is Standing.DRAINED, "told again it is still drained, and converging changes nothing"
        assert standing[other] is Standing.IDLE
        for _ in range(2):
            await rig.orchestrator.admit(target, [node], fence(target))
        await until_standing(rig, target, node, Standing.IDLE)

    @law()
    async def test_expel_removes_a_drained_node(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        node = worker_ids(target)[-1]
        await rig.orchestrator.drain(target, [node], "it leaves", fence(target))
        await until_standing(rig, target, node, Standing.DRAINED)
        smaller = without(target, node)
        for _ in range(2):
            await rig.orchestrator.expel(smaller, [node], fence(target))
        await until_standing(rig, target, node, Standing.ABSENT)

    @law(Capability.REFUSES_UNDRAINED_EXPEL)
    async def test_drain_precedes_expel(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        node = worker_ids(target)[-1]
        with pytest.raises(DriverError):
            await rig.orchestrator.expel(without(target, node), [node], fence(target))
        assert (await rig.orchestrator.observe(target))[node] is not Standing.ABSENT
        await rig.orchestrator.drain(target, [node], "it leaves", fence(target))
        await until_standing(rig, target, node, Standing.DRAINED)
        await rig.orchestrator.expel(without(target, node), [node], fence(target))
        await until_standing(rig, target, node, Standing.ABSENT)

    @law()
    async def test_force_needs_no_drain(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        node = worker_ids(target)[-1]
        smaller = without(target, node)
        forced = replace(smaller, spec=replace(smaller.spec, force=True))
        await rig.orchestrator.expel(forced, [node], fence(target))
        await until_standing(rig, target, node, Standing.ABSENT)

    @law()
    async def test_who_is_warned_takes_no_new_work_and_who_is_evicted_has_none(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        node, other = worker_ids(target)
        for _ in range(2):
            await rig.orchestrator.warn(target, [node], "others need it", fence(target))
        await until_standing(rig, target, node, Standing.DRAINING, Standing.DRAINED)
        for _ in range(2):
            await rig.orchestrator.evict(target, [node], fence(target))
        await until_standing(rig, target, node, Standing.DRAINED, Standing.DOWN)
        assert (await rig.orchestrator.observe(target))[other] is Standing.IDLE
        await rig.orchestrator.expel(without(target, node), [node], fence(target))
        await until_standing(rig, target, node, Standing.ABSENT)

    @law(Capability.CAN_KILL_HOST)
    async def test_a_dead_node_is_down_and_holds_up_nobody(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        dead, alive = worker_ids(target)
        await rig.kill_node(dead)
        await until_standing(rig, target, dead, Standing.DOWN, Standing.UNKNOWN)
        assert (await rig.orchestrator.observe(target))[alive] is Standing.IDLE
        progress = await converge(rig, replace(target, generation=2))
        assert set(progress.failed) == {dead}
        assert progress.failed[dead]

    @law(Capability.CAN_HIDE_HOST)
    async def test_unreachable_is_never_gone(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        node = worker_ids(target)[0]
        await rig.hide_node(node)
        await until_standing(rig, target, node, Standing.UNKNOWN, Standing.DOWN)

    @law(Capability.HAS_QUEUE)
    async def test_who_has_no_work_is_idle_and_nothing_waits(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        queue = await until_queue(rig, target, lambda queue: len(queue.idle_since) == 2, "both idle")
        assert set(queue.idle_since) == set(worker_ids(target)), "and nobody but workers"
        assert not queue.pending

    @law(Capability.HAS_QUEUE)
    async def test_what_does_not_fit_waits_in_the_queue(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 1)
        await rig.submit(target, per_node(target))
        await until_queue(rig, target, lambda queue: not queue.idle_since and not queue.pending, "at work")
        await until_standing(rig, target, worker_ids(target)[0], Standing.BUSY)
        await rig.submit(target, per_node(target))
        queue = await until_queue(rig, target, lambda queue: bool(queue.pending), "one job waiting")
        assert sum(job.gpus for job in queue.pending) == per_node(target)
        await rig.cancel_all(target)
        again = await until_queue(rig, target, lambda queue: bool(queue.idle_since), "idle again")
        assert not again.pending

    @law()
    async def test_an_older_token_is_fenced_off(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        await rig.orchestrator.converge(target, fence(target, 5))
        node, zombie = worker_ids(target)[0], fence(target, 4)
        with pytest.raises(FencedOff):
            await rig.orchestrator.converge(replace(target, generation=9), zombie)
        with pytest.raises(FencedOff):
            await rig.orchestrator.drain(target, [node], "late", zombie)
        with pytest.raises(FencedOff):
            await rig.orchestrator.warn(target, [node], "late", zombie)
        with pytest.raises(FencedOff):
            await rig.orchestrator.evict(target, [node], zombie)
        with pytest.raises(FencedOff):
            await rig.orchestrator.expel(without(target, node), [node], zombie)
        with pytest.raises(FencedOff):
            await rig.orchestrator.admit(target, [node], zombie)
        with pytest.raises(FencedOff):
            await rig.orchestrator.test(target, "late", zombie)
        assert (await rig.orchestrator.observe(target))[node] is Standing.IDLE
        assert (await rig.orchestrator.converge(target, fence(target, 5))).done

    @law()
    async def test_acceptance_tests_cover_every_worker(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        found = await acceptance(rig, target, "run-1")
        assert {result.node_id for result in found.results} >= set(worker_ids(target))
        assert all(result.passed for result in found.results)
        if rig.orchestrator.simulated:
            assert all(result.simulated for result in found.results)

    @law()
    async def test_the_same_run_twice_is_one_run(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        first = await acceptance(rig, target, "run-1")
        assert await rig.orchestrator.test(target, "run-1", fence(target)) == first

    @law()
    async def test_skipped_tests_are_not_run(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 2)
        names = {result.test for result in (await acceptance(rig, target, "run-1")).results}
        skipped = sorted(names)[0]
        picky = replace(target, spec=replace(target.spec, acceptance=Acceptance(skip=(skipped,))))
        assert {result.test for result in (await acceptance(rig, picky, "run-2")).results} == names - {skipped}

    @law()
    async def test_access_tells_the_way_in(self, rig: OrchestratorRig) -> None:
        target = await running(rig, 1)
        facts = await rig.orchestrator.access(target)
        assert facts.simulated == rig.orchestrator.simulated
        assert facts.ssh_host or facts.kube_api

    @law(Capability.HAS_KUBECONFIG)
    async def test_kubeconfigs_are_well_formed_and_can_be_merged(self, rig: OrchestratorRig) -> None:
        one = await rig.target(1, cluster="aaaaaaaa-1")
        two = await rig.target(1, cluster="bbbbbbbb-2")
        await converge(rig, one)
        await converge(rig, two)
        text = await rig.orchestrator.kubeconfig(one)
        assert text == await rig.orchestrator.kubeconfig(one)
        first, second = yaml.safe_load(text), yaml.safe_load(await rig.orchestrator.kubeconfig(two))
        assert first["current-context"] == one.name
        assert [context["name"] for context in first["contexts"]] == [one.name]
        assert first["contexts"][0]["context"]["user"] == first["users"][0]["name"]
        assert first["users"][0]["name"] != second["users"][0]["name"]
        assert first["users"][0]["user"] != second["users"][0]["user"]

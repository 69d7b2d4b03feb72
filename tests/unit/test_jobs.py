"""Jobs: the plan is total, the service keeps its rules, a crash at any step loses nothing and runs nothing twice."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.clock import SeededEntropy
from muster.contracts.jobs import Errand, Going, Sight
from muster.contracts.orchestrator import Target
from muster.contracts.reconciler import Gone, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Replace, Store
from muster.contracts.substrate import Fence
from muster.core.access.pool import no_pools
from muster.core.house import FleetFacts, House, build_house
from muster.core.jobs import plan
from muster.core.jobs.reconcile import JobReconciler
from muster.core.jobs.rules import OUTPUT_BYTES_MAX, OUTPUTS_MAX, is_inside, worth_keeping
from muster.engine.failpoints import store_with
from muster.errors import Forbidden, Invalid, NotFound, TryLater, Unauthenticated, Unsupported, WrongPhase
from muster.model.accounts import Account, Actor, Project, Role
from muster.model.base import HOUR, changed
from muster.model.clusters import Cluster, ClusterSpec, ClusterType
from muster.model.events import Event
from muster.model.jobs import JOB_MOVES, OVER, Job, JobSpec, JobState, Output
from muster.model.phases import IllegalMove, Phase
from muster.orchestrators.none import NoOrchestrator
from muster.orchestrators.simulated.workshop import SimulatedWorkshop
from muster.store.archive import DirectoryArchive
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock

ADMIN = Actor(role=Role.ADMIN, name="ada", account_id="a", project_id="p", key_id="k")
MEMBER = Actor(role=Role.MEMBER, name="mia", account_id="a", project_id="p", key_id="m")
STRANGER = Actor(role=Role.ADMIN, name="eve", account_id="a", project_id="q", key_id="e")
SPEC = JobSpec(commands=("python train.py",), outputs=("*.pt",))


class Crash(Exception):
    """The process died here."""


class DieAt:
    """Dies once, the nth time it comes past this door."""

    def __init__(self, step: Step | None, side: str, nth: int) -> None:
        self._door = (step, side)
        self._left = nth

    async def _pass(self, step: Step, side: str) -> None:
        if self._door == (step, side):
            self._left -= 1
            if self._left == 0:
                raise Crash

    async def before(self, step: Step) -> None:
        await self._pass(step, "before")

    async def after(self, step: Step) -> None:
        await self._pass(step, "after")


class Bench:
    """A workshop with memory: what was submitted, what was printed, which files there are."""

    uploads = True

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.sight = Sight(Going.RUNNING)
        self.said = b""
        self.files: dict[str, bytes] = {}
        self.stopped = False
        self.away = False

    def _reach(self) -> None:
        if self.away:
            raise TryLater("nobody answers")

    async def submit(self, target: Target, errand: Errand, fence: Fence) -> None:
        self._reach()
        if errand.id not in self.runs:
            self.runs.append(errand.id)

    async def look(self, target: Target, errand: Errand) -> Sight:
        self._reach()
        return self.sight if errand.id in self.runs else Sight(Going.ABSENT)

    async def stop(self, target: Target, errand: Errand, fence: Fence) -> None:
        self.stopped = True
        self.sight = Sight(Going.ENDED, 143)

    async def log(self, target: Target, errand: Errand, offset: int) -> bytes:
        return self.said[offset : offset + 4]

    async def outputs(self, target: Target, errand: Errand) -> Sequence[Output]:
        return [Output(path=path, size=len(data)) for path, data in sorted(self.files.items())]

    async def piece(self, target: Target, errand: Errand, path: str, offset: int) -> bytes:
        return self.files[path][offset : offset + 3]


class Desk:
    """A house with one cluster that is ready, and the reconciler, turned by hand."""

    def __init__(self, store: SqliteStore, directory: Path, door: DieAt | None = None) -> None:
        self.raw = store
        self.clock = ManualClock()
        self.bench = Bench()
        self.archive = DirectoryArchive(directory)
        self.house = self.build(store if door is None else store_with(door, store))

    def build(self, store: Store) -> House:
        return build_house(
            store=store,
            clock=self.clock,
            entropy=SeededEntropy(1),
            orchestrator=NoOrchestrator(),
            faults=None,
            fleet=FleetFacts("none", ("none",), False),
            pools=no_pools,
            archive=self.archive,
        )

    async def furnish(self, phase: Phase = Phase.READY) -> None:
        spec = ClusterSpec(
            type=ClusterType.SLURM, region="r", gpu_type="H", instance_type="8xH", workers=1, image_id="i"
        )
        rows = [
            Account(id="a", name="a", postpaid=True, created_at=1),
            Project(id="p", account_id="a", name="p", slug="p", created_at=1),
            Cluster(
                id="c",
                account_id="a",
                project_id="p",
                name="c",
                live_name="c",
                region="r",
                phase=phase,
                phase_since=1,
                spec=spec,
                digest="",
                created_at=1,
                updated_at=1,
            ),
        ]
        await self.raw.apply(Batch(Step.ACCOUNT_WRITE, [Insert(row) for row in rows]))

    async def turn(self, id: str) -> Any:
        """One reconcile under a claim of its own, as the engine would."""
        self.clock.advance(1)
        reconciler = JobReconciler(self.house.store, self.clock, self.house.clusters, self.bench, self.archive)
        for claim in await self.raw.claim(worker="w", now=self.clock.now() + 10 * HOUR, lease_ms=1, limit=99):
            if claim.kind == "job" and claim.id == id:
                outcome = await reconciler.reconcile(id, claim)
                due = None if isinstance(outcome, Gone) else self.clock.now()
                await self.raw.release(claim, due_at=due, failed=False)
                return outcome
            await self.raw.release(claim, due_at=self.clock.now(), failed=False)
        return Gone()

    async def until(self, id: str, *states: JobState) -> Job:
        for _ in range(60):
            job = await self.row(id)
            if job.state in states:
                return job
            await self.turn(id)
        raise AssertionError(f"never {states}: {job}")

    async def row(self, id: str) -> Job:
        job = await self.raw.get(Job, id)
        assert job is not None
        return job

    async def pushed(self, spec: JobSpec = SPEC, **more: Any) -> Job:
        job = await self.house.jobs.accept(ADMIN, "c", spec, **more)
        return await self.house.jobs.uploaded(ADMIN, job.id)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    store = SqliteStore.open(tmp_path / "m.db", inline=True)
    made = Desk(store, tmp_path / "jobs")
    asyncio.run(made.furnish())
    yield made
    asyncio.run(store.close())


def told(story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await story()

    asyncio.run(run())


def test_a_job_runs_and_comes_home(desk: Desk) -> None:
    async def story() -> None:
        job = await desk.pushed()
        running = await desk.until(job.id, JobState.RUNNING)
        assert running.started_at is not None
        desk.bench.said = b"epoch 1\nepoch 2\n"
        desk.bench.files = {"a.pt": b"weights", "deep/b.pt": b""}
        desk.bench.sight = Sight(Going.ENDED, 0)
        done = await desk.until(job.id, JobState.COMPLETED)
        assert (done.exit_code, done.kept) == (0, 2)
        assert await desk.house.jobs.log(ADMIN, job.id, 0, 100) == b"epoch 1\nepoch 2\n"
        assert await desk.house.jobs.log(ADMIN, job.id, 8, 100) == b"epoch 2\n"
        assert await desk.archive.read(job.id, "0", 0, 100) == b"weights"
        assert desk.bench.runs == [job.id]
        assert isinstance(await desk.turn(job.id), Gone)

    told(story)


@pytest.mark.parametrize(
    ("sight", "state"), [((Going.ENDED, 3), JobState.ERROR), ((Going.LOST, None), JobState.FAILED)]
)
def test_how_it_ends_is_told(desk: Desk, sight: tuple[Going, int | None], state: JobState) -> None:
    async def story() -> None:
        job = await desk.pushed()
        await desk.until(job.id, JobState.RUNNING)
        desk.bench.sight = Sight(*sight)
        assert (await desk.until(job.id, state)).exit_code == sight[1]

    told(story)


def test_a_cluster_that_does_not_answer_is_waited_for(desk: Desk) -> None:
    async def story() -> None:
        job = await desk.pushed()
        await desk.turn(job.id)
        desk.bench.away = True
        assert isinstance(await desk.turn(job.id), Wait)
        assert (await desk.row(job.id)).state is JobState.PENDING
        desk.bench.away = False
        await desk.until(job.id, JobState.RUNNING)

    told(story)


def test_cancel_before_while_and_after(desk: Desk) -> None:
    async def story() -> None:
        early = await desk.house.jobs.accept(ADMIN, "c", SPEC)
        await desk.house.jobs.cancel(ADMIN, early.id)
        await desk.until(early.id, JobState.CANCELED)
        job = await desk.pushed()
        await desk.until(job.id, JobState.RUNNING)
        first = await desk.house.jobs.cancel(ADMIN, job.id)
        assert await desk.house.jobs.cancel(ADMIN, job.id) == first
        await desk.until(job.id, JobState.CANCELED)
        assert desk.bench.stopped
        with pytest.raises(WrongPhase):
            await desk.house.jobs.cancel(ADMIN, job.id)
        assert desk.bench.runs == [job.id]

    told(story)


def test_an_upload_that_never_ends_is_given_up(desk: Desk) -> None:
    async def story() -> None:
        job = await desk.house.jobs.accept(ADMIN, "c", SPEC)
        assert isinstance(await desk.turn(job.id), Wait)
        desk.clock.advance(3_700)
        await desk.until(job.id, JobState.FAILED)
        cut = await desk.house.jobs.accept(ADMIN, "c", SPEC)
        assert (await desk.house.jobs.give_up(ADMIN, cut.id, "cut off")).state is JobState.FAILED

    told(story)


def test_teardown_ends_the_cluster_after_the_outputs_are_home(desk: Desk) -> None:
    async def story() -> None:
        job = await desk.pushed(teardown=True)
        await desk.until(job.id, JobState.RUNNING)
        desk.bench.files = {"a.pt": b"weights"}
        desk.bench.sight = Sight(Going.ENDED, 0)
        await desk.until(job.id, JobState.COMPLETED)
        cluster = await desk.raw.get(Cluster, "c")
        assert cluster is not None
        assert cluster.delete_wished_at is None
        await desk.turn(job.id)
        cluster = await desk.raw.get(Cluster, "c")
        assert cluster is not None
        assert cluster.delete_wished_at is not None
        assert (await desk.row(job.id)).torn_down_at is not None
        assert (await desk.row(job.id)).kept == 1

    told(story)


def test_a_cluster_that_is_deleted_takes_its_jobs_along(desk: Desk) -> None:
    async def story() -> None:
        job = await desk.pushed()
        await desk.until(job.id, JobState.RUNNING)
        desk.bench.said = b"so far\n"
        for _ in range(4):
            await desk.turn(job.id)
        await desk.house.clusters.delete(ADMIN, "c")
        failed = await desk.until(job.id, JobState.FAILED)
        assert "deleted" in failed.because
        assert await desk.house.jobs.log(ADMIN, job.id, 0, 100) == b"so far\n"

    told(story)


def test_who_may_do_what(desk: Desk) -> None:
    async def story() -> None:
        jobs = desk.house.jobs
        job = await jobs.accept(MEMBER, "c", SPEC)
        with pytest.raises(Forbidden):
            await jobs.accept(MEMBER, "c", SPEC, teardown=True)
        with pytest.raises(NotFound):
            await jobs.accept(STRANGER, "c", SPEC)
        for verb in (jobs.job, jobs.cancel, jobs.delete, jobs.uploaded):
            with pytest.raises(NotFound):
                await verb(STRANGER, job.id)
        assert (await jobs.jobs(STRANGER)).items == []
        with pytest.raises(WrongPhase):
            await jobs.delete(ADMIN, job.id)
        await jobs.give_up(MEMBER, job.id, "no")
        await jobs.delete(ADMIN, job.id)
        with pytest.raises(NotFound):
            await jobs.job(ADMIN, job.id)
        assert (await jobs.jobs(ADMIN)).items == []
        events = await desk.raw.events(after=0, limit=99, kind="job")
        assert [event.type for event in events] == ["job.accepted", "job.failed", "job.deleted"]
        assert not [event for event in events if job.link_secret in str(event)]

    told(story)


@pytest.mark.parametrize("phase", [Phase.WORKERS, Phase.PAUSED, Phase.FAILED])
def test_jobs_need_a_cluster_that_serves(tmp_path: Path, phase: Phase) -> None:
    async def story() -> None:
        store = SqliteStore.open(tmp_path / "m.db", inline=True)
        desk = Desk(store, tmp_path / "jobs")
        await desk.furnish(phase)
        with pytest.raises(WrongPhase):
            await desk.house.jobs.accept(ADMIN, "c", SPEC)
        desk.house.jobs.archive = None
        with pytest.raises(Unsupported):
            await desk.house.jobs.accept(ADMIN, "c", SPEC)
        await store.close()

    told(story)


def test_jobs_run_on_slurm_clusters(desk: Desk) -> None:
    async def story() -> None:
        cluster = await desk.raw.get(Cluster, "c")
        assert cluster is not None
        other = changed(cluster, spec=replace(cluster.spec, type=ClusterType.KUBERNETES))
        await desk.raw.apply(Batch(Step.CLUSTER_RECORD, [Replace(other)]))
        with pytest.raises(Unsupported):
            await desk.house.jobs.accept(ADMIN, "c", SPEC)

    told(story)


def test_links_are_for_one_file_and_expire(desk: Desk) -> None:
    async def story() -> None:
        jobs = desk.house.jobs
        job = await desk.pushed()
        until, signature = jobs.link(job, "log")
        assert (await jobs.by_link(job.id, "log", until, signature)).id == job.id
        for wrong in (
            (job.id, "0", until, signature),
            (job.id, "log", until + 1, signature),
            (job.id, "log", until, "é"),
            ("other", "log", until, signature),
        ):
            with pytest.raises(Unauthenticated):
                await jobs.by_link(*wrong)
        desk.clock.advance(3_600)
        with pytest.raises(Unauthenticated):
            await jobs.by_link(job.id, "log", until, signature)

    told(story)


# --- dying at every door


@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("step", [Step.JOB_WISH, Step.JOB_RECORD])
def test_a_crash_loses_nothing_and_runs_nothing_twice(tmp_path: Path, step: Step, side: str, nth: int) -> None:
    async def story() -> None:
        store = SqliteStore.open(tmp_path / "m.db", inline=True)
        desk = Desk(store, tmp_path / "jobs", DieAt(step, side, nth))
        await desk.furnish()
        desk.bench.said = b"0123456789\n"
        desk.bench.files = {"a.pt": b"weights"}

        async def stubbornly(act: Callable[[], Awaitable[Any]]) -> Any:
            for _ in range(9):
                try:
                    return await act()
                except Crash:
                    continue  # the next process takes up the same rows
            raise AssertionError("it dies once")

        jobs = desk.house.jobs
        job = await stubbornly(lambda: jobs.accept(ADMIN, "c", SPEC, teardown=True))
        await stubbornly(lambda: jobs.uploaded(ADMIN, job.id))
        await stubbornly(lambda: desk.until(job.id, JobState.RUNNING))
        desk.bench.sight = Sight(Going.ENDED, 0)
        done = await stubbornly(lambda: desk.until(job.id, JobState.COMPLETED))
        for _ in range(3):
            await stubbornly(lambda: desk.turn(job.id))
        assert desk.bench.runs == [job.id]
        assert await jobs.log(ADMIN, job.id, 0, 99) == b"0123456789\n"
        assert await desk.archive.read(job.id, "0", 0, 99) == b"weights"
        assert (done.kept, (await desk.row(job.id)).torn_down_at is not None) == (1, True)
        await _moves_are_in_the_log(store, job.id)
        await store.close()

    told(story)


async def _moves_are_in_the_log(store: SqliteStore, id: str) -> None:
    events: list[Event] = await store.events(after=0, limit=99, resource_id=id)
    kinds = [event.type for event in events]
    for once in ("job.submitted", "job.running", "job.completed", "job.torn_down"):
        assert kinds.count(once) == 1, kinds


# --- the plan


def job_in(state: JobState, **fields: Any) -> Job:
    return Job(
        id="j",
        account_id="a",
        project_id="p",
        cluster_id="c",
        cluster_name="c",
        state=state,
        state_since=0,
        link_secret="s",
        created_at=0,
        updated_at=0,
        spec=SPEC,
        **fields,
    )


def test_the_plan_is_total_and_its_moves_are_legal(desk: Desk) -> None:
    async def story() -> None:
        cluster = await desk.raw.get(Cluster, "c")
        assert cluster is not None
        clusters = [None, cluster, replace(cluster, delete_wished_at=1), replace(cluster, phase=Phase.PAUSED)]
        stamps = [None, 1]
        for state, now in itertools.product(JobState, (1, 10 * HOUR)):
            for uploaded, submitted, cancel in itertools.product(stamps, stamps, stamps):
                job = job_in(state, uploaded_at=uploaded, submitted_at=submitted, cancel_wished_at=cancel)
                for seen in clusters:
                    step = plan.before_looking(job, seen, now)
                    steps = (
                        [step]
                        if step is not None
                        else [plan.after_looking(job, Sight(going, 0), now) for going in Going]
                    )
                    for each in steps:
                        _is_legal(job, each)

    told(story)


def _is_legal(job: Job, step: object) -> None:
    final = step.then if isinstance(step, plan.BringHome) else step
    if isinstance(final, plan.Finish | plan.Move):
        assert final.state in JOB_MOVES[job.state], (job, step)
    assert job.state not in OVER or isinstance(step, plan.Done | plan.TearDown)


def test_an_illegal_move_raises() -> None:
    with pytest.raises(IllegalMove):
        job_in(JobState.COMPLETED).advance(JobState.RUNNING, because="", at=1)


# --- rules


@pytest.mark.parametrize("path", ["a", "a/b.pt", "**/*.pt", "a..b", ".hidden"])
def test_inside(path: str) -> None:
    assert is_inside(path)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "~/x", "a\\..\\x", "\\x", "a\nb", "a\0b"])
def test_not_inside(path: str) -> None:
    assert not is_inside(path)


def test_only_so_much_is_kept() -> None:
    many = [Output(path=f"f{number}", size=1) for number in range(OUTPUTS_MAX + 5)]
    assert len(worth_keeping(many)) == OUTPUTS_MAX
    large = [Output(path="a", size=OUTPUT_BYTES_MAX), Output(path="b", size=1), Output(path="../c", size=0)]
    assert worth_keeping(large) == (large[0],)


def test_a_job_has_commands_of_a_reasonable_size(desk: Desk) -> None:
    async def story() -> None:
        for commands in ((), ("",), (" ",), ("x" * 20_000,), ("a\0b",), ("x",) * 500):
            with pytest.raises(Invalid):
                await desk.house.jobs.accept(ADMIN, "c", JobSpec(commands=commands))

    told(story)


# --- the simulated workshop and the archive


def test_simulated_jobs_take_a_moment() -> None:
    async def story() -> None:
        clock = ManualClock()
        workshop = SimulatedWorkshop(clock)
        target: Any = None
        spec = JobSpec(commands=("sleep 5", "exit 2", "echo never"))
        errand = Errand("j", spec, clock.now())
        assert await workshop.look(target, errand) == Sight(Going.QUEUED)
        clock.advance(3)
        assert await workshop.look(target, errand) == Sight(Going.RUNNING)
        assert await workshop.log(target, errand, 0) == b"(simulated) $ sleep 5\n"
        clock.advance(60)
        assert await workshop.look(target, errand) == Sight(Going.ENDED, 2)
        assert b"never" not in await workshop.log(target, errand, 0)
        assert (await workshop.look(target, errand._replace(stopped=True))).going is Going.ENDED

    told(story)


def test_the_archive_writes_at_offsets_and_knows_no_other_names(tmp_path: Path) -> None:
    async def story() -> None:
        archive = DirectoryArchive(tmp_path)
        await archive.write("j-1", "log", 0, b"abc")
        await archive.write("j-1", "log", 3, b"def")
        await archive.write("j-1", "log", 3, b"def")
        assert await archive.read("j-1", "log", 1, 4) == b"bcde"
        assert await archive.read("j-1", "7", 0, 4) == b""
        for job, part in (("..", "log"), ("j-1", "../x"), ("a/b", "0"), ("j-1", "")):
            with pytest.raises(ValueError, match="nothing is kept"):
                await archive.read(job, part, 0, 1)

    told(story)


def test_every_open_job_is_in_the_full_pass(desk: Desk) -> None:
    async def story() -> None:
        job = await desk.pushed(teardown=True)
        reconciler = JobReconciler(desk.house.store, desk.clock, desk.house.clusters, desk.bench, desk.archive)
        assert await reconciler.everything() == [job.id]
        assert await desk.raw.count(Find(Job, equals={"ended_at": None})) == 1

    told(story)

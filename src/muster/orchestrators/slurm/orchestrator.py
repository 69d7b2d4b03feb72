"""The Slurm orchestrator: contracts/orchestrator.py over real daemons in nodes that hands can reach.

Leans on hands (never on a substrate), render, campaign, acceptance. Laws: those of the contract. Work that takes
longer than a command runs in the background of this process and is found again, or begun again, by the next call: all
of it is repeatable, so a killed process loses only time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from muster.contracts.clock import Clock
from muster.contracts.hands import File, Hands, Knock
from muster.contracts.orchestrator import Feature, Member, Progress, Queue, Rendered, Standing, Target, Tested
from muster.contracts.substrate import Fence
from muster.errors import DriverError, TryLater
from muster.model.base import Instant
from muster.model.clusters import AccessFacts, CheckResult, ClusterType
from muster.orchestrators.slurm import queue as queues
from muster.orchestrators.slurm import roster
from muster.orchestrators.slurm.acceptance import examine
from muster.orchestrators.slurm.background import Background
from muster.orchestrators.slurm.campaign import Campaign, forget, mark_down, states
from muster.orchestrators.slurm.notice import cut_short, put_back, tell
from muster.orchestrators.slurm.probes import Probes
from muster.orchestrators.slurm.render import USER, controller_of, digest_of, files_of, login_of, workers_of
from muster.orchestrators.slurm.requeue import hasten_requeued
from muster.orchestrators.slurm.trial import try_conf

LOOK_AGAIN_MS: Final = 40
LOOK_AGAIN_CALLED_MS: Final = 1000
_FEATURES: Final = frozenset(
    {
        *(Feature.PAUSE, Feature.RESIZE, Feature.AUTOSCALE, Feature.SECURITY_GROUPS),
        *(Feature.SLURM_SCRIPTS, Feature.SLURM_ACCOUNTING, Feature.SLURM_IMAGE),
        Feature.PREEMPTIBLE,
    }
)


class SlurmOrchestrator:
    name = "slurm"
    simulated = False

    def __init__(self, hands: Hands, clock: Clock, secret: bytes) -> None:
        self._hands = hands
        self._clock = clock
        self._secret = secret
        self._wake: Callable[[str], None] | None = None
        self._campaigns: Background[Progress] = Background(self._ended)
        self._exams: Background[list[CheckResult]] = Background(self._ended)
        self._probes = Probes(hands, clock)
        self._errands: dict[str, asyncio.Task[None]] = {}
        self._converged: dict[str, str] = {}
        self._tried: dict[str, str] = {}
        self._troubles: dict[str, str] = {}  # why the last attempt failed, told while the next is under way

    def features(self, type: ClusterType) -> frozenset[Feature] | None:
        return _FEATURES if type is ClusterType.SLURM else None

    def watch(self, wake: Callable[[str], None]) -> None:
        """Call `wake(cluster_id)` when a daemon of a cluster stops or starts answering, and when work is done."""
        self._wake = wake
        self._probes.start(wake)

    async def images(self, type: ClusterType) -> frozenset[str] | None:
        try:
            return frozenset(await self._hands.images())
        except DriverError:
            return None  # whoever makes the nodes will tell

    def _ended(self, cluster_id: str) -> None:
        if self._wake is not None:
            self._wake(cluster_id)

    def _look_again_at(self) -> Instant:
        """Who is called need not ask."""
        return self._clock.now() + (LOOK_AGAIN_MS if self._wake is None else LOOK_AGAIN_CALLED_MS)

    def render(self, target: Target) -> Rendered:
        files = files_of(target, self._secret)
        # secrets count for the digest and are shown to nobody
        shown = {f"all:/etc/cluster/{file.path}": file.content for file in files if file.mode & 0o077}
        return Rendered(digest=digest_of(files), files=shown)

    async def converge(self, target: Target, fence: Fence) -> Progress:
        files = files_of(target, self._secret)
        await self._try_first(target, files)
        await self._hands.place(files, target.generation, fence)
        self._probes.mind(target)
        key = f"{target.generation}/{digest_of(files)}/{[(m.node_id, m.generation) for m in target.members]}"
        if self._converged.get(target.cluster_id) == key and await self._all_stand(target):
            return Progress(True, f"{len(target.members)} of {len(target.members)} nodes joined")
        campaign = Campaign(self._hands, target)
        try:
            done = await self._campaigns.follow(target.cluster_id, key, campaign.run)
        except DriverError as error:
            self._troubles[target.cluster_id] = error.because
            raise
        if done is None:
            because = self._troubles.get(target.cluster_id) or f"{len(target.members)} nodes are joining"
            return Progress(False, because, look_again_at=self._look_again_at())
        self._troubles.pop(target.cluster_id, None)
        self._converged[target.cluster_id] = key
        return done

    async def _all_stand(self, target: Target) -> bool:
        fallen = (Standing.DOWN, Standing.ABSENT, Standing.UNKNOWN)
        return all(standing not in fallen for standing in (await self.observe(target)).values())

    async def _try_first(self, target: Target, files: Sequence[File]) -> None:
        """The tenant's extra lines, once; refused, nothing changes."""
        head = controller_of(target)
        if not target.spec.config.scripts.extra_slurm_conf or head is None:
            return
        conf = next(file.content for file in files if file.path == "slurm/slurm.conf")
        if self._tried.get(target.cluster_id) != conf:
            await try_conf(self._hands, head, conf)
            self._tried[target.cluster_id] = conf

    async def observe(self, target: Target) -> dict[str, Standing]:
        head, door, workers = controller_of(target), login_of(target), workers_of(target)
        if head is None or door is None:
            return {}
        ports = [(head.node_id, roster.SLURMCTLD_PORT), (door.node_id, roster.SSH_PORT)]
        ports += [(worker.node_id, roster.SLURMD_PORT) for worker in workers]
        knocks = await self._hands.knock(ports)
        standing = {member.node_id: Standing.UNKNOWN for member in target.members}
        standing[door.node_id] = roster.of_daemon(knocks[1])
        standing[head.node_id] = roster.of_daemon(knocks[0])
        self._probes.mind(target, knocks)
        by_name = {worker.name: knock for worker, knock in zip(workers, knocks[2:], strict=True)}
        words = await self._words(target, knocks[0])
        for worker in workers:
            if words is not None:
                standing[worker.node_id] = roster.standing(words.get(worker.name), by_name[worker.name])
        if words is not None:
            # Slurm learns at once what it would find out in half a minute; jobs there are requeued
            fallen = roster.fallen(words, by_name)
            await mark_down(self._hands, head, fallen, "it does not answer")
            if fallen:
                self._hasten(target.cluster_id, head)
        return standing

    def _hasten(self, cluster_id: str, head: Member) -> None:
        known = self._errands.get(cluster_id)
        if known is None or known.done():
            self._errands[cluster_id] = asyncio.create_task(self._errand(head))

    async def _errand(self, head: Member) -> None:
        with contextlib.suppress(DriverError):  # the cluster may well end meanwhile
            await hasten_requeued(self._hands, self._clock, head)

    async def _words(self, target: Target, knock: Knock) -> dict[str, str] | None:
        """slurmctld's own list; None when it cannot be asked, and an empty one before there is any."""
        head = controller_of(target)
        assert head is not None
        if knock is not Knock.OPEN:
            return {} if knock is Knock.REFUSED and target.cluster_id not in self._campaigns else None
        try:
            ran = await states(self._hands, head)
        except DriverError:
            return None
        return roster.parse(ran.out) if ran.code == 0 else None

    async def queue(self, target: Target) -> Queue | None:
        head = controller_of(target)
        if head is None:
            return None
        try:
            jobs = await self._hands.run(head.node_id, queues.JOBS, seconds=10)
            nodes = await self._hands.run(head.node_id, queues.NODES, seconds=10)
        except DriverError:
            return None
        return None if jobs.code or nodes.code else queues.parse(jobs.out, nodes.out, workers_of(target))

    async def test(self, target: Target, run: str, fence: Fence) -> Tested:
        await self._hands.hold(fence)
        if not target.spec.acceptance.enabled:
            return Tested(True, "acceptance tests are switched off")
        results = await self._exams.follow(
            target.cluster_id, f"{run}/{target.spec.acceptance}", lambda: examine(self._hands, target, run), keep=True
        )
        if results is None:
            return Tested(False, "acceptance tests are running", (), self._look_again_at())
        failed = sum(not result.passed for result in results)
        return Tested(True, f"{len(results) - failed} of {len(results)} tests passed", tuple(results))

    async def drain(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        await self._hands.hold(fence)
        await self._update(target, node_ids, "state=drain", f"reason={because}")

    async def warn(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        """Drained first: a job that started in between would never hear of it."""
        await self.drain(target, node_ids, because, fence)
        head, names = controller_of(target), _names(target, node_ids)
        if head is not None and names:
            await tell(self._hands, head, names)

    async def evict(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        await self._hands.hold(fence)
        head, names = controller_of(target), _names(target, node_ids)
        if head is None or not names:
            return
        await cut_short(self._hands, head, names)
        await mark_down(self._hands, head, names, "its notice is over")
        self._hasten(target.cluster_id, head)

    async def admit(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        await self._hands.hold(fence)
        standing = await self.observe(target)
        drained = [id for id in node_ids if standing.get(id) in (Standing.DRAINED, Standing.DRAINING)]
        await self._update(target, drained, "state=resume")

    async def _update(self, target: Target, node_ids: Sequence[str], *fields: str) -> None:
        head = controller_of(target)
        names = _names(target, node_ids)
        if head is None or not names:
            return
        ran = await self._hands.run(head.node_id, ["scontrol", "update", f"nodename={','.join(names)}", *fields])
        if ran.code:
            raise TryLater(f"slurmctld: {ran.err.strip()[-300:]}")

    async def expel(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        """`target` is the cluster without them, so whoever Slurm knows beyond it is who leaves."""
        await self._hands.hold(fence)
        head = controller_of(target)
        if head is None or (await self._hands.knock([(head.node_id, roster.SLURMCTLD_PORT)]))[0] is Knock.GONE:
            return  # no controller, no membership
        words = roster.parse((await states(self._hands, head)).out)
        leaving = sorted(set(words) - {worker.name for worker in workers_of(target)})
        busy = [name for name in leaving if roster.standing(words[name], Knock.OPEN) in _AT_WORK]
        if busy and not target.spec.force:
            raise TryLater(f"{', '.join(busy)} must be drained first, or the wish be forced")
        if await put_back(self._hands, head, leaving):
            self._hasten(target.cluster_id, head)
        await forget(self._hands, head, leaving)

    async def access(self, target: Target) -> AccessFacts:
        door = login_of(target)
        if door is None:
            return AccessFacts()
        outside = await self._hands.door(target.cluster_id, door.node_id, roster.SSH_PORT, target.address)
        return AccessFacts(ssh_user=USER, ssh_host=outside.host, ssh_port=outside.port, login_name=door.name)

    async def kubeconfig(self, target: Target) -> str:
        return ""

    async def close(self) -> None:
        for errand in self._errands.values():
            errand.cancel()
        await asyncio.gather(*self._errands.values(), return_exceptions=True)
        for part in (self._probes, self._campaigns, self._exams):
            with contextlib.suppress(asyncio.CancelledError):
                await part.close()


def _names(target: Target, node_ids: Sequence[str]) -> list[str]:
    return [member.name for member in target.members if member.node_id in node_ids]


_AT_WORK: Final = (Standing.IDLE, Standing.BUSY, Standing.DRAINING)

"""The simulated orchestrator: contracts/orchestrator.py over a page of notes in the simulated world.

Leans on the world for bodies, time, dice and memory. Keeps every law of the contract: rendering is pure, each verb is
one whole turn and may be repeated, an older plan or token is refused, and what does not answer is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from muster.contracts.clock import Clock
from muster.contracts.orchestrator import Feature, Progress, Queue, Rendered, Standing, Target, Tested
from muster.contracts.substrate import Fence
from muster.contracts.world import Body, World
from muster.errors import TryLater
from muster.model.clusters import AccessFacts, ClusterType
from muster.orchestrators.simulated import pages
from muster.orchestrators.simulated.kubeconfig import kubeconfig
from muster.orchestrators.simulated.pages import TEST, Page, RunNote
from muster.orchestrators.simulated.render import controller, login, render

SSH_USER: Final = "ubuntu"  # as on the local fleet
SSH_PORT: Final = 22
KUBE_PORT: Final = 6443

_SLURM_ONLY: Final = frozenset(
    {
        *(Feature.SLURM_SCRIPTS, Feature.SLURM_ACCOUNTING, Feature.SLURM_IMAGE),
        *(Feature.ADD_ON_SLURM_WEB, Feature.PREEMPTIBLE),
    }
)
_FEATURES: Final = {
    ClusterType.SLURM: frozenset(Feature),  # simulated as Slurm on Kubernetes, so it has both sides
    ClusterType.KUBERNETES: frozenset(Feature) - _SLURM_ONLY,
}
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class SimulatedOrchestrator:
    name = "simulated"
    simulated = True

    def __init__(self, world: World, clock: Clock) -> None:
        self._world = world
        self._clock = clock

    def features(self, type: ClusterType) -> frozenset[Feature] | None:
        return _FEATURES.get(type)

    async def images(self, type: ClusterType) -> frozenset[str] | None:
        return None  # nothing is booted from them

    def render(self, target: Target) -> Rendered:
        return render(target)

    async def converge(self, target: Target, fence: Fence) -> Progress:
        digest = render(target).digest
        with self._world.turn(fence):
            old, bodies, now = self._page(target), self._bodies(target), self._world.now()
            pages.require_current(old, target)
            page = pages.converged(old, target, digest, bodies, now, self._world.draw)
            self._keep(target, old, page)
        return self._by_house_time(pages.progress(page, target, bodies, now))

    async def observe(self, target: Target) -> dict[str, Standing]:
        standings = self._standings(target)
        busy = pages.at_work(target, standings, self._world.load(target.cluster_id).gpus)
        return standings | dict.fromkeys(busy, Standing.BUSY)

    def _standings(self, target: Target) -> dict[str, Standing]:
        """As if nobody had any work."""
        page, bodies, now = self._page(target), self._bodies(target), self._world.now()
        ids = [member.node_id for member in target.members]
        return {id: pages.standing(page.members.get(id), bodies.get(id), now) for id in ids}

    async def queue(self, target: Target) -> Queue | None:
        """Load is work of one GPU each: it fills the workers in their order, and what is left over waits."""
        load, standings, page = self._world.load(target.cluster_id), self._standings(target), self._page(target)
        busy = pages.at_work(target, standings, load.gpus)
        free = [id for id in pages.at_work(target, standings) if id not in busy]
        since = {id: self._world.house_time(max(page.members[id].ready_at, load.eased_at)) for id in free}
        return Queue(pages.pending(target, busy, load.gpus), since)

    async def test(self, target: Target, run: str, fence: Fence) -> Tested:
        if not target.spec.acceptance.enabled:
            return Tested(True, "acceptance tests are switched off")
        with self._world.turn(fence):
            page, now = self._page(target), self._world.now()
            if not page.digest:
                raise TryLater("there is no cluster yet to test")
            note = next((known for known in page.runs if known.run == run), None) or self._begun(target, run)
            if now >= note.done_at and not note.results:
                note = msgspec.structs.replace(note, results=pages.results_of(target, self._bodies(target)))
            self._keep(target, page, pages.with_run(page, note))
        if now < note.done_at:
            return Tested(False, "acceptance tests are running", (), self._world.house_time(note.done_at))
        failed = sum(not result.passed for result in note.results)
        return Tested(True, f"{len(note.results) - failed} of {len(note.results)} tests passed", note.results)

    def _begun(self, target: Target, run: str) -> RunNote:
        """A longer burn takes longer, in proportion to everything else."""
        burn = target.spec.acceptance.gpu_burn_seconds
        span = TEST._replace(least=TEST.least + burn, most=TEST.most + burn)
        return RunNote(run=run, done_at=self._world.now() + self._world.draw(span, "test", target.cluster_id, run))

    async def drain(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        with self._world.turn(fence):
            page = self._page(target)
            self._keep(target, page, pages.drained(page, node_ids, self._world.now(), self._world.draw))

    async def warn(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        with self._world.turn(fence):
            page = self._page(target)
            self._keep(target, page, pages.warned(page, node_ids, self._world.now(), self._world.draw))

    async def evict(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        with self._world.turn(fence):
            page = self._page(target)
            self._keep(target, page, pages.evicted(page, node_ids, self._world.now()))

    async def admit(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        with self._world.turn(fence):
            page = self._page(target)
            self._keep(target, page, pages.admitted(page, node_ids))

    async def expel(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        """Who is still in service is drained first, whatever the caller forgot, unless forced."""
        with self._world.turn(fence):
            page, bodies, now = self._page(target), self._world.bodies(node_ids), self._world.now()
            pages.require_current(page, target)
            serving = [] if target.spec.force else pages.in_service(page, node_ids, bodies, now)
            after = pages.drained(page, serving, now, self._world.draw) if serving else pages.expelled(page, node_ids)
            self._keep(target, page, after)
        if serving:
            raise TryLater(f"{len(serving)} of {len(node_ids)} nodes must drain before they leave")

    async def access(self, target: Target) -> AccessFacts:
        door = login(target)
        if door is None:
            return AccessFacts(simulated=True)
        return AccessFacts(
            ssh_user=SSH_USER,
            ssh_host=target.address or door.address,
            ssh_port=SSH_PORT,
            login_name=door.name,
            kube_api=_kube_api(target),
            simulated=True,
        )

    async def kubeconfig(self, target: Target) -> str:
        return kubeconfig(target, _kube_api(target), self._world.secret("kubeconfig", target.cluster_id))

    async def close(self) -> None:
        """The world is closed by whoever opened it."""

    def _page(self, target: Target) -> Page:
        kept = self._world.recall(target.cluster_id)
        return Page() if kept is None else msgspec.json.decode(kept, type=Page)

    def _keep(self, target: Target, old: Page, new: Page) -> None:
        if new != old:
            self._world.remember(target.cluster_id, _encoder.encode(new))

    def _bodies(self, target: Target) -> dict[str, Body]:
        return self._world.bodies([member.node_id for member in target.members])

    def _by_house_time(self, progress: Progress) -> Progress:
        at = progress.look_again_at
        return progress if at is None else progress._replace(look_again_at=self._world.house_time(at))


def _kube_api(target: Target) -> str:
    head = controller(target)
    return f"https://{head.address}:{KUBE_PORT}" if head is not None else ""

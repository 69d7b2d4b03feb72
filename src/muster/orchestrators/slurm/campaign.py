"""Making nodes into a Slurm cluster: the work behind `converge`, repeatable from any point.

Leans on hands, render, roster. Laws: what runs is left alone, what does not is started; a node that came back under
its old name is down in Slurm's own terms before its new slurmd registers, so that "idle" afterwards means the
new one; a dead member fails alone and holds up nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from muster.contracts.hands import Hands, Knock, Ran
from muster.contracts.orchestrator import Member, Progress, Target
from muster.errors import FencedOff, TryLater, UnknownOutcome
from muster.orchestrators.slurm import roster
from muster.orchestrators.slurm.render import controller_of, node_spec, roles_of, workers_of
from muster.orchestrators.slurm.scripts import REFUSED

START_SECONDS: Final = 40
JOIN_SECONDS: Final = 20


class Campaign:
    """One attempt at one target."""

    def __init__(self, hands: Hands, target: Target) -> None:
        self._hands = hands
        self._target = target
        self._failed: dict[str, str] = {}
        self._told: list[str] = []

    async def run(self) -> Progress:
        head = controller_of(self._target)
        if head is None:
            raise TryLater("no node is up yet")
        await self._prepare(head)
        states = await self._started(head)
        await forget(self._hands, head, sorted(set(states) - {member.name for member in workers_of(self._target)}))
        return self._progress(states)

    async def _started(self, head: Member) -> dict[str, str]:
        """All at once, the controller a step ahead: everybody waits for it."""
        others = asyncio.gather(*(self._start(member, head) for member in self._target.members if member != head))
        try:
            await self._start(head, head)
            if head.node_id in self._failed:
                raise TryLater(f"the controller: {self._failed[head.node_id]}")
            return await self._join(head, others)
        finally:
            others.cancel()

    async def _join(self, head: Member, others: asyncio.Future[list[None]]) -> dict[str, str]:
        """slurmctld is asked while the others still start: who failed to is not waited for."""
        joining = asyncio.ensure_future(self._joined(head, START_SECONDS + JOIN_SECONDS))
        joining.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await others
            if self._failed:
                return await self._joined(head, JOIN_SECONDS)
            return await asyncio.wait_for(joining, JOIN_SECONDS)
        except TimeoutError:
            return await self._joined(head, 0)
        finally:
            joining.cancel()

    async def _prepare(self, head: Member) -> None:
        """In a cluster that already runs: nodes about to be started anew are down before they come back."""
        workers = workers_of(self._target)
        ports = [(head.node_id, roster.SLURMCTLD_PORT), *((w.node_id, roster.SLURMD_PORT) for w in workers)]
        first, *rest = await self._hands.knock(ports)
        if first is not Knock.OPEN:
            return
        knocks = dict(zip((worker.name for worker in workers), rest, strict=True))
        if all(knock is Knock.OPEN for knock in knocks.values()):
            return
        words = roster.parse((await states(self._hands, head)).out)
        await mark_down(self._hands, head, roster.fallen(words, knocks), "booted anew")

    async def _start(self, member: Member, head: Member) -> None:
        argv = ["/bin/bash", "/etc/cluster/bin/start", str(self._target.generation), member.name, head.name]
        argv += [node_spec(member), *roles_of(self._target, member)]
        try:
            ran = await self._hands.run(member.node_id, argv, seconds=START_SECONDS)
        except (TryLater, UnknownOutcome) as error:
            self._failed[member.node_id] = f"{member.name}: {error.because}"
            return
        if ran.code == REFUSED:
            raise FencedOff(f"{member.name} already has a newer plan")
        if ran.code:
            self._failed[member.node_id] = f"{member.name}: {_last_words(ran)}"
        elif ran.out.strip():
            self._told.append(ran.out.strip())

    async def _joined(self, head: Member, seconds: int) -> dict[str, str]:
        """What slurmctld says of its nodes once all are there, or after so many seconds."""
        names = [worker.name for worker in workers_of(self._target) if worker.node_id not in self._failed]
        argv = ["/bin/bash", "/etc/cluster/bin/joined", str(seconds), *names]
        ran = await self._hands.run(head.node_id, argv, seconds=seconds + 10)
        return roster.parse(ran.out)

    def _progress(self, states: dict[str, str]) -> Progress:
        for worker in workers_of(self._target):
            word = states.get(worker.name, "absent")
            if worker.node_id not in self._failed and word.rstrip("*") in ("absent", "down", "unknown", "inval"):
                self._failed[worker.node_id] = f"{worker.name} did not join: slurmctld says it is {word}"
        joined = len(self._target.members) - len(self._failed)
        because = "; ".join([f"{joined} of {len(self._target.members)} nodes joined", *self._told])
        return Progress(True, because, self._failed)


def _last_words(ran: Ran) -> str:
    lines = (ran.err.strip() or ran.out.strip() or f"exit code {ran.code}").splitlines()
    return " ".join(lines[-3:])[-400:]


async def states(hands: Hands, head: Member) -> Ran:
    return await hands.run(head.node_id, ["sinfo", "-h", "-N", "-o", "%N %T"], seconds=10)


async def mark_down(hands: Hands, head: Member, names: Sequence[str], because: str) -> None:
    """Slurm requeues what ran there."""
    if names:
        update = ["scontrol", "update", f"nodename={','.join(names)}", "state=down", f"reason={because}"]
        await hands.run(head.node_id, update, seconds=10)


async def forget(hands: Hands, head: Member, names: Sequence[str]) -> None:
    """Out of Slurm's membership. A node that still has a job is refused by slurmctld until the job is gone."""
    if not names:
        return
    await mark_down(hands, head, names, "left the cluster")
    ran = await hands.run(head.node_id, ["scontrol", "delete", f"nodename={','.join(names)}"], seconds=10)
    if ran.code and "Invalid node" not in ran.err:
        raise TryLater(f"slurmctld would not let go of {', '.join(names)}: {_last_words(ran)}")

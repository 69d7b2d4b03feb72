"""Taking a node back from its jobs: tell them, cut them short at the end, and lose none of them.

Leans on hands. *Laws.* At the notice every process of a job there gets SIGTERM, which it can catch; a job that
knows nothing of it dies, and is queued again rather than called a failure. At the end of the notice what still runs
is queued again by Slurm itself. Jobs that cannot be queued again (an interactive srun) end. All of it may be cut
and repeated: a job remembers in slurmctld that it was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from muster.contracts.hands import Hands
from muster.contracts.orchestrator import Member
from muster.errors import TryLater

TOLD: Final = "node-taken-back"
"""What the administrator's comment of a job says once it was told."""
_DIED_OF_IT: Final = ("0:15", "143:0", "15:0")
"""Exit codes of a script, and of what it ran, that SIGTERM ended."""


async def tell(hands: Hands, head: Member, names: Sequence[str]) -> None:
    for job in await _running(hands, head, names):
        await hands.run(head.node_id, ["scontrol", "update", f"jobid={job}", f"admincomment={TOLD}"])
        await hands.run(head.node_id, ["scancel", "--signal=TERM", "--full", job])


async def cut_short(hands: Hands, head: Member, names: Sequence[str]) -> None:
    for job in await _running(hands, head, names):
        ran = await hands.run(head.node_id, ["scontrol", "requeue", job])
        if ran.code:
            await hands.run(head.node_id, ["scancel", job])


async def put_back(hands: Hands, head: Member, names: Sequence[str]) -> list[str]:
    """Queue again what the signal killed on these nodes; which jobs that were."""
    if not names:
        return []
    shown = await hands.run(head.node_id, ["scontrol", "show", "job", "-o"])
    killed = died_of_notice(shown.out, names)
    for job in killed:
        await hands.run(head.node_id, ["scontrol", "requeue", job])
    return killed


def died_of_notice(shown: str, names: Sequence[str]) -> list[str]:
    """Ids of jobs that were told, ran on one of these nodes and ended by the signal. Pure."""
    found = []
    for line in shown.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if (
            fields.get("AdminComment") == TOLD
            and fields.get("JobState") in ("FAILED", "CANCELLED")
            and fields.get("ExitCode") in _DIED_OF_IT
            and fields.get("BatchHost") in names
        ):
            found.append(fields["JobId"])
    return found


async def _running(hands: Hands, head: Member, names: Sequence[str]) -> list[str]:
    ran = await hands.run(head.node_id, ["squeue", "-h", "-t", "R,S", "-w", ",".join(names), "-o", "%A"])
    if ran.code:
        raise TryLater(f"squeue: {ran.err.strip()[-300:]}")
    return list(dict.fromkeys(ran.out.split()))

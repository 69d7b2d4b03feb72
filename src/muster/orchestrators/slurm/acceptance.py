"""To pass muster: what every node must show before the cluster serves.

Leans on hands. Laws: every result names its node and what was seen; a test that could not be run has failed; a node
is not blamed for another's fault; what cannot be tested without real GPUs is reported, and said to be simulated.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from muster.contracts.hands import Hands, Ran
from muster.contracts.orchestrator import Member, Target
from muster.errors import DriverError, FencedOff
from muster.model.clusters import CheckResult
from muster.orchestrators.slurm.render import USER, login_of, workers_of

REAL: Final = ("munge", "srun", "gpus", "shm", "storage")
SIMULATED: Final = ("dcgm_diag", "gpu_burn", "nccl_single_node", "nccl_multi_node")
_GIB: Final = 1 << 30

# One step on every node says all that can be seen from inside a job.
_LOOK: Final = (
    'echo "$SLURMD_NODENAME|$(hostname)|$CUDA_VISIBLE_DEVICES'
    '|$(stat -f -c %b:%S /dev/shm)|$(cat {probe} 2>/dev/null)"'
)
# A job that meets nodes still completing ours is not started before slurmctld's next round, two seconds later.
_CLEAR: Final = (
    'rm -f {probe}; for _ in $(seq 100); do [ -n "$(squeue -h -n acceptance -t R,CG)" ] || exit 0; sleep 0.02; done'
)


async def examine(hands: Hands, target: Target, run: str) -> list[CheckResult]:
    workers = workers_of(target)
    door = login_of(target)
    if not workers or door is None:
        return []
    wanted = [test for test in REAL if test not in target.spec.acceptance.skip]
    results: list[CheckResult] = []
    if "munge" in wanted:
        results += await asyncio.gather(*(_munge(hands, door, worker) for worker in workers))
    if set(wanted) - {"munge"}:
        results += await _in_a_job(hands, target, door, workers, wanted, run)
    return [*results, *_simulated(target, workers)]


async def _munge(hands: Hands, door: Member, worker: Member) -> CheckResult:
    """A credential made on the login is understood on the worker."""
    try:
        made = await hands.run(door.node_id, ["munge", "-n"])
        read = await hands.run(worker.node_id, ["unmunge"], stdin=made.out)
    except FencedOff:
        raise
    except DriverError as error:
        return CheckResult(test="munge", node_id=worker.node_id, passed=False, detail=error.because)
    status = next((line for line in read.out.splitlines() if line.startswith("STATUS")), read.err.strip())
    return CheckResult(test="munge", node_id=worker.node_id, passed="Success" in status, detail=_tidy(status))


async def _in_a_job(
    hands: Hands, target: Target, door: Member, workers: Sequence[Member], wanted: Sequence[str], run: str
) -> list[CheckResult]:
    """One job over all nodes with all their GPUs; what each says becomes its results."""
    probe = f"/home/{USER}/.acceptance-{re.sub(r'[^A-Za-z0-9.-]', '-', run)}"
    # written on the login, read on every node: the shared home is shared
    await hands.run(door.node_id, ["tee", probe], user=USER, stdin=run)
    looks = await _looks(hands, door, workers, probe)
    await hands.run(door.node_id, ["sh", "-c", _CLEAR.format(probe=probe)], user=USER)
    return [
        CheckResult(test=test, node_id=worker.node_id, passed=passed, detail=detail)
        for worker, ran in zip(workers, looks, strict=True)
        for test, (passed, detail) in _checks(target, worker, _said(ran.out).get(worker.name), run, ran).items()
        if test in wanted
    ]


async def _looks(hands: Hands, door: Member, workers: Sequence[Member], probe: str) -> list[Ran]:
    """What was seen of each worker. One bad node holds up a job over all of them: then each is asked alone, and
    only if nobody is found that way do they all stand for what they cannot do together."""
    together = await _srun(hands, door, workers, probe, seconds=30)
    if len(_said(together.out)) == len(workers) or len(workers) == 1:
        return [together] * len(workers)
    alone = await asyncio.gather(*(_srun(hands, door, [worker], probe, seconds=10) for worker in workers))
    everybody = all(worker.name in _said(ran.out) for worker, ran in zip(workers, alone, strict=True))
    return [together] * len(workers) if everybody else list(alone)


async def _srun(hands: Hands, door: Member, workers: Sequence[Member], probe: str, *, seconds: int) -> Ran:
    """`seconds` is how long it may wait for its nodes."""
    gpus = workers[0].gpus
    names = ",".join(worker.name for worker in workers)
    # ended from inside when it hangs: an answer that never comes would be nobody's fault, and asked for again
    command = ["timeout", "--kill-after=5", "45", "srun", f"--immediate={seconds}", "--job-name=acceptance"]
    command += ["--mem=0", f"--nodes={len(workers)}", f"--nodelist={names}", "--ntasks-per-node=1"]
    if gpus:
        command.append(f"--gpus-per-node={gpus}")
    command += ["sh", "-c", _LOOK.format(probe=probe)]
    return await hands.run(door.node_id, command, user=USER, seconds=60)


def _said(out: str) -> dict[str, list[str]]:
    rows = (line.split("|") for line in out.splitlines())
    return {row[0]: row for row in rows if len(row) == 5}


def _checks(
    target: Target, worker: Member, seen: Sequence[str] | None, run: str, ran: Ran
) -> dict[str, tuple[bool, str]]:
    if seen is None:
        why = _tidy(ran.err.strip()[-300:] or "no answer from the job's step on this node")
        return {test: (False, why) for test in REAL if test != "munge"}
    _, hostname, devices, shm, shared = seen
    wanted_devices = ",".join(str(number) for number in range(worker.gpus))
    blocks, _, size = shm.partition(":")
    shm_gib = int(blocks) * int(size) / _GIB if blocks.isdigit() and size.isdigit() else 0.0
    wanted_gib = target.spec.config.shm_gib
    return {
        "srun": (hostname == worker.name, f"a step ran on {hostname}"),
        "gpus": (devices == wanted_devices, f"CUDA_VISIBLE_DEVICES={devices or '(empty)'}"),
        "shm": (
            not wanted_gib or abs(shm_gib - wanted_gib) < 0.01,
            f"shared memory: {shm_gib:g} GiB of {wanted_gib}",
        ),
        "storage": (shared == run, "written on the login, read here" if shared == run else "the shared home differs"),
    }


def _simulated(target: Target, workers: Sequence[Member]) -> list[CheckResult]:
    tests = [test for test in SIMULATED if test not in target.spec.acceptance.skip]
    if len(workers) < 2 and "nccl_multi_node" in tests:
        tests.remove("nccl_multi_node")
    return [
        CheckResult(test=test, node_id=worker.node_id, passed=True, simulated=True, detail="simulated GPUs")
        for worker in workers
        for test in tests
    ]


def _tidy(text: str) -> str:
    return " ".join(text.split())

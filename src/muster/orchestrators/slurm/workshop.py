"""Jobs under real Slurm: one sbatch each, in a directory and a virtual environment of its own.

Leans on hands, as the tenant's own user on the login node: nothing here has more power than the tenant. The directory
is on the home that all nodes share. Laws: those of contracts/jobs.py; what marks a job as submitted, and how it
ended, are files beside it, so that any process can find out.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec

from muster.contracts.hands import Hands
from muster.contracts.jobs import Errand, Going, Sight, files_of
from muster.contracts.orchestrator import Target
from muster.contracts.substrate import Fence
from muster.errors import Never, TryLater
from muster.model.jobs import Output
from muster.orchestrators.slurm.render import USER, login_of, workers_of

PIECE_BYTES: Final = 512 << 10
COMMAND_SECONDS: Final = 20.0
_ID: Final = re.compile(r"[0-9a-f-]{36}")

_RUN: Final = r"""#!/bin/bash
# run.sh DIRECTORY: the job itself, on its first node.
cd "$1/files" || exit 1
done_with() { echo "$1" >"$job/exit.new" && mv "$job/exit.new" "$job/exit"; exit "$1"; }
job=$1
trap 'done_with 143' TERM
python3 -m venv --system-site-packages "$job/venv" || python3 -m venv --without-pip "$job/venv" || done_with 1
. "$job/venv/bin/activate"
bash -e "$job/commands" &
wait $!
done_with $?
"""

_SUBMIT: Final = r"""
set -e
job=$1 nodes=$2 gpus=$3
mkdir -p "$job/files"; cd "$job"
[ -s slurm-id ] && exit 0
python3 -c 'import json, sys
told = json.load(sys.stdin)
open("commands", "w").write(told["commands"])
open("run.sh", "w").write(told["run"])
import glob, os, shutil
for pattern in told["ignore"]:
    for path in glob.glob("files/" + pattern, recursive=True):
        whole = os.path.isdir(path) and not os.path.islink(path)
        shutil.rmtree(path, ignore_errors=True) if whole else os.remove(path)'
name=muster-$(basename "$job")
known=$(squeue -h -n "$name" -o %i | head -n 1)
[ -n "$known" ] || known=$(sbatch --parsable --job-name="$name" --nodes="$nodes" --ntasks-per-node=1 --exclusive \
  --no-requeue ${gpus:+--gpus-per-node="$gpus"} --chdir="$job" --output="$job/log" --open-mode=append run.sh "$job")
echo "$known" >slurm-id.new && mv slurm-id.new slurm-id
"""

_LOOK: Final = r"""
cd "$1" 2>/dev/null || { echo absent; exit; }
[ -s slurm-id ] || { echo absent; exit; }
[ -s exit ] && { echo "ended $(cat exit)"; exit; }
state=$(squeue -h -j "$(cat slurm-id)" -o %T 2>&1) || case $state in
  *nvalid*) state= ;;
  *) echo "$state" >&2; exit 1 ;;
esac
case $state in
  PENDING | CONFIGURING | REQUEUED | REQUEUE_HOLD) echo queued ;;
  '' | COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL | BOOT_FAIL | DEADLINE | OUT_OF_MEMORY)
    [ -s exit ] && echo "ended $(cat exit)" || echo lost ;;
  *) echo running ;;
esac
"""

_STOP: Final = 'cd "$1" 2>/dev/null && [ -s slurm-id ] && scancel --full "$(cat slurm-id)"; exit 0'
_PIECE: Final = '[ -e "$1" ] || exit 0; tail -c +"$(( $2 + 1 ))" "$1" | head -c "$3" | base64 -w 0'
_OUTPUTS: Final = r"""
import glob, json, os, sys
os.chdir(sys.argv[1] + "/files")
here = os.path.realpath(".") + "/"
found = {os.path.relpath(p) for g in json.load(sys.stdin) for p in glob.glob(g, recursive=True)}
print(json.dumps([{"path": p, "size": os.path.getsize(p)} for p in sorted(found)
                  if os.path.isfile(p) and os.path.realpath(p).startswith(here)][:2000]))
"""


class SlurmWorkshop:
    uploads = True

    def __init__(self, hands: Hands) -> None:
        self._hands = hands

    async def submit(self, target: Target, errand: Errand, fence: Fence) -> None:
        await self._hands.hold(fence)
        workers = workers_of(target)
        gpus = min((worker.gpus for worker in workers), default=0)
        told = {"commands": "\n".join(errand.spec.commands) + "\n", "run": _RUN, "ignore": errand.spec.ignore}
        words = ["bash", "-c", _SUBMIT, "submit", _place(errand), str(len(workers)), str(gpus or "")]
        await self._ran(target, words, json.dumps(told))

    async def look(self, target: Target, errand: Errand) -> Sight:
        said = (await self._ran(target, ["bash", "-c", _LOOK, "look", _place(errand)])).split()
        going = Going(said[0]) if said else Going.ABSENT
        code = int(said[1]) if len(said) > 1 and said[1].isdigit() else None
        return Sight(going, code)

    async def stop(self, target: Target, errand: Errand, fence: Fence) -> None:
        await self._hands.hold(fence)
        await self._ran(target, ["bash", "-c", _STOP, "stop", _place(errand)])

    async def log(self, target: Target, errand: Errand, offset: int) -> bytes:
        return await self._bytes(target, f"{_place(errand)}/log", offset)

    async def outputs(self, target: Target, errand: Errand) -> Sequence[Output]:
        if not errand.spec.outputs:
            return ()
        words = ["python3", "-c", _OUTPUTS, _place(errand)]
        return msgspec.json.decode(await self._ran(target, words, json.dumps(errand.spec.outputs)), type=list[Output])

    async def piece(self, target: Target, errand: Errand, path: str, offset: int) -> bytes:
        return await self._bytes(target, f"{_place(errand)}/files/{path}", offset)

    async def _bytes(self, target: Target, path: str, offset: int) -> bytes:
        words = ["bash", "-c", _PIECE, "piece", path, str(offset), str(PIECE_BYTES)]
        return base64.b64decode(await self._ran(target, words))

    async def _ran(self, target: Target, words: Sequence[str], stdin: str = "") -> str:
        door = login_of(target)
        if door is None:
            raise TryLater("the cluster has no login node yet")
        ran = await self._hands.run(
            door.node_id, words, user=USER, stdin=stdin, env={"HOME": f"/home/{USER}"}, seconds=COMMAND_SECONDS
        )
        if ran.code:
            raise TryLater(f"on {door.name}: {ran.err.strip()[-300:] or f'exit code {ran.code}'}")
        return ran.out


def _place(errand: Errand) -> str:
    """Its directory: files/ (what was uploaded), venv/, log, exit."""
    if not _ID.fullmatch(errand.id):
        raise Never(f"{errand.id!r} is no job's id")
    return str(PurePosixPath(f"/home/{USER}", files_of(errand.id)).parent)

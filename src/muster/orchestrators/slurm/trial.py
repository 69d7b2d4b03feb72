"""A tenant's own lines of slurm.conf meet a controller of their own before they meet the cluster's.

Leans on hands. Laws: what Slurm's parser or a starting slurmctld refuses is refused here, with its own words, and
nothing of the cluster has changed; the trial keeps its state, port and log to itself, speaks to no database and to no
node, and leaves nothing behind.
"""

from __future__ import annotations

import re
from typing import Final

from muster.contracts.hands import Hands
from muster.contracts.orchestrator import Member
from muster.errors import Never, TryLater

_PORT: Final = 6899
_OWN: Final = re.compile(r"(?i)(SlurmctldPort|StateSaveLocation|SlurmctldPidFile|SlurmctldLogFile|Accounting\w*)=")
_NOISE: Final = re.compile("MailProg|specified more than once|gathered, but not stored")
_REFUSED: Final = 1
_SECONDS: Final = 10

# In a directory of its own, gone afterwards. It listens only once it has read and believed everything.
_TRY: Final = r"""
d=$(mktemp -d) || exit 3
trap '{ kill -9 $pid; wait; } 2>/dev/null; rm -rf "$d"' EXIT
{ cat; echo "StateSaveLocation=$d"; echo "SlurmctldPidFile=$d/pid"; } >"$d/slurm.conf"
chmod 755 "$d" && chown slurm "$d" || exit 3
slurmctld -D -c -f "$d/slurm.conf" >"$d/log" 2>&1 &
pid=$!
exec 9<> <(:)
for ((i = 0; i < SECONDS_MAX * 20; i++)); do
  { exec 7<>/dev/tcp/127.0.0.1/PORT; } 2>/dev/null && exit 0
  kill -0 $pid 2>/dev/null || { grep -E 'fatal|error' "$d/log" >&2; exit 1; }
  read -rt 0.05 -u 9
done
exit 2
"""


def trial_conf(conf: str) -> str:
    """The same configuration for a controller that nobody knows."""
    kept = [line for line in conf.splitlines() if not _OWN.match(line)]
    return "\n".join([*kept, f"SlurmctldPort={_PORT}"]) + "\n"


async def try_conf(hands: Hands, head: Member, conf: str) -> None:
    """Returns when a controller starts with it; `Never` with Slurm's own words when none would."""
    script = _TRY.replace("SECONDS_MAX", str(_SECONDS)).replace("PORT", str(_PORT))
    ran = await hands.run(head.node_id, ["bash", "-c", script], stdin=trial_conf(conf), seconds=_SECONDS + 10)
    if ran.code == _REFUSED:
        raise Never(f"extra slurm.conf refused: {_words(ran.err)}")
    if ran.code:
        raise TryLater(f"extra slurm.conf: no controller came up with it within {_SECONDS} s")


def _words(err: str) -> str:
    """The first thing it complained of, and what it died of."""
    said = (line.strip().removeprefix("slurmctld: ") for line in err.splitlines() if not _NOISE.search(line))
    lines = [re.sub(r"^(fatal|error): ", "", line) for line in said if line]
    return "; ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))[:300] or "slurmctld ended"

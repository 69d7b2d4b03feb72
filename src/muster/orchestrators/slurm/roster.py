"""Slurm's own words for its nodes, and what we make of them together with what the ports answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from muster.contracts.hands import Knock
from muster.contracts.orchestrator import Standing

SLURMCTLD_PORT: Final = 6817
SLURMD_PORT: Final = 6818
SSH_PORT: Final = 22
ROOM_TO_GROW: Final = "growth-"
"""Names of nodes that are not there yet and that Slurm has been told of: see render."""

_WORDS: Final = {
    "idle": Standing.IDLE,
    "planned": Standing.IDLE,
    "reserved": Standing.IDLE,
    "allocated": Standing.BUSY,
    "mixed": Standing.BUSY,
    "completing": Standing.BUSY,
    "draining": Standing.DRAINING,
    "drained": Standing.DRAINED,
    "down": Standing.DOWN,
    "fail": Standing.DOWN,
    "failing": Standing.DOWN,
    "error": Standing.DOWN,
    "inval": Standing.DOWN,
    "unknown": Standing.UNKNOWN,
}
_FLAGS: Final = "*~#!%$@^-+&"


def parse(text: str) -> dict[str, str]:
    """`sinfo -h -N -o '%N %T'`: node name -> state word, with its flags; of nodes that are there."""
    rows = (line.split() for line in text.splitlines())
    named = {row[0]: row[1] for row in rows if len(row) == 2 and not row[0].endswith(":")}
    return {name: word for name, word in named.items() if not name.startswith(ROOM_TO_GROW)}


def standing(word: str | None, knock: Knock) -> Standing:
    """A worker's standing. slurmctld's word is stale for tens of seconds, so the port has the first say."""
    if word is None:
        return Standing.UNKNOWN if knock is Knock.SILENT else Standing.ABSENT
    if knock in (Knock.GONE, Knock.REFUSED):
        return Standing.DOWN
    if knock is Knock.SILENT:
        return Standing.UNKNOWN
    plain = word.rstrip(_FLAGS)
    if "*" in word and plain not in ("down", "drained"):
        return Standing.UNKNOWN  # slurmctld has lost touch with it
    return _WORDS.get(plain, Standing.UNKNOWN)


def of_daemon(knock: Knock) -> Standing:
    """A controller or login: its one daemon answers or it does not."""
    if knock is Knock.OPEN:
        return Standing.IDLE
    return Standing.UNKNOWN if knock is Knock.SILENT else Standing.DOWN


def fallen(words: Mapping[str, str], knocks: Mapping[str, Knock]) -> list[str]:
    """Nodes that Slurm still believes in although nothing of them answers for certain."""
    believed = ("idle", "allocated", "mixed", "completing", "draining", "planned", "reserved")
    return sorted(
        name
        for name, knock in knocks.items()
        if knock in (Knock.GONE, Knock.REFUSED) and words.get(name, "down").rstrip(_FLAGS) in believed
    )

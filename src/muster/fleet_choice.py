"""Which fleet a home has: what was asked for, what it had before, or the best this machine can carry.

Leans on homestead, and on hostd's launcher when real nodes are wanted. *Laws.* A home keeps its fleet unless somebody
names another: a cluster that was simulated never becomes real behind its owner's back. Whoever hears strangers is not
root, when the fleet is this machine. What was asked for outright and cannot be had is an error; what was only hoped
for is told in one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from muster.homestead import keep, kept, make_home
from muster.settings import BadSetting, Settings

FLEET_FILE: Final = "fleet"
Say = Callable[[str], None]


def settle_fleet(settings: Settings, say: Say) -> Settings:
    """The same settings with a fleet that is named; hostd is up and this process is not root where it is local."""
    make_home(settings.home)
    fleet = remembered(settings.home) if settings.fleet == "auto" else settings.fleet
    if fleet is None:
        fleet = _best(settings, say)
    elif fleet == "local":
        _insist(settings, say)
    if remembered(settings.home) != fleet:
        keep(settings.home / FLEET_FILE, fleet)
    if fleet == "local":
        _step_down(settings.home)
    return replace(settings, fleet=fleet)


def remembered(home: Path) -> str | None:
    return kept(home / FLEET_FILE)


def _best(settings: Settings, say: Say) -> str:
    because = _bring_up(settings, say)
    if not because:
        return "local"
    say(f"simulated fleet: {because}")
    return "simulated"


def _insist(settings: Settings, say: Say) -> None:
    because = _bring_up(settings, say)
    if because:
        raise BadSetting(f"no local fleet: {because}; --fleet simulated needs none of it")


def _bring_up(settings: Settings, say: Say) -> str:
    from muster.hostd.launch import bring_up  # only whoever may need real nodes loads what makes them

    return bring_up(settings.home, settings.cache, say)


def _step_down(home: Path) -> None:
    """The one root process was started first; then this one stops being root, before it hears a stranger."""
    from muster.hostd.launch import step_down

    if os.geteuid() == 0:
        step_down(home)

"""Hundreds of histories: tenants, an operator, faults, crashes and zombies against the whole house, one per seed.

A failure prints its seed, the broken invariant, the end of its trace, and the command that plays it again.
MUSTER_THOROUGH plays tens of thousands; MUSTER_SEEDS says how many, MUSTER_FIRST_SEED where to begin.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from muster.testing.simulation.history import play

SEEDS_DEFAULT = 200
SEEDS_THOROUGH = 20_000
SEEDS_PER_ITEM = 10
"""Enough to share the start-up, few enough for two workers to divide the work evenly."""

SEEDS = int(
    os.environ.get("MUSTER_SEEDS") or (SEEDS_THOROUGH if os.environ.get("MUSTER_THOROUGH") else SEEDS_DEFAULT)
)
FIRST = int(os.environ.get("MUSTER_FIRST_SEED") or 1)


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, SEEDS_PER_ITEM))
def test_nothing_breaks(first: int) -> None:
    for seed in range(first, min(first + SEEDS_PER_ITEM, FIRST + SEEDS)):
        report = play(seed)
        assert report.broken is None, report.story()
        assert report.clusters >= 5, f"seed {seed} is no story: {report.clusters} clusters"


def told_by(seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-m", "muster.testing.simulation", "--seed", str(seed), "--trace"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.parametrize("seed", [3, 8])
def test_one_seed_is_one_history(seed: int) -> None:
    """Byte for byte, trace and log of events, in two processes whose sets and dicts are ordered differently."""
    first = told_by(seed, "1")
    assert len(first.splitlines()) > 50
    assert first == told_by(seed, "2")


def test_seeds_differ() -> None:
    assert play(1).digest != play(2).digest

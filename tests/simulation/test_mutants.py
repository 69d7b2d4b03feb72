"""Each deliberate bug is caught by the invariant that is there for it, and by no other."""

from __future__ import annotations

import pytest

from muster.testing.simulation.history import play
from muster.testing.simulation.invariants import ALWAYS, EVENTUALLY
from muster.testing.simulation.mutants import MUTANTS, Mutant
from muster.testing.simulation.outside import Invariant
from muster.testing.simulation.story import tell

PROVEN_ELSEWHERE = {"charges_are_proven", "credit_holds"}
"""Money has its own histories and its own mutants: test_billing."""


def but(checks: dict[str, Invariant], without: frozenset[str]) -> dict[str, Invariant]:
    return {name: check for name, check in checks.items() if name not in without}


def hunt(mutant: Mutant, seed: int, *, without: str = "") -> tuple[str, str] | None:
    """What breaks under this mutant, and how."""
    silent = mutant.not_asked | {without}
    always, eventually = but(ALWAYS, silent), but(EVENTUALLY, silent)
    with mutant.patch():
        if mutant.plot is None:
            return tell(dress=mutant.dress, invariants={**always, **eventually}).broken
        report = play(seed, mutant.plot, always=always, eventually=eventually, dress=mutant.dress)
        return report.broken


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.caught_by)
def test_caught_by_its_own_invariant_and_by_no_other(mutant: Mutant) -> None:
    caught = next(((seed, broken) for seed in mutant.seeds if (broken := hunt(mutant, seed))), None)
    assert caught is not None, f"nobody noticed that {mutant.name}"
    seed, broken = caught
    assert broken[0] == mutant.caught_by, f"seed {seed}: {broken}"
    assert hunt(mutant, seed, without=mutant.caught_by) is None


def test_every_invariant_has_its_mutant() -> None:
    assert {mutant.caught_by for mutant in MUTANTS} | PROVEN_ELSEWHERE == {*ALWAYS, *EVENTUALLY}


def test_patches_are_taken_off_again() -> None:
    for mutant in MUTANTS:
        with mutant.patch():
            pass
    assert tell().broken is None

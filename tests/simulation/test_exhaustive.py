"""Every durable step, crashed before and after, and run twice.

The story of muster.testing.simulation.story passes every step; here the process dies once at each door in turn. A
step that the story does not reach fails: add an act to `ACTS`.
"""

from __future__ import annotations

import pytest

from muster.contracts.steps import Step
from muster.testing.simulation.story import tell
from muster.testing.simulation.twice import Twice

NOT_BUILT: frozenset[Step] = frozenset()
"""Declared ahead of the room that will take them. A step the story reaches may not stand here."""

ELSEWHERE = frozenset({Step.JOB_WISH, Step.JOB_RECORD, Step.OBJECTS_WRITE})
"""Died at by tests/unit/test_jobs.py and test_objects.py: the story has no workshop and no S3 server."""

STEPS = [step for step in Step if step not in NOT_BUILT | ELSEWHERE]


def test_the_story_passes_every_step() -> None:
    told = tell()
    assert told.broken is None, told.broken
    assert told.deaths == 0
    assert sorted(set(STEPS) - told.reached) == [], "add an act to ACTS that reaches these"
    assert sorted(NOT_BUILT & told.reached) == [], "these are built: take them off the list"


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_dying_there_changes_nothing(step: Step, side: str) -> None:
    told = tell(step, side)
    assert told.deaths == 1, f"the story does not reach {step}"
    assert told.broken is None, f"died {side} {step}: {told.broken}"


def test_everything_may_be_done_twice() -> None:
    twice = Twice()
    told = tell(dress=twice.dress)
    assert told.broken is None, told.broken
    assert sorted(set(STEPS) - twice.repeated) == []

"""Which jobs are queued again when their node was taken back: those the signal killed there, and no others."""

from __future__ import annotations

import pytest

from muster.orchestrators.slurm.notice import TOLD, died_of_notice

JOB = "JobId=7 JobState=FAILED ExitCode=0:15 BatchHost=worker-1 AdminComment=" + TOLD


@pytest.mark.parametrize("code", ["0:15", "143:0"])
def test_who_died_of_the_signal_is_queued_again(code: str) -> None:
    assert died_of_notice(JOB.replace("0:15", code), ["worker-1"]) == ["7"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ExitCode=0:15", "ExitCode=1:0"),  # it failed by itself
        ("JobState=FAILED", "JobState=COMPLETED"),  # it saved itself and was done
        ("JobState=FAILED", "JobState=PENDING"),  # it is queued already
        (f"AdminComment={TOLD}", "AdminComment=(null)"),  # nobody told it
        ("BatchHost=worker-1", "BatchHost=worker-2"),  # it ran elsewhere
    ],
)
def test_who_ended_otherwise_is_left_alone(before: str, after: str) -> None:
    assert died_of_notice(JOB.replace(before, after), ["worker-1"]) == []

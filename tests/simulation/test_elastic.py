"""Histories of clusters that follow their queue and draw from pools, with crashes, zombies and dying hosts."""

from __future__ import annotations

import pytest

from muster.testing.simulation.history import Plot, play

ELASTIC = Plot(hosts=8, users=1, elastic=2)


@pytest.mark.parametrize("seed", range(1, 5))
def test_nothing_breaks(seed: int) -> None:
    report = play(seed, ELASTIC)
    assert report.broken is None, report.story()

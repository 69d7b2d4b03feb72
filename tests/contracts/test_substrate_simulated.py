"""The simulated substrate under the laws of contracts/substrate.py, on a virtual clock."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from muster.testing.laws import RigFactory
from muster.testing.simulated import SimulatedRig, simulated_rig
from muster.testing.substrate_suite import SubstrateSuite


class TestSimulatedSubstrate(SubstrateSuite):
    @pytest.fixture
    def rigs(self, tmp_path: Path) -> RigFactory[SimulatedRig]:
        return partial(simulated_rig, tmp_path / "world.db")

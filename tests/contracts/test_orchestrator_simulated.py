"""The simulated orchestrator under the laws of contracts/orchestrator.py, both types of cluster, virtual time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from muster.model.clusters import ClusterType
from muster.testing.laws import RigFactory
from muster.testing.orchestrator_suite import OrchestratorSuite
from muster.testing.simulated import SimulatedOrchestratorRig, simulated_orchestrator_rig


class TestSimulatedOrchestrator(OrchestratorSuite):
    @pytest.fixture(params=list(ClusterType))
    def rigs(self, request: pytest.FixtureRequest, tmp_path: Path) -> RigFactory[SimulatedOrchestratorRig]:
        return partial(simulated_orchestrator_rig, tmp_path / "world.db", request.param)

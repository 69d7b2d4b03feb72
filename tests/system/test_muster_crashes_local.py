"""kill -9 of Muster around its steps, on real nodes: the next start finishes the work and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.contracts.steps import Step
from muster.testing.local import residue
from muster.testing.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("machine")

STEPS = (
    Step.CLUSTER_ACCEPT,
    Step.SUBSTRATE_ENSURE,
    Step.NODES_RECORD,
    Step.ORCHESTRATOR_CONVERGE,
    Step.ORCHESTRATOR_TEST,
    Step.CLUSTER_MOVE,
    Step.ORCHESTRATOR_DRAIN,
    Step.ORCHESTRATOR_EXPEL,
    Step.SUBSTRATE_ABSENT,
    Step.NODES_FREE,
    Step.CLUSTER_GONE,
)


@pytest.mark.parametrize("step", STEPS)
def test_a_life_with_one_death(tmp_path: Path, step: Step) -> None:
    """Create, shrink, delete; the server dies once on the way, after the step was done, and is started again."""
    server = LocalServer(tmp_path)
    server.up(failpoint=f"{step}:after")
    try:
        server.despite_death("cluster", "create", "demo", "--type", "slurm", "--gpus", "16", "--wait")
        server.despite_death("cluster", "wait", "demo")
        server.despite_death("cluster", "resize", "demo", "8", "--wait")
        assert server.despite_death("ssh", "demo", "srun", "hostname").startswith("worker-")
        deleted = server.call("cluster", "delete", "demo", "--yes", "--wait")
        if deleted.returncode:
            assert server.died, deleted
            server.up()
    finally:
        server.down()
    assert server.lives >= 2, "the step was never reached"
    assert residue(server.home, server.home_id) == []

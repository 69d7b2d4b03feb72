"""kill -9 of Muster before and after every durable step of a real cluster's life: the next start finishes the work.

One home, one story in four stages. At the start of a stage its failpoints are armed, and all that were never
reached; the server dies at the first one it comes to, which is then disarmed, and is started again, until the stage
is over. So a stage costs as many lives as it has failpoints, and each is died at in the middle of real work.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.contracts.steps import Step
from muster.engine.failpoints import DOORS
from muster.sdk.client import Client
from muster.sdk.errors import ApiError, SdkError
from muster.testing.local import residue
from muster.testing.local_server import LocalServer

CREATE = frozenset(
    {
        *(Step.ACCOUNT_WRITE, Step.KEY_WRITE, Step.CATALOG_WRITE, Step.CALENDAR_WRITE, Step.HOST_WRITE),
        Step.ACCESS_WRITE,
        *(Step.VOLUME_ACCEPT, Step.VOLUME_RECORD),
        *(Step.CLUSTER_ACCEPT, Step.CLUSTER_MOVE, Step.CLUSTER_RECORD, Step.NODES_RECORD, Step.ENGINE_ROUND),
        *(Step.SUBSTRATE_ENSURE, Step.ORCHESTRATOR_CONVERGE, Step.ORCHESTRATOR_TEST),
    }
)
GROW = frozenset(
    {
        *(Step.CLUSTER_WISH, Step.CLUSTER_RECORD, Step.NODES_RECORD),
        *(Step.SUBSTRATE_ENSURE, Step.ORCHESTRATOR_CONVERGE),
    }
)
SHRINK = frozenset(
    {
        *(Step.CLUSTER_WISH, Step.CLUSTER_RECORD, Step.NODES_RECORD, Step.NODES_FREE),
        *(Step.ORCHESTRATOR_DRAIN, Step.ORCHESTRATOR_EXPEL, Step.SUBSTRATE_ABSENT),
    }
)
DELETE = frozenset(
    {
        *(Step.CLUSTER_WISH, Step.CLUSTER_MOVE, Step.NODES_RECORD, Step.NODES_FREE, Step.CLUSTER_GONE),
        *(Step.VOLUME_WISH, Step.SUBSTRATE_ABSENT),
    }
)
ELSEWHERE = frozenset(
    {
        *(Step.CLUSTER_SCALE, Step.POOL_WRITE, Step.PREEMPTION_GRANT, Step.PREEMPTION_RECLAIM),
        *(Step.ORCHESTRATOR_WARN, Step.ORCHESTRATOR_EVICT),
        *(Step.NODES_INTEND, Step.ORCHESTRATOR_ADMIT, Step.REMEDIATION_WISH, Step.REMEDIATION_RECORD),
        *(Step.RESERVATION_ACCEPT, Step.RESERVATION_RECORD),
        *(Step.BILLING_WRITE, Step.BILLING_BOOK, Step.BILLING_WISH),
        *(Step.OBJECTS_WRITE, Step.JOB_WISH, Step.JOB_RECORD),
    }
)
"""Not on the way of a cluster that is made, resized and deleted; the simulation's twin dies at these."""


def test_every_step_is_died_at_here_or_elsewhere() -> None:
    here = CREATE | GROW | SHRINK | DELETE
    assert here | ELSEWHERE == frozenset(Step), "a new step is reached by the story, or is named in ELSEWHERE"
    assert not here & ELSEWHERE


class Doomed:
    """A server with its failpoints armed, and somebody who starts it again."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self._armed: set[str] = set()
        self._died_at: set[str] = set()  # in this stage
        self._never_reached = set(DOORS)

    def stage(self, work: Callable[[Client], None], expected: frozenset[Step]) -> None:
        """`work`, begun again after every death until it is done; it looks before it asks."""
        doors = {f"{step}:{side}" for step in expected for side in ("before", "after")}
        self._armed, self._died_at = doors | self._never_reached, set()
        if self.server.lives:
            self.server.kill()
        self._rise()
        while not self._done(work):
            self._bury()
            self._rise()
        assert not doors - self._died_at, f"never died at {sorted(doors - self._died_at)}"

    def _done(self, work: Callable[[Client], None]) -> bool:
        try:
            with self.server.client() as client:
                work(client)
        except SdkError as error:
            if isinstance(error, ApiError) and not self.server.died:
                raise
            return False
        return True

    def _rise(self) -> None:
        while not self.server.rise(self._armed):
            self._bury()

    def _bury(self) -> None:
        door = self.server.killed_at()
        self._died_at.add(door)
        self._armed.remove(door)
        self._never_reached.discard(door)


def _create(client: Client) -> None:
    rooms = [room for room in client.capacity() if room["gpu_type"] == "H100_SXM" and room["gpus_per_node"] == 8]
    region = max(rooms, key=lambda room: room["total_nodes"])["region"]
    volumes = list(client.volumes.list(name="data"))
    volume = volumes[0] if volumes else client.volumes.create(name="data", size_gib=1, region=region)
    if not list(client.ssh_keys.list()):
        client.ssh_keys.create(name="mine", public_key=PUBLIC_KEY)
    found = list(client.clusters.list(name="demo"))
    wish = {"type": "slurm", "gpu_type": "H100_SXM", "gpus": 16, "region": region}
    mounts = [{"volume_id": volume["id"], "path": "/data"}]
    cluster = found[0] if found else client.clusters.create(name="demo", mounts=mounts, **wish)
    client.clusters.wait(cluster["id"], 120)


def _sized(gpus: int) -> Callable[[Client], None]:
    def work(client: Client) -> None:
        cluster = client.clusters.find("demo")
        if cluster["gpus"] != gpus:
            client.clusters.resize(cluster["id"], gpus)
        client.clusters.wait(cluster["id"], 120)

    return work


def _delete(client: Client) -> None:
    for cluster in client.clusters.list():  # its name is free from the wish on
        client.clusters.delete(cluster["id"])
        client.clusters.wait_gone(cluster["id"], 120)
    for volume in client.volumes.list(name="data"):
        client.volumes.delete(volume["id"])
        client.volumes.wait_gone(volume["id"], 120)


PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJMkKuXqGV0jmPZc5ZHl4uBBVwlcJTm4cZX1Tqk8zVpu test"


@pytest.mark.usefixtures("machine")
def test_a_life_with_a_death_at_every_step(tmp_path: Path) -> None:
    server = LocalServer(tmp_path)
    doomed = Doomed(server)
    try:
        doomed.stage(_create, CREATE)
        _works(server, workers=2)
        doomed.stage(_sized(24), GROW)
        _works(server, workers=3)
        doomed.stage(_sized(8), SHRINK)
        _works(server, workers=1)
        doomed.stage(_delete, DELETE)
        assert server.muster("doctor") == "nothing\n"
    finally:
        server.kill()  # its failpoints with it
        server.down()
    assert residue(server.home, server.home_id) == []


def _works(server: LocalServer, workers: int) -> None:
    """Every worker runs what it is told, and nothing on the machine is unaccounted for."""
    server.kill()
    server.up()
    assert len(server.muster("ssh", "demo", "srun", f"-N{workers}", "hostname").split()) == workers
    assert server.muster("doctor") == "nothing\n"

"""kill -9 of hostd at every durable step of a cluster's life: the next hostd finishes the work."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.contracts.substrate import Fence, Owned, Power, VolumeWish
from muster.errors import DriverError
from muster.hostd.launch import answers, bring_up
from muster.hostd.traces import Home, hostds, unaccounted
from muster.model.clusters import Mount
from muster.testing.local import Fleet, cache, fabric_wish, node_wish, residue
from muster.testing.local import fleet as running_fleet
from muster.testing.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("machine")
OURS = Fence("alpha", 1)
STEPS_AT_MOST = 200

VOLUME = VolumeWish(key="data", region="here", size_gib=1)
FIRST = [node_wish(f"node-{number}", fabric="alpha", name=f"node-{number}", gpus=1) for number in (1, 2)]
MOUNTED = [replace(wish, mounts=(Mount(volume_id="data", path="/data"),)) for wish in FIRST]
THIRD = node_wish("node-3", fabric="alpha", name="node-3", gpus=1)
KEYS = ["alpha", "node-1", "node-2", "node-3"]


async def _create(fleet: Fleet) -> None:
    await fleet.substrate.ensure([VOLUME], Fence("data", 1))
    await fleet.substrate.ensure([fabric_wish("alpha"), *FIRST], OURS)
    await fleet.until(["data", "alpha", "node-1", "node-2"], Power.UP)


async def _change(fleet: Fleet) -> None:
    """One node more, one booted anew, a volume attached."""
    await fleet.substrate.ensure([*MOUNTED, THIRD], OURS)
    await fleet.until(["node-1", "node-2", "node-3"], Power.UP)
    for node in ("node-1", "node-2"):
        await _reachable(fleet, node)


async def _remove(fleet: Fleet) -> None:
    await fleet.substrate.ensure_absent(KEYS, OURS)
    await fleet.until_absent(KEYS)
    await fleet.substrate.ensure_absent(["data"], Fence("data", 1))
    await fleet.until_absent(["data"])


async def _nothing_owned(fleet: Fleet) -> None:
    assert await fleet.substrate.owned() == []


async def _reachable(fleet: Fleet, node: str) -> None:
    """It runs, its volume is there, and its neighbour answers."""
    for _ in range(200):
        ran = await fleet.substrate.run(node, ["sh", "-c", "touch /data/x && grep -q ' /data ' /proc/mounts"])
        if ran.code == 0:
            break
        await asyncio.sleep(0.02)
    assert ran.code == 0, ran
    assert (await fleet.substrate.run(node, ["ping", "-c1", "-W2", "10.77.0.3"])).code == 0


async def _despite_death(fleet: Fleet, work: Callable[[Fleet], Awaitable[None]]) -> None:
    """What the reconciler does: on any trouble look again and ask again; on hostd's death, start it."""
    for _ in range(20):
        try:
            await asyncio.wait_for(work(fleet), 30)
            return
        except (DriverError, AssertionError, TimeoutError):
            await asyncio.sleep(0.02)
            if fleet.died:
                await fleet.start()
    raise AssertionError("never finished")


@pytest.mark.parametrize("part", range(4))
def test_every_durable_step(tmp_path: Path, part: int) -> None:
    """Four parts, so that they may run side by side; together every step until one is not reached any more."""

    async def told() -> None:
        for step in range(1 + part, STEPS_AT_MOST, 4):
            home = tmp_path / str(step)
            home.mkdir()
            if not await _one_life(home, step):
                return
        raise AssertionError("more steps than expected: raise STEPS_AT_MOST")

    asyncio.run(told())


async def _one_life(home: Path, step: int) -> bool:
    fleet = Fleet(home)
    await fleet.start(die_at_step=step)
    try:
        for work in (_create, _change, _remove):
            await _despite_death(fleet, work)
        await _despite_death(fleet, _nothing_owned)
    finally:
        await fleet.stop()
    reached = fleet.restarted
    left = residue(home, fleet.home_id)
    assert not left, f"step {step} left behind: {left}"
    return reached


def test_a_node_without_a_record_is_found_by_its_group_and_can_be_removed(tmp_path: Path) -> None:
    """The second net: what runs is known even when what was written of it is lost."""

    async def told() -> None:
        async with running_fleet(tmp_path) as fleet:
            await fleet.substrate.ensure([fabric_wish("alpha"), *FIRST], OURS)
            await fleet.until(["node-1", "node-2"], Power.UP)
            fleet.kill()
            shutil.rmtree(tmp_path / "hostd" / "nodes" / "node-1")
            await fleet.start()
            assert Owned("node-1", "node", "alpha") in await fleet.substrate.owned()
            assert (await fleet.substrate.observe(["node-1"]))["node-1"].power is Power.UNKNOWN
            assert unaccounted(Home(tmp_path, fleet.home_id)), "and the doctor says so"
            await fleet.substrate.ensure_absent(["node-1"], OURS)
            await fleet.until_absent(["node-1"])
            assert unaccounted(Home(tmp_path, fleet.home_id)) == []
            assert (await fleet.substrate.run("node-2", ["true"])).code == 0, "its neighbour runs on"

    asyncio.run(told())


class Nurse:
    """Starts hostd again whenever it died; each of its lives is one durable step longer than the one before."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._home = home
        self._environment = monkeypatch
        self._over = threading.Event()
        self.deaths = 0

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Within: one short life after the other. Afterwards: a healthy one."""
        self.deaths, self._over = 0, threading.Event()
        watching = threading.Thread(target=self._watch)
        watching.start()
        try:
            yield
        finally:
            self._over.set()
            watching.join()
            self._end()
            self._environment.delenv("MUSTER_HOSTD_FAILPOINT", raising=False)
            assert bring_up(self._home, cache(), print) == ""

    def _watch(self) -> None:
        self._end()
        while not self._over.wait(0.02):
            if not answers(self._home):
                self.deaths += 1
                self._environment.setenv("MUSTER_HOSTD_FAILPOINT", str(self.deaths))
                bring_up(self._home, cache(), print)  # it may well have died before it answered

    def _end(self) -> None:
        for pid in hostds(self._home):
            os.kill(pid, signal.SIGKILL)
        while hostds(self._home):
            time.sleep(0.02)


def test_a_cluster_is_made_resized_and_deleted_while_hostd_dies_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = LocalServer(tmp_path)
    server.up()
    nurse = Nurse(server.home, monkeypatch)
    try:
        with server.client() as client:
            with nurse.watch():
                made = client.clusters.create(name="demo", type="slurm", gpu_type="H100_SXM", gpus=16)
                assert client.clusters.wait(made["id"], 300)["phase"] == "ready"
                assert nurse.deaths > 5
            for gpus in (24, 8):
                with nurse.watch():
                    client.clusters.resize(made["id"], gpus)
                    client.clusters.wait(made["id"], 300)
                    assert nurse.deaths > 3
                assert len(server.muster("ssh", "demo", "srun", f"-N{gpus // 8}", "hostname").split()) == gpus // 8
                assert server.muster("doctor") == "nothing\n"
            with nurse.watch():
                client.clusters.delete(made["id"])
                client.clusters.wait_gone(made["id"], 300)
                assert nurse.deaths > 1
        assert server.muster("doctor") == "nothing\n"
    finally:
        server.down()
    assert residue(server.home, server.home_id) == []

"""A real local fleet for tests and measurements: hostd on a home of its own, and a check that nothing of it is left.

Leans on hostd as a process, and on the local substrate. Laws: `residue` asks the kernel, not hostd; it knows a home
by its id and its path, so that fleets of other homes on the machine do not disturb it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from muster.contracts.substrate import FabricWish, Fence, NodeWish, Power, Seen
from muster.errors import DriverError
from muster.hostd.machine import unfit
from muster.hostd.rootfs import rootfs_path
from muster.hostd.socketpath import short
from muster.hostd.traces import Home, traces
from muster.substrates.local import LocalSubstrate

PATIENCE_SECONDS = 60.0


def cache() -> Path:
    return Path(os.environ.get("MUSTER_CACHE", "~/.cache/muster")).expanduser()


def why_not() -> str:
    """Why real nodes cannot run here and what would help; "" when they can."""
    because = unfit()
    if because:
        return f"needs a machine for real nodes: {because}"
    if not rootfs_path(cache()).is_dir():
        return "needs the nodes' root file system: run `python -m muster.hostd --prepare-only` as root, once"
    return ""


class Fleet:
    """hostd as a process of its own, killable, and clients of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._process: subprocess.Popen[bytes] | None = None
        self.restarted = False
        self.substrate = LocalSubstrate(home)

    @property
    def home_id(self) -> str:
        path = self.home / "hostd" / "home-id"
        return path.read_text().strip() if path.exists() else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, *, die_at_step: int = 0) -> None:
        """`die_at_step`: hostd kills itself at its n-th durable step (0 = never)."""
        self.restarted = self._process is not None
        environment = {**os.environ, "MUSTER_HOSTD_FAILPOINT": str(die_at_step or "")}
        command = [sys.executable, "-m", "muster.hostd", "--home", str(self.home), "--cache", str(cache())]
        command += ["--node-memory-mib", "768"]
        log = (self.home / "hostd.log").open("ab")
        with log:
            self._process = subprocess.Popen(  # noqa: ASYNC220
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        for _ in range(int(PATIENCE_SECONDS / 0.02)):
            if (self.home / "hostd.sock").exists() and await self._answers():
                return
            if self._process.poll() is not None:
                raise AssertionError(f"hostd ended: {(self.home / 'hostd.log').read_text()[-2000:]}")
            await asyncio.sleep(0.02)
        raise AssertionError("hostd never answered")

    async def _answers(self) -> bool:
        try:
            with short(self.home / "hostd.sock") as place:
                _, writer = await asyncio.open_unix_connection(place)
        except OSError:
            return False
        writer.close()
        return True

    @property
    def died(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(PATIENCE_SECONDS)

    async def until(self, keys: Sequence[str], power: Power) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for _ in range(int(PATIENCE_SECONDS / 0.01)):
            found = await self.substrate.observe(keys)
            if all(key in found and found[key].power is power for key in keys):
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(f"never {power}: {found}")

    async def until_absent(self, keys: Sequence[str]) -> None:
        for _ in range(int(PATIENCE_SECONDS / 0.01)):
            if not await self.substrate.observe(keys):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"never absent: {await self.substrate.observe(keys)}")

    async def remove_everything(self) -> None:
        owned = await self.substrate.owned()
        for owner in {each.owner for each in owned}:
            keys = [each.key for each in owned if each.owner == owner]
            await self.substrate.ensure_absent(keys, Fence(owner, 1 << 40))
        await self.until_absent([each.key for each in owned])

    async def stop(self) -> None:
        for _ in range(100):
            if self._process is None or self.died:
                await self.start()
            try:
                await self.remove_everything()
                break
            except DriverError:  # it died this very moment
                await asyncio.sleep(0.02)
        await self.substrate.close()
        self.kill(signal.SIGTERM)


@asynccontextmanager
async def fleet(home: Path) -> AsyncIterator[Fleet]:
    """A running fleet; taken down to the last trace afterwards, whatever happened, and checked for it."""
    running = Fleet(home)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()
        left = residue(home, running.home_id)
        assert not left, f"left behind: {left}"


def fabric_wish(key: str) -> FabricWish:
    return FabricWish(key=key, region="here")


def node_wish(
    key: str, *, fabric: str, name: str, role: str = "worker", gpus: int = 8, host: str = "host-0"
) -> NodeWish:
    worker = role == "worker"
    return NodeWish(
        key=key,
        fabric=fabric,
        host_id=host,
        host_name=host,
        region="here",
        name=name,
        role=role,
        slots=255,
        gpu_type="H100_SXM" if worker else "",
        gpus=gpus if worker else 0,
        cpus=32 if worker else 4,
        memory_gib=512 if worker else 16,
        shm_gib=16 if worker else 0,
    )


def residue(home: Path, home_id: str) -> list[str]:
    """Everything the kernel still holds for this home."""
    return [str(trace) for trace in traces(Home(home, home_id))]

"""The local fleet keeps the substrate's laws, on real namespaces and in real time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from muster.contracts.substrate import NodeWish, Substrate
from muster.hostd.state import NodeRecord
from muster.model.base import Instant
from muster.substrates.local import LocalSubstrate
from muster.testing.laws import Capability
from muster.testing.local import Fleet, fleet, node_wish
from muster.testing.substrate_suite import SubstrateSuite


class LocalRig:
    capabilities = frozenset({Capability.CAN_KILL_HOST, Capability.CAN_REOPEN, Capability.ANNOUNCES})
    region = "here"

    def __init__(self, running: Fleet) -> None:
        self._running = running
        self._others: list[LocalSubstrate] = []

    @property
    def substrate(self) -> Substrate:
        return self._running.substrate

    def now(self) -> Instant:
        return 0

    async def settle(self) -> None:
        await asyncio.sleep(0.02)

    def node(self, key: str, *, fabric: str, host: int = 0, slot: int = 0) -> NodeWish:
        wish = node_wish(key, fabric=fabric, name=key, host=f"host-{host}", gpus=1)
        return msgspec.structs.replace(wish, slots=1 << slot)

    async def kill_host(self, host: int) -> None:
        """Every node on it loses its init, as when the power goes."""
        for path in (self._running.home / "hostd" / "nodes").glob("*/record.json"):
            record = msgspec.json.decode(path.read_bytes(), type=NodeRecord)
            if record.wish.host_id == f"host-{host}" and record.init is not None:
                os.kill(record.init.pid, signal.SIGKILL)

    async def reopen(self) -> Substrate:
        self._others.append(LocalSubstrate(self._running.home))
        return self._others[-1]

    async def close(self) -> None:
        for other in self._others:
            await other.close()


class TestLocalSubstrate(SubstrateSuite):
    @pytest.fixture
    def rigs(self, machine: None, tmp_path: Path) -> Callable[[], AbstractAsyncContextManager[LocalRig]]:
        @asynccontextmanager
        async def rig() -> AsyncIterator[LocalRig]:
            async with fleet(tmp_path) as running:
                made = LocalRig(running)
                yield made
                await made.close()

        return rig

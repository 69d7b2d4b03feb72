"""The local fleet behind the substrate's contract, and the hands an orchestrator needs. Leans on client and doors.

Laws: those of contracts/substrate.py and contracts/hands.py, which hostd keeps; here is translation only, and the
doors, which need no root.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from muster.contracts.hands import Door, File, Knock, Ran
from muster.contracts.substrate import FabricWish, Fence, NodeWish, Owned, Seen, VolumeWish, Wish
from muster.errors import UnknownOutcome
from muster.hostd import wire
from muster.substrates.local.client import Hostd
from muster.substrates.local.doors import Doors


class LocalSubstrate:
    """Both `Substrate` and `Hands`. `home` holds hostd's socket and the list of doors."""

    def __init__(self, home: Path, *, door_host: str = "127.0.0.1") -> None:
        self._wake: Callable[[str], None] | None = None
        self._hostd = Hostd(home / "hostd.sock")
        self._doors = Doors(home / "doors.json", door_host, self._visit)

    @property
    def name(self) -> str:
        return "local"

    @property
    def simulated(self) -> bool:
        return False

    async def start(self) -> None:
        """After a restart: open the doors of the clusters that run on."""
        await self._doors.reopen({each.owner for each in await self.owned()})

    async def ensure(self, wishes: Sequence[Wish], fence: Fence) -> None:
        await self._hostd.call(
            wire.Ensure(
                fence=fence,
                fabrics=tuple(wish for wish in wishes if isinstance(wish, FabricWish)),
                volumes=tuple(wish for wish in wishes if isinstance(wish, VolumeWish)),
                nodes=tuple(wish for wish in wishes if isinstance(wish, NodeWish)),
            )
        )

    async def observe(self, keys: Sequence[str]) -> dict[str, Seen]:
        return msgspec.convert(await self._hostd.call(wire.Observe(keys=tuple(keys))), dict[str, Seen])

    async def ensure_absent(self, keys: Sequence[str], fence: Fence) -> None:
        await self._hostd.call(wire.EnsureAbsent(keys=tuple(keys), fence=fence))
        if not any(each.owner == fence.owner for each in await self.owned() if each.key not in keys):
            await self._doors.shut(fence.owner)

    async def owned(self) -> list[Owned]:
        return msgspec.convert(await self._hostd.call(wire.ListOwned()), list[Owned])

    def watch(self, wake: Callable[[str], None]) -> None:
        self._wake = wake
        self._hostd.listen(wake)

    def announce(self, owner: str) -> None:
        """What others find out about an owner's nodes travels the same way."""
        if self._wake is not None:
            self._wake(owner)

    async def run(
        self,
        node: str,
        argv: Sequence[str],
        *,
        user: str = "root",
        stdin: str = "",
        env: Mapping[str, str] = {},
        seconds: float = 10.0,
    ) -> Ran:
        verb = wire.Run(node=node, argv=tuple(argv), user=user, stdin=stdin, env=dict(env), seconds=seconds)
        try:
            # hostd keeps the time; the margin is for a hostd that no longer does
            answer = await asyncio.wait_for(self._hostd.call(verb), seconds + 10)
        except TimeoutError:
            raise UnknownOutcome(f"no word from hostd on {argv[0]}") from None
        return msgspec.convert(answer, Ran)

    async def place(self, files: Sequence[File], generation: int, fence: Fence) -> None:
        await self._hostd.call(wire.Place(files=tuple(files), generation=generation, fence=fence))

    async def images(self) -> list[str]:
        return msgspec.convert(await self._hostd.call(wire.ListImages()), list[str])

    async def hold(self, fence: Fence) -> None:
        await self._hostd.call(wire.Hold(fence=fence))

    async def knock(self, ports: Sequence[tuple[str, int]], *, seconds: float = 1.0) -> list[Knock]:
        answer = await self._hostd.call(wire.KnockAt(ports=tuple(ports), seconds=seconds))
        return msgspec.convert(answer, list[Knock])

    async def connect(self, node: str, port: int, *, seconds: float = 5.0) -> socket.socket:
        return await self._hostd.carry(wire.Connect(node=node, port=port, seconds=seconds))

    async def door(self, owner: str, node: str, port: int, address: str = "") -> Door:
        return await self._doors.open(owner, node, port, address)

    async def cut_link(self, node: str) -> None:
        await self._hostd.call(wire.Link(node=node, up=False))

    async def mend_link(self, node: str) -> None:
        await self._hostd.call(wire.Link(node=node, up=True))

    async def _visit(self, node: str, port: int, source: str) -> socket.socket:
        return await self._hostd.carry(wire.Connect(node=node, port=port, source=source))

    async def close(self) -> None:
        await self._doors.close()
        await self._hostd.close()

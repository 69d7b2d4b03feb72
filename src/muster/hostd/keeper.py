"""hostd's verbs over its three trades: the substrate's contract, on this machine. Leans on fabrics, volumes, nodes.

Laws: every mutating verb passes the fence first; intent is on disk before the answer; adoption finds what runs, by
record (pid and start time) and by cgroup (which no tenant can forge), and removes nothing that it was not told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Final

from muster.contracts.hands import Knock, Ran
from muster.contracts.substrate import Fence, Owned, Power, Seen
from muster.errors import Never, TryLater, UnknownOutcome
from muster.hostd import fabric, wire
from muster.hostd.children import collect, settle
from muster.hostd.enter import Command, Entered, enter
from muster.hostd.fabrics import Fabrics, vacate
from muster.hostd.nodes import Nodes
from muster.hostd.shop import Deathwatch, Shop
from muster.hostd.state import checked_key
from muster.hostd.volumes import Volumes

_OUTPUT_MAX: Final = 4 << 20
_SECONDS_MAX: Final = 3600.0


class Keeper:
    def __init__(self, shop: Shop) -> None:
        deaths = Deathwatch()
        self._shop = shop
        self._fabrics = Fabrics(shop, deaths)
        self._volumes = Volumes(shop)
        self._nodes = Nodes(shop, deaths, self._fabrics, self._volumes)

    def adopt(self) -> None:
        self._volumes.adopt()
        self._fabrics.adopt()
        self._nodes.adopt()

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        self._shop.listeners.add(listener)
        return lambda: self._shop.listeners.discard(listener)

    def ensure(self, asked: wire.Ensure) -> None:
        self._shop.state.fence(*asked.fence)
        for fabric_wish in asked.fabrics:
            self._fabrics.ensure(fabric_wish, asked.fence.owner)
        for volume_wish in asked.volumes:
            self._volumes.ensure(volume_wish, asked.fence.owner)
        self._nodes.ensure(asked.nodes, asked.fence.owner)

    def observe(self, keys: Sequence[str]) -> dict[str, Seen]:
        found = {key: self._see(key) for key in keys}
        if not all(found.values()):
            unknown = Seen(Power.UNKNOWN, "runs without a record of ours")
            strays = {stray.key for stray in self._strays()}
            found |= {key: unknown for key, seen in found.items() if seen is None and key in strays}
        return {key: seen for key, seen in found.items() if seen is not None}

    def _see(self, key: str) -> Seen | None:
        if key in self._shop.nodes:
            node = self._shop.nodes[key]
            address = fabric.address_of(node.number)
            return Seen(node.power, node.because, address=address, generation=node.wish.generation)
        if key in self._shop.volumes:
            volume = self._shop.volumes[key]
            return Seen(volume.power, volume.because, size_gib=self._volumes.disk(key).size_gib)
        if key in self._shop.fabrics:
            record = self._shop.fabrics[key]
            return Seen(record.power, record.because)
        return None

    def ensure_absent(self, keys: Sequence[str], fence: Fence) -> None:
        self._shop.state.fence(*fence)
        for key in keys:
            self._check_owner(checked_key(key), fence.owner)
        for key in keys:
            if key in self._shop.nodes:
                self._nodes.ensure_absent(key)
            elif key in self._shop.volumes:
                self._volumes.ensure_absent(key)
            elif key in self._shop.fabrics:
                self._fabrics.ensure_absent(key)
            else:
                self._remove_stray(key)

    def _check_owner(self, key: str, owner: str) -> None:
        for records in (self._shop.nodes, self._shop.volumes, self._shop.fabrics):
            known = records.get(key)
            if known is not None and known.owner != owner:
                raise Never(f"{key} belongs to another owner")

    def owned(self) -> list[Owned]:
        found = [Owned(key, "fabric", record.owner) for key, record in self._shop.fabrics.items()]
        found += [Owned(key, "volume", record.owner) for key, record in self._shop.volumes.items()]
        found += [Owned(key, "node", record.owner) for key, record in self._shop.nodes.items()]
        return found + self._strays()

    def images(self) -> list[str]:
        return self._shop.images()

    def has_nodes(self) -> bool:
        return any(each.kind != "volume" for each in self.owned())

    def _strays(self) -> list[Owned]:
        """Groups of this home that no record accounts for: the second net."""
        strays = []
        for fabric_key in self._shop.cgroups.children():
            owner = self._shop.fabrics[fabric_key].owner if fabric_key in self._shop.fabrics else ""
            if fabric_key not in self._shop.fabrics:
                strays.append(Owned(fabric_key, "fabric", owner))
            for node_key in self._shop.cgroups.children((fabric_key,)) - {"fabric"}:
                if node_key not in self._shop.nodes:
                    strays.append(Owned(node_key, "node", owner))
        return strays

    def _remove_stray(self, key: str) -> None:
        for fabric_key in self._shop.cgroups.children():
            path = (fabric_key,) if key == fabric_key else (fabric_key, key)
            if key == fabric_key or key in self._shop.cgroups.children((fabric_key,)):
                task = asyncio.ensure_future(vacate(self._shop, path))
                task.add_done_callback(lambda done: done.exception())

    def place(self, asked: wire.Place) -> None:
        self._shop.state.fence(*asked.fence)
        self._fabrics.place(asked.fence.owner, asked.files, asked.generation)

    async def run(self, asked: wire.Run) -> Ran:
        record, init = self._nodes.running(asked.node)
        if not asked.argv:
            raise Never("nothing to run")
        command = Command(tuple(asked.argv), asked.user, tuple(asked.env.items()))
        files = self._shop.cgroups.join_files(self._nodes.group(record))
        entered = enter(init.pid, files, command)
        ended = self._shop.children.expect(entered.pid)
        try:
            out, err = await _converse(entered, asked.stdin.encode(), min(asked.seconds, _SECONDS_MAX))
        except TimeoutError:
            _kill_inner(entered)
            raise UnknownOutcome(f"{asked.argv[0]} did not end within {asked.seconds:g} s") from None
        finally:
            os.close(entered.inner)
        return Ran(await ended, out.decode(errors="replace"), err.decode(errors="replace"))

    async def connect(self, asked: wire.Connect) -> socket.socket:
        record, _ = self._nodes.running(asked.node)
        home = self._shop.fabrics[record.wish.fabric]
        if home.holder is None or not home.holder.alive:
            raise TryLater("the cluster's network is not up")
        if asked.source and not fabric.permits(home.wish.rules, asked.source, asked.port):
            raise Never(f"no rule lets {asked.source} reach port {asked.port}")
        made = fabric.open_socket(home.holder.pid, own=not asked.source)
        address = (fabric.address_of(record.number), asked.port)
        try:
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(made, address), asked.seconds)
        except (OSError, TimeoutError) as error:
            made.close()
            raise TryLater(f"port {asked.port} of {record.wish.name}: {error or 'no answer'}") from None
        return made

    def hold(self, fence: Fence) -> None:
        self._shop.state.fence(*fence)

    async def knock(self, ports: Sequence[tuple[str, int]], seconds: float) -> list[Knock]:
        return list(await asyncio.gather(*(self._knock(node, port, seconds) for node, port in ports)))

    async def _knock(self, node: str, port: int, seconds: float) -> Knock:
        try:
            record, _ = self._nodes.running(node)
        except TryLater:
            return Knock.GONE
        home = self._shop.fabrics[record.wish.fabric]
        if home.holder is None or not home.holder.alive:
            return Knock.SILENT
        with fabric.open_socket(home.holder.pid, own=True) as made:
            address = (fabric.address_of(record.number), port)
            try:
                await asyncio.wait_for(asyncio.get_running_loop().sock_connect(made, address), seconds)
            except ConnectionRefusedError:
                return Knock.REFUSED
            except (OSError, TimeoutError):
                return Knock.SILENT
        return Knock.OPEN

    def link(self, node: str, *, up: bool) -> None:
        record, _ = self._nodes.running(node)
        holder = self._shop.fabrics[record.wish.fabric].holder
        assert holder is not None
        fabric.set_link(holder.pid, record.number, up=up)


async def _converse(entered: Entered, stdin: bytes, seconds: float) -> tuple[bytes, bytes]:
    feeding = asyncio.create_task(_feed(entered.stdin, stdin))
    try:
        out, err = await asyncio.gather(
            collect(entered.stdout, seconds=seconds, limit=_OUTPUT_MAX),
            collect(entered.stderr, seconds=seconds, limit=_OUTPUT_MAX),
        )
    finally:
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding
    return out, err


async def _feed(fd: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    left = memoryview(data)
    try:
        while left:
            try:
                left = left[os.write(fd, left) :]
            except BlockingIOError:
                room: asyncio.Future[None] = loop.create_future()
                loop.add_writer(fd, settle, room)
                await room
                loop.remove_writer(fd)
    except BrokenPipeError:
        return
    finally:
        loop.remove_writer(fd)
        os.close(fd)


def _kill_inner(entered: Entered) -> None:
    """The command leads a session of its own: take the whole group."""
    os.set_blocking(entered.inner, False)
    try:
        inner = int(os.read(entered.inner, 32))
        os.killpg(inner, signal.SIGKILL)
    except (OSError, ValueError):
        return

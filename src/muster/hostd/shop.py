"""What hostd's three trades (fabrics, volumes, nodes) share: memory, tools, and one worker per thing.

Leans on state, cgroups, children. Laws: for one key there is at most one worker; a worker is level-triggered: it
looks at the record and does the next thing until record and world agree, so being asked twice, or restarted, is
harmless; every change of what is seen of a thing is announced to its owner.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from muster.contracts.substrate import Power
from muster.errors import DriverError, Never
from muster.hostd.cgroups import Cgroups, Limits
from muster.hostd.children import Children
from muster.hostd.homes import Homes
from muster.hostd.processes import Identity
from muster.hostd.state import FabricRecord, NodeRecord, State, VolumeRecord

log = logging.getLogger("muster.hostd")

MIB = 1 << 20
GIB = 1 << 30
_SO_FAR_SECONDS: Final = 0.25
"""How long an owner waits for word of some while others still come up."""
Record: TypeAlias = FabricRecord | NodeRecord | VolumeRecord
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Rations(NamedTuple):
    """What a node really gets of this machine, whatever its instance type says."""

    node: Limits
    whole: Limits
    disk_bytes: int
    tmp_bytes: int
    home_bytes: int = 16 * GIB

    @staticmethod
    def of_this_machine(node_mib: int = 0) -> Rations:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        node = node_mib * MIB or max(512 * MIB, min(8 * GIB, memory // 4))
        return Rations(
            node=Limits(pids=1024, memory_bytes=node),
            whole=Limits(pids=24_000, memory_bytes=memory * 4 // 5, cpu_weight=100),
            # tmpfs is charged to the node's memory and cannot be reclaimed: together they stay below the limit
            disk_bytes=node // 2,
            tmp_bytes=node // 8,
        )


class Shop:
    def __init__(
        self, state: State, cgroups: Cgroups, children: Children, rations: Rations, rootfs: Path, images: Path
    ) -> None:
        """`rootfs` is the nodes' own root file system; others are directories below `images`."""
        self.state = state
        self.cgroups = cgroups
        self.children = children
        self.rations = rations
        self._rootfs = rootfs
        self._images = images
        self.fabrics: dict[str, FabricRecord] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.volumes: dict[str, VolumeRecord] = {}
        self.listeners: set[Callable[[str], None]] = set()
        self._told_soon: dict[str, asyncio.TimerHandle] = {}
        self.homes = Homes(state.root, rations.home_bytes, children)
        self._users: dict[Path, dict[str, tuple[int, int]]] = {}

    def rootfs_of(self, name: str) -> Path:
        """The root file system of that name; "" is the nodes' own."""
        if not name:
            return self._rootfs
        if name not in self.images():
            raise Never(f"this server has no image {name[:100]!r} (it has: {', '.join(self.images()) or 'none'})")
        return self._images / name

    def images(self) -> list[str]:
        """Every other root file system, by its name; read anew each time, for an operator adds them as they come."""
        found = (path for path in self._images.glob("*") if _IMAGE.fullmatch(path.name))
        return sorted(path.name for path in found if (path / "etc/passwd").is_file())

    def users_in(self, name: str) -> dict[str, tuple[int, int]]:
        """Who has which uid and gid there: another image may count differently."""
        rootfs = self.rootfs_of(name)
        if rootfs not in self._users:
            self._users[rootfs] = _read_users(rootfs)
        return self._users[rootfs]

    def announce(self, owner: str) -> None:
        pending = self._told_soon.pop(owner, None)
        if pending is not None:
            pending.cancel()
        for listener in list(self.listeners):
            listener(owner)

    def put_fabric(self, record: FabricRecord) -> FabricRecord:
        before = self.fabrics.get(record.wish.key)
        self.fabrics[record.wish.key] = self.state.save("fabric", record)
        self._tell(before, record)
        return record

    def put_node(self, record: NodeRecord) -> NodeRecord:
        before = self.nodes.get(record.wish.key)
        self.nodes[record.wish.key] = self.state.save("node", record)
        self._tell(before, record)
        return record

    def put_volume(self, record: VolumeRecord) -> VolumeRecord:
        self.volumes[record.wish.key] = self.state.save("volume", record)
        self.tell(record.owner)  # its size may have changed
        return record

    def _tell(self, before: Record | None, now: Record) -> None:
        """Of what can be seen from outside."""
        if before is None or (before.power, before.because) != (now.power, now.because):
            self.tell(now.owner, at_once=now.power in (Power.DEAD, Power.FAILED))

    def tell(self, owner: str, *, at_once: bool = False) -> None:
        """Of things on their way up or down one word, when the owner's last is there: he can do nothing sooner."""
        if at_once or not self._under_way(owner):
            self.announce(owner)
        elif owner not in self._told_soon:
            loop = asyncio.get_running_loop()
            self._told_soon[owner] = loop.call_later(_SO_FAR_SECONDS, self.announce, owner)

    def _under_way(self, owner: str) -> bool:
        things: Iterable[Record] = itertools.chain(self.nodes.values(), self.fabrics.values(), self.volumes.values())
        return any(each.owner == owner and each.power in (Power.STARTING, Power.STOPPING) for each in things)


def _read_users(rootfs: Path) -> dict[str, tuple[int, int]]:
    path = rootfs / "etc/passwd"
    rows = (line.split(":") for line in path.read_text().splitlines()) if path.exists() else ()
    return {row[0]: (int(row[2]), int(row[3])) for row in rows}


class Workers:
    """At most one running task per key; a kick during its run makes it look once more."""

    def __init__(self, drive: Callable[[str], Awaitable[None]], fail: Callable[[str, str], None]) -> None:
        self._drive = drive
        self._fail = fail
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def kick(self, key: str) -> None:
        if key in self._tasks:
            self._again.add(key)
        else:
            self._tasks[key] = asyncio.create_task(self._work(key))

    async def _work(self, key: str) -> None:
        try:
            while True:
                self._again.discard(key)
                try:
                    await self._drive(key)
                except (DriverError, OSError, RuntimeError, TimeoutError) as error:
                    log.warning("%s: %s", key, error)
                    self._fail(key, str(error) or type(error).__name__)
                if key not in self._again:
                    return
        finally:
            del self._tasks[key]


class Deathwatch:
    """Learns of a process's end from the kernel, within milliseconds, through its pidfd."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}

    def watch(self, who: Identity, ended: Callable[[], None]) -> None:
        if who.pid in self._open:
            return
        try:
            fd = os.pidfd_open(who.pid)
        except ProcessLookupError:
            asyncio.get_running_loop().call_soon(ended)
            return
        self._open[who.pid] = fd
        asyncio.get_running_loop().add_reader(fd, self._ended, who.pid, ended)

    def _ended(self, pid: int, ended: Callable[[], None]) -> None:
        fd = self._open.pop(pid)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
        ended()

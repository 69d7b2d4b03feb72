"""Fabrics: a cluster's network, its uid range, its shared home and its directory of files. Leans on fabric, disks."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from muster.contracts.hands import File
from muster.contracts.substrate import FabricWish, Power
from muster.errors import FencedOff, Never, TryLater
from muster.hostd import fabric, linux
from muster.hostd.builder import Bind, network_up
from muster.hostd.children import read_line
from muster.hostd.disks import Disk
from muster.hostd.processes import identify
from muster.hostd.shop import Deathwatch, Shop, Workers
from muster.hostd.state import FabricRecord, checked_key


class Fabrics:
    def __init__(self, shop: Shop, deaths: Deathwatch) -> None:
        self._shop = shop
        self._deaths = deaths
        self._workers = Workers(self._drive, self._failed)
        self._furnished: dict[str, asyncio.Event] = {}
        self._up: dict[str, asyncio.Event] = {}

    def ensure(self, wish: FabricWish, owner: str) -> None:
        known = self._shop.fabrics.get(checked_key(wish.key))
        if known is None:
            slot = self._shop.state.take_range(wish.key)
            self._shop.put_fabric(FabricRecord(wish=wish, owner=owner, slot=slot))
        elif known.owner != owner:
            raise Never(f"fabric {wish.key} belongs to another owner")
        elif known.power is Power.STOPPING:
            raise TryLater(f"fabric {wish.key} is still being taken down")
        elif known.wish != wish:
            self._shop.put_fabric(replace(known, wish=wish))
        elif known.power is Power.UP:
            return
        self._workers.kick(wish.key)

    def ensure_absent(self, key: str) -> None:
        self._shop.put_fabric(replace(self._shop.fabrics[key], power=Power.STOPPING))
        self._workers.kick(key)

    def adopt(self) -> None:
        for key, record in self._shop.state.load("fabric", FabricRecord).items():
            self._shop.fabrics[key] = record
            self._shop.state.keep_range(record.slot, key)
            self._workers.kick(key)
        self._shop.state.sweep_ranges(self._shop.fabrics)

    def number(self, key: str, nodes: Sequence[str]) -> None:
        """Each node's place in the fabric: its address. Kept for the fabric's life, so a reboot keeps it."""
        record = self._shop.fabrics[key]
        taken = set(record.numbers.values())
        free = (number for number in range(fabric.NODES_MAX) if number not in taken)
        new = {node: next(free) for node in nodes if node not in record.numbers}
        if new:
            self._shop.put_fabric(replace(record, numbers={**record.numbers, **new}))

    def number_of(self, key: str, node: str) -> int:
        return self._shop.fabrics[key].numbers[node]

    def node_left(self, key: str, node: str) -> None:
        record = self._shop.fabrics.get(key)
        if record is None:
            return
        numbers = {name: number for name, number in record.numbers.items() if name != node}
        self._shop.put_fabric(replace(record, numbers=numbers))
        self._workers.kick(key)

    async def furnished(self, key: str) -> FabricRecord:
        """The fabric once its directories and home are there: enough to build a node on."""
        return await self._reached(self._furnished, key)

    async def ready(self, key: str) -> FabricRecord:
        """The fabric once it is up; its nodes wait for it rather than fail."""
        return await self._reached(self._up, key)

    async def _reached(self, marks: dict[str, asyncio.Event], key: str) -> FabricRecord:
        await asyncio.wait_for(marks.setdefault(key, asyncio.Event()).wait(), 30)
        return self._shop.fabrics[key]

    def binds(self, record: FabricRecord, mounted: Sequence[str]) -> list[Bind]:
        directory = self._shop.state.directory("fabric", record.wish.key)
        found = [Bind(str(directory / "cluster"), "/etc/cluster", read_only=True)]
        if "/home" not in mounted:
            found.append(Bind(str(directory / "home" / "mounted"), "/home"))
        return found

    def place(self, owner: str, files: Sequence[File], generation: int) -> None:
        record = next((each for each in self._shop.fabrics.values() if each.owner == owner), None)
        if record is None:
            raise TryLater("the cluster has no fabric yet")
        if generation < record.generation:
            raise FencedOff(f"files of generation {generation} are older than {record.generation}")
        root = self._shop.state.directory("fabric", record.wish.key) / "cluster"
        image = next((node.wish.rootfs for node in self._shop.nodes.values() if node.owner == owner), "")
        self._shop.state.step()
        _place(root, files, self._shop.users_in(image))
        self._shop.state.step()
        if generation != record.generation:
            self._shop.put_fabric(replace(record, generation=generation))

    async def _drive(self, key: str) -> None:
        record = self._shop.fabrics.get(key)
        if record is None:
            return
        if record.power is Power.STOPPING:
            await self._take_down(record)
            return
        if record.holder is None or not record.holder.alive:
            await self._start(record)
        elif record.power is Power.UP and self._up.get(key) and self._up[key].is_set():
            await self._apply_rules(record)
        await self._furnish(key)
        record = self._shop.fabrics[key]
        assert record.holder is not None
        self._deaths.watch(record.holder, lambda: self._holder_ended(key))
        self._up.setdefault(key, asyncio.Event()).set()
        current = self._shop.fabrics[key]
        if current.power is not Power.STOPPING:  # it may have been unwished while it was coming up
            self._shop.put_fabric(replace(current, power=Power.UP, because=""))

    def _home(self, key: str) -> Disk:
        return Disk(self._shop.state.directory("fabric", key) / "home")

    async def _furnish(self, key: str) -> None:
        """The shared home, and the directory of the cluster's files."""
        (self._shop.state.directory("fabric", key) / "cluster").mkdir(mode=0o755, exist_ok=True)
        await self._shop.homes.furnish(self._home(key).directory)
        self._furnished.setdefault(key, asyncio.Event()).set()

    async def _start(self, record: FabricRecord) -> None:
        key = record.wish.key
        shop = self._shop
        shop.cgroups.make((), shop.rations.whole)
        shop.cgroups.make((key,))
        shop.cgroups.make((key, "fabric"))
        marker = f"{shop.state.home_id}/{key}"
        pid, said = fabric.start_holder(shop.cgroups.join_files((key, "fabric")), record.wish.rules, marker)
        try:
            await self._furnish(key)
            answer = await read_line(said, seconds=20)
        finally:
            os.close(said)
        who = identify(pid)
        if answer != b"ok" or who is None:
            raise TryLater(f"fabric: {answer.decode(errors='replace')}")
        shop.put_fabric(replace(shop.fabrics[key], holder=who))
        await self._plug_again(key, pid)

    async def _plug_again(self, key: str, holder: int) -> None:
        """Nodes that outlived their fabric's namespace get a new link."""
        for node in list(self._shop.nodes.values()):
            if node.wish.fabric == key and node.power is Power.UP and node.init and node.init.alive:
                fabric.plug(holder, node.number, node.init.pid)
                init, address = node.init.pid, fabric.address_of(node.number)
                await self._shop.children.in_child(lambda: _network_up_in(init, address))  # noqa: B023

    async def _apply_rules(self, record: FabricRecord) -> None:
        assert record.holder is not None
        holder, rules = record.holder.pid, record.wish.rules

        def load() -> None:
            with fabric.inside(holder):
                fabric.load_rules(rules)

        await self._shop.children.in_child(load)

    def _holder_ended(self, key: str) -> None:
        record = self._shop.fabrics.get(key)
        if record is not None and record.power is Power.UP:
            self._up.pop(key, None)
            self._shop.put_fabric(replace(record, power=Power.DEAD, because="its network namespace is gone"))

    async def _take_down(self, record: FabricRecord) -> None:
        key = record.wish.key
        if any(node.wish.fabric == key for node in self._shop.nodes.values()):
            return  # the last node to leave kicks us
        self._up.pop(key, None)
        self._furnished.pop(key, None)
        if record.holder is not None:
            record.holder.kill()
        await vacate(self._shop, (key,))
        self._home(key).remove()
        self._shop.state.free_range(record.slot, key)
        del self._shop.fabrics[key]
        self._shop.state.forget("fabric", key)
        self._shop.tell(record.owner)

    def _failed(self, key: str, because: str) -> None:
        record = self._shop.fabrics.get(key)
        if record is not None and record.power is not Power.STOPPING:
            self._shop.put_fabric(replace(record, power=Power.FAILED, because=because))


def _network_up_in(init: int, address: str) -> None:
    linux.setns(os.open(f"/proc/{init}/ns/net", os.O_RDONLY), linux.CLONE_NEWNET)
    network_up(address)


async def vacate(shop: Shop, path: tuple[str, ...]) -> None:
    """Kill by membership until nobody is left, then remove the groups."""
    for _ in range(2000):
        if shop.cgroups.kill(path) and shop.cgroups.remove(path):
            return
        await asyncio.sleep(0.003)
    raise TryLater("processes of the node would not end")


def _place(root: Path, files: Sequence[File], users: dict[str, tuple[int, int]]) -> None:
    """Each file appears whole by rename; what is not among them goes. The bind mount pins `root` itself."""
    wanted = set()
    for file in files:
        relative = PurePosixPath(file.path)
        if relative.is_absolute() or ".." in relative.parts or not relative.parts:
            raise Never(f"not a path below the cluster's directory: {file.path!r}")
        if file.owner not in users:
            raise Never(f"the image has no user {file.owner!r}")
        wanted.add(root / relative)
    for file in files:
        _write_file(root / file.path, file, users[file.owner])
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path in keep.parents for keep in wanted):
                shutil.rmtree(path)
        elif path not in wanted:
            path.unlink(missing_ok=True)


def _write_file(path: Path, file: File, owner: tuple[int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    data = file.content.encode()
    if path.exists() and path.read_bytes() == data and (path.stat().st_mode & 0o7777) == file.mode:
        return
    making = path.with_name(f".{path.name}.new")
    fd = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, file.mode)
    try:
        os.write(fd, data)
        os.fchown(fd, *owner)
        os.fchmod(fd, file.mode)
    finally:
        os.close(fd)
    making.rename(path)

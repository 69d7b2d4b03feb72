"""Nodes: from a wish to a running init, and back to nothing. Leans on builder, enter, mounting, fabrics, volumes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from muster.contracts.substrate import NodeWish, Power
from muster.errors import Never, TryLater
from muster.hostd import fabric, mounting
from muster.hostd.builder import Bind, Building, Plan, start_building
from muster.hostd.cgroups import Limits
from muster.hostd.children import read_line
from muster.hostd.fabrics import Fabrics, vacate
from muster.hostd.processes import Identity, identify
from muster.hostd.shop import GIB, MIB, Deathwatch, Shop, Workers
from muster.hostd.state import NodeRecord, checked_key, id_base
from muster.hostd.volumes import Volumes
from muster.model.clusters import Mount

_BOOT_SECONDS = 60.0


class Nodes:
    def __init__(self, shop: Shop, deaths: Deathwatch, fabrics: Fabrics, volumes: Volumes) -> None:
        self._shop = shop
        self._deaths = deaths
        self._fabrics = fabrics
        self._volumes = volumes
        self._workers = Workers(self._drive, self._failed)

    def ensure(self, wishes: Sequence[NodeWish], owner: str) -> None:
        """All their places are taken at one stroke: a fabric's record is one file."""
        new = [wish for wish in wishes if checked_key(wish.key) not in self._shop.nodes]
        for wish in new:
            self._check(wish)
        for key in {wish.fabric for wish in new}:
            self._fabrics.number(key, [wish.key for wish in new if wish.fabric == key])
        for wish in wishes:
            self._ensure(wish, owner)

    def _check(self, wish: NodeWish) -> None:
        """What cannot be had is refused before anything is written."""
        if wish.fabric not in self._shop.fabrics:
            raise TryLater(f"fabric {wish.fabric} is not there yet")
        self._shop.rootfs_of(wish.rootfs)

    def _ensure(self, wish: NodeWish, owner: str) -> None:
        known = self._shop.nodes.get(wish.key)
        if known is None:
            number = self._fabrics.number_of(wish.fabric, wish.key)
            self._shop.put_node(NodeRecord(wish=wish, owner=owner, number=number))
        elif known.owner != owner:
            raise Never(f"node {wish.key} belongs to another owner")
        elif known.power is Power.STOPPING:
            raise TryLater(f"node {wish.key} is still being taken down")
        elif known.wish == wish:
            return
        elif wish.generation < known.wish.generation:
            raise Never(f"node {wish.key}: generation {wish.generation} is older than {known.wish.generation}")
        else:
            self._change(known, wish)
        self._workers.kick(wish.key)

    def _change(self, known: NodeRecord, wish: NodeWish) -> None:
        same = replace(known.wish, mounts=wish.mounts, shm_gib=wish.shm_gib, generation=wish.generation)
        if wish.generation == known.wish.generation and same != wish:
            raise Never(f"node {wish.key}: its shape changes only with a new boot (raise the generation)")
        if wish.fabric != known.wish.fabric:
            raise Never(f"node {wish.key} cannot move to another fabric")
        if wish.generation > known.wish.generation:
            self._shop.rootfs_of(wish.rootfs)
        power = Power.STARTING if wish.generation > known.wish.generation else known.power
        self._shop.put_node(replace(known, wish=wish, power=power))

    def ensure_absent(self, key: str) -> None:
        self._shop.put_node(replace(self._shop.nodes[key], power=Power.STOPPING))
        self._workers.kick(key)

    def adopt(self) -> None:
        for key, record in self._shop.state.load("node", NodeRecord).items():
            if record.power is Power.UP and not (record.init and record.init.alive):
                record = replace(record, power=Power.DEAD, because="its init ended while hostd was away")
            self._shop.nodes[key] = self._shop.state.save("node", record)
            self._workers.kick(key)

    def running(self, key: str) -> tuple[NodeRecord, Identity]:
        record = self._shop.nodes.get(key)
        if record is None or record.init is None or not record.init.alive:
            raise TryLater(f"node {key} is not running")
        return record, record.init

    def group(self, record: NodeRecord) -> tuple[str, str]:
        return record.wish.fabric, record.wish.key

    async def _drive(self, key: str) -> None:
        record = self._shop.nodes.get(key)
        if record is None:
            return
        if record.power is Power.STOPPING:
            await self._take_down(record)
        elif record.power is Power.STARTING:
            await self._power_off(record)
            await self._boot(key)
            self._workers.kick(key)
        elif record.power is Power.UP:
            self._watch(record)
            await self._follow_mounts(record)
            await self._follow_shm(record)

    async def _power_off(self, record: NodeRecord) -> None:
        if record.init is not None:
            record.init.kill()
        await vacate(self._shop, self.group(record))

    async def _boot(self, key: str) -> None:
        """Built while its fabric still comes up, plugged in when that is there.

        That it boots is on record before; its init only once it is up. Whoever finds the record without it ends what
        the groups hold and boots again.
        """
        shop = self._shop
        record = shop.nodes[key]
        wish = record.wish
        home = await self._fabrics.furnished(wish.fabric)
        plan = self._plan(record, id_base(home.slot), self._fabrics.binds(home, [m.path for m in wish.mounts]))
        shop.cgroups.make(self.group(record))
        building = start_building(plan)
        ended = shop.children.expect(building.pid)
        try:
            init = await self._plug(building, record)
            os.write(building.go, b"g")
            said = await read_line(building.said, seconds=_BOOT_SECONDS)
            if said != b"up":
                raise TryLater(f"boot: {said.decode(errors='replace')}")
        finally:
            os.close(building.said)
            os.close(building.go)
        await ended
        self._booted(wish, init)

    async def _plug(self, building: Building, record: NodeRecord) -> Identity:
        said = await read_line(building.said, seconds=_BOOT_SECONDS)
        if not said.startswith(b"ready "):
            raise TryLater(f"boot: {said.decode(errors='replace')}")
        init = identify(int(said.split()[1]))
        if init is None:
            raise TryLater("boot: init ended at once")
        home = await self._fabrics.ready(record.wish.fabric)
        assert home.holder is not None
        fabric.plug(home.holder.pid, record.number, init.pid)
        return init

    def _booted(self, wish: NodeWish, init: Identity) -> None:
        """It may have been unwished, or wished anew, meanwhile."""
        current = self._shop.nodes[wish.key]
        begun = replace(
            current, init=init, generation=wish.generation, mounts=wish.mounts, shm_gib=wish.shm_gib, because=""
        )
        if current.power is Power.STARTING and current.wish.generation == wish.generation:
            begun = replace(begun, power=Power.UP)
        self._shop.put_node(begun)

    def _plan(self, record: NodeRecord, base: int, binds: Sequence[Bind]) -> Plan:
        wish, rations = record.wish, self._shop.rations
        directory = self._shop.state.directory("node", wish.key)
        group, limits = self.group(record), self._limits(wish)
        mounts = [Bind(self._volumes.source(m.volume_id), m.path, m.read_only) for m in wish.mounts]
        return Plan(
            name=wish.name,
            directory=str(directory),
            rootfs=str(self._shop.rootfs_of(wish.rootfs)),
            id_base=base,
            address=fabric.address_of(record.number),
            gpus=wish.gpus,
            disk_bytes=rations.disk_bytes,
            tmp_bytes=rations.tmp_bytes,
            shm_bytes=_shm_bytes(wish),
            binds=(*binds, *mounts),
            cgroup_files=tuple(self._shop.cgroups.join_files(group)),
            limit=lambda: self._shop.cgroups.limit(group, limits, devices=True),
        )

    def _limits(self, wish: NodeWish) -> Limits:
        node = self._shop.rations.node
        return node._replace(memory_bytes=min(node.memory_bytes, wish.memory_gib * GIB), cpus=wish.cpus)

    async def _follow_mounts(self, record: NodeRecord) -> None:
        """Mounts of a running node follow the wish: what is unwanted goes, what is missing comes."""
        assert record.init is not None
        base = id_base(self._shop.fabrics[record.wish.fabric].slot)
        init = record.init.pid
        for gone in [each for each in record.mounts if each not in record.wish.mounts]:
            source = str(self._volumes.disk(gone.volume_id).mounted_at)
            await self._shop.children.in_child(lambda: mounting.detach(init, source, gone.path))  # noqa: B023
            self._now_mounted(record, drop=gone)
        for new in [each for each in record.wish.mounts if each not in record.mounts]:
            source = self._volumes.source(new.volume_id)
            await self._shop.children.in_child(
                lambda: mounting.attach(init, source, new.path, base, read_only=new.read_only)  # noqa: B023
            )
            self._now_mounted(record, add=new)

    async def _follow_shm(self, record: NodeRecord) -> None:
        wanted = record.wish.shm_gib
        if record.shm_gib == wanted:
            return
        assert record.init is not None
        init, size = record.init.pid, _shm_bytes(record.wish)
        await self._shop.children.in_child(lambda: mounting.resize_shm(init, size))
        self._shop.put_node(replace(self._shop.nodes[record.wish.key], shm_gib=wanted))

    def _now_mounted(self, record: NodeRecord, *, drop: Mount | None = None, add: Mount | None = None) -> None:
        current = self._shop.nodes[record.wish.key]
        mounts = [each for each in current.mounts if each != drop]
        self._shop.put_node(replace(current, mounts=(*mounts, add) if add else tuple(mounts)))
        self._volumes.node_left()

    def _watch(self, record: NodeRecord) -> None:
        init = record.init
        assert init is not None
        self._deaths.watch(init, lambda: self._ended(record.wish.key, init))

    def _ended(self, key: str, init: Identity) -> None:
        record = self._shop.nodes.get(key)
        if record is not None and record.init == init and record.power is Power.UP:
            self._shop.put_node(replace(record, power=Power.DEAD, because="its init ended"))

    async def _take_down(self, record: NodeRecord) -> None:
        await self._power_off(record)
        key = record.wish.key
        del self._shop.nodes[key]
        self._shop.state.forget("node", key)
        self._fabrics.node_left(record.wish.fabric, key)
        self._volumes.node_left()
        self._shop.tell(record.owner)

    def _failed(self, key: str, because: str) -> None:
        record = self._shop.nodes.get(key)
        if record is None or record.power is Power.STOPPING:
            return
        if record.power is Power.STARTING:
            self._shop.put_node(replace(record, power=Power.FAILED, because=because))
        else:
            self._shop.put_node(replace(record, because=because))


def _shm_bytes(wish: NodeWish) -> int:
    return wish.shm_gib * GIB or 64 * MIB

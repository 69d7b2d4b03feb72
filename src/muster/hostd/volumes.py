"""Volumes: size-limited file systems that outlive clusters. Leans on disks."""

from __future__ import annotations

import os

from msgspec.structs import replace

from muster.contracts.substrate import Power, VolumeWish
from muster.errors import Never, TryLater
from muster.hostd.disks import GIB, Disk
from muster.hostd.shop import Shop, Workers
from muster.hostd.state import VolumeRecord, checked_key


class Volumes:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._workers = Workers(self._drive, self._failed)

    def ensure(self, wish: VolumeWish, owner: str) -> None:
        known = self._shop.volumes.get(checked_key(wish.key))
        if known is None:
            self._shop.put_volume(VolumeRecord(wish=wish, owner=owner))
        elif known.owner != owner:
            raise Never(f"volume {wish.key} belongs to another owner")
        elif known.power is Power.STOPPING:
            raise TryLater(f"volume {wish.key} is still being removed")
        elif wish.size_gib < known.wish.size_gib:
            raise Never("a volume cannot shrink")
        elif known.wish == wish and known.power is Power.UP:
            return
        else:
            self._shop.put_volume(replace(known, wish=wish))
        self._workers.kick(wish.key)

    def ensure_absent(self, key: str) -> None:
        self._shop.put_volume(replace(self._shop.volumes[key], power=Power.STOPPING))
        self._workers.kick(key)

    def adopt(self) -> None:
        for key, record in self._shop.state.load("volume", VolumeRecord).items():
            self._shop.volumes[key] = record
            self._workers.kick(key)

    def disk(self, key: str) -> Disk:
        return Disk(self._shop.state.directory("volume", key))

    def source(self, key: str) -> str:
        """Where a volume is mounted on the machine, for showing it in a node."""
        record = self._shop.volumes.get(key)
        if record is None or record.power is not Power.UP:
            raise TryLater(f"volume {key} is not there yet")
        return str(self.disk(key).mounted_at)

    def node_left(self) -> None:
        for key, record in self._shop.volumes.items():
            if record.power is Power.STOPPING:
                self._workers.kick(key)

    async def _drive(self, key: str) -> None:
        record = self._shop.volumes.get(key)
        if record is None:
            return
        disk = self.disk(key)
        if record.power is Power.STOPPING:
            self._take_down(key, record)
            return
        wanted = record.wish.size_gib * GIB
        if not disk.exists:
            await disk.make(wanted, self._shop.children)
            _settle_on_disk(disk)
        disk.mount()
        if disk.image.stat().st_size < wanted:
            await disk.grow(wanted, self._shop.children)
        current = self._shop.volumes[key]
        if current.power is not Power.STOPPING:  # it may have been unwished while it was being made
            self._shop.put_volume(replace(current, power=Power.UP, because=""))

    def _take_down(self, key: str, record: VolumeRecord) -> None:
        if any(mount.volume_id == key for node in self._shop.nodes.values() for mount in node.mounts):
            return  # the last node to let go kicks us
        self.disk(key).remove()
        del self._shop.volumes[key]
        self._shop.state.forget("volume", key)
        self._shop.tell(record.owner)

    def _failed(self, key: str, because: str) -> None:
        record = self._shop.volumes.get(key)
        if record is not None and record.power is not Power.STOPPING:
            self._shop.put_volume(replace(record, power=Power.FAILED, because=because))


def _settle_on_disk(disk: Disk) -> None:
    """A volume outlives the machine's power as well: its file and its name are on the disk before we say so."""
    for path in (disk.image, disk.directory, disk.directory.parent):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

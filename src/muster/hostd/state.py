"""What hostd remembers between its lives: one small file per fabric, node, volume and fence.

Leans on the file system. Laws: a record is replaced whole (rename) and is written before the deed it announces, so a
killed hostd finds everything it began; a fence's token never falls; uid ranges are the whole machine's and taken by
creating a file, so that two homes never share one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from muster.contracts.substrate import FabricWish, NodeWish, Power, VolumeWish
from muster.errors import FencedOff, Never, NoneLeft
from muster.hostd.builder import IDS_PER_CLUSTER
from muster.hostd.processes import Identity
from muster.model.base import Part
from muster.model.clusters import Mount

_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Above what systemd hands to containers (0x6FFFFFFF) and below the largest signed uid.
_FIRST_ID: Final = 0x70000000
_RANGES: Final = 4095


class FabricRecord(Part, frozen=True, kw_only=True):
    wish: FabricWish
    owner: str
    power: Power = Power.STARTING
    because: str = ""
    slot: int
    holder: Identity | None = None
    numbers: dict[str, int] = {}  # node key -> its number in the fabric; kept, so a reboot keeps its address
    generation: int = 0  # of the files placed in the cluster's directory


class NodeRecord(Part, frozen=True, kw_only=True):
    wish: NodeWish
    owner: str
    power: Power = Power.STARTING
    because: str = ""
    number: int
    generation: int = 0  # of the boot that is running
    init: Identity | None = None
    mounts: tuple[Mount, ...] = ()  # as mounted now
    shm_gib: int = 0  # as it is now


class VolumeRecord(Part, frozen=True, kw_only=True):
    wish: VolumeWish
    owner: str
    power: Power = Power.STARTING
    because: str = ""


R = TypeVar("R", FabricRecord, NodeRecord, VolumeRecord)


def checked_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise Never(f"not a key: {key[:120]!r}")
    return key


class State:
    """The directory `HOME/hostd`, ours alone."""

    def __init__(
        self, root: Path, home_id: str, ranges: Path, durable_step: Callable[[], None] = lambda: None
    ) -> None:
        """`durable_step` is called around everything that stays: where the crash tests die."""
        self.root = root
        self.step = durable_step
        self.home_id = home_id
        self._ranges = ranges
        for name in ("fabrics", "nodes", "volumes", "fences"):
            (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        ranges.mkdir(mode=0o700, parents=True, exist_ok=True)

    def directory(self, kind: str, key: str) -> Path:
        return self.root / f"{kind}s" / checked_key(key)

    def save(self, kind: str, record: R) -> R:
        directory = self.directory(kind, record.wish.key)
        directory.mkdir(mode=0o700, exist_ok=True)
        self.step()
        _replace(directory / "record.json", msgspec.json.encode(record))
        self.step()
        return record

    def load(self, kind: str, model: type[R]) -> dict[str, R]:
        records = {}
        for path in sorted((self.root / f"{kind}s").glob("*/record.json")):
            records[path.parent.name] = msgspec.json.decode(path.read_bytes(), type=model)
        return records

    def forget(self, kind: str, key: str) -> None:
        directory = self.directory(kind, key)
        self.step()
        (directory / "record.json").unlink(missing_ok=True)
        self.step()
        shutil.rmtree(directory, ignore_errors=True)

    def fence(self, owner: str, token: int) -> None:
        """Refuse a zombie's late call; remember the newest token."""
        path = self.root / "fences" / checked_key(owner)
        seen = int(path.read_text()) if path.exists() else -1
        if token < seen:
            raise FencedOff(f"{owner}: token {token} is older than {seen}")
        if token > seen:
            self.step()
            _replace(path, str(token).encode())
            self.step()

    def take_range(self, fabric: str) -> int:
        mark = f"{self.home_id} {fabric}"
        self.step()
        for slot in range(_RANGES):
            if not _claimed_by_machine(slot) and self._claim(slot, mark):
                self.step()
                return slot
        raise NoneLeft("every uid range of this machine is in use")

    def sweep_ranges(self, fabrics: Collection[str]) -> None:
        """Give back what was taken for a fabric whose record was never written: we died in between."""
        for path in self._ranges.iterdir():
            home_id, _, fabric = path.read_text().partition(" ")
            if home_id == self.home_id and fabric not in fabrics:
                path.unlink(missing_ok=True)

    def keep_range(self, slot: int, fabric: str) -> None:
        """After a restart: claim again what a live fabric uses."""
        self._claim(slot, f"{self.home_id} {fabric}")

    def _claim(self, slot: int, mark: str) -> bool:
        try:
            fd = os.open(self._ranges / str(slot), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        os.write(fd, mark.encode())
        os.close(fd)
        return True

    def free_range(self, slot: int, fabric: str) -> None:
        path = self._ranges / str(slot)
        if path.exists() and path.read_text() == f"{self.home_id} {fabric}":
            path.unlink()


def id_base(slot: int) -> int:
    return _FIRST_ID + slot * IDS_PER_CLUSTER


def _claimed_by_machine(slot: int) -> bool:
    """Ranges that /etc/subuid gives to people are theirs."""
    low, high = id_base(slot), id_base(slot) + IDS_PER_CLUSTER
    return any(start < high and low < start + count for start, count in _subuids())


def _subuids(path: Path = Path("/etc/subuid")) -> list[tuple[int, int]]:
    if not path.exists():
        return []
    rows = (line.split(":") for line in path.read_text().splitlines())
    return [(int(row[1]), int(row[2])) for row in rows if len(row) == 3 and row[1].isdigit() and row[2].isdigit()]


def _replace(path: Path, data: bytes) -> None:
    """Whole or not at all. No fsync: what hostd keeps must survive hostd, not the machine, which ends all nodes."""
    making = path.with_name(f".{path.name}.new")
    making.write_bytes(data)
    making.replace(path)

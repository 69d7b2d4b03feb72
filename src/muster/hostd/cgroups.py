"""Limits for nodes, and the marker no tenant can forge: the cgroup a process sits in.

Leans on the cgroup file systems as they are mounted: v1, hybrid (v1 controllers and a bare v2) or v2 only. Laws: the
number of processes is limited before anything of the tenant's runs; a whole tree `muster-HOME/FABRIC/NODE` per home,
so two homes never meet; killing goes by membership, whatever a process calls itself.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final, NamedTuple

_V1: Final = ("pids", "memory", "cpu", "devices", "unified")
_PERIOD_US: Final = 100_000
# null zero full random urandom tty ptmx pts, the simulated GPUs, and 0:0, an overlay's whiteout
_DEVICES: Final = (
    *("c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm"),
    *("c 5:0 rwm", "c 5:2 rwm", "c 136:* rwm", "c 60:* rwm", "c 0:0 m"),
)


class Limits(NamedTuple):
    pids: int
    memory_bytes: int
    cpu_weight: int = 100
    cpus: int = 0  # 0: as many as there are


class Cgroups:
    def __init__(self, home_id: str, mounted: Path = Path("/sys/fs/cgroup")) -> None:
        self._top = f"muster-{home_id}"
        self._v2 = (mounted / "cgroup.controllers").exists()
        names = ("",) if self._v2 else tuple(name for name in _V1 if (mounted / name).is_dir())
        self._trees = {name: mounted / name / self._top for name in names}

    def lacks(self) -> str:
        """What is missing for limits to hold, in words; "" when nothing is."""
        if not self._trees:
            return "no cgroup file system is mounted below /sys/fs/cgroup"
        said = self._trees[""].parent / "cgroup.controllers" if self._v2 else None
        able = set(said.read_text().split()) if said is not None else set(self._trees)
        missing = [name for name in ("pids", "memory") if name not in able]
        return f"no cgroup controller for {' and '.join(missing)}: nodes could not be limited" if missing else ""

    def make(self, path: tuple[str, ...], limits: Limits | None = None, *, devices: bool = False) -> None:
        for tree in self._trees.values():
            directory = tree.joinpath(*path)
            directory.mkdir(parents=True, exist_ok=True)
            if self._v2:
                self._delegate(tree, path)
        self.limit(path, limits, devices=devices)

    def limit(self, path: tuple[str, ...], limits: Limits | None = None, *, devices: bool = False) -> None:
        """Into groups that are there: whoever is to be limited may do it himself, just before he joins."""
        if limits is not None:
            self._limit(path, limits)
        if devices and "devices" in self._trees:
            directory = self._trees["devices"].joinpath(*path)
            _write(directory / "devices.deny", "a")
            for device in _DEVICES:
                _write(directory / "devices.allow", device)

    def _delegate(self, tree: Path, path: tuple[str, ...]) -> None:
        """v2: every level hands its controllers down."""
        level = tree
        for step in (*path, None):
            for controller in ("+pids", "+memory", "+cpu"):
                _try_write(level.parent / "cgroup.subtree_control", controller)
            if step is not None:
                level = level / step

    def _limit(self, path: tuple[str, ...], limits: Limits) -> None:
        # pids first: the only thing between a fork bomb and the machine
        if self._v2:
            directory = self._trees[""].joinpath(*path)
            _write(directory / "pids.max", str(limits.pids))
            _write(directory / "memory.max", str(limits.memory_bytes))
            _try_write(directory / "memory.swap.max", "0")
            _try_write(directory / "cpu.weight", str(limits.cpu_weight))
            if limits.cpus:
                _try_write(directory / "cpu.max", f"{limits.cpus * _PERIOD_US} {_PERIOD_US}")
            return
        for tree, name, value in (
            ("pids", "pids.max", limits.pids),
            ("memory", "memory.limit_in_bytes", limits.memory_bytes),
            ("cpu", "cpu.shares", limits.cpu_weight * 1024 // 100),
        ):
            if tree in self._trees:
                _write(self._trees[tree].joinpath(*path) / name, str(value))
        if limits.cpus and "cpu" in self._trees:
            directory = self._trees["cpu"].joinpath(*path)
            _try_write(directory / "cpu.cfs_period_us", str(_PERIOD_US))
            _try_write(directory / "cpu.cfs_quota_us", str(limits.cpus * _PERIOD_US))

    def join_files(self, path: tuple[str, ...]) -> list[str]:
        """The files into which a process writes `0` to become a member."""
        return [str(tree.joinpath(*path) / "cgroup.procs") for tree in self._trees.values()]

    def members(self, path: tuple[str, ...] = ()) -> list[int]:
        """Every process below, by any tree: a process that missed one is still found by another."""
        found: set[int] = set()
        for tree in self._trees.values():
            for directory, _, _ in os.walk(tree.joinpath(*path)):
                found.update(_pids(Path(directory) / "cgroup.procs"))
        return sorted(found)

    def children(self, path: tuple[str, ...] = ()) -> set[str]:
        names: set[str] = set()
        for tree in self._trees.values():
            try:
                with os.scandir(tree.joinpath(*path)) as entries:
                    names.update(entry.name for entry in entries if entry.is_dir())
            except FileNotFoundError:
                continue
        return names

    def kill(self, path: tuple[str, ...] = ()) -> bool:
        """Kill all members; True when there are none left. Call again until it says so."""
        members = self.members(path)
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not members

    def remove(self, path: tuple[str, ...] = ()) -> bool:
        """Remove the emptied directories; True when none is left."""
        gone = True
        for tree in self._trees.values():
            for directory, _, _ in os.walk(tree.joinpath(*path), topdown=False):
                gone = _rmdir(directory) and gone
        return gone


def _rmdir(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _pids(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split()]
    except OSError:
        return []


def _write(path: Path, value: str) -> None:
    with path.open("w") as handle:
        handle.write(value)


def _try_write(path: Path, value: str) -> None:
    """For what a kernel or a v2 parent may not have: that limit is then missing, and its neighbours bear it."""
    try:
        _write(path, value)
    except OSError:
        return

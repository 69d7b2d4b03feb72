"""The shared homes of clusters: copies of one blank, with one kept mounted for whoever comes next.

Leans on disks. mkfs writes tens of megabytes and waits for the disk, and so does a mount; a cluster that starts waits
for neither. Laws: a home appears whole, by rename; what is kept ready is hostd's own, and goes when hostd goes;
the disk is waited for in a child, never here.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from muster.errors import DriverError
from muster.hostd.children import Children
from muster.hostd.disks import Disk, copy_sparse

SPARE: Final = "spare-home"
_AFTERWARDS_SECONDS: Final = 1.0
"""Whoever took the spare is starting a cluster, and wants the disk for himself."""


class Homes:
    """`root` is hostd's directory; every home is of one size."""

    def __init__(self, root: Path, size_bytes: int, children: Children) -> None:
        self._blank = Disk(root / f"blank-{size_bytes >> 20}-mib")
        self._spare = Disk(root / SPARE)
        self._size_bytes = size_bytes
        self._children = children
        self._ready = False
        self._closing = asyncio.Event()
        self._preparing: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def furnish(self, directory: Path) -> None:
        """A home in this directory, mounted; left alone where it is already."""
        home = Disk(directory)
        self._take_spare(directory)
        await self._make(home)
        if not home.mounted:
            await self._children.in_child(home.mount)

    def _take_spare(self, directory: Path) -> None:
        if self._ready and not directory.exists():
            self._ready = False
            self._spare.directory.rename(directory)
            self.prepare(_AFTERWARDS_SECONDS)

    def prepare(self, after_seconds: float = 0.0) -> None:
        """Begin to have one ready."""
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare(after_seconds))

    async def _prepare(self, after_seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), after_seconds)
        if self._closing.is_set():
            return
        with contextlib.suppress(DriverError, OSError):  # whoever needs one makes his own, and is told
            await self._make(self._spare)
            await self._children.in_child(self._spare.mount)
            self._ready = True

    async def _make(self, home: Disk) -> None:
        if home.exists:
            return
        async with self._one_at_a_time:
            await self._make_blank()
        home.directory.mkdir(parents=True, exist_ok=True)
        making = home.directory / "making"
        copy_sparse(self._blank.image, making)
        making.rename(home.image)

    async def _make_blank(self) -> None:
        if self._blank.exists:
            return
        full = Disk(self._blank.directory / "full")
        full.remove()
        await full.make(self._size_bytes, self._children)
        making = self._blank.directory / "making"
        copy_sparse(full.image, making)
        making.rename(self._blank.image)
        full.remove()

    async def close(self) -> None:
        """A child that mounts is waited for: alone it would hold what it mounts a while longer than we live."""
        self._closing.set()
        if self._preparing is not None:
            await self._preparing
        self._spare.unmount()

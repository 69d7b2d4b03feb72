"""Size-limited file systems in sparse files: volumes, and the shared home of a cluster.

Leans on mkfs, loop devices and linux.mount. Laws: a file system lives in a file of this home and nowhere else; its
loop device clears itself when the last mount goes, so nothing is left when hostd and the nodes are gone; mounted once
in hostd's private mount namespace and shown in nodes through id-mapped copies; never `suid`, never `dev`.

XFS where mkfs.xfs is there, because it grows while mounted with CAP_SYS_ADMIN alone; ext4 otherwise.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from muster.errors import TryLater
from muster.hostd import linux
from muster.hostd.children import Children

GIB: Final = 1 << 30
_TENANT: Final = 1000
_LOOP_SET_CAPACITY, _LOOP_CONFIGURE, _LOOP_GET_FREE = 0x4C07, 0x4C0A, 0x4C82
_AUTOCLEAR: Final = 4
_LOOP_MAJOR: Final = 7
_XFS_MINIMUM: Final = 300 << 20
_CHUNK: Final = 64 << 10


class Disk:
    """One image file and where it is mounted in hostd's own view."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.image = directory / "image"
        self.mounted_at = directory / "mounted"

    @property
    def exists(self) -> bool:
        return self.image.exists()

    @property
    def mounted(self) -> bool:
        return os.path.ismount(self.mounted_at)

    @property
    def size_gib(self) -> int:
        return self.image.stat().st_size // GIB if self.exists else 0

    async def make(self, size_bytes: int, children: Children) -> None:
        """Made under another name and renamed when whole, so that a half-made file system is never mounted."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.exists:
            return
        making = self.directory / "making"
        making.unlink(missing_ok=True)
        with making.open("wb") as handle:
            handle.truncate(size_bytes)
        await children.run(_mkfs(making, size_bytes))
        making.rename(self.image)

    def mount(self) -> None:
        """Again after a restart: the same file gets its old loop device back while a node still holds it."""
        self.mounted_at.mkdir(exist_ok=True)
        if self.mounted:
            return
        loop = _find_loop(self.image) or _make_loop(self.image)
        path = f"/proc/self/fd/{loop}"
        try:
            self._mount_as(os.readlink(path))
        finally:
            os.close(loop)
        if self.mounted_at.stat().st_uid == 0 and not _used(self.mounted_at):
            os.chown(self.mounted_at, _TENANT, _TENANT)

    def _mount_as(self, device: str) -> None:
        flags = linux.MS_NOSUID | linux.MS_NODEV
        try:
            # homes are copies of one blank and share its id, which XFS would take for the same disk twice
            linux.mount(device, str(self.mounted_at), "xfs", flags, "discard,nouuid")
        except OSError:
            linux.mount(device, str(self.mounted_at), "ext4", flags, "discard")

    async def grow(self, size_bytes: int, children: Children) -> None:
        """While mounted, and while nodes write to it."""
        if self.image.stat().st_size < size_bytes:
            os.truncate(self.image, size_bytes)
        loop = _find_loop(self.image)
        if loop is None:
            raise TryLater("the volume is not mounted")
        try:
            fcntl.ioctl(loop, _LOOP_SET_CAPACITY)
            device = os.readlink(f"/proc/self/fd/{loop}")
        finally:
            os.close(loop)
        if _is_xfs(self.image):
            await children.run(["xfs_growfs", str(self.mounted_at)])
        else:
            await children.run(["resize2fs", device])

    def unmount(self) -> None:
        if self.mounted_at.exists() and self.mounted:
            linux.detach(str(self.mounted_at))

    def remove(self) -> None:
        self.unmount()
        shutil.rmtree(self.directory, ignore_errors=True)


def copy_sparse(source: Path, target: Path) -> None:
    """The whole length, but only the blocks that hold anything."""
    with source.open("rb") as reading, target.open("wb") as writing:
        end = os.fstat(reading.fileno()).st_size
        writing.truncate(end)
        for start, stop in _data(reading.fileno(), end):
            for at in range(start, stop, _CHUNK):
                held = os.pread(reading.fileno(), min(_CHUNK, stop - at), at)
                if held.count(0) != len(held):
                    os.pwrite(writing.fileno(), held, at)


def _data(fd: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the file has blocks at all."""
    at = 0
    while at < end:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return  # nothing but a hole up to the end
        at = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, at


def _used(root: Path) -> bool:
    return any(entry.name != "lost+found" for entry in root.iterdir())


def _mkfs(path: Path, size_bytes: int) -> list[str]:
    if shutil.which("mkfs.xfs") and size_bytes >= _XFS_MINIMUM:
        return ["mkfs.xfs", "-q", "-K", "-l", "size=64m", str(path)]
    lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
    return ["mkfs.ext4", "-q", "-F", "-m0", "-E", lazy, str(path)]


def _is_xfs(image: Path) -> bool:
    with image.open("rb") as handle:
        return handle.read(4) == b"XFSB"


def _find_loop(image: Path) -> int | None:
    """An open descriptor of the loop device that already serves this very file."""
    wanted = image.stat()
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            # The kernel's name of the file may be of another mount namespace: compare the file, not the name.
            number = int(entry.parts[3].removeprefix("loop"))
            fd = os.open(_device(number), os.O_RDWR | os.O_CLOEXEC)
        except (OSError, ValueError):
            continue
        if _backing(fd) == (wanted.st_dev, wanted.st_ino):
            return fd
        os.close(fd)
    return None


def _backing(fd: int) -> tuple[int, int] | None:
    status = bytearray(232)
    try:
        fcntl.ioctl(fd, 0x4C05, status)
    except OSError:
        return None
    device, inode = struct.unpack_from("QQ", status)
    # The kernel encodes dev_t as major:minor the old "huge" way, which os.stat shows alike.
    return device, inode


def _make_loop(image: Path) -> int:
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(64):
            number = fcntl.ioctl(control, _LOOP_GET_FREE)
            fd = os.open(_device(number), os.O_RDWR | os.O_CLOEXEC)
            if _configure(fd, backing, image):
                return fd
            os.close(fd)
    finally:
        os.close(control)
        os.close(backing)
    raise TryLater("no free loop device")


def _device(number: int) -> str:
    path = f"/dev/loop{number}"
    if not os.path.exists(path):
        os.mknod(path, 0o060600, os.makedev(_LOOP_MAJOR, number))
    return path


def _configure(fd: int, backing: int, image: Path) -> bool:
    info = struct.pack("5Q4I", 0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR)
    info += str(image).encode()[-63:].ljust(64, b"\0") + bytes(64 + 32 + 16)
    try:
        fcntl.ioctl(fd, _LOOP_CONFIGURE, struct.pack("II", backing, 0) + info + bytes(64))
    except OSError:
        return False  # another took it between the asking and the taking
    return True

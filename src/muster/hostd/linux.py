"""The system calls Python does not offer: namespaces, id-mapped mounts, pivot_root, capabilities.

Leans on libc through ctypes. Laws: every function is one system call (or one bind made without a window in which its
flags are missing) and raises OSError with what it was about; numbers are of x86_64, and `supported()` says so.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWCGROUP: Final = 0x02000000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
_MS_REMOUNT: Final = 32
MS_REC: Final = 1 << 14
MS_PRIVATE: Final = 1 << 18

ATTR_RDONLY: Final = 1
ATTR_NOSUID: Final = 2
ATTR_NODEV: Final = 4
ATTR_NOEXEC: Final = 8
_ATTR_IDMAP: Final = 0x00100000

_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8

_SYS_CLONE: Final = 56
_SYS_CAPSET: Final = 126
_SYS_PIVOT_ROOT: Final = 155
_SYS_SECCOMP: Final = 317
_SYS_OPEN_TREE: Final = 428
_SYS_MOVE_MOUNT: Final = 429
_SYS_OPENAT2: Final = 437
_SYS_MOUNT_SETATTR: Final = 442

_PR_SET_DUMPABLE: Final = 4
_PR_CAPBSET_DROP: Final = 24
_PR_SET_CHILD_SUBREAPER: Final = 36


def supported() -> bool:
    return platform.machine() == "x86_64"


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)} ({what})")
    return result


def _syscall(what: str, number: int, *arguments: int | bytes) -> int:
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *words), what)


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode() or None
    )
    _checked(result, f"mount {kind} on {target}")


def make_private(target: str = "/") -> None:
    """Mounts made from here on stay in this mount namespace."""
    _checked(_libc.mount(None, target.encode(), None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "make private")


def remount(target: str, flags: int, options: str) -> None:
    """Change the options of what is mounted there, such as a tmpfs's size."""
    result = _libc.mount(None, target.encode(), None, ctypes.c_ulong(flags | _MS_REMOUNT), options.encode())
    _checked(result, f"remount {target}")


def detach(target: str) -> None:
    """Unmount lazily, never through a symlink."""
    _checked(_libc.umount2(target.encode(), _MNT_DETACH | _UMOUNT_NOFOLLOW), f"umount {target}")


def setns(fd: int, kind: int = 0) -> None:
    _checked(_libc.setns(fd, kind), "setns")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def clone(flags: int) -> int:
    """fork() into new namespaces. In the child do nothing but system calls: Python was not told of this fork."""
    return _syscall("clone", _SYS_CLONE, flags, 0, 0, 0, 0)


def sethostname(name: str) -> None:
    raw = name.encode()
    _checked(_libc.sethostname(raw, len(raw)), "sethostname")


def open_tree(source: str) -> int:
    """A detached copy of the mount at `source`, as a descriptor."""
    return _syscall(f"open_tree {source}", _SYS_OPEN_TREE, _AT_FDCWD, source.encode(), 1 | 0x80000)


def set_attributes(tree: int, attributes: int, userns: int | None = None) -> None:
    """Flags (and the id map of `userns`) onto a detached mount, before anybody can see it."""
    mapped = attributes | (_ATTR_IDMAP if userns is not None else 0)
    packed = struct.pack("QQQQ", mapped, 0, 0, userns or 0)
    _syscall("mount_setattr", _SYS_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, packed, len(packed))


def move_mount(tree: int, target: str) -> None:
    _syscall(f"move_mount {target}", _SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, target.encode(), 4)


def move_mount_onto(tree: int, target_fd: int) -> None:
    _syscall("move_mount", _SYS_MOVE_MOUNT, tree, b"", target_fd, b"", 4 | 0x40)


def open_directory_strictly(path: str) -> int:
    """Open a directory whose path may have been prepared by an enemy: no symlink anywhere in it."""
    how = struct.pack("QQQ", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, 0x02 | 0x04)
    return _syscall(f"openat2 {path}", _SYS_OPENAT2, _AT_FDCWD, path.encode(), how, len(how))


def bind(source: str, target: str, attributes: int, userns: int | None = None) -> None:
    tree = open_tree(source)
    try:
        set_attributes(tree, attributes, userns)
        move_mount(tree, target)
    finally:
        os.close(tree)


def pivot_root_here() -> None:
    """Make the working directory the root of this mount namespace and let go of the old one."""
    _syscall("pivot_root", _SYS_PIVOT_ROOT, b".", b".")
    _checked(_libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")


def prctl(option: int, argument: int) -> None:
    _checked(_libc.prctl(option, argument, 0, 0, 0), "prctl")


def become_subreaper() -> None:
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def be_unreadable() -> None:
    """No process without power over the *initial* user namespace may trace or read us or our forked children."""
    prctl(_PR_SET_DUMPABLE, 0)


def drop_from_bounding_set(capability: int) -> None:
    # EINVAL for numbers this kernel does not know: nothing to drop.
    _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def capset(mask: int) -> None:
    low, high = mask & 0xFFFFFFFF, mask >> 32
    _syscall(
        "capset",
        _SYS_CAPSET,
        struct.pack("II", 0x20080522, 0),
        struct.pack("IIIIII", low, low, 0, high, high, 0),
    )


def install_filter(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _syscall("seccomp", _SYS_SECCOMP, 1, 0, header)

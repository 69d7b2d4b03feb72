"""Mounts on a node whose paths a tenant may have prepared: at its building, and while it runs.

Leans on linux.py. Laws: the mount point is opened without following any symlink, and the mount is put on (or taken
from) the opened directory, never a name; a mount belongs to the initial user namespace, so the tenant cannot undo it.
"""

from __future__ import annotations

import os

from muster.hostd import linux


def graft(tree: int, target: str, id_base: int) -> None:
    """Put a detached mount on `target`, making missing directories for the node's root. We are inside the node."""
    path = ""
    for part in target.strip("/").split("/"):
        path += f"/{part}"
        if not os.path.lexists(path):
            os.mkdir(path, 0o755)
            os.chown(path, id_base, id_base, follow_symlinks=False)
    fd = linux.open_directory_strictly(target)
    linux.move_mount_onto(tree, fd)
    os.close(fd)
    os.close(tree)


def attach(init: int, source: str, target: str, id_base: int, *, read_only: bool) -> None:
    """Mount on a running node. Runs in a forked child: it changes the mount namespace it stands in."""
    tree = linux.open_tree(source)
    userns = os.open(f"/proc/{init}/ns/user", os.O_RDONLY)
    mntns = os.open(f"/proc/{init}/ns/mnt", os.O_RDONLY)
    attributes = linux.ATTR_NOSUID | linux.ATTR_NODEV | (linux.ATTR_RDONLY if read_only else 0)
    linux.set_attributes(tree, attributes, userns)
    linux.setns(mntns, linux.CLONE_NEWNS)
    graft(tree, target, id_base)


def resize_shm(init: int, size_bytes: int) -> None:
    """/dev is ours and no tenant can put anything else there. Runs in a forked child."""
    linux.setns(os.open(f"/proc/{init}/ns/mnt", os.O_RDONLY), linux.CLONE_NEWNS)
    linux.remount("/dev/shm", linux.MS_NOSUID | linux.MS_NODEV, f"size={size_bytes}")  # noqa: S108


def detach(init: int, source: str, target: str) -> None:
    """Unmount from a running node, if what is mounted there is really ours. Runs in a forked child."""
    device = os.stat(source).st_dev
    linux.setns(os.open(f"/proc/{init}/ns/mnt", os.O_RDONLY), linux.CLONE_NEWNS)
    try:
        os.fchdir(linux.open_directory_strictly(target))
    except OSError:
        return  # no such directory, or a symlink in the way: ours is not mounted there
    if os.stat(".").st_dev == device:
        linux.detach(".")

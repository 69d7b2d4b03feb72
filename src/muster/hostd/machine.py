"""Whether this machine can carry nodes, in one sentence; and the packages that would help."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from muster.hostd import linux
from muster.hostd.cgroups import Cgroups

TOOLS: Final = {
    "debootstrap": "debootstrap",
    "nft": "nftables",
    "mkfs.xfs": "xfsprogs",
    "mkfs.ext4": "e2fsprogs",
}
_KERNEL_AT_LEAST: Final = (5, 19)  # id-mapped layers below an overlay


def unfit() -> str:
    """Why nodes cannot run here, or "" when they can."""
    if platform.system() != "Linux" or not linux.supported():
        return f"real nodes need Linux on x86_64; this is {platform.system()} on {platform.machine()}"
    if os.geteuid() != 0:
        return "real nodes need root (the simulated fleet does not)"
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    if release < _KERNEL_AT_LEAST:
        return f"real nodes need Linux 5.19 or newer; this is {platform.release()}"
    if not Path("/proc/self/ns/user").exists():
        return "this kernel has no user namespaces"
    if not Cgroups("probe").usable:
        return "no cgroup file system is mounted below /sys/fs/cgroup"
    missing = missing_packages()
    return f"missing on this machine: apt-get install {' '.join(missing)}" if missing else ""


def missing_packages() -> list[str]:
    return sorted({package for tool, package in TOOLS.items() if shutil.which(tool, path=_PATH) is None})


def install_packages(progress: Callable[[str], None]) -> None:
    """By apt, without starting anything they bring."""
    missing = missing_packages()
    if not missing:
        return
    progress(f"installing {', '.join(missing)}")
    environment = {"PATH": _PATH, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = ["apt-get", "-qy", "--no-install-recommends", "install", *missing]
    subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603


_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"

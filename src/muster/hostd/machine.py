"""Whether this machine can carry nodes, in one sentence; and the packages that would help.

Laws: asking changes nothing on the machine; a package's own service is never started because we wanted its programs.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from muster.hostd import linux
from muster.hostd.cgroups import Cgroups

TOOLS: Final = {
    "debootstrap": "debootstrap",
    "nft": "nftables",
    "mkfs.xfs": "xfsprogs",
    "mkfs.ext4": "e2fsprogs",
    "ssh": "openssh-client",
}
_KERNEL_AT_LEAST: Final = (5, 19)  # id-mapped layers below an overlay


def unfit() -> str:
    """Why nodes cannot run here, or "" when they can."""
    missing = missing_packages()
    return incapable() or (f"missing on this machine: apt-get install {' '.join(missing)}" if missing else "")


def incapable() -> str:
    """The same, of what no package would mend."""
    if platform.system() != "Linux" or not linux.supported():
        return f"real nodes need Linux on x86_64; this is {platform.system()} on {platform.machine()}"
    if os.geteuid() != 0:
        return "real nodes need root"
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    if release < _KERNEL_AT_LEAST:
        return f"real nodes need Linux 5.19 or newer; this is {platform.release()}"
    if not Path("/proc/self/ns/user").exists():
        return "this kernel has no user namespaces"
    lacks = Cgroups("probe").lacks()
    if lacks:
        return lacks
    if not os.path.exists("/dev/loop-control"):
        return "there is no /dev/loop-control: no loop devices for volumes"
    return "" if _may_unshare() else "root may not make namespaces here (is this a container without privileges?)"


def _may_unshare() -> bool:
    """Asked of the kernel, in a child: root in an ordinary container has the name and not the power."""
    command = ["unshare", "--mount", "--net", "--user", "--map-root-user", "mount", "-t", "tmpfs", "probe", "/mnt"]
    plain = ["unshare", "--mount", "--net", "true"]
    return all(_passes(each) for each in (plain, command))


def _passes(command: list[str]) -> bool:
    return subprocess.run(command, env={"PATH": _PATH}, capture_output=True, check=False).returncode == 0  # noqa: S603


def missing_packages() -> list[str]:
    return sorted({package for tool, package in TOOLS.items() if shutil.which(tool, path=_PATH) is None})


def install_packages(progress: Callable[[str], None]) -> None:
    """By apt, without starting anything they bring."""
    missing = missing_packages()
    if not missing:
        return
    progress(f"installing {', '.join(missing)}")
    environment = {"PATH": _PATH, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    install = ["apt-get", "-qy", "--no-install-recommends", "install", *missing]
    with _services_at_rest(Path("/usr/sbin/policy-rc.d")):
        # A fresh machine has never read what its mirror offers.
        for command in (["apt-get", "-qq", "update"], install):
            subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603


@contextmanager
def _services_at_rest(policy: Path) -> Iterator[None]:
    """Debian asks this file before it starts a service; one that is there already is its owner's word."""
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)


_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"

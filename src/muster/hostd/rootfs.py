"""The root file system of every node: one pinned Debian release with Slurm, munge and sshd, made once and cached.

Leans on debootstrap and apt inside the new root. Laws: the directory is named by a digest of its recipe, so a
changed recipe is a new root and an old one is never edited; it appears whole (rename) or not at all; two makers on
one machine take turns; nothing of it runs on the machine itself, and no service is started while packages are
configured.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from muster.errors import Never, TryLater

SUITE: Final = "bookworm"
APART: Final = ("unshare", "--mount", "--fork", "--pid", "--kill-child", "--")
DEFAULT_MIRROR: Final = "http://deb.debian.org/debian"
BASE: Final = ("ca-certificates",)
PACKAGES: Final = (
    *("slurmd", "slurmctld", "slurm-client", "slurmdbd", "munge"),
    *("mariadb-server-core", "mariadb-client-core"),
    *("openssh-server", "openssh-client", "sudo", "rsync", "python3-venv", "less", "nano", "vim-tiny"),
    *("iproute2", "iputils-ping", "procps", "psmisc", "curl"),
)
USER: Final = "ubuntu"
"""The tenant's user in every node; uid 1000, sudo inside the node and nowhere else."""

# What every node of every cluster shares. /etc/cluster is the cluster's own directory, mounted read-only by hostd.
_SETTLE: Final = f"""
set -e
rm -f /etc/ssh/ssh_host_* /etc/munge/munge.key
useradd --uid 1000 --create-home --shell /bin/bash {USER}
usermod --password '*' {USER}
echo '{USER} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{USER}
chmod 0440 /etc/sudoers.d/{USER}
mkdir -p /etc/cluster /run/sshd /var/log/slurm /var/spool/slurmctld /var/spool/slurmd
chown slurm:slurm /var/log/slurm /var/spool/slurmctld
rm -rf /etc/slurm /etc/hosts /etc/ssh/ssh_known_hosts
ln -s /etc/cluster/slurm /etc/slurm
ln -s /etc/cluster/hosts /etc/hosts
ln -s /etc/cluster/ssh/known_hosts /etc/ssh/ssh_known_hosts
printf 'Host *\\n  IdentityFile ~/.ssh/id_ed25519\\n  IdentityFile /etc/cluster/ssh/id_cluster\\n' \
  > /etc/ssh/ssh_config.d/cluster.conf
rm -f /etc/motd /etc/update-motd.d/*
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log /var/log/apt
mkdir -p /var/lib/apt/lists/partial /var/cache/apt/archives/partial
"""


def recipe_digest() -> str:
    recipe = json.dumps([1, SUITE, BASE, PACKAGES, _SETTLE])
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def rootfs_path(cache: Path) -> Path:
    return cache / "rootfs" / f"{SUITE}-slurm-{recipe_digest()}"


def images_path(cache: Path) -> Path:
    """Where an operator puts other root file systems, each a directory with the name that clusters ask for."""
    return cache / "images"


def machine_mirror(etc: Path = Path("/etc")) -> str:
    """The mirror this machine's own apt uses, when the machine is a Debian; Debian's own otherwise."""
    release = _os_release(etc / "os-release")
    if release.get("ID") != "debian":
        return DEFAULT_MIRROR
    codename = release.get("VERSION_CODENAME", SUITE)
    for uri, suites in _apt_sources(etc / "apt"):
        if codename in suites:
            return uri.rstrip("/")
    return DEFAULT_MIRROR


def _os_release(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    pairs = (line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return {key: value.strip('"') for key, value in pairs}


def _apt_sources(apt: Path) -> Iterator[tuple[str, list[str]]]:
    for path in sorted([apt / "sources.list", *apt.glob("sources.list.d/*")]):
        if not path.is_file():
            continue
        text = path.read_text(errors="replace")
        yield from _deb822(text) if path.suffix == ".sources" else _one_line(text)


def _one_line(text: str) -> Iterator[tuple[str, list[str]]]:
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["deb"]:
            plain = [word for word in words[1:] if not (word.startswith("[") or word.endswith("]") or "=" in word)]
            if len(plain) >= 2:
                yield plain[0], [plain[1]]


def _deb822(text: str) -> Iterator[tuple[str, list[str]]]:
    for stanza in text.split("\n\n"):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith(" "))
        if "deb" in fields.get("Types", "").split():
            for uri in fields.get("URIs", "").split():
                yield uri, fields.get("Suites", "").split()


def ensure_rootfs(cache: Path, *, mirror: str = "", progress: Callable[[str], None] = print) -> Path:
    """The finished root file system, made now if it is not there yet (a minute or two, once per machine)."""
    target = rootfs_path(cache)
    if target.is_dir():
        return target
    if os.geteuid() != 0:
        raise Never("making the nodes' root file system needs root, once: run `muster up` as root")
    if shutil.which("debootstrap") is None:
        raise Never("debootstrap is missing: apt-get install debootstrap")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _turn(target.parent / ".making"):
        if not target.is_dir():
            _make(target, mirror or os.environ.get("MUSTER_DEBIAN_MIRROR", "") or machine_mirror(), progress)
    return target


@contextmanager
def _turn(lock: Path) -> Iterator[None]:
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _make(target: Path, mirror: str, progress: Callable[[str], None]) -> None:
    making = target.with_name(f".{target.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    log = target.parent / "making.log"
    with log.open("wb") as out:
        try:
            progress(f"root file system 1/3: Debian {SUITE} (log: {log})")
            keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
            trust = [f"--keyring={keyring}"] if keyring.exists() else []
            include = f"--include={','.join(BASE)}"
            _run(["debootstrap", *trust, "--variant=minbase", include, SUITE, str(making), mirror], out)
            (making / "etc/resolv.conf").write_bytes(_resolver())
            progress("root file system 2/3: Slurm, munge, sshd")
            _inside(making, _install_script(mirror), out)
            progress("root file system 3/3: settling")
            _inside(making, _SETTLE, out)
            (making / "usr/sbin/policy-rc.d").unlink()
            (making / "etc/resolv.conf").write_bytes(b"")
            (making / "etc/hostname").unlink(missing_ok=True)
        except subprocess.CalledProcessError as error:
            raise TryLater(f"the root file system could not be made ({error.cmd[0]} failed); see {log}") from error
    making.chmod(0o755)
    os.sync()
    making.rename(target)


def _resolver() -> bytes:
    path = Path("/etc/resolv.conf")
    return path.read_bytes() if path.exists() else b""


def _install_script(mirror: str) -> str:
    return f"""
set -e
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
echo 'deb {mirror} {SUITE} main' > /etc/apt/sources.list
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -qy --no-install-recommends install {" ".join(PACKAGES)}
"""


def _inside(root: Path, script: str, out: object) -> None:
    """Run a script in the new root."""
    mounts = f"mount -t proc proc {root}/proc && exec chroot {root} /bin/sh -c"
    _run(["sh", "-c", f'{mounts} "$1"', "sh", script], out)


def _run(command: list[str], out: object) -> None:
    """In namespaces of its own: however it ends, Ctrl-C included, nothing stays mounted and nobody goes on. Without,
    an interrupted debootstrap leaves a /proc behind, into which whoever deletes the half-made root would walk."""
    command = [*APART, *command]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        if name in os.environ:
            environment[name] = os.environ[name]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)  # type: ignore[call-overload]  # noqa: S603

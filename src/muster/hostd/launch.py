"""Bringing hostd up for a home, and stepping down from root before anything that strangers speak to is started.

Leans on machine, rootfs, linux. Laws: one hostd per home, which outlives the server that started it; after
`step_down` this process has no uid, group or capability of root's and cannot get them back; it sees its home, its
interpreter and its code even where they lie below a directory that is closed to others, and nothing else of there.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from muster.errors import DriverError
from muster.hostd import linux
from muster.hostd.machine import incapable, install_packages, unfit
from muster.hostd.rootfs import ensure_rootfs
from muster.hostd.socketpath import short
from muster.hostd.traces import hostds

SYSTEM_USER: Final = "muster"
_WAIT_STEPS, _WAIT_SECONDS = 600, 0.02


def bring_up(home: Path, cache: Path, say: Callable[[str], None]) -> str:
    """hostd answers for this home, or the sentence that says why it cannot."""
    if answers(home):
        return ""
    return prepare(cache, say) or _start(home, cache)


def prepare(cache: Path, say: Callable[[str], None]) -> str:
    """Packages and root file system, once per machine; or why not. A machine that cannot is left as it is."""
    because = incapable()
    if because:
        return because
    try:
        install_packages(say)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"packages for real nodes could not be installed ({error})"
    try:
        ensure_rootfs(cache, progress=say)
    except DriverError as error:
        return error.because
    return unfit()


def answers(home: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as knocking:
        try:
            with short(home / "hostd.sock") as place:
                knocking.connect(place)
        except OSError:
            return False
    return True


def _start(home: Path, cache: Path) -> str:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    user = system_user()
    command = [sys.executable, "-m", "muster.hostd", "--home", str(home), "--cache", str(cache), "--user", user]
    command.append("--leave-when-idle")
    with (home / "hostd.log").open("ab") as log:
        started = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    for _ in range(_WAIT_STEPS):
        if answers(home):
            # it is to outlive us; whoever reaps orphans will reap it
            started.returncode = 0
            return ""
        try:
            code = started.wait(_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return f"hostd ended with {code}; see {home / 'hostd.log'}"
    return f"hostd does not answer; see {home / 'hostd.log'}"


def dismiss(home: Path) -> None:
    """hostd ends now, rather than when it notices that nobody needs it. Nodes, where there are any, run on."""
    for pid in hostds(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    for _ in range(_WAIT_STEPS):
        if not hostds(home):
            return
        time.sleep(_WAIT_SECONDS)


def system_user() -> str:
    """The unprivileged user, made if missing."""
    try:
        pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        command = ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell"]
        subprocess.run([*command, "/usr/sbin/nologin", SYSTEM_USER], check=True)  # noqa: S603
    return SYSTEM_USER


def step_down(home: Path) -> None:
    """Become the unprivileged user, for good. Call before any thread is started."""
    user = pwd.getpwnam(system_user())
    _take_over(home, user.pw_uid, user.pw_gid)
    code = Path(__file__).resolve().parents[2]
    keep_in_sight([home, Path(sys.prefix), Path(sys.base_prefix), code])
    os.chdir("/")
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    os.environ["HOME"] = str(home)
    os.environ["USER"] = os.environ["LOGNAME"] = user.pw_name


def _take_over(home: Path, uid: int, gid: int) -> None:
    """The home becomes the user's, except hostd's own part; its mode is never widened."""
    os.chown(home, uid, gid)
    for directory, names, files in os.walk(home):
        if Path(directory) == home and "hostd" in names:
            names.remove("hostd")
        for name in (*names, *files):
            os.lchown(os.path.join(directory, name), uid, gid)


def keep_in_sight(paths: Iterable[Path]) -> None:
    """Where a parent is closed to others: in a mount namespace of our own, cover it and show only these below it."""
    wanted = [path.resolve() for path in paths]
    closed = {top: [path for path in wanted if top in path.parents] for top in map(_closed_parent, wanted) if top}
    if not closed:
        return
    linux.unshare(linux.CLONE_NEWNS)
    linux.make_private()
    for top, below in closed.items():
        trees = [(linux.open_tree(str(path)), path) for path in _outermost(below)]
        linux.mount("cover", str(top), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=711,size=64k")
        for tree, path in trees:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            for parent in path.parents:
                if top in parent.parents:
                    parent.chmod(0o755)
            linux.move_mount(tree, str(path))
            os.close(tree)


def _closed_parent(path: Path) -> Path | None:
    """The outermost parent that others may not pass through."""
    return next((parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001), None)


def _outermost(paths: list[Path]) -> list[Path]:
    return [path for path in sorted(set(paths)) if not any(other in path.parents for other in paths)]

"""`python -m muster.hostd --home HOME`: start hostd in the foreground. Root only."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import gc
import itertools
import logging
import os
import pwd
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from muster.clock import RealEntropy
from muster.errors import DriverError
from muster.hostd import linux, wire
from muster.hostd.cgroups import Cgroups
from muster.hostd.children import Children
from muster.hostd.keeper import Keeper
from muster.hostd.machine import unfit
from muster.hostd.rootfs import ensure_rootfs, images_path
from muster.hostd.server import Server
from muster.hostd.shop import Rations, Shop
from muster.hostd.state import State

RUN = Path("/run/muster")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="muster-hostd", description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("~/.muster"), help="the home whose nodes this hostd keeps")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/muster"), help="where root file systems are")
    parser.add_argument("--user", default="", help="the user that may call (default: the home's owner)")
    parser.add_argument(
        "--node-memory-mib", type=int, default=0, help="memory of a node, at most (default: a quarter)"
    )
    parser.add_argument(
        "--leave-when-idle", action="store_true", help="end when there is nothing and nobody to serve"
    )
    parser.add_argument("--prepare-only", action="store_true", help="make the root file system and end")
    asked = parser.parse_args(argv)
    os.umask(0o022)  # what is placed for tenants is theirs to read, whoever started us
    logging.basicConfig(level=logging.INFO, format="hostd: %(levelname)s %(message)s", stream=sys.stderr)
    because = unfit()
    if because:
        print(f"hostd: {because}", file=sys.stderr)
        return 2
    try:
        rootfs = ensure_rootfs(
            asked.cache.expanduser(), progress=lambda line: print(line, file=sys.stderr, flush=True)
        )
    except DriverError as error:
        print(f"hostd: {error.because}", file=sys.stderr)
        return 1
    if asked.prepare_only:
        return 0
    rations = Rations.of_this_machine(asked.node_memory_mib)
    home = asked.home.expanduser().resolve()
    images = images_path(asked.cache.expanduser())
    return asyncio.run(_serve(home, (rootfs, images), asked.user, rations, leave_when_idle=asked.leave_when_idle))


async def _serve(home: Path, roots: tuple[Path, Path], user: str, rations: Rations, *, leave_when_idle: bool) -> int:
    rootfs, images = roots
    directory = _own_directory(home)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"hostd: already running for {home}", file=sys.stderr)
        return 3
    home_id = _home_id(directory)
    root = _private_view(directory, home_id)
    linux.be_unreadable()
    linux.become_subreaper()
    children = Children()
    children.start()
    state = State(root, home_id, RUN / "ids", _failpoint(os.environ.get("MUSTER_HOSTD_FAILPOINT", "")))
    shop = Shop(state, Cgroups(home_id), children, rations, rootfs, images)
    keeper = Keeper(shop)
    keeper.adopt()
    shop.homes.prepare()
    uid = pwd.getpwnam(user).pw_uid if user else os.stat(home).st_uid
    greeting = wire.Greeting(home_id=home_id, rootfs=rootfs.name)
    server = Server(keeper, greeting, home / "hostd.sock", uid, leave_when_idle=leave_when_idle)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # what is here now stays: a collector in a forked child would only copy pages
    gc.collect()
    gc.freeze()
    await server.serve(server.bind(), stop)
    await shop.homes.close()
    _leave(shop.cgroups, root)
    return 0


def _failpoint(at: str) -> Callable[[], None]:
    """For crash tests: `N` kills this process, as kill -9 would, at its N-th durable step."""
    left = itertools.count(int(at), -1) if at else None

    def step() -> None:
        if left is not None and next(left) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return step


def _leave(cgroups: Cgroups, view: Path) -> None:
    """With no node left, leave no trace on the machine; with some, they run on and the next hostd finds them."""
    if not cgroups.children():
        cgroups.remove()
        linux.detach(str(view))
        view.rmdir()


def _own_directory(home: Path) -> Path:
    """`HOME/hostd`, ours: the home may belong to the unprivileged user, this directory never does."""
    directory = home / "hostd"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o077:
        raise SystemExit(f"hostd: {directory} must be a directory of root with mode 0700")
    return directory


def _private_view(directory: Path, home_id: str) -> Path:
    """Our mounts are ours alone; and our directory is pinned at a path that the home's owner cannot rename."""
    view = RUN / home_id
    view.mkdir(mode=0o700, parents=True, exist_ok=True)
    linux.unshare(linux.CLONE_NEWNS)
    linux.make_private()
    linux.bind(str(directory), str(view), linux.ATTR_NOSUID | linux.ATTR_NODEV)
    found = view.stat()
    if found.st_uid != 0 or found.st_mode & 0o077:
        raise SystemExit(f"hostd: {directory} changed hands while starting")
    return view


def _home_id(directory: Path) -> str:
    path = directory / "home-id"
    if not path.exists():
        making = directory / ".home-id.new"
        making.write_text(RealEntropy().uuid().replace("-", "")[:12])
        making.rename(path)
    return path.read_text().strip()


if __name__ == "__main__":
    sys.exit(main())

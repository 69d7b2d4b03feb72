"""A home on disk: its folder, its keys, and who runs on it.

Leans on the standard library. *Laws.* The home is 0700 and what is in it 0600; a file is there whole or not at all;
one process answers and one moves on a home, and who comes second is told where the first one runs.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec


class AlreadyRunning(Exception):
    """Someone holds this home. `info` is what it wrote about itself, if it did."""

    def __init__(self, home: Path, info: dict[str, Any]) -> None:
        where = "as an engine" if info.get("role") == "engine" else f"at {info.get('url') or 'an unknown address'}"
        super().__init__(f"already running {where} (pid {info.get('pid', '?')}, home {home})")
        self.info = info


class NoHome(Exception):
    """There can be no home at this place."""


def make_home(home: Path) -> None:
    """The folder, for its owner only; one that was opened to others is closed again."""
    try:
        for folder in (home, home / "run"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_mode & 0o077 and folder.stat().st_uid == os.geteuid():
                folder.chmod(0o700)
    except OSError as error:
        raise NoHome(f"cannot make the home {home}: {error.strerror or error}") from error


def keep(path: Path, text: str) -> None:
    """Write a 0600 file whole: a reader sees the old one or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def kept(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None


@contextmanager
def held(home: Path, *, answers: bool, moves: bool) -> Iterator[None]:
    """Hold the home for what this process does; the operating system lets go of it when the process dies."""
    with ExitStack() as locks:
        for wanted, name in ((answers, "server"), (moves, "engine")):
            if wanted:
                locks.enter_context(_lock(home, name))
        yield


@contextmanager
def _lock(home: Path, name: str) -> Iterator[None]:
    """The file goes with whoever held it; one that went while we reached for it guards nothing, so reach again."""
    path = home / "run" / f"{name}.lock"
    while True:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(home, read_info(home, name)) from None
            if not _is_at(path, file):
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(path: Path, file: IO[str]) -> bool:
    try:
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


def write_info(home: Path, name: str, info: dict[str, Any]) -> None:
    keep(home / "run" / f"{name}.json", msgspec.json.encode(info).decode())


def read_info(home: Path, name: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode((home / "run" / f"{name}.json").read_bytes(), type=dict[str, Any])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def forget_info(home: Path, name: str) -> None:
    (home / "run" / f"{name}.json").unlink(missing_ok=True)

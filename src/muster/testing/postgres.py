"""A private PostgreSQL server for tests: its own directory, a Unix socket, gone afterwards.

Use the fixtures `postgres_server` (one per session) and `postgres_dsn` (a fresh database per test) by importing them
into a test module or conftest.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

_numbers = count(1)
_PORT = 5432  # only names the socket file: the server listens on no network address


def binaries() -> Path | None:
    """The newest installed server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


class PostgresServer:
    """Runs as user postgres when we are root: the server refuses to be root."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._as = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        self.home = Path(tempfile.mkdtemp(prefix="muster-pg-"))
        if self._as:
            os.chown(self.home, self._as.pw_uid, self._as.pw_gid)
        try:
            self._start()
        except BaseException:
            shutil.rmtree(self.home)
            raise

    def _start(self) -> None:
        self._run("initdb", "-D", str(self.home / "data"), "-A", "trust", "-U", "muster", "-E", "UTF8", "--no-sync")
        # No fsync: these servers are thrown away, and what is tested here is our code, not the disk.
        options = f"-k {self.home} -p {_PORT} -c listen_addresses= -c fsync=off -c max_connections=60"
        self._run("pg_ctl", "-D", str(self.home / "data"), "-l", str(self.home / "log"), "-w", "-o", options, "start")

    def dsn(self, database: str) -> str:
        return f"postgresql://muster@/{database}?host={self.home}&port={_PORT}"

    def new_database(self) -> str:
        name = f"test_{next(_numbers)}"
        self._run("createdb", "-h", str(self.home), "-p", str(_PORT), "-U", "muster", name)
        return self.dsn(name)

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.home / "data"), "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.home)

    def _run(self, program: str, *arguments: str) -> None:
        # To a file, not a pipe: the server inherits it and would keep a pipe open for ever.
        with tempfile.TemporaryFile() as told:
            done = subprocess.run(
                [self._programs / program, *arguments],
                stdout=told,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.home,
                user=self._as.pw_uid if self._as else None,
                group=self._as.pw_gid if self._as else None,
                env=os.environ | {"LC_ALL": "C.UTF-8"},
                check=False,
            )
            told.seek(0)
            if done.returncode:
                raise RuntimeError(f"{program} failed: {told.read().decode(errors='replace')}")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    programs = binaries()
    if programs is None:
        missing = "needs PostgreSQL server programs: apt-get install postgresql"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    server = PostgresServer(programs)
    yield server
    server.stop()


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> str:
    return postgres_server.new_database()

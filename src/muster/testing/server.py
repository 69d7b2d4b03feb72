"""A real server for a test: its own process, a home of its own, any free port; gone without trace afterwards.

For tool authors: put `pytest_plugins = ["muster.testing.server"]` into a conftest and take the fixture
`muster_server`, or use `running_server` as a context manager. Simulated, of course, and in fast motion.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

STOP_SECONDS_MAX: Final = 30
FAST: Final = {"time_scale": "1000", "limits": "off"}
"""Clusters get ready in well under a second, and a busy test is not told to slow down."""


@dataclass
class MusterServer:
    """A process and how to reach it. `flags` are settings by their field names."""

    home: Path
    flags: dict[str, str] = field(default_factory=dict)
    url: str = ""
    operator_key: str = ""
    tenant_key: str = ""
    _process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> MusterServer:
        """Returns when it answers; raises with its log when it does not get that far."""
        self.home.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "muster.app"],
                env=self._environ(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._wait_for_banner(self._process)
        if self.flags.get("role") != "engine":
            self.url = json.loads((self.home / "run" / "server.json").read_text())["url"]
            self.operator_key = (self.home / "operator.key").read_text().strip()
            self.tenant_key = (self.home / "tenant.key").read_text().strip()
        return self

    def _environ(self) -> dict[str, str]:
        """Nothing of the caller's own settings leaks in."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        said = {"home": str(self.home), "port": "0", "fleet": "simulated", **self.flags}
        return clean | {f"MUSTER_{name.upper()}": value for name, value in said.items()}

    def _wait_for_banner(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("Muster"):
            process.kill()
            process.wait()
            process.stdout.close()
            raise RuntimeError(f"the server did not start: {line}{self.log.read_text()}")

    def stop(self) -> int:
        """As Ctrl-C would; its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """As a power cut would."""
        return self._end(signal.SIGKILL)

    def wait(self) -> int:
        """Until it ends by itself, as it does at a failpoint."""
        return self._end(None)

    def _end(self, number: signal.Signals | None) -> int:
        process = self._process
        if process is None:
            return 0
        if number is not None and process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(STOP_SECONDS_MAX)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
            self._process = None


@contextmanager
def running_server(home: Path, **flags: str) -> Iterator[MusterServer]:
    """A server on this home until the block ends; `flags` are settings by their field names."""
    server = MusterServer(home, {**FAST, **flags}).start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def muster_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MusterServer]:
    """One simulated server for the whole session."""
    with running_server(tmp_path_factory.mktemp("muster") / "home") as server:
        yield server

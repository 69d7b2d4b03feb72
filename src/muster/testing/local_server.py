"""`muster up --fleet local` as a user starts it, and the command line beside it; killable, gone without a trace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from muster.hostd.traces import hostds
from muster.sdk.client import Client
from muster.testing.local import PATIENCE_SECONDS, cache

MUSTER = [sys.executable, "-m", "muster.cli.main"]


class LocalServer:
    def __init__(self, directory: Path, *, hosts: int = 16, flags: Sequence[str] = ()) -> None:
        self._hosts = hosts
        self._flags = flags
        self.home = directory / "home"
        self._log = directory / "up.log"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")},
            "MUSTER_HOME": str(self.home),
            "MUSTER_CACHE": str(cache()),
            "XDG_CONFIG_HOME": str(directory / "config"),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._born_at = 0
        self.lives = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def died(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def home_id(self) -> str:
        return (self.home / "hostd" / "home-id").read_text().strip()

    def up(self) -> None:
        assert self.rise(), self._log.read_text()

    def rise(self, failpoints: Iterable[str] = ()) -> bool:
        """Until it answers; False when it died on the way there, as it may with a failpoint."""
        self.lives += 1
        command = [*MUSTER, "up", "--fleet", "local", "--port", "0", "--hosts", str(self._hosts), *self._flags]
        doors = ",".join(sorted(failpoints))
        command += ["--failpoint", doors] if doors else []
        self._born_at = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        for _ in range(int(PATIENCE_SECONDS / 0.05)):
            if self._announced():
                return True
            if self.died:
                return False
            time.sleep(0.05)
        raise AssertionError(self._log.read_text())

    def killed_at(self) -> str:
        """The failpoint at which this life ended. Whoever asks has seen it go silent."""
        assert self._process is not None
        self._process.wait(PATIENCE_SECONDS)
        said = self._log.read_bytes()[self._born_at :].decode(errors="replace")
        found: list[str] = re.findall(r"^killed at (\S+)$", said, re.MULTILINE)
        assert found, f"it ended by itself: {said[-3000:]}"
        return found[-1]

    def client(self) -> Client:
        """Of this life: the next one has another port."""
        url = json.loads((self.home / "run" / "server.json").read_bytes())["url"]
        return Client(url, (self.home / "tenant.key").read_text().strip(), pause=lambda _: time.sleep(0.02))

    def _announced(self) -> bool:
        path = self.home / "run" / "server.json"
        return path.exists() and json.loads(path.read_bytes())["pid"] == self.pid

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def call(self, *words: str, seconds: float = 90) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MUSTER, *words], env=self._environment, capture_output=True, text=True, timeout=seconds, check=False
        )

    def muster(self, *words: str, seconds: float = 90) -> str:
        done = self.call(*words, seconds=seconds)
        assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout

    def down(self) -> None:
        """Everything ended, the server stopped, and hostd with it."""
        if self.died:
            self.up()
        self.muster("down", "--all", "--yes", seconds=120)
        assert self._process is not None
        self._process.wait(PATIENCE_SECONDS)
        assert hostds(self.home) == [], "who takes all down leaves no root process"

"""`muster up --fleet local` as a user starts it, and the command line beside it; killable, gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from muster.hostd.traces import hostds
from muster.testing.local import PATIENCE_SECONDS, cache

MUSTER = [sys.executable, "-m", "muster.cli.main"]


class LocalServer:
    def __init__(self, directory: Path, *, hosts: int = 16) -> None:
        self._hosts = hosts
        self.home = directory / "home"
        self._log = directory / "up.log"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")},
            "MUSTER_HOME": str(self.home),
            "MUSTER_CACHE": str(cache()),
            "XDG_CONFIG_HOME": str(directory / "config"),
        }
        self._process: subprocess.Popen[bytes] | None = None
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

    def up(self, *, failpoint: str = "") -> None:
        self.lives += 1
        command = [*MUSTER, "up", "--fleet", "local", "--port", "0", "--hosts", str(self._hosts)]
        command += ["--failpoint", failpoint] if failpoint else []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        for _ in range(int(PATIENCE_SECONDS / 0.05)):
            if self._announced():
                return
            assert not self.died, self._log.read_text()
            time.sleep(0.05)
        raise AssertionError(self._log.read_text())

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

    def despite_death(self, *words: str) -> str:
        """The command again for as long as the server died under it."""
        while True:
            done = self.call(*words)
            if done.returncode == 0:
                return done.stdout
            time.sleep(0.1)
            assert self.died, f"{words}: {done.stdout} {done.stderr} {self._log.read_text()[-1000:]}"
            self.up()

    def down(self) -> None:
        """Everything ended, the server stopped, and hostd with it."""
        if self.died:
            self.up()
        self.muster("down", "--all", "--yes", seconds=120)
        assert self._process is not None
        self._process.wait(PATIENCE_SECONDS)
        assert hostds(self.home) == [], "who takes all down leaves no root process"

"""The real command line against a real server process, on a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.cli import local


class Shell:
    """A person at a terminal, except that there is no terminal."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {name: said for name, said in os.environ.items() if not name.startswith("MUSTER_")}
        self.environ |= {"MUSTER_HOME": str(home), "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
        self.environ["MUSTER_FLEET"] = "simulated"

    def run(self, *words: str, code: int = 0, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "muster.cli.main", *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**self.environ, **environ},
        )
        assert done.returncode == code, f"muster {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *words: str, **environ: str) -> Any:
        return json.loads(self.run(*words, "-o", "json", **environ).stdout)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    home = tmp_path_factory.mktemp("home")
    shell = Shell(home)
    log = home / "server.log"
    child = local.start(home, ["--port", "0", "--time-scale", "1000", "--hosts", "128"], log, shell.environ)
    try:
        local.wait_until_ready(child, home, log)
        yield shell
    finally:
        assert local.stop_child(child), log.read_text()

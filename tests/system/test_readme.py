"""The README's own commands, run as they stand there, and what they print compared with what it says they print.

Where and as whom is the test's own: a home and a port of its own, and no sudo, because it is root already. Lines that
depend on when one looks (indented progress), and addresses, ports and paths, are not compared.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.testing.local import PATIENCE_SECONDS, cache, residue

ROOT = Path(__file__).resolve().parents[2]
HEADING = "## Real Slurm in seconds"

pytestmark = pytest.mark.usefixtures("machine")


class Step(NamedTuple):
    command: str
    said: list[str]


def steps(readme: str) -> list[Step]:
    section = readme.split(HEADING)[1].split("\n## ")[0]
    block = section.split("```")[1]
    found = []
    for part in block.split("\n$ ")[1:]:
        command, *said = part.rstrip().splitlines()
        found.append(Step(command.split("#")[0].strip(), stable(said)))
    return found


def stable(lines: list[str]) -> list[str]:
    plain = (line for line in lines if line.strip() and not line.startswith("  "))
    return [re.sub(r"http://\S+|(?<= in )/\S+|(?<=-p )\d+", "…", line) for line in plain]


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    home = tmp_path / "home"
    yield clean | {
        "MUSTER_HOME": str(home),
        "MUSTER_CACHE": str(cache()),
        "MUSTER_PORT": "0",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    assert residue(home, (home / "hostd" / "home-id").read_text().strip()) == []


def run(command: str, environ: dict[str, str]) -> list[str]:
    words = command.removeprefix("sudo ")
    done = subprocess.run(
        words, shell=True, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
    return stable(done.stdout.splitlines())


def test_the_readme_says_what_happens(environ: dict[str, str]) -> None:
    up, *rest = steps((ROOT / "README.md").read_text())
    assert [step.command.split()[2] for step in (up, *rest)] == ["up", "cluster", "ssh", "doctor", "down"]
    words = up.command.removeprefix("sudo ").split()
    with subprocess.Popen(words, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = [server.stdout.readline().rstrip("\n") for _ in range(5)]
        try:
            assert stable(said) == up.said
            for step in rest:
                said = run(step.command, environ)
                # which node answers first is Slurm's affair
                assert (sorted(said) if "srun" in step.command else said) == step.said, step.command
        finally:
            if server.poll() is None and "down" not in step.command:
                run("./muster down --all --yes", environ)
        assert server.wait(PATIENCE_SECONDS) == 0


def test_the_demo_ends_in_a_job_over_two_real_nodes(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    environ = clean | {"MUSTER_CACHE": str(cache()), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["./muster", "demo", "--once"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = done.stdout.split("srun -N2 --gpus=16 hostname")[1].split()
    assert sorted(answer[:2]) == ["worker-0", "worker-1"]
    assert "nothing is left" in done.stdout
    assert list(tmp_path.iterdir()) == []

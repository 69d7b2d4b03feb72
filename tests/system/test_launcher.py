"""./muster from a bare tree: the environment is made once, whole or not at all, and again when its lock changes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAIN = "import sys, click; print('ran', sys.argv[1:], sys.prefix)"
Runner = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The launcher as it is, a lock of one package cut from the real one, and a command that says it ran."""
    tree = tmp_path / "a tree"
    (tree / "requirements").mkdir(parents=True)
    (tree / "src" / "muster" / "cli").mkdir(parents=True)
    shutil.copy(ROOT / "muster", tree)
    shutil.copy(ROOT / "requirements" / "venv.sh", tree / "requirements")
    (tree / "requirements" / "run.txt").write_text(one_pin("click"))
    (tree / "src" / "muster" / "__init__.py").touch()
    (tree / "src" / "muster" / "cli" / "__init__.py").touch()
    (tree / "src" / "muster" / "cli" / "main.py").write_text(MAIN)
    return tree


def one_pin(package: str) -> str:
    lock = (ROOT / "requirements" / "run.txt").read_text()
    found = re.search(rf"^{package}==.*?(?=^\S|\Z)", lock, re.MULTILINE | re.DOTALL)
    assert found
    return found[0]


def run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tree / "muster", *words], capture_output=True, text=True, check=False, timeout=300)


def left_overs(tree: Path) -> list[str]:
    return [path.name for path in tree.iterdir() if ".tmp-" in path.name]


def test_made_once_then_reused_moved_and_made_anew_when_the_lock_changes(tree: Path) -> None:
    first = run(tree, "cluster", "list")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("ran ['cluster', 'list']")
    assert "making .venv" in first.stderr

    again = run(tree)
    assert again.stderr == ""

    moved = tree.rename(tree.parent / "elsewhere")
    assert run(moved).stdout.startswith("ran [] " + str(moved))
    assert subprocess.run([moved / ".venv" / "bin" / "muster"], capture_output=True, check=True).stdout

    lock = moved / "requirements" / "run.txt"
    lock.write_text(lock.read_text() + "# changed\n")
    assert "making .venv" in run(moved).stderr
    assert left_overs(moved) == []


def test_an_interrupted_install_leaves_nothing_half_made(tree: Path) -> None:
    child = subprocess.Popen(
        [tree / "muster"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stderr is not None
    assert "making .venv" in child.stderr.readline()
    os.killpg(child.pid, signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode != 0
    assert left_overs(tree) == []
    assert not (tree / ".venv").exists()


def test_a_lock_that_does_not_match_installs_nothing(tree: Path) -> None:
    lock = tree / "requirements" / "run.txt"
    lock.write_text(re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, lock.read_text()))
    refused = run(tree)
    assert refused.returncode == 1
    assert "nothing was left half-made" in refused.stderr
    assert left_overs(tree) == []
    assert not (tree / ".venv").exists()


def test_without_a_python_it_says_what_to_get(tree: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "dirname", "readlink", "sha256sum", "cut", "cat", "basename", "id"):
        (tools / name).symlink_to(str(shutil.which(name)))
    said = subprocess.run(
        [tree / "muster"], capture_output=True, text=True, check=False, env={"PATH": str(tools)}, timeout=60
    )
    assert said.returncode == 1
    assert "Python 3.11 or newer is needed" in said.stderr

"""`pip install .` in a fresh environment gives the same command, with everything it needs inside."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "requirements", "src")


def run(*command: str | Path, cwd: Path) -> str:
    """As somebody elsewhere would: nothing of this tree or of its settings is in reach."""
    ours = ("MUSTER_", "PYTHONPATH", "VIRTUAL_ENV")
    environ = {name: said for name, said in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**environ, "TMPDIR": str(cwd)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_an_installed_muster_tells_the_whole_story(tmp_path: Path) -> None:
    tree, elsewhere, environment = tmp_path / "tree", tmp_path / "elsewhere", tmp_path / "environment"
    tree.mkdir()
    elsewhere.mkdir()
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tree / part)
    venv.create(environment, with_pip=True)
    run(environment / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", tree, cwd=elsewhere)
    shutil.rmtree(tree)

    muster = environment / "bin" / "muster"
    assert run(muster, "version", cwd=elsewhere).strip()
    told = run(muster, "demo", "--once", "--time-scale", "1000", cwd=elsewhere)
    assert "ready: " in told
    assert "nothing is left" in told
    assert list(elsewhere.iterdir()) == []


def test_every_package_of_the_tree_is_a_package() -> None:
    """A folder with modules and no __init__.py would be missing from what is installed."""
    source = ROOT / "src" / "muster"
    folders = {path.parent for path in source.rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []

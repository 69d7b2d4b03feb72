"""The tree beyond its Python: no address of anybody's machine, no registry in a lock, every decision findable."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".in", ".sh", ".sql", ".json", ".cfg", ".mts", ""}
# Written in pieces, so that this file does not find itself.
MACHINE_PATHS = re.compile(
    "|".join(["/wo" + "rk/", "/ro" + r"ot/\.(pyenv|cache)", r"/ho" + r"me/[a-z]+/(?!\.\.\.)", "/opt/" + "wheels"])
)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def texts() -> list[Path]:
    return [path for path in tracked() if path.suffix in TEXT and path.name != "LICENSE"]


def test_no_path_of_a_machine_is_written_down() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert not found, "\n".join(found)


def test_locks_name_no_registry() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text, f"{lock.name} names an address"
        assert "--index-url" not in text, f"{lock.name} names a registry"
        assert "--hash=sha256:" in text, f"{lock.name} has no hashes"


def test_locks_of_npm_name_no_registry_either() -> None:
    locks = sorted((ROOT / "requirements").rglob("package-lock.json"))
    assert locks
    for lock in locks:
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text, (
            f"{lock.parent.name} names an address: npm install --omit-lockfile-registry-resolved"
        )
        packages = {name: facts for name, facts in json.loads(text)["packages"].items() if name}
        assert all(facts["integrity"].startswith("sha512-") for facts in packages.values())


def test_the_run_lock_is_part_of_the_check_lock() -> None:
    """What is tested is what runs: the same version of everything."""
    run, dev = (pins(ROOT / "requirements" / name) for name in ("run.txt", "dev.txt"))
    assert run.items() <= dev.items()


def pins(lock: Path) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9_.\-\[\]]+)==([^\s;\\]+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return dict(found)


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    pages = [page for page in sorted(folder.glob("*.md")) if page.name != "README.md"]
    if not pages:
        return
    index = (folder / "README.md").read_text(encoding="utf-8")
    missing = [page.name for page in pages if page.name not in index]
    assert not missing, f"docs/decisions/README.md does not list {missing}"


def test_commands_can_be_run() -> None:
    for name in ("muster", "check", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK), f"{name} is not executable"


def test_ci_runs_exactly_the_check() -> None:
    words = (ROOT / ".ci" / "run").read_text(encoding="utf-8").split()
    assert words[-2:] == ["exec", "./check"]

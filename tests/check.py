"""The stages of ./check: what each runs, and how many minutes it may take on two cores.

The tools come first, so that a slip of the pen is told at once; then one pytest run over the chosen folders, whose
own summary is the last thing printed. Every stage is run even when an earlier one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINT_IMPORTS = "from importlinter.cli import lint_imports_command as c; c()"
TOOLS: dict[str, list[str]] = {
    "format": ["-m", "ruff", "format", "--check", "."],
    "lint": ["-m", "ruff", "check", "."],
    "types": ["-m", "mypy"],
    "imports": ["-c", LINT_IMPORTS],
}
# Real nodes need some tools and a root file system, made once and cached. Who is not root is told so by the tests.
PREPARE: tuple[list[str], ...] = (
    ["-c", "from muster.hostd.machine import install_packages; install_packages(print)"],
    ["-m", "muster.hostd", "--prepare-only"],
)
FOLDERS: dict[str, str] = {
    "tidy": "tests/tidy",
    "unit": "tests/unit",
    "property": "tests/properties",
    "contract": "tests/contracts",
    "simulation": "tests/simulation",
    "compat": "tests/compat",
    "system": "tests/system",
}
BUDGET_MINUTES: dict[str, float] = {
    "format": 0.2,
    "lint": 0.2,
    "types": 2,
    "imports": 0.6,
    "prepare": 5,
    "tidy": 0.5,
    "unit": 3,
    "property": 4,
    "contract": 4,
    "simulation": 8,
    "compat": 6,
    "system": 8,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./check", description="Runs everything, or the stages named.")
    parser.add_argument("--thorough", action="store_true", help="tens of thousands of simulation seeds, not hundreds")
    parser.add_argument("--jobs", type=int, default=2, help="test processes (default 2)")
    parser.add_argument("stage", nargs="*", help=" ".join([*TOOLS, *FOLDERS]))
    asked = parser.parse_args()
    unknown = [stage for stage in asked.stage if stage not in TOOLS and stage not in FOLDERS]
    if unknown:
        parser.error(f"no stage {', '.join(unknown)}; there are: {' '.join([*TOOLS, *FOLDERS])}")
    return asked


def run_tool(stage: str) -> tuple[bool, float]:
    print(f"── {stage}", flush=True)
    began = time.monotonic()
    done = subprocess.run([sys.executable, *TOOLS[stage]], cwd=ROOT, check=False)
    minutes = (time.monotonic() - began) / 60
    return done.returncode == 0, minutes


def prepare_machine() -> tuple[bool, float]:
    print("── prepare", flush=True)
    began = time.monotonic()
    passed = all(subprocess.run([sys.executable, *step], cwd=ROOT, check=False).returncode == 0 for step in PREPARE)
    return passed, (time.monotonic() - began) / 60


def has_tests(folder: str) -> bool:
    return any((ROOT / folder).rglob("test_*.py"))


def run_tests(stages: list[str], told: dict[str, object], asked: argparse.Namespace) -> bool:
    folders = [FOLDERS[stage] for stage in stages if has_tests(FOLDERS[stage])]
    if not folders:
        return True
    print("── tests: " + " ".join(stages), flush=True)
    environment = {**os.environ, "MUSTER_CHECK": json.dumps(told)}
    if asked.thorough:
        environment["MUSTER_THOROUGH"] = "1"
    parallel = ["-n", str(asked.jobs), "--dist", "worksteal"] if asked.jobs > 1 else []
    command = [sys.executable, "-m", "pytest", *parallel, *folders]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


def main() -> int:
    asked = arguments()
    stages = asked.stage or [*TOOLS, *FOLDERS]
    results = {stage: run_tool(stage) for stage in TOOLS if stage in stages}
    if "system" in stages and os.geteuid() == 0:
        results["prepare"] = prepare_machine()
    told: dict[str, object] = {
        "tools": {stage: {"passed": passed, "minutes": minutes} for stage, (passed, minutes) in results.items()},
        "folders": {FOLDERS[stage]: stage for stage in FOLDERS if stage in stages},
        "budget_minutes": BUDGET_MINUTES,
        "jobs": asked.jobs,
    }
    tests_passed = run_tests([stage for stage in FOLDERS if stage in stages], told, asked)
    return 0 if tests_passed and all(passed for passed, _ in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

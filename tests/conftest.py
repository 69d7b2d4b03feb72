"""What holds for every test: skips are honest, and ./check is told where its minutes went.

A skip must say what is missing and how to get it: `pytest.skip("needs PostgreSQL 15+: apt-get install postgresql")`.
A driver that lacks a capability says so: `pytest.skip("capability: resize")`. In CI nothing may be missing, so there
the first kind is a failure.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # Whoever runs us in the background ignores Ctrl-C, and what tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
HONEST_SKIP = re.compile(r"(Skipped: )?(needs .+: .+|capability: .+)", re.DOTALL)


def complaint_about(reason: str, in_ci: bool) -> str | None:
    """Why this skip may not stand, or None when it may."""
    said = reason.removeprefix("Skipped: ")
    if not HONEST_SKIP.fullmatch(said):
        return f"a skip must read 'needs THING: HOW TO GET IT' or 'capability: NAME', not {said!r}"
    if in_ci and said.startswith("needs "):
        return f"nothing may be missing in CI, and this test {said}"
    return None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    stage = report.nodeid.split("/")[1] if "/" in report.nodeid else report.nodeid
    STAGE_SECONDS[f"tests/{stage}"] += report.duration


STAGE_SECONDS: dict[str, float] = defaultdict(float)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        complaint = complaint_about(report.longrepr[2], in_ci=bool(os.environ.get("CI")))
        if complaint:
            report.outcome = "failed"
            report.longrepr = complaint


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if "MUSTER_CHECK" not in os.environ:
        return
    told = json.loads(os.environ["MUSTER_CHECK"])
    failed = {f"tests/{r.nodeid.split('/')[1]}" for r in terminalreporter.stats.get("failed", []) if "/" in r.nodeid}
    terminalreporter.section("minutes per stage")
    for stage, tool in told["tools"].items():
        terminalreporter.write_line(stage_line(told, stage, tool["minutes"], tool["passed"]))
    for folder, stage in told["folders"].items():
        minutes = STAGE_SECONDS[folder] / 60 / told["jobs"]
        terminalreporter.write_line(stage_line(told, stage, minutes, folder not in failed))


def stage_line(told: dict[str, Any], stage: str, minutes: float, passed: bool) -> str:
    budget = told["budget_minutes"][stage]
    verdict = "ok" if passed else "FAILED"
    over = "  over its budget" if minutes > budget else ""
    return f"{stage:<12}{verdict:<8}{minutes:6.2f} of {budget:g} min{over}"

"""A skip that hides something is a failure: the rule of tests/conftest.py, tried on itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("skip_rule", Path(__file__).resolve().parents[1] / "conftest.py")
assert SPEC is not None
assert SPEC.loader is not None
RULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(RULE)


@pytest.mark.parametrize("reason", ["Skipped: no postgres", "Skipped: ", "Skipped: needs PostgreSQL"])
def test_a_vague_skip_is_refused_everywhere(reason: str) -> None:
    assert "must read" in RULE.complaint_about(reason, in_ci=False)


def test_a_missing_thing_may_be_skipped_at_home_but_not_in_ci() -> None:
    reason = "Skipped: needs PostgreSQL 15+: apt-get install postgresql"
    assert RULE.complaint_about(reason, in_ci=False) is None
    assert "nothing may be missing in CI" in RULE.complaint_about(reason, in_ci=True)


def test_a_driver_without_a_capability_may_say_so() -> None:
    assert RULE.complaint_about("Skipped: capability: resize", in_ci=True) is None

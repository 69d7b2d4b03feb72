"""Style as a test: what a reader may rely on in every file of the house."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "muster").rglob("*.py"))
PYTHON = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]

MODULE_LINES_MAX = 500
SUITE_LINES_MAX = 700  # a suite is a list of independent laws, read one at a time
FUNCTION_LINES_MAX = 70
TWIN_LINES_MIN = 8  # so many equal lines in a row in two files are one thing said twice
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "stuff"}
UNFINISHED = re.compile("TO" + "DO|FIX" + "ME|XX" + "X")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), name_of(path))


def lines_max(path: Path) -> int:
    return SUITE_LINES_MAX if {"tests", "testing"} & set(path.relative_to(ROOT).parts) else MODULE_LINES_MAX


def test_there_is_something_to_read() -> None:
    assert len(SOURCES) > 30


def test_modules_fit_in_a_head() -> None:
    long = {name_of(path): len(lines_of(path)) for path in PYTHON if len(lines_of(path)) > lines_max(path)}
    assert not long, f"split these, {MODULE_LINES_MAX} lines are the limit ({SUITE_LINES_MAX} for suites): {long}"


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{name_of(path)}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_every_module_says_what_it_is_for() -> None:
    mute = [name_of(path) for path in PYTHON if lines_of(path) and not ast.get_docstring(tree_of(path))]
    assert not mute, mute


def test_names_say_what_a_thing_is() -> None:
    vague = [name_of(path) for path in PYTHON if {path.stem, path.parent.name} & VAGUE_NAMES]
    assert not vague, vague


def test_nothing_is_left_unfinished() -> None:
    marks = [
        f"{name_of(path)}:{number}"
        for path in PYTHON
        for number, line in enumerate(lines_of(path), 1)
        if UNFINISHED.search(line)
    ]
    assert not marks, marks


def signature_lines(path: Path) -> set[int]:
    return {
        number
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for number in range(node.lineno, node.body[0].lineno)
    }


def normalised(path: Path) -> list[tuple[int, str]]:
    """Lines that say something, with their numbers.

    Imports, blanks and lone brackets repeat innocently, and so do signatures: two stores keep one contract.
    """
    kept = []
    signatures = signature_lines(path)
    for number, line in enumerate(lines_of(path), 1):
        text = " ".join(line.split())
        if number not in signatures and len(text) > 3 and not text.startswith(("import ", "from ", "#", '"""')):
            kept.append((number, text))
    return kept


def test_nothing_is_said_twice() -> None:
    seen: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in SOURCES:
        lines = normalised(path)
        for start in range(len(lines) - TWIN_LINES_MIN + 1):
            window = lines[start : start + TWIN_LINES_MIN]
            seen[tuple(text for _, text in window)].append(f"{name_of(path)}:{window[0][0]}")
    twins = [places for window, places in seen.items() if len(places) > 1 and sum(map(len, window)) > 160]
    assert not twins, twins[:10]


@pytest.mark.parametrize("text", ["# TO" + "DO later", "x = 1  # FIX" + "ME"])
def test_the_mark_of_unfinished_work_is_known(text: str) -> None:
    assert UNFINISHED.search(text)

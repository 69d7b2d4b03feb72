"""Any request against a declared API: no 5xx, no status, media type or body that the document does not declare.

Leans on schemathesis and hypothesis, which are there where tests are run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import hypothesis
from hypothesis import strategies
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

Aim = Callable[[Case[Any], Any], None]
"""Changes a generated case, drawing what it needs."""


class Caller:
    """Somebody with a key; `heard` counts the answers by their hundreds."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.headers = {"Authorization": f"Bearer {key}"}
        self.heard: Counter[int] = Counter()

    def send(self, case: Case[Any]) -> Any:
        reply = case.call_and_validate(base_url=self.url, headers=self.headers, checks=CHECKS, timeout=60)
        self.heard[reply.status_code // 100] += 1
        return reply


def fuzz(operation: Any, mode: GenerationMode, caller: Caller, aim: Aim, *, examples: int) -> None:
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode), data=strategies.data())
    def attempt(case: Case[Any], data: Any) -> None:
        aim(case, data.draw)
        caller.send(case)

    attempt()


def operations(page: Any) -> Iterator[Any]:
    return (found.ok() for found in page.get_all_operations())


def troubles(tried: Iterable[Any], mode: GenerationMode, caller: Caller, aim: Aim, *, examples: int) -> list[str]:
    """What went wrong, by operation."""
    found = []
    for operation in tried:
        try:
            fuzz(operation, mode, caller, aim, examples=examples)
        except Unsatisfiable:
            continue  # nothing can be wrong with a request that has no parameter
        except Exception as trouble:
            found.append(f"{operation.method.upper()} {operation.path}: {trouble}")
    return found

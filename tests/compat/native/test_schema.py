"""Schemathesis over the served OpenAPI page: whatever is sent, no 5xx and no reply that the page does not declare.

Half of the cases are aimed at things that exist, so that more than the 404 is tried.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from schemathesis import Case, GenerationMode

from muster.testing.fuzzing import Caller, operations, troubles

BASE = "/muster/v1"
EXAMPLES = 8


@pytest.fixture(scope="session")
def page(world: Any) -> Any:
    return schemathesis.openapi.from_url(f"{world.server.url}{BASE}/openapi.json")


@pytest.fixture(scope="session")
def targets(world: Any) -> dict[str, str]:
    """Things that may be changed and deleted by whatever is generated."""
    ann, operator = world.ann, world.operator
    cluster = ann.make("/clusters", {"name": "fuzzed", "type": "slurm", "gpu_type": "H100_SXM", "gpus": 8})
    return {
        "clusters": cluster["id"],
        "volumes": ann.make("/volumes", {"name": "fuzzed", "region": "Delhi", "size_gib": 10})["id"],
        "members": ann.make("/members", {"name": "fuzzed", "role": "member"})["id"],
        "keys": ann.make("/keys", {"name": "fuzzed", "role": "member"})["id"],
        "security-groups": ann.make("/security-groups", {"name": "fuzzed"})["id"],
        "reserved-ips": ann.make("/reserved-ips", {"region": "Delhi"})["id"],
        "requests": ann.get("/requests", resource_id=cluster["id"])["items"][0]["id"],
        "projects": world.ann_project,
        "hosts": operator.get("/hosts", limit=1)["items"][0]["id"],
        "regions": "Delhi",
        "images": operator.get("/images")["items"][0]["id"],
    }


def _aim(case: Case, targets: dict[str, str]) -> None:
    """Point at something that exists; do not sit out generated patience."""
    place = case.path.removeprefix(f"{BASE}/").split("/")[0]
    if "id" in case.path_parameters and place in targets and len(str(case.path_parameters["id"])) % 2:
        case.path_parameters["id"] = targets[place]
    if case.query and "wait" in case.query:
        case.query["wait"] = "0.01"


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("who", ["ann", "operator"])
def test_nothing_breaks_and_nothing_undeclared_is_said(
    who: str, mode: GenerationMode, world: Any, page: Any, targets: dict[str, str]
) -> None:
    """Without the stream, which never ends, and the operator's faults: it may ask for a 500, and would get it."""
    left_out = ("/changes", "/faults") if who == "operator" else ("/changes",)
    caller = Caller(world.server.url, getattr(world, who).key)
    tried = (operation for operation in operations(page) if not operation.path.endswith(left_out))
    found = troubles(tried, mode, caller, lambda case, draw: _aim(case, targets), examples=EXAMPLES)
    assert not found, "\n\n".join(found)
    assert min(caller.heard[2], caller.heard[4]) > 40, f"the attempts did not get past the door: {caller.heard}"

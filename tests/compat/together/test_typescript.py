"""Together's TypeScript client from npm, unmodified: the stories are compiled against its own types, then told.

./check makes its folder (.npm-compat-together-ai) from a lock with hashes. Compiling is half of the proof: a method,
a parameter or a field that the client does not declare is an error before anything runs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.dialects.together.fields import ANSWERS, REQUESTS
from muster.testing.server import running_server

from .conftest import ROOT, Tenant, Wire, run
from .test_repairs import Case

STORIES = Path(__file__).parent / "typescript"
CLIENT = ROOT / ".npm-compat-together-ai" / "node_modules"
BASE = "/v1"
COMPILE_SECONDS_MAX = 240


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    if found is None or not CLIENT.exists():
        pytest.skip("needs node: apt-get install nodejs npm, and ./check compat fetches the client")
    return found


@pytest.fixture(scope="session")
def compiled(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("typescript") / "stories"
    shutil.copytree(STORIES, place)
    (place / "node_modules").symlink_to(CLIENT)
    done = subprocess.run(
        [node, "node_modules/typescript/bin/tsc", "--project", "."],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return place


Tell = Callable[..., str]


@pytest.fixture
def tell(node: str, compiled: Path) -> Tell:
    """One story with one tenant's key; what it printed. The client's base URL has /v1, like that of 2.x."""

    def story(tenant: Tenant, name: str, *args: str, base: str = BASE) -> str:
        command = [node, str(compiled / f"{name}.mjs"), *args]
        return run(tenant, "npm", command, TOGETHER_BASE_URL=tenant.url + base).stdout

    return story


def test_every_method_and_every_field(tenant: Tenant, tell: Tell) -> None:
    tell(tenant, "every_method")


def test_the_reader_of_types_can_refuse(tenant: Tenant, tell: Tell) -> None:
    tell(tenant, "types_can_refuse")


def test_every_wish_is_told_back(tenant: Tenant, tell: Tell) -> None:
    tell(tenant, "wishes")


def test_refusals_are_the_errors_the_client_has_for_them(tenant: Tenant, tell: Tell) -> None:
    tell(tenant, "refusals")


def test_proposals_are_approved_rejected_and_cancelled(tenant: Tenant, operator: Wire, tell: Tell) -> None:
    case = Case(tenant, operator, 32)
    nodes = [node["instance_id"] for node in case.seen()["gpu_worker_nodes"][:3]]
    hosts = [case.host_of(node) for node in nodes]
    dead = [
        operator.good("POST", "/muster/v1/faults", json={"kind": "host-death", "target": host["name"]})
        for host in hosts
    ]
    tell(tenant, "proposals", case.id, *nodes)
    for fault, host in zip(dead, hosts, strict=True):
        operator.good("DELETE", f"/muster/v1/faults/{fault['id']}")
        operator.good("POST", f"/muster/v1/hosts/{host['id']}/uncordon")


def test_the_table_of_fields_knows_every_field_of_the_client(tenant: Tenant, tell: Tell) -> None:
    declared = {section.title: {field.name for field in section.fields} for section in (*REQUESTS, *ANSWERS)}
    for title, names in json.loads(tell(tenant, "shapes")).items():
        assert set(names) <= declared[title], (title, set(names) - declared[title])
        assert names, title


@pytest.mark.parametrize("base", ["", "/v1", "/v1/"])
def test_the_base_urls_that_people_set(tenant: Tenant, tell: Tell, base: str) -> None:
    tell(tenant, "trouble", "none", base=base)


# --- trouble on the wire: on a server of its own, for every answer there may be a bad one -------------------------


@pytest.mark.parametrize(
    ("fault", "story"),
    [
        ({"kind": "http-429", "count": 1}, ("thrown", "429")),
        ({"kind": "http-500", "count": 1}, ("thrown", "500")),
        ({"kind": "http-429", "count": 2}, ("outlived",)),
        ({"kind": "slow-reply", "count": 2, "delay_seconds": 3}, ("late",)),
    ],
    ids=lambda part: "-".join(part) if isinstance(part, tuple) else str(part["kind"]),
)
def test_trouble_is_thrown_or_outlived(
    tmp_path: Path, tell: Tell, fault: dict[str, object], story: tuple[str, ...]
) -> None:
    """A create that is asked three times, because its answers were bad or came too late, makes one cluster."""
    with running_server(tmp_path / "home", hosts="8") as server:
        operator = Wire(server.url, server.operator_key)
        tenant = Tenant(server.url, server.tenant_key, "demo", tmp_path, operator)
        operator.good("POST", "/muster/v1/faults", json=fault)
        tell(tenant, "trouble", *story)
        assert operator.good("GET", "/muster/v1/faults")["items"] == []
        operator.http.close()

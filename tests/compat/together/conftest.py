"""Together's own clients, unmodified, each version in its own environment, against a real server over loopback.

./check makes the environments (.venv-compat-together-VERSION) from hash-locked files. The stories under drive/ are
run by those environments' Python; they know nothing of Muster but an address and a key.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from muster.testing.server import MusterServer, running_server

ROOT = Path(__file__).resolve().parents[3]
DRIVE = Path(__file__).parent / "drive"
NEWEST, LAST_2, FIRST = "3.0.0", "2.42.0", "2.6.0"
VERSIONS = (NEWEST, LAST_2, FIRST)
STORY_SECONDS_MAX = 240
collect_ignore = [] if os.environ.get("MUSTER_THOROUGH") else ["test_terraform.py"]
"""Terraform's provider takes minutes to build: only ./check --thorough asks for it."""


class Wire:
    """Plain HTTP with one key: for what no SDK says, and for the native side."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=30)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.http.request(method, path, **more)

    def good(self, method: str, path: str, **more: Any) -> Any:
        reply = self.ask(method, path, **more)
        assert reply.status_code < 300, (reply.status_code, reply.text)
        return reply.json() if reply.content else None


@dataclass
class Tenant:
    """A project of its own for each test, so that tests do not see each other."""

    url: str
    key: str
    project_id: str
    home: Path
    wire: Wire

    def base_url(self, version: str) -> str:
        """As people set it: 3.x has /v1 in its paths, 2.x in its base."""
        return self.url if version == NEWEST else f"{self.url}/v1"

    def environ(self, version: str, **more: str) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "COLUMNS": "300",
            "TERM": "dumb",
            "LC_ALL": "C.UTF-8",
            "TOGETHER_BASE_URL": self.base_url(version),
            "TOGETHER_API_KEY": self.key,
            "TOGETHER_TELEMETRY_DISABLED": "1",
            "TOGETHER_DISABLE_VERSION_CHECK": "1",
            "SDK_VERSION": version,
            "PROJECT_ID": self.project_id,
            **more,
        }


def bin_of(version: str) -> Path:
    place = ROOT / f".venv-compat-together-{version}" / "bin"
    if not (place / "python").exists():
        pytest.skip(f"needs together {version}: ./check compat makes its environment")
    return place


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MusterServer]:
    with running_server(tmp_path_factory.mktemp("together") / "home", hosts="96") as running:
        yield running


@pytest.fixture(scope="session")
def operator(server: MusterServer) -> Iterator[Wire]:
    wire = Wire(server.url, server.operator_key)
    yield wire
    wire.http.close()


_numbers = itertools.count(1)


@pytest.fixture
def new_tenant(server: MusterServer, operator: Wire, tmp_path: Path) -> Iterator[Callable[[], Tenant]]:
    made: list[Tenant] = []

    def make() -> Tenant:
        name = f"team-{os.getpid()}-{next(_numbers)}"
        account = operator.good("POST", "/muster/v1/accounts", json={"name": name, "postpaid": True})
        project = operator.good("POST", "/muster/v1/projects", json={"name": name, "account_id": account["id"]})
        said = {"name": name, "role": "admin", "project_id": project["id"]}
        key = operator.good("POST", "/muster/v1/keys", json=said)["secret"]
        home = tmp_path / name
        home.mkdir()
        made.append(Tenant(server.url, key, project["id"], home, Wire(server.url, key)))
        return made[-1]

    yield make
    for tenant in made:
        for cluster in tenant.wire.good("GET", "/v1/compute/clusters")["clusters"]:
            tenant.wire.ask("DELETE", f"/v1/compute/clusters/{cluster['cluster_id']}")
        tenant.wire.http.close()


@pytest.fixture
def tenant(new_tenant: Callable[[], Tenant]) -> Tenant:
    return new_tenant()


def drive(tenant: Tenant, version: str, story: str, *args: str, **environ: str) -> str:
    """Run one story with that version's own Python; what it printed."""
    return run(tenant, version, [str(bin_of(version) / "python"), str(DRIVE / story), *args], **environ).stdout


def tg(tenant: Tenant, version: str, *args: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command line, as that version ships it."""
    return run(tenant, version, [str(bin_of(version) / "together"), *args], code=code, **environ)


def run(
    tenant: Tenant, version: str, command: list[str], *, code: int = 0, **environ: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        env=tenant.environ(version, **environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=STORY_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == code, f"{' '.join(command[1:])}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done

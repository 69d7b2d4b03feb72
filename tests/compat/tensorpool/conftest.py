"""TensorPool's own command line, unmodified, driven as a person drives it, against a real server over loopback.

./check makes its environment (.venv-compat-tensorpool) from a hash-locked file.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from muster.testing.server import MusterServer, running_server

TP = Path(__file__).resolve().parents[3] / ".venv-compat-tensorpool" / "bin" / "tp"
COMMAND_SECONDS_MAX = 60
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"

_numbers = itertools.count(1)


@dataclass
class Tenant:
    """A project of its own for each test, a key, a directory, and `tp`."""

    url: str
    key: str
    project_id: str
    home: Path
    operator: httpx.Client

    def tp(self, *words: str, code: int = 0, said: str = "") -> str:
        """What a command printed; its exit code must be `code`."""
        done = subprocess.run(
            [str(TP), *words],
            env=self.environ(),
            cwd=self.home,
            input=said,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        told = f"{done.stdout}{done.stderr}"
        assert done.returncode == code, f"tp {' '.join(words)}: {done.returncode}\n{told}"
        assert "Traceback" not in told, told
        return told

    def environ(self) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "TERM": "dumb",
            "TENSORPOOL_ENGINE": self.url,
            "TENSORPOOL_KEY": self.key,
        }

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.request(method, self.url + path, headers=headers, timeout=30, **more)

    def good(self, method: str, path: str, **more: Any) -> Any:
        reply = self.ask(method, path, **more)
        assert reply.status_code < 300, (reply.status_code, reply.text)
        return reply.json()

    def cluster(self, *words: str) -> str:
        """The id of a new cluster that runs."""
        told = self.tp("cluster", "create", *words, "--wait")
        assert "Traceback" not in told
        return str(self.good("GET", "/cluster/list")["clusters"][-1]["cluster_id"])

    def file(self, name: str, text: str) -> str:
        (self.home / name).write_text(text)
        return str(self.home / name)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MusterServer]:
    with running_server(tmp_path_factory.mktemp("tensorpool") / "home", hosts="320") as running:
        yield running


@pytest.fixture(scope="session")
def operator(server: MusterServer) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {server.operator_key}"}
    with httpx.Client(base_url=f"{server.url}/muster/v1", headers=headers, timeout=30) as client:
        yield client


def made(operator: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = operator.post(path, json=body)
    assert reply.status_code < 300, reply.text
    found: dict[str, Any] = reply.json()
    return found


@pytest.fixture
def new_tenant(server: MusterServer, operator: httpx.Client, tmp_path: Path) -> Iterator[Callable[[], Tenant]]:
    if not TP.exists():
        pytest.skip("needs tensorpool 0.0.9: ./check compat makes its environment")

    tenants: list[Tenant] = []

    def make() -> Tenant:
        name = f"pool-{next(_numbers)}"
        account = made(operator, "/accounts", {"name": name, "postpaid": True})
        project = made(operator, "/projects", {"name": name, "account_id": account["id"]})
        key = made(operator, "/keys", {"name": name, "role": "admin", "project_id": project["id"]})
        home = tmp_path / name
        home.mkdir()
        tenants.append(Tenant(server.url, key["secret"], project["id"], home, operator))
        return tenants[-1]

    yield make
    for tenant in tenants:
        for cluster in operator.get("/clusters", params={"project_id": tenant.project_id}).json()["items"]:
            operator.patch(f"/clusters/{cluster['id']}", json={"deletion_protection": False})
            operator.delete(f"/clusters/{cluster['id']}")


@pytest.fixture
def tenant(new_tenant: Callable[[], Tenant]) -> Tenant:
    return new_tenant()

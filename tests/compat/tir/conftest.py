"""TIR's wire over loopback: plain HTTP as its document's curl would send it, and its own SDK, unmodified."""

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
HERE = Path(__file__).parent
GPU = "/myaccount/api/v1/gpu"
LOCATION = "Delhi"
STORY_SECONDS_MAX = 120
KEYS = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g ann",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICAfHh0cGxoZGBcWFRQTEhEQDw4NDAsKCQgHBgUEAwIB bob",
)

_numbers = itertools.count(1)


@dataclass
class Tenant:
    """A project of its own for each test, and how to speak TIR's wire in its name."""

    url: str
    key: str
    uuid: str
    project_id: int
    team_id: int
    http: httpx.Client
    native: httpx.Client
    location: str = LOCATION

    def ask(
        self, method: str, path: str, *, base: str = GPU, params: dict[str, Any] | None = None, **more: Any
    ) -> Any:
        said = {"project_id": self.project_id, "location": self.location, "apikey": self.key, **(params or {})}
        return self.http.request(
            method, f"{base}{path}", params={k: v for k, v in said.items() if v is not None}, **more
        )

    def good(self, method: str, path: str, *, code: int = 200, **more: Any) -> Any:
        reply = self.ask(method, path, **more)
        told = reply.json()
        assert reply.status_code == code, (reply.status_code, reply.text)
        assert set(told) == {"code", "data", "errors", "message"}
        assert (told["code"], told["errors"]) == (code, {})
        return told["data"]

    def bad(self, method: str, path: str, field: str, *, code: int = 400, **more: Any) -> str:
        reply = self.ask(method, path, **more)
        told = reply.json()
        assert reply.status_code == code, (reply.status_code, reply.text)
        assert told["code"] == code
        assert list(told["errors"]) == [field], told
        if code == 400:
            assert told["message"] == "Bad Request"
        sentence = told["errors"][field]
        assert sentence.endswith(".")
        return str(sentence)

    # --- what a create needs --------------------------------------------------------------------------------------

    def ssh_key(self, number: int = 0) -> int:
        return int(self.good("POST", "/ssh_keys/", json={"label": f"k{number}", "ssh_key": KEYS[number]})["id"])

    def group(self, name: str = "ssh") -> int:
        rules = [
            rule("inbound", ports=["22"]),
            {"rule_type": "outbound", "protocol": "All", "protocol_type": "AllTraffic", "network_type": "any"},
        ]
        made = self.good("POST", "/security_groups/", code=201, json={"name": name, "rules": rules})
        return int(made["id"])

    def sku(self, name: str = "8xH100_SXM") -> dict[str, Any]:
        plans = self.good("GET", "/distributed_jobs_v2/cluster/plans/", params={"variant": "slurm"})
        return next(sku for sku in plans if sku["name"] == name)

    def image(self, framework: str = "slurm", at: int = 0) -> int:
        path = f"/distributed_jobs_v2/deployment_images/{framework}/"
        images = self.good("GET", path, params={"job_type": framework})
        return int([v for image in images for v in image["versions"]][at]["image_version_id"])

    def body(self, **fields: Any) -> dict[str, Any]:
        """A whole create; the things it names are made on the way."""
        sku = self.sku()
        hourly = next(plan for plan in sku["plans"] if plan["committed_days"] == 0)
        return {
            "name": f"cluster-{next(_numbers)}",
            "image_version_id": self.image(),
            "ssh_key_ids": [self.ssh_key()],
            "security_group_id": self.group(f"group-{next(_numbers)}"),
            "sku_id": sku["sku_id"],
            "sku_item_price_id": hourly["sku_item_price_id"],
            "no_of_nodes": 1,
            **fields,
        }

    def create(self, **fields: Any) -> dict[str, Any]:
        made: dict[str, Any] = self.good("POST", CLUSTERS, code=201, json=self.body(**fields))
        return made

    def running(self, id: int) -> dict[str, Any]:
        """Until it is Running and at rest: the native side waits for us."""
        uuid = self.good("GET", f"{CLUSTERS}{id}/")["uuid"]
        seen = self.native.get(f"/muster/v1/clusters/{uuid}", params={"wait": 30}).json()
        while seen["observed_generation"] < seen["generation"]:
            asked = {"if-none-match": f'"{seen["version"]}"'}
            seen = self.native.get(f"/muster/v1/clusters/{uuid}", params={"wait": 30}, headers=asked).json()
        told: dict[str, Any] = self.good("GET", f"{CLUSTERS}{id}/")
        assert told["status"] == "Running", told
        return told


CLUSTERS = "/distributed_jobs_v2/cluster/"


def rule(rule_type: str, **fields: Any) -> dict[str, Any]:
    said = {"rule_type": rule_type, "protocol": "TCP", "protocol_type": "CustomTCP", "network_type": "any"}
    return {**said, "ports": [], **fields}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MusterServer]:
    with running_server(tmp_path_factory.mktemp("tir") / "home", hosts="400") as running:
        yield running


@pytest.fixture(scope="session")
def operator(server: MusterServer) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {server.operator_key}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as http:
        yield http


@pytest.fixture
def new_tenant(server: MusterServer, operator: httpx.Client) -> Iterator[Callable[..., Tenant]]:
    made: list[Tenant] = []

    def make(*, postpaid: bool = True) -> Tenant:
        name = f"tir-{os.getpid()}-{next(_numbers)}"
        account = operator.post("/muster/v1/accounts", json={"name": name, "postpaid": postpaid}).json()
        project = operator.post("/muster/v1/projects", json={"name": name, "account_id": account["id"]}).json()
        said = {"name": name, "role": "admin", "project_id": project["id"]}
        key = operator.post("/muster/v1/keys", json=said).json()["secret"]
        headers = {"authorization": f"Bearer {key}"}
        http, native = (httpx.Client(base_url=server.url, headers=headers, timeout=60) for _ in range(2))
        teams = http.get(f"{GPU}/teams/", params={"apikey": key}).json()["data"]
        projects = http.get(f"{GPU}/projects/", params={"apikey": key}).json()["data"]
        number, team = projects[0]["project_id"], teams[0]["team_id"]
        made.append(Tenant(server.url, key, project["id"], number, team, http, native))
        return made[-1]

    yield make
    for tenant in made:
        for cluster in tenant.good("GET", CLUSTERS):
            tenant.ask("DELETE", f"{CLUSTERS}{cluster['id']}/")
        tenant.http.close()
        tenant.native.close()


@pytest.fixture
def tenant(new_tenant: Callable[..., Tenant]) -> Tenant:
    return new_tenant()


def drive(tenant: Tenant, story: str, home: Path, *args: str) -> str:
    """Run one story with the SDK's own Python, the stand-ins for its heavy dependencies beside it."""
    python = ROOT / ".venv-compat-tir" / "bin" / "python"
    if not python.exists():
        pytest.skip("needs e2enetworks 1.4.9: ./check compat makes its environment")
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONPATH": str(HERE / "standins"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "E2E_TIR_API_HOST": f"{tenant.url}/myaccount/",
        "E2E_TIR_API_KEY": tenant.key,
        "E2E_TIR_ACCESS_TOKEN": tenant.key,
        "E2E_TIR_PROJECT_ID": str(tenant.project_id),
        "E2E_TIR_TEAM_ID": str(tenant.team_id),
        "E2E_TIR_LOCATION": LOCATION,
    }
    done = subprocess.run(
        [str(python), str(HERE / "drive" / story), *args],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=STORY_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{story}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout

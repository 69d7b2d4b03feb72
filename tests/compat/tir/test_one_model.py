"""One model: what is made on TIR's wire is the same cluster for the others' own clients, and the other way round."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import CLUSTERS, GPU, LOCATION, ROOT, Tenant

RETRIEVE = "import sys, together; print(together.Together().beta.clusters.retrieve(sys.argv[1]).to_json())"


def client(venv: str, program: str) -> str:
    found = ROOT / f".venv-compat-{venv}" / "bin" / program
    if not found.exists():
        pytest.skip(f"needs {venv}: ./check compat makes its environment")
    return str(found)


def run(command: list[str], home: Path, **environ: str) -> str:
    known = {"PATH": "/usr/bin:/bin", "HOME": str(home), "COLUMNS": "300", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command,
        env={**known, **environ},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def made(tenant: Tenant) -> dict[str, object]:
    told = tenant.create(no_of_nodes=2)
    return tenant.running(told["id"])


def test_togethers_sdk_sees_it(tenant: Tenant, made: dict[str, str], tmp_path: Path) -> None:
    python = client("together-2.42.0", "python")
    environ = {"TOGETHER_BASE_URL": f"{tenant.url}/v1", "TOGETHER_API_KEY": tenant.key}
    told = run([python, "-c", RETRIEVE, made["uuid"]], tmp_path, **environ)
    assert f'"{made["name"]}"' in told
    assert '"Ready"' in told


def test_tp_sees_it(tenant: Tenant, made: dict[str, str], tmp_path: Path) -> None:
    environ = {"TENSORPOOL_ENGINE": tenant.url, "TENSORPOOL_KEY": tenant.key}
    told = run([client("tensorpool", "tp"), "cluster", "info", made["uuid"]], tmp_path, **environ)
    assert made["name"] in told
    assert "RUNNING" in told


def test_muster_sees_it_restarts_it_and_makes_one_that_tir_sees(
    tenant: Tenant, made: dict[str, str], tmp_path: Path
) -> None:
    muster = [sys.executable, "-m", "muster.cli.main"]
    environ = {
        "MUSTER_URL": tenant.url,
        "MUSTER_API_KEY": tenant.key,
        "MUSTER_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    assert made["uuid"] in run([*muster, "cluster", "list", "-o", "json"], tmp_path, **environ)
    run([*muster, "cluster", "restart", made["name"], "--all", "--yes", "--wait"], tmp_path, **environ)
    nodes = tenant.native.get(f"/muster/v1/clusters/{made['uuid']}").json()["nodes"]
    assert {node["phase"] for node in nodes} == {"running"}
    wish = ["--type", "slurm", "--region", LOCATION, "--gpu-type", "H100_SXM", "--gpus", "8", "--wait"]
    run([*muster, "cluster", "create", "from-muster", *wish], tmp_path, **environ)
    [other] = [c for c in tenant.good("GET", CLUSTERS) if c["name"] == "from-muster"]
    assert (other["status"], other["no_of_nodes"], other["location"]) == ("Running", 1, LOCATION)
    assert other["sku_item_price_id"] == made["sku_item_price_id"]
    assert tenant.good("PUT", f"{CLUSTERS}{other['id']}/", base=GPU, json={"action": "restart_workers"})


def test_an_address_through_the_native_door(tenant: Tenant, made: dict[str, str]) -> None:
    ip = tenant.native.post("/muster/v1/reserved-ips", json={"region": LOCATION}).json()
    path = f"/muster/v1/clusters/{made['uuid']}/address"
    assert tenant.native.post(path, json={"reserved_ip_id": ip["id"]}).status_code == 202
    told = tenant.running(int(made["id"]))
    assert told["reserved_ip"]["ip_address"] == told["login"]["host"] == ip["address"]
    assert tenant.native.delete(f"{path}/{ip['id']}").status_code == 202
    assert tenant.running(int(made["id"]))["reserved_ip"] is None

"""Repairs of real nodes, asked for through Together's wire as the SDK asks: what is repaired takes jobs again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from muster.testing.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("machine")

REPAIR_SECONDS_MAX = 90


@pytest.fixture
def wire(server: LocalServer) -> Iterator[httpx.Client]:
    env = dict(line.removeprefix("export ").split("=", 1) for line in server.muster("env", "together").splitlines())
    headers = {"authorization": f"Bearer {env['TOGETHER_API_KEY']}"}
    with httpx.Client(base_url=env["TOGETHER_BASE_URL"], headers=headers, timeout=30) as client:
        yield client


def repaired(wire: httpx.Client, base: str, mode: str) -> dict[str, Any]:
    made = wire.post(base, json={"mode": f"REMEDIATION_MODE_{mode}"})
    assert made.status_code == 200, made.text
    ends = time.monotonic() + REPAIR_SECONDS_MAX
    while (seen := wire.get(f"{base}/{made.json()['id']}").json())["state"] in ("PENDING", "RUNNING"):
        assert time.monotonic() < ends, seen
        time.sleep(0.1)
    return dict(seen)


def test_a_node_that_was_booted_anew_takes_jobs_again(server: LocalServer, wire: httpx.Client) -> None:
    server.muster("cluster", "create", "demo", "--type", "slurm", "--gpus", "16", "--wait")
    shown = json.loads(server.muster("cluster", "show", "demo", "-o", "json"))
    node = next(node["id"] for node in shown["nodes"] if node["name"] == "worker-0")
    [told, _] = wire.get(f"/v1/compute/clusters/{shown['id']}").json()["gpu_worker_nodes"]
    by_that_name = ("ssh", told["slurm_worker_hostname"], "hostname")
    assert server.muster("ssh", "demo", *by_that_name).split() == [told["host_name"]]
    base = f"/v1/compute/clusters/{shown['id']}/instances/{node}/remediations"
    for mode in ("REBOOT_VM", "HOST_POWER_CYCLE"):
        done = repaired(wire, base, mode)
        assert done["state"] == "SUCCEEDED", done
        job = ("srun", "--immediate=20", "-w", "worker-0", "hostname")
        assert server.muster("ssh", "demo", *job).split() == ["worker-0"], mode

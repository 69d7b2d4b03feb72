"""Repairs that really act on the fleet: by every mode, proposed by the house, and by failover."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import LAST_2, NEWEST, Tenant, Wire, drive

CLUSTERS = "/v1/compute/clusters"
BODY = {
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "billing_type": "ON_DEMAND",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
}


def until(look: Callable[[], Any], good: Callable[[Any], bool], what: str) -> Any:
    ends = time.monotonic() + 60
    while not good(seen := look()):
        assert time.monotonic() < ends, (what, seen)
        time.sleep(0.05)
    return seen


class Case:
    """One cluster and the wire's remediations of it."""

    def __init__(self, tenant: Tenant, operator: Wire, gpus: int, **more: Any) -> None:
        self.tenant, self.operator = tenant, operator
        made = tenant.wire.good("POST", CLUSTERS, json=BODY | {"cluster_name": "c", "num_gpus": gpus} | more)
        self.id = made["cluster_id"]
        self.until_status("Ready")

    def seen(self) -> dict[str, Any]:
        return dict(self.tenant.wire.good("GET", f"{CLUSTERS}/{self.id}"))

    def until_status(self, status: str) -> dict[str, Any]:
        return dict(until(self.seen, lambda c: c["status"] == status, status))

    def base(self, instance: str = "-") -> str:
        return f"{CLUSTERS}/{self.id}/instances/{instance}/remediations"

    def repair(self, instance: str, mode: str, **query: str) -> dict[str, Any]:
        said = {"mode": f"REMEDIATION_MODE_{mode}"}
        return dict(self.tenant.wire.good("POST", self.base(instance), json=said, params=query))

    def ended(self, id: str) -> dict[str, Any]:
        look = lambda: self.tenant.wire.good("GET", f"{self.base()}/{id}")  # noqa: E731
        return dict(until(look, lambda r: r["state"] not in ("PENDING", "RUNNING"), "ended"))

    def all(self, **query: Any) -> list[dict[str, Any]]:
        return list(self.tenant.wire.good("GET", self.base(), params=query)["remediations"])

    def host_of(self, instance: str) -> dict[str, Any]:
        nodes = self.operator.good("GET", f"/muster/v1/clusters/{self.id}/nodes")["items"]
        host_id = next(node["host_id"] for node in nodes if node["id"] == instance)
        return dict(self.operator.good("GET", f"/muster/v1/hosts/{host_id}"))

    def host(self, id: str) -> dict[str, Any]:
        return dict(self.operator.good("GET", f"/muster/v1/hosts/{id}"))


@pytest.fixture
def case(tenant: Tenant, operator: Wire) -> Callable[..., Case]:
    return lambda gpus=16, **more: Case(tenant, operator, gpus, **more)


def phases(cluster: dict[str, Any]) -> list[str]:
    return [moved["phase"].removeprefix("CLUSTER_PHASE_") for moved in cluster["phase_transitions"]]


@pytest.mark.parametrize(("mode", "cordons"), [("VM_ONLY", False), ("HOST_AWARE", True)])
def test_a_node_is_replaced(case: Callable[..., Case], mode: str, cordons: bool) -> None:
    c = case()
    old = c.seen()["gpu_worker_nodes"][0]
    host = c.host_of(old["instance_id"])
    done = c.ended(c.repair(old["instance_id"], mode)["id"])
    assert (done["state"], done.get("error_message")) == ("SUCCEEDED", None), done
    assert c.host(host["id"])["cordoned"] is cordons
    after = c.until_status("Ready")
    new = {node["instance_id"] for node in after["gpu_worker_nodes"]}
    assert len(new) == 2
    assert old["instance_id"] not in new
    assert any(id in done["evidence"][-1] for id in new)
    assert phases(after)[-3:] == ["READY", "DEGRADED", "READY"]
    gone = until(c.seen, lambda s: bool(s["deleted_gpu_worker_nodes"]), "gone")["deleted_gpu_worker_nodes"]
    assert [node["instance_id"] for node in gone] == [old["instance_id"]]
    assert gone[0]["latest_remediation"]["id"] == done["id"]
    assert c.tenant.wire.good("GET", f"{c.base(old['instance_id'])}/{done['id']}")["state"] == "SUCCEEDED"
    if cordons:
        c.operator.good("POST", f"/muster/v1/hosts/{host['id']}/uncordon")


@pytest.mark.parametrize("mode", ["REBOOT_VM", "HOST_POWER_CYCLE"])
def test_a_node_is_booted_anew_in_place(case: Callable[..., Case], mode: str) -> None:
    c = case()
    node = c.seen()["gpu_worker_nodes"][0]
    host = c.host_of(node["instance_id"])
    done = c.ended(c.repair(node["instance_id"], mode)["id"])
    assert done["state"] == "SUCCEEDED", done
    after = c.until_status("Ready")
    same = next(n for n in after["gpu_worker_nodes"] if n["instance_id"] == node["instance_id"])
    assert c.host_of(node["instance_id"])["id"] == host["id"]
    assert c.host(host["id"])["cordoned"] is False
    told = [moved["phase"] for moved in same["phase_transitions"]]
    assert told.count("NODE_PHASE_BOOTING") == 2
    assert phases(after)[-3:] == ["READY", "DEGRADED", "READY"]


def test_a_node_is_evicted_and_the_last_one_is_not(case: Callable[..., Case]) -> None:
    c = case()
    node = c.seen()["gpu_worker_nodes"][0]
    done = c.ended(c.repair(node["instance_id"], "EVICT_WITHOUT_REPLACEMENT")["id"])
    assert done["state"] == "SUCCEEDED", done
    after = c.seen()
    assert (after["num_gpus"], len(after["gpu_worker_nodes"])) == (8, 1)
    said = {"mode": "REMEDIATION_MODE_EVICT_WITHOUT_REPLACEMENT"}
    last = after["gpu_worker_nodes"][0]["instance_id"]
    refused = c.tenant.wire.ask("POST", c.base(last), json=said)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "wrong_phase")


def test_a_dead_node_waits_for_approval_and_is_then_replaced(case: Callable[..., Case]) -> None:
    c = case()
    node = c.seen()["gpu_worker_nodes"][0]
    host = c.host_of(node["instance_id"])
    fault = c.operator.good("POST", "/muster/v1/faults", json={"kind": "host-death", "target": host["name"]})
    [proposed] = until(c.all, lambda all: bool(all), "proposed")
    assert (proposed["state"], proposed["trigger"]) == ("PENDING_APPROVAL", "REMEDIATION_TRIGGER_AUTOMATED")
    assert (proposed["mode"], proposed["instance_id"]) == ("REMEDIATION_MODE_HOST_AWARE", node["instance_id"])
    assert c.until_status("Degraded")["gpu_worker_nodes"][0]["status"] == "Unreachable"
    drive(c.tenant, NEWEST, "approve.py", "sync", c.id, node["instance_id"], proposed["id"])
    done = c.ended(proposed["id"])
    assert (done["state"], done["review_comment"]) == ("SUCCEEDED", "go ahead"), done
    assert done["reviewed_by"]
    assert len(c.until_status("Ready")["gpu_worker_nodes"]) == 2
    c.operator.good("DELETE", f"/muster/v1/faults/{fault['id']}")
    c.operator.good("POST", f"/muster/v1/hosts/{host['id']}/uncordon")


def test_what_heals_first_is_resolved_by_itself(case: Callable[..., Case]) -> None:
    c = case()
    host = c.host_of(c.seen()["gpu_worker_nodes"][0]["instance_id"])
    fault = c.operator.good("POST", "/muster/v1/faults", json={"kind": "host-death", "target": host["name"]})
    until(c.all, lambda all: bool(all), "proposed")
    c.operator.good("DELETE", f"/muster/v1/faults/{fault['id']}")
    c.until_status("Ready")
    [resolved] = until(c.all, lambda all: all[0]["state"] == "AUTO_RESOLVED", "resolved")
    assert "is back" in resolved["evidence"][-1]
    late = c.tenant.wire.ask("POST", f"{c.base(resolved['instance_id'])}/{resolved['id']}/approve", json={})
    assert (late.status_code, late.json()["error"]["code"]) == (400, "wrong_phase")


def test_a_proposal_may_be_rejected(case: Callable[..., Case]) -> None:
    c = case()
    host = c.host_of(c.seen()["gpu_worker_nodes"][0]["instance_id"])
    fault = c.operator.good("POST", "/muster/v1/faults", json={"kind": "host-death", "target": host["name"]})
    [proposed] = until(c.all, lambda all: bool(all), "proposed")
    where = f"{c.base(proposed['instance_id'])}/{proposed['id']}"
    rejected = c.tenant.wire.good("POST", f"{where}/reject", json={"comment": "not now"})
    assert (rejected["state"], rejected["review_comment"]) == ("CANCELLED", "not now")
    assert rejected["end_time"]
    assert c.tenant.wire.ask("POST", f"{where}/cancel").status_code == 400
    c.operator.good("DELETE", f"/muster/v1/faults/{fault['id']}")
    c.until_status("Ready")
    assert [r["id"] for r in c.all()] == [proposed["id"]]
    c.operator.good("POST", f"/muster/v1/hosts/{host['id']}/uncordon")


def test_failover_replaces_a_dead_node_and_leaves_a_record(case: Callable[..., Case]) -> None:
    c = case(gpu_node_failover_enabled=True)
    node = c.seen()["gpu_worker_nodes"][0]
    host = c.host_of(node["instance_id"])
    fault = c.operator.good("POST", "/muster/v1/faults", json={"kind": "host-death", "target": host["name"]})
    [record] = until(c.all, lambda all: bool(all) and all[0]["state"] == "SUCCEEDED", "recorded")
    assert (record["reviewed_by"], record["trigger"]) == ("Auto-Approved", "REMEDIATION_TRIGGER_AUTOMATED")
    after = c.until_status("Ready")
    assert node["instance_id"] not in {n["instance_id"] for n in after["gpu_worker_nodes"]}
    c.operator.good("DELETE", f"/muster/v1/faults/{fault['id']}")
    c.operator.good("POST", f"/muster/v1/hosts/{host['id']}/uncordon")


def test_lists_are_filtered_ordered_and_paged(case: Callable[..., Case]) -> None:
    c = case(24)
    nodes = [node["instance_id"] for node in c.seen()["gpu_worker_nodes"]]
    made = [c.ended(c.repair(node, "REBOOT_VM")["id"])["id"] for node in nodes]
    c.until_status("Ready")
    assert [r["id"] for r in c.all()] == made[::-1]
    assert [r["id"] for r in c.all(order_by="create_time asc")] == made
    first = c.tenant.wire.good("GET", c.base(), params={"page_size": 2})
    assert first["has_next"]
    rest = c.tenant.wire.good("GET", c.base(), params={"pageSize": 2, "pageToken": first["next_page_token"]})
    assert [r["id"] for r in first["remediations"] + rest["remediations"]] == made[::-1]
    assert not rest["has_next"]
    assert c.all(state="PENDING,RUNNING") == []
    assert len(c.all(mode="REMEDIATION_MODE_REBOOT_VM,REMEDIATION_MODE_VM_ONLY")) == 3
    assert c.all(state="QUARANTINED") == []
    for bad in ({"state": "ASLEEP"}, {"order_by": "mood"}, {"page_size": "many"}, {"page_token": "x"}):
        assert c.tenant.wire.ask("GET", c.base(), params=bad).status_code == 400
    one = c.tenant.wire.good("GET", c.base(nodes[0]))["remediations"]
    assert [r["id"] for r in one] == made[:1]
    c.tenant.wire.good("DELETE", f"{CLUSTERS}/{c.id}")
    until(lambda: c.tenant.wire.ask("GET", f"{CLUSTERS}/{c.id}").status_code, lambda s: s == 404, "gone")
    assert len(c.all()) == 3


def test_the_clients_own_id_makes_a_repeated_create_one_repair(case: Callable[..., Case]) -> None:
    c = case()
    one, two = (node["instance_id"] for node in c.seen()["gpu_worker_nodes"])
    own = "0f8fad5b-d9cb-4d9f-a165-70867728950e"
    drive(c.tenant, LAST_2, "own_id.py", "sync", c.id, one, own)
    assert [r["id"] for r in c.all()] == [own]
    said = {"mode": "REMEDIATION_MODE_VM_ONLY"}
    taken = c.tenant.wire.ask("POST", c.base(two), json=said, params={"remediation_id": own})
    assert (taken.status_code, taken.headers["x-should-retry"]) == (409, "false")
    assert c.tenant.wire.ask("POST", c.base(two), json=said, params={"remediation_id": "x"}).status_code == 400


@pytest.mark.parametrize(
    ("said", "status"),
    [({}, 400), ({"mode": "REMEDIATION_MODE_HOPE"}, 400), ({"mode": 1}, 400), ({"mode": None}, 400)],
)
def test_what_makes_no_sense_is_refused(tenant: Tenant, operator: Wire, said: Any, status: int) -> None:
    made = tenant.wire.good("POST", CLUSTERS, json=BODY | {"cluster_name": "c", "num_gpus": 8})
    instance = made["gpu_worker_nodes"][0]["instance_id"]
    base = f"{CLUSTERS}/{made['cluster_id']}/instances/{instance}/remediations"
    assert tenant.wire.ask("POST", base, json=said).status_code == status

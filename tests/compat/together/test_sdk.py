"""The SDK, three versions of it, sync and async."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.dialects.together.fields import ANSWERS, REQUESTS
from muster.testing.server import running_server

from .conftest import FIRST, LAST_2, NEWEST, VERSIONS, Tenant, Wire, drive
from .test_repairs import until

CLUSTERS = "/v1/compute/clusters"


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_method_and_every_field(tenant: Tenant, version: str, kind: str) -> None:
    drive(tenant, version, "every_method.py", kind)


@pytest.mark.parametrize("version", VERSIONS)
def test_refusals_are_the_exceptions_the_sdk_has_for_them(tenant: Tenant, version: str) -> None:
    drive(tenant, version, "refusals.py", "sync")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_every_wish_is_told_back(tenant: Tenant, kind: str) -> None:
    drive(tenant, NEWEST, "wishes.py", kind)
    log = tenant.wire.good("GET", "/muster/v1/events", params={"kind": "cluster", "limit": 1000})["items"]
    ignored = [line["data"]["ignored_fields"] for line in log if line["type"] == "cluster.created" and line["data"]]
    assert ignored == [["a_field_from_the_future"], ["zzz"]]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_capacity_in_time(tenant: Tenant, kind: str) -> None:
    drive(tenant, NEWEST, "reservations.py", kind)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_preemptible_gpus_are_wished_for_and_had(tenant: Tenant, kind: str) -> None:
    id = drive(tenant, NEWEST, "preemptible.py", kind, tenant.project_id).strip()
    told = tenant.wire.good("GET", f"{CLUSTERS}/{id}")
    assert (told["desired_preemptible_gpus"], len(told["gpu_worker_nodes"])) == (8, 2)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_queue_grows_its_cluster(tenant: Tenant, operator: Wire, version: str) -> None:
    id = drive(tenant, version, "autoscale.py", "sync").strip()
    operator.good("POST", "/muster/v1/faults", json={"kind": "load", "target": id, "count": 16})
    look = lambda: tenant.wire.good("GET", f"{CLUSTERS}/{id}")  # noqa: E731
    grown = until(look, lambda seen: len(seen["gpu_worker_nodes"]) == 2, "grown")
    assert grown["num_gpus"] == 8


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_pool_is_drawn_from(tenant: Tenant, operator: Wire, kind: str) -> None:
    wish = {
        "name": f"apart-{kind}",
        "region": "us-central-8",
        "gpu_type": "H100_SXM",
        "project_id": tenant.project_id,
    }
    pool = operator.good("POST", "/muster/v1/pools", json=wish)
    operator.good("POST", f"/muster/v1/pools/{pool['id']}/hosts", json={"count": 2})
    drive(tenant, NEWEST, "pool.py", kind, pool["id"])


def test_the_table_of_fields_knows_every_field_of_the_newest_sdk(tenant: Tenant) -> None:
    declared = {section.title: {field.name for field in section.fields} for section in (*REQUESTS, *ANSWERS)}
    for title, names in json.loads(drive(tenant, NEWEST, "shapes.py")).items():
        assert set(names) <= declared[title], (title, set(names) - declared[title])


def test_the_documents_own_samples(tenant: Tenant) -> None:
    made = drive(tenant, FIRST, "sample_001.py").strip()
    shown = drive(tenant, LAST_2, "sample_004.py", made)
    assert made in shown
    assert "cluster_name='my-gpu-cluster'" in shown


@pytest.mark.parametrize(
    ("version", "base"), [(NEWEST, "/v1"), (NEWEST, ""), (LAST_2, ""), (LAST_2, "/v1"), (FIRST, "")]
)
def test_the_base_urls_that_people_set(tenant: Tenant, version: str, base: str) -> None:
    drive(tenant, version, "create_thrice.py", "sync", TOGETHER_BASE_URL=tenant.url + base)


# --- trouble on the wire: on a server of its own, for every answer there may be a bad one -------------------------


@pytest.fixture
def troubled(tmp_path: Path) -> Callable[..., None]:
    def story(kind: str, count: int, *args: str) -> None:
        with running_server(tmp_path / "home", hosts="8") as server:
            operator = Wire(server.url, server.operator_key)
            tenant = Tenant(server.url, server.tenant_key, "demo", tmp_path, operator)
            operator.good("POST", "/muster/v1/faults", json={"kind": kind, "count": count})
            drive(tenant, NEWEST, "refusals.py", "sync", *args)
            left = operator.good("GET", "/muster/v1/faults")["items"]
            assert left == []
            assert len(operator.good("GET", CLUSTERS)["clusters"]) == (1 if "patient" in args else 0)
            operator.http.close()

    return story


@pytest.mark.parametrize("status", ["429", "500"])
def test_a_fault_on_the_wire_is_raised_or_outlived(
    troubled: Callable[..., None], tmp_path: Path, status: str
) -> None:
    troubled(f"http-{status}", 1, status, "at once")
    troubled(f"http-{status}", 2, status, "patient")


def test_one_create_that_is_asked_three_times_makes_one_cluster(tmp_path: Path) -> None:
    """The first two answers come too late for the client; the server did the work all the same."""
    with running_server(tmp_path / "home", hosts="8") as server:
        operator = Wire(server.url, server.operator_key)
        tenant = Tenant(server.url, server.tenant_key, "demo", tmp_path, operator)
        said = {"kind": "slow-reply", "count": 2, "delay_seconds": 3}
        operator.good("POST", "/muster/v1/faults", json=said)
        drive(tenant, NEWEST, "create_thrice.py", "sync", "hasty")
        operator.http.close()


# --- tenants ----------------------------------------------------------------------------------------------------


def test_one_project_sees_nothing_of_another(new_tenant: Callable[[], Tenant]) -> None:
    ann, bob = new_tenant(), new_tenant()
    made = drive(ann, FIRST, "sample_001.py").strip()
    ours = ann.wire.good("GET", CLUSTERS, params={"projectId": ann.project_id})["clusters"]
    assert [cluster["cluster_id"] for cluster in ours] == [made]
    assert bob.wire.good("GET", CLUSTERS, params={"projectId": ann.project_id}) == {"clusters": []}
    assert bob.wire.good("GET", f"{CLUSTERS}/storage/volumes", params={"projectId": ann.project_id}) == {
        "volumes": []
    }
    for method, path in (
        ("GET", f"{CLUSTERS}/{made}"),
        ("PUT", f"{CLUSTERS}/{made}"),
        ("DELETE", f"{CLUSTERS}/{made}"),
        ("GET", f"{CLUSTERS}/{made}/instances/-/remediations"),
        ("GET", f"/api/v1/gpu_cluster/{made}"),
        ("DELETE", f"/api/v1/gpu_cluster/{made}"),
    ):
        reply = bob.wire.ask(method, path, json={} if method == "PUT" else None)
        assert reply.status_code == 404, (method, path, reply.text)
        assert reply.json()["error"]["code"] == "not_found"
    said = {"project_id": ann.project_id, "cluster_name": "x", "region": "us-central-8", "gpu_type": "H100_SXM"}
    more = {"num_gpus": 8, "billing_type": "ON_DEMAND", "driver_version": "CUDA_12_6_560"}
    assert bob.wire.ask("POST", CLUSTERS, json=said | more).status_code == 404

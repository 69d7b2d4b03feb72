"""The first API, over the same clusters. No SDK ever spoke it, so plain HTTP does."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .conftest import Tenant

OLD = "/api/v1"
BODY: dict[str, Any] = {
    "cluster_name": "old",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 8,
    "duration_days": 2,
    "driver_version": "CUDA_12_8_570",
    "billing_type": "ON_DEMAND",
    "cluster_type": "SLURM",
}


def until_ready(tenant: Tenant, id: str) -> dict[str, Any]:
    ends = time.monotonic() + 60
    while (seen := tenant.wire.good("GET", f"{OLD}/gpu_cluster/{id}"))["status"] != "READY":
        assert time.monotonic() < ends, seen
        time.sleep(0.05)
    return dict(seen)


def test_a_legacy_cluster_from_beginning_to_end(tenant: Tenant) -> None:
    volume = {"volume_name": "v", "size_tib": 1}
    made = tenant.wire.good("POST", f"{OLD}/gpu_cluster", json=BODY | {"shared_volume": volume})
    assert made == {"cluster_id": made["cluster_id"], "status": "WAITING_CONTROL_PLANE"}
    seen = until_ready(tenant, made["cluster_id"])
    assert set(seen) == {
        "cluster_id",
        "cluster_type",
        "region",
        "gpu_type",
        "cluster_name",
        "duration_hours",
        "driver_version",
        "volumes",
        "status",
        "control_plane_nodes",
        "gpu_worker_nodes",
        "kube_config",
        "num_gpus",
    }
    assert (seen["duration_hours"], seen["driver_version"], seen["num_gpus"]) == (48, "CUDA_12_8_570", 8)
    assert (seen["volumes"][0]["volume_name"], seen["gpu_worker_nodes"][0]["node_name"]) == ("v", "worker-0")
    [listed] = tenant.wire.good("GET", f"{OLD}/gpu_clusters")["clusters"]
    assert listed["cluster_id"] == made["cluster_id"]

    said = {"cluster_id": made["cluster_id"], "num_gpus": 16}
    assert tenant.wire.good("PUT", f"{OLD}/gpu_cluster", json=said) == made | {"status": "READY"}
    current = tenant.wire.good("GET", f"/v1/compute/clusters/{made['cluster_id']}")
    assert (current["num_gpus"], current["cluster_name"]) == (16, "old")

    gone = tenant.wire.good("DELETE", f"{OLD}/gpu_cluster/{made['cluster_id']}")
    assert gone == {"cluster_id": made["cluster_id"]}
    ends = time.monotonic() + 60
    while tenant.wire.ask("GET", f"{OLD}/gpu_cluster/{made['cluster_id']}").status_code != 404:
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_legacy_volumes(tenant: Tenant) -> None:
    made = tenant.wire.good(
        "POST", f"{OLD}/shared_volume", json={"volume_name": "v", "size_tib": 2, "region": "us-central-8"}
    )
    assert set(made) == {"volume_id"}
    assert tenant.wire.good("GET", f"{OLD}/shared_volumes") == {
        "volumes": [{"volume_id": made["volume_id"], "volume_name": "v", "size_tib": 2}]
    }
    assert tenant.wire.good("DELETE", f"{OLD}/shared_volume/{made['volume_id']}") == {"success": True}


@pytest.mark.parametrize(
    "more",
    [
        {"duration_days": None},
        {"driver_version": "UNKNOWN_DRIVER"},
        {"gpu_type": "UNKNOWN_GPU_TYPE"},
        {"billing_type": "UNSPECIFIED"},
        {"num_gpus": 2**31},
        {"duration_days": 2**32},
    ],
)
def test_a_legacy_create_is_refused_in_the_same_envelope(tenant: Tenant, more: dict[str, Any]) -> None:
    reply = tenant.wire.ask("POST", f"{OLD}/gpu_cluster", json=BODY | more)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")
    assert reply.json()["error"]["param"] in more


def test_a_legacy_cluster_may_be_reserved(tenant: Tenant) -> None:
    made = tenant.wire.good("POST", f"{OLD}/gpu_cluster", json=BODY | {"billing_type": "RESERVED"})
    seen = tenant.wire.good("GET", f"{OLD}/gpu_cluster/{made['cluster_id']}")
    assert (seen["duration_hours"], seen["num_gpus"]) == (48, 8)
    current = tenant.wire.good("GET", f"/v1/compute/clusters/{made['cluster_id']}")
    assert (current["billing_type"], current["num_reserved_gpus"]) == ("RESERVED", 8)

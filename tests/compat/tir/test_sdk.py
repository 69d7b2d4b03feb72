"""E2E's own SDK, e2enetworks 1.4.9, unmodified. Its heavy dependencies are empty modules (standins/)."""

from __future__ import annotations

from pathlib import Path

from .conftest import CLUSTERS, KEYS, Tenant, drive


def test_every_call_of_the_sdk_that_we_answer(tenant: Tenant, tmp_path: Path) -> None:
    tenant.good("POST", "/distributed_jobs/sfs/", json={"name": "from-the-wire", "disk_size": 500})
    made = tenant.create()
    tenant.running(made["id"])
    drive(tenant, "every_call.py", tmp_path, str(made["id"]), KEYS[1])


def test_a_pytorch_job(tenant: Tenant, tmp_path: Path) -> None:
    sfs = tenant.good("POST", "/distributed_jobs/sfs/", json={"name": "data", "disk_size": 10})["id"]
    mount = {"id": sfs, "name": "data", "mount_path": "/mnt/data"}
    made = tenant.create(no_of_nodes=2, sfs_mount_list=[mount])
    tenant.running(made["id"])
    told = drive(tenant, "pytorch_job.py", tmp_path, str(made["id"]), str(sfs), "simulated")
    assert told.count("POD ") == 3


def test_a_job_that_cannot_be(tenant: Tenant) -> None:
    made = tenant.create()
    job = {"name": "x", "cluster_id": made["id"], "master_commands": "WydmYWxzZSdd", "master_replica": 1}
    path = "/distributed_jobs/jobs/"
    tenant.running(made["id"])
    for field, wrong in (
        ("cluster_id", {"cluster_id": 10**9}),
        ("sfs_id", {"sfs_id": 10**9}),
        ("master_commands", {"master_commands": "['false']"}),
        ("master_commands", {"master_commands": ""}),
        ("worker_commands", {"worker_replica": 1}),
        ("master_replica", {"master_replica": 0}),
        ("name", {"name": "a/b"}),
        ("environmentVariable", {"environmentVariable": [{"key": "A B", "value": ""}]}),
    ):
        tenant.bad("POST", path, field, json={**job, **wrong})
    other = tenant.good("POST", "/distributed_jobs/sfs/", json={"name": "loose", "disk_size": 10})["id"]
    tenant.bad("POST", path, "sfs_id", json={**job, "sfs_id": other})
    made_job = tenant.good("POST", path, code=201, json=job)
    one = f"{path}{made_job['id']}/"
    tenant.bad("PUT", one, "action", params={"action": "retry"})
    tenant.bad("GET", f"{one}logs/nobody/", "detail", code=404)
    tenant.bad("GET", f"{path}7/", "detail", code=404)
    tenant.good("DELETE", f"{CLUSTERS}{made['id']}/")

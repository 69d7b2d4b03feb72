"""Training clusters as the document's own curl would ask for them, and every action on a running one."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import CLUSTERS, GPU, LOCATION, Tenant


def test_the_documents_create_as_curl_sends_it(tenant: Tenant) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("needs curl: apt-get install curl")
    query = f"project_id={tenant.project_id}&location={LOCATION}&apikey={tenant.key}"
    sfs = tenant.good("POST", "/distributed_jobs/sfs/", json={"name": "data", "disk_size": 500})
    body = tenant.body(
        name="my-training-cluster",
        no_of_nodes=2,
        script_added=True,
        lifecycle_script="echo hello > /tmp/mark",
        sfs_mount_list=[{"id": sfs["id"], "name": "data", "mount_path": "/mnt/sfs"}],
        pfs_mount_list=[],
        dataset_mount_list=[],
    )
    command = [curl, "-sS", "-X", "POST", f"{tenant.url}{GPU}{CLUSTERS}?{query}"]
    command += ["-H", f"Authorization: Bearer {tenant.key}", "-H", "Content-Type: application/json"]
    said = subprocess.run([*command, "-d", json.dumps(body)], capture_output=True, check=True, timeout=30)
    told = json.loads(said.stdout)
    assert (told["code"], told["message"], told["errors"]) == (201, "Cluster created successfully", {})
    made = told["data"]
    assert isinstance(made["id"], int)
    assert (made["name"], made["status"], made["location"]) == ("my-training-cluster", "Creating", LOCATION)
    for field in ("sku_id", "sku_item_price_id", "no_of_nodes", "image_version_id", "ssh_key_ids", "script_added"):
        assert made[field] == body[field], field
    assert made["security_group_ids"] == [body["security_group_id"]]
    assert [(m["id"], m["mount_path"]) for m in made["sfs_mount_list"]] == [(sfs["id"], "/mnt/sfs")]
    running = tenant.running(made["id"])
    assert sorted(node["role"] for node in running["nodes"]) == ["controller", "login", "worker", "worker"]
    assert running["login"]["user"]
    [attached] = tenant.good("GET", f"/distributed_jobs/sfs/{sfs['id']}/notebooks/")
    assert (attached["id"], attached["mount_path"]) == (made["id"], "/mnt/sfs")


@pytest.mark.parametrize(
    "base", [GPU, "", f"{GPU}/teams/{{team}}/projects/{{project}}", f"{GPU}/projects/{{project}}"]
)
@pytest.mark.parametrize("slash", ["/", ""])
def test_every_address_that_people_write(tenant: Tenant, base: str, slash: str) -> None:
    made = tenant.create()
    address = base.format(team=tenant.team_id, project=tenant.project_id)
    params = {"project_id": None} if "{project}" in base else {}
    path = f"/distributed_jobs_v2/cluster{slash}"
    assert [c["id"] for c in tenant.good("GET", path, base=address, params=params)] == [made["id"]]
    one = f"/distributed_jobs_v2/cluster/{made['id']}{slash}"
    assert tenant.good("GET", one, base=address, params=params)["uuid"] == made["uuid"]


def test_a_list_has_pages(tenant: Tenant) -> None:
    made = [tenant.create()["id"] for _ in range(3)]
    pages = [
        [c["id"] for c in tenant.good("GET", CLUSTERS, params={"page_no": page, "per_page": 2})] for page in (1, 2, 3)
    ]
    assert pages == [made[:2], made[2:], []]
    [first, *_] = tenant.good("GET", CLUSTERS)
    assert set(first["created_by"]) == {"id", "name"}
    tenant.bad("GET", CLUSTERS, "page_no", params={"page_no": "0"})
    tenant.bad("GET", CLUSTERS, "per_page", params={"per_page": "many"})


def test_a_deleted_cluster_is_told_so_and_then_gone(tenant: Tenant) -> None:
    made = tenant.create(name="short-lived")
    reply = tenant.ask("DELETE", f"{CLUSTERS}{made['id']}/")
    assert reply.json() == {
        "code": 200,
        "data": "Cluster deleted successfully",
        "errors": {},
        "message": "Success",
    }
    assert tenant.create(name="short-lived")["id"] != made["id"]
    tenant.bad("GET", f"{CLUSTERS}{10**9}/", "detail", code=404)
    tenant.bad("DELETE", f"{CLUSTERS}nonsense/", "detail", code=404)


# --- the nine actions ---------------------------------------------------------------------------------------------


@pytest.fixture
def act(tenant: Tenant) -> Callable[..., Any]:
    made = tenant.create(no_of_nodes=2)
    tenant.running(made["id"])

    def act(action: str, *, wrong: str = "", **fields: Any) -> Any:
        path, body = f"{CLUSTERS}{made['id']}/", {"action": action, **fields}
        if wrong:
            return tenant.bad("PUT", path, wrong, json=body)
        told = tenant.good("PUT", path, json=body)
        tenant.running(made["id"])
        return told

    return act


def test_keys_are_replaced(tenant: Tenant, act: Callable[..., Any]) -> None:
    second = tenant.ssh_key(1)
    assert act("update_ssh_keys", ssh_key_ids=[second])["ssh_key_ids"] == [second]
    act("update_ssh_keys", wrong="ssh_key_ids", ssh_key_ids=[])
    act("update_ssh_keys", wrong="ssh_key_ids")
    act("update_ssh_keys", wrong="ssh_key_ids", ssh_key_ids=[10**9])


def test_an_image_is_updated_and_nodes_restart(tenant: Tenant, act: Callable[..., Any]) -> None:
    nemo = tenant.image("nemo")
    told = act("update_image", image_version_id=nemo)
    assert told["image_version_id"] == nemo
    act("update_image", wrong="image_version_id", image_version_id=10**9)
    before = {node["id"] for node in told["nodes"]}
    after = act("restart_workers")
    assert {node["id"] for node in after["nodes"]} == before
    act("restart_cluster")
    log = tenant.native.get("/muster/v1/events", params={"resource_id": told["uuid"], "limit": 500}).json()["items"]
    anew = [line["data"]["node"] for line in log if line["message"] == "it is booted anew"]
    assert {name: anew.count(name) for name in anew} == {"controller": 2, "login": 2, "worker-0": 3, "worker-1": 3}


def test_nodes_are_added_and_never_taken(tenant: Tenant, act: Callable[..., Any]) -> None:
    assert act("scale_cluster", additional_nodes=1)["no_of_nodes"] == 3
    for wrong in (0, -1, "two"):
        act("scale_cluster", wrong="additional_nodes", additional_nodes=wrong)


def test_an_address_comes_and_goes(tenant: Tenant, act: Callable[..., Any]) -> None:
    reply = tenant.ask("POST", "/reserved_ips/").json()
    ip = reply["data"]
    assert reply["message"] == f"IP {ip['ip_address']} allocated successfully."
    attached = act("attach_ip", reserved_ip_id=ip["id"])
    assert (attached["ip_address"], attached["status"]) == (ip["ip_address"], "Attached")
    [cluster] = tenant.good("GET", CLUSTERS)
    assert cluster["reserved_ip"]["id"] == ip["id"]
    assert tenant.good("GET", f"/reserved_ips/{ip['id']}/")["cluster_id"] == cluster["id"]
    tenant.bad("DELETE", f"/reserved_ips/{ip['id']}/", "detail")
    assert act("detach_ip", reserved_ip_id=ip["id"], ip_type="public") == {}
    act("detach_ip", wrong="reserved_ip_id", reserved_ip_id=ip["id"], ip_type="public")
    tenant.good("DELETE", f"/reserved_ips/{ip['id']}/")


def test_groups_are_added_and_removed_but_never_the_last(tenant: Tenant, act: Callable[..., Any]) -> None:
    [cluster] = tenant.good("GET", CLUSTERS)
    [first] = cluster["security_group_ids"]
    more = [tenant.group("more"), tenant.group("most")]
    assert act("add_security_group", security_groups_ids=more) == "Security group attached successfully"
    assert tenant.good("GET", CLUSTERS)[0]["security_group_ids"] == [first, *more]
    assert act("remove_security_group", security_group_id=first) == "Security group detached successfully"
    act("remove_security_group", wrong="security_group_id", security_group_id=first)
    act("remove_security_group", security_group_id=more[0])
    act("remove_security_group", wrong="security_group_id", security_group_id=more[1])


def test_another_action_is_refused_and_so_is_one_on_a_cluster_that_is_not_there_yet(
    tenant: Tenant, act: Callable[..., Any], operator: Any
) -> None:
    act("stop_cluster", wrong="action")
    act("", wrong="action")
    hosts = operator.get("/muster/v1/hosts", params={"region": LOCATION, "limit": 1000}).json()["items"]
    slow = [{"kind": "slow-boot", "target": host["name"], "seconds": 600} for host in hosts]
    faults = [operator.post("/muster/v1/faults", json=fault).json()["id"] for fault in slow]
    made = tenant.create()
    tenant.bad("PUT", f"{CLUSTERS}{made['id']}/", "detail", json={"action": "restart_workers"})
    for fault in faults:
        operator.delete(f"/muster/v1/faults/{fault}")


def test_a_location_that_is_sold_out_refuses(tenant: Tenant, operator: Any) -> None:
    fault = operator.post("/muster/v1/faults", json={"kind": "stock-out", "target": LOCATION}).json()
    reply = tenant.ask("POST", CLUSTERS, json=tenant.body())
    assert (reply.status_code, "stock-out" in reply.text) == (400, True)
    operator.delete(f"/muster/v1/faults/{fault['id']}")

"""`tp cluster`, `tp me`, `tp ssh`: a cluster's whole life by the command line that people have."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from .conftest import ID, KEY, Tenant


def test_a_cluster_from_create_to_destroy(tenant: Tenant) -> None:
    told = tenant.tp("cluster", "create", "8xH100", "-n", "2", "--name", "train", "--wait")
    (listed,) = tenant.good("GET", "/cluster/list")["clusters"]
    id = listed["cluster_id"]
    assert f"Cluster train ({id}): 4 nodes passed muster" in told
    assert (listed["status"], listed["instance_type"], listed["num_nodes"]) == ("RUNNING", "8xH100", 2)
    table = tenant.tp("cluster", "list")
    assert id in table
    assert "RUNNING" in table
    assert "INSTANCE ID" not in table
    assert listed["instances"][1]["instance_id"] in tenant.tp("cluster", "ls", "--instances")
    info = tenant.tp("cluster", "info", id)
    assert "train" in info
    assert listed["instances"][0]["instance_id"] in info
    assert "simulated" in tenant.tp("ssh", listed["instances"][0]["instance_id"], "hostname", code=1)
    assert "gone" in tenant.tp("cluster", "rm", id, "--no-input", "--wait")
    assert "You have no clusters" in tenant.tp("cluster", "list")
    assert "There is no cluster" in tenant.tp("cluster", "info", id, code=1)


def test_create_answers_with_everything_at_once(tenant: Tenant) -> None:
    reply = tenant.ask("POST", "/cluster/create", json={"instance_type": "8xH200", "num_nodes": 3, "container": None})
    assert reply.status_code == 202
    told = reply.json()
    assert len(told["instance_ids"]) == 3
    assert ID.fullmatch(told["cluster_id"])
    request = tenant.good("GET", f"/request/info/{told['request_id']}")
    assert (request["request_type"], request["object_id"]) == ("CLUSTER_CLAIM", told["cluster_id"])
    operations = tenant.good("GET", f"/cluster/operations/{told['cluster_id']}", params={"type": "cluster_claim"})
    assert [each["request_id"] for each in operations["operations"]] == [told["request_id"]]
    assert tenant.ask("GET", f"/cluster/operations/{told['cluster_id']}?status=LOST").status_code == 422


def test_a_request_that_goes_on_says_when_to_ask_again(tenant: Tenant, operator: httpx.Client) -> None:
    hosts = operator.get("/hosts", params={"limit": 1000}).json()["items"]
    slow = [
        operator.post("/faults", json={"kind": "slow-boot", "target": host["id"], "seconds": 3600}).json()
        for host in hosts
        if host["gpu_type"] == "B300_SXM"
    ]
    told = tenant.good("POST", "/cluster/create", json={"instance_type": "8xB300"})
    reply = tenant.ask("GET", f"/request/info/{told['request_id']}")
    assert reply.json()["status"] in ("PENDING", "PROCESSING")
    assert 1 <= int(reply.headers["retry-after"]) <= 15
    for fault in slow:
        operator.delete(f"/faults/{fault['id']}")


def test_one_node_is_its_own_cluster(tenant: Tenant) -> None:
    id = tenant.cluster("1xH100")
    shown = tenant.good("GET", f"/cluster/info/{id}")["cluster"]
    assert (shown["num_nodes"], len(shown["instances"]), shown["instance_type"]) == (1, 1, "1xH100")
    assert shown["tp_cluster_name"].startswith("cluster-")


def test_protection_and_names(tenant: Tenant) -> None:
    id = tenant.cluster("1xH100", "--name", "kept", "--deletion-protection")
    assert "protected" in tenant.tp("cluster", "destroy", id, "--no-input", code=1)
    assert "is named other" in tenant.tp("cluster", "edit", id, "--name", "other", "--deletion-protection", "false")
    assert "other" in tenant.tp("cluster", "info", id)
    tenant.cluster("1xH100", "--name", "kept")
    taken = tenant.tp("cluster", "edit", id, "--name", "kept", code=1)
    assert "There is a cluster named kept" in taken
    assert "destroyed" in tenant.tp("cluster", "destroy", id, said="y\n")
    assert tenant.tp("cluster", "destroy", id, said="n\n", code=1)


def test_refusals_are_readable_on_a_terminal(tenant: Tenant) -> None:
    for words, told in (
        (("cluster", "create", "8xZ80"), "There is no instance type 8xZ80"),
        (("cluster", "create", "3xH100"), "There is no instance type 3xH100"),
        (("cluster", "create", "8xH100", "-n", "0"), "num_nodes"),
        (("cluster", "create", "8xH100", "-n", "4000"), "."),
        (("cluster", "create", "8xH100", "--container", "mine:latest"), "knows no container image mine:latest"),
        (("cluster", "info", "c-nowhere"), "There is no cluster c-nowhere"),
        (("cluster", "destroy", "c-nowhere", "--no-input"), "There is no cluster c-nowhere"),
        (("cluster", "edit", "c-nowhere", "--name", "x"), "There is no cluster c-nowhere"),
        (("ssh", "i-nowhere"), "There is no instance i-nowhere"),
        (("storage", "info", "s-nowhere"), "There is no volume s-nowhere"),
        (("me", "sshkey", "remove", "k-nowhere"), "There is no ssh key k-nowhere"),
    ):
        said = tenant.tp(*words, code=1)
        assert told in said, said
        assert "Status code" not in said, said
    tenant.key = "mk-wrong"
    assert "API key is not known" in tenant.tp("cluster", "list", code=1)


def test_a_container_is_an_image_of_the_server(tenant: Tenant) -> None:
    id = tenant.cluster("1xH100", "--container", "ubuntu-24.04-cuda12.9")
    assert tenant.good("GET", f"/cluster/info/{id}")["cluster"]["container"]


def test_validation_speaks_message_and_detail(tenant: Tenant) -> None:
    for body, place in (
        ({}, ["body", "instance_type"]),
        ({"instance_type": "1xH100", "num_nodes": 0}, ["body", "num_nodes"]),
    ):
        reply = tenant.ask("POST", "/cluster/create", json=body)
        assert reply.status_code == 422
        assert reply.json()["message"]
        assert reply.json()["detail"][0]["loc"] == place
    assert tenant.ask("POST", "/cluster/create", content=b"[]").status_code == 422
    assert tenant.ask("POST", "/cluster/create", content=b"{").json()["message"]
    assert tenant.ask("GET", "/cluster/list?include_org=perhaps").status_code == 422
    assert tenant.ask("PUT", "/cluster/create").json()["message"]
    assert tenant.ask("GET", "/cluster/nothing/here").json()["message"]


def test_the_gate_and_who_i_am(tenant: Tenant) -> None:
    page = httpx.get(f"{tenant.url}/openapi.json").json()
    assert "/cluster/create" in page["paths"]
    assert httpx.get(f"{tenant.url}/healthz").status_code == 200
    assert httpx.post(f"{tenant.url}/health", json={}).status_code == 401
    assert "TENSORPOOL_ENGINE" in tenant.tp("me")
    assert "pool-" in tenant.tp("me")
    assert tenant.good("GET", "/user/organization/info")["name"].startswith("pool-")


def test_money_is_shown_and_its_lack_is_told(new_tenant: Callable[[], Tenant], operator: httpx.Client) -> None:
    tenant = new_tenant()
    tenant.cluster("8xH100", "-n", "2")
    balance = tenant.good("GET", "/user/info")["balance"]
    assert balance["hourly_cost"] > 0
    assert "Balance" in tenant.tp("me")
    account = operator.post("/accounts", json={"name": f"poor-{tenant.project_id}"}).json()
    project = operator.post("/projects", json={"name": "poor", "account_id": account["id"]}).json()
    key = operator.post("/keys", json={"name": "poor", "role": "admin", "project_id": project["id"]}).json()
    tenant.key = key["secret"]
    assert tenant.ask("POST", "/cluster/create", json={"instance_type": "8xH100"}).status_code == 402
    said = tenant.tp("cluster", "create", "8xH100", code=1)
    assert "Status code" not in said
    assert any(char.isdigit() for char in said.replace("8xH100", ""))


def test_preferences_say_what_is_so(tenant: Tenant) -> None:
    assert tenant.good("GET", "/user/preferences")["autopay_enabled"] is False
    assert tenant.good(
        "PATCH", "/user/preferences", json={"autopay_enabled": False, "notify_email_cluster_create": None}
    )
    assert tenant.ask("PATCH", "/user/preferences", json={"autopay_enabled": True}).status_code == 400
    assert "http" in tenant.tp("me", "preferences")


def test_keys_are_saved_listed_and_removed(tenant: Tenant) -> None:
    path = tenant.file("id.pub", f"{KEY} ann@laptop\n")
    told = tenant.tp("me", "sshkey", "add", path, "--name", "laptop")
    found = ID.search(told)
    assert found
    assert "laptop" in tenant.tp("me", "sshkey", "list")
    id = tenant.cluster("1xH100")
    native = tenant.good("GET", f"/muster/v1/clusters/{id}")
    assert any(key.startswith(KEY) for key in native["ssh_keys"])
    assert "removed" in tenant.tp("me", "sshkey", "rm", found[0])
    assert "No SSH keys" in tenant.tp("me", "sshkey", "list", "--org")
    tenant.cluster("1xH100", "-i", path, "--name", "with-key")
    assert "SHA256:" in tenant.tp("me", "sshkey", "list"), "-i saves the key, as the provider does"


def test_personal_and_organisation(tenant: Tenant, operator: httpx.Client) -> None:
    mine = tenant.cluster("1xH100", "--name", "mine")
    colleague = operator.post("/keys", json={"name": "bob", "role": "admin", "project_id": tenant.project_id}).json()
    tenant.key = colleague["secret"]
    assert "You have no clusters" in tenant.tp("cluster", "list")
    assert mine in tenant.tp("cluster", "list", "--org")


def test_tenants_do_not_see_each_other(new_tenant: Callable[[], Tenant]) -> None:
    ann, bob = new_tenant(), new_tenant()
    id = ann.cluster("8xH100", "-n", "2")
    shown = ann.good("GET", f"/cluster/info/{id}")["cluster"]
    request = ann.good("GET", f"/cluster/operations/{id}")["operations"][0]["request_id"]
    key = ann.good("POST", "/user/ssh-key/add", json={"public_key": KEY})["key_id"]
    for method, path in (
        ("GET", f"/cluster/info/{id}"),
        ("PATCH", f"/cluster/edit/{id}"),
        ("GET", f"/cluster/operations/{id}"),
        ("GET", f"/ssh/{shown['instances'][0]['instance_id']}"),
        ("GET", f"/request/info/{request}"),
        ("DELETE", f"/user/ssh-key/remove/{key}"),
        ("DELETE", f"/cluster/{id}"),
    ):
        assert bob.ask(method, path, json={}).status_code == 404, path
        if not path.startswith("/ssh"):  # to its own tenant it says that there is nothing to log in to
            assert ann.ask(method, path, json={}).status_code < 300, path
    assert bob.good("GET", "/cluster/list?include_org=True")["clusters"] == []


def test_one_model_behind_every_wire(tenant: Tenant) -> None:
    id = tenant.cluster("8xH100", "-n", "2", "--name", "shared")
    native = tenant.good("GET", f"/muster/v1/clusters/{id}")
    assert native["phase"] == "ready", native
    together = tenant.good("GET", f"/v1/compute/clusters/{id}")
    assert (together["cluster_name"], together["status"], together["num_gpus"]) == ("shared", "Ready", 16)
    assert (native["name"], native["workers"]) == ("shared", 2)
    body = {"name": "native", "type": "slurm", "gpu_type": "H100_SXM", "gpus": 8}
    other = tenant.ask("POST", "/muster/v1/clusters", json=body).json()
    assert other["id"] in tenant.tp("cluster", "list")

"""What a create needs: keys, groups, addresses, file systems, plans, images, tokens, teams and projects."""

from __future__ import annotations

import httpx

from .conftest import CLUSTERS, GPU, KEYS, LOCATION, Tenant, rule


def test_keys(tenant: Tenant) -> None:
    reply = tenant.ask("POST", "/ssh_keys/", json={"label": "laptop", "ssh_key": KEYS[0]}).json()
    assert (reply["code"], reply["message"]) == (200, "Your SSH Key has been added")
    key = reply["data"]
    assert tenant.good("POST", "/ssh_keys/", json={"label": "again", "ssh_key": KEYS[0]})["id"] == key["id"]
    tenant.bad("POST", "/ssh_keys/", "ssh_key", json={"label": "bad", "ssh_key": "ssh-rsa nonsense"})
    tenant.bad("POST", "/ssh_keys/", "label", json={"ssh_key": KEYS[1]})
    for path in ("/ssh_keys/", "/ssh_keys/sync/"):
        assert [k["label"] for k in tenant.good("GET", path, params={"project_id": None})] == ["laptop"]
    assert tenant.good("DELETE", f"/ssh_keys/{key['id']}/") == "SSH Key has been deleted successfully."
    tenant.bad("DELETE", f"/ssh_keys/{key['id']}/", "detail", code=404)


def test_groups_and_their_rules(tenant: Tenant) -> None:
    rules = [
        rule("inbound", ports=["22", 443, "8000-8080"], network_type="manual", cidr_ip="10.0.0.0", cidr_subnet=8),
        rule("outbound", protocol="UDP", protocol_type="CustomUDP", ports=["53"], description="names"),
        rule("outbound", protocol="All", protocol_type="AllTraffic"),
    ]
    said = {"name": "web", "description": "kept by nobody", "rules": rules}
    reply = tenant.ask("POST", "/security_groups/", json=said).json()
    assert (reply["code"], reply["message"]) == (201, "Created Successfully")
    group = reply["data"]
    told = [(r["rule_type"], r["protocol"], r["ports"], r["cidr_ip"], r["cidr_subnet"]) for r in group["rules"]]
    assert told == [
        ("inbound", "TCP", ["22"], "10.0.0.0", 8),
        ("inbound", "TCP", ["443"], "10.0.0.0", 8),
        ("inbound", "TCP", ["8000-8080"], "10.0.0.0", 8),
        ("outbound", "UDP", ["53"], "0.0.0.0", 0),
        ("outbound", "All", ["All"], "0.0.0.0", 0),
    ]
    path = f"/security_groups/{group['id']}/"
    assert tenant.good("PUT", f"{path}rules/", json=group["rules"])["rules"] == group["rules"]
    assert len(tenant.good("PUT", f"{path}rules/", json=group["rules"][:1])["rules"]) == 1
    assert tenant.good("GET", path) == tenant.good("GET", "/security_groups/")[0]
    for field, wrong in (
        ("rules[0].ports", {"ports": ["ssh"]}),
        ("rules[0].protocol", {"protocol": "GRE"}),
        ("rules[0].cidr_ip", {"network_type": "manual"}),
        ("rules[0].cidr", {"network_type": "manual", "cidr_ip": "10.0.0.1", "cidr_subnet": 8}),
        ("rules[0].direction", {"rule_type": "sideways"}),
    ):
        tenant.bad("PUT", f"{path}rules/", field, json=[rule("inbound") | wrong])
    made = tenant.create(security_group_id=group["id"])
    assert made["name"] in tenant.bad("DELETE", f"{path}rules/", "detail")
    other = tenant.group("other")
    assert tenant.good("DELETE", f"/security_groups/{other}/rules/") == "Security Group deleted successfully"


def test_file_systems(tenant: Tenant) -> None:
    for path, word in (("/distributed_jobs/sfs/", "SFS"), ("/pfs/", "PFS")):
        reply = tenant.ask("POST", path, json={"name": f"my-{word}", "disk_size": 500}).json()
        assert (reply["code"], reply["message"]) == (200, f"{word} created successfully")
        one = f"{path}{reply['data']['id']}/"
        assert tenant.good("PUT", one, json={"disk_size": 1000})["disk_size"] == 1000
        tenant.bad("PUT", one, "disk_size", json={"disk_size": 10})
        tenant.bad("POST", path, "disk_size", json={"name": "none", "disk_size": 0})
        tenant.bad("POST", path, "name", json={"name": f"my-{word}", "disk_size": 7})
        assert [v["name"] for v in tenant.good("GET", path)] == [f"my-{word}"]
        assert tenant.good("GET", one)["location"] == LOCATION
        assert tenant.good("GET", f"{one}notebooks/") == []
        assert tenant.good("DELETE", one) == f"{word} deleted successfully"


def test_plans_and_images_belong_to_a_location(tenant: Tenant) -> None:
    path = f"{CLUSTERS}plans/"
    here, there = (
        tenant.good("GET", path, params={"variant": "slurm", "location": place})
        for place in ("Delhi", "us-central-8")
    )
    assert {plan["location"] for sku in here for plan in sku["plans"]} == {"Delhi"}
    assert {sku["sku_id"] for sku in here} == {sku["sku_id"] for sku in there}
    tenant.bad("GET", path, "variant")
    tenant.bad("GET", path, "variant", params={"variant": "pytorch"})
    images = "/distributed_jobs_v2/deployment_images/nemo/"
    told = tenant.good("GET", images, params={"job_type": "nemo"})
    assert {image["framework"] for image in told} == {"nemo"}
    tenant.bad("GET", images, "job_type", params={"job_type": "slurm"})
    tenant.bad("GET", images, "job_type")
    tenant.bad("GET", "/distributed_jobs_v2/deployment_images/jax/", "framework", params={"job_type": "jax"})
    for pricing in ("/plans-and-pricing/list/", "/gpu/plans-and-pricing/list/"):
        query = {"service": "training_cluster", "currency": "USD"}
        assert tenant.good("GET", pricing, params=query) == here


def test_a_token_is_a_key_for_both_places(tenant: Tenant) -> None:
    made = tenant.good("POST", "/auth-token/", code=201, json={"token_name": "ci"})
    with httpx.Client(base_url=f"{tenant.url}{GPU}") as http:
        query = {"project_id": tenant.project_id, "location": LOCATION, "apikey": made["api_key"]}
        bearer = {"authorization": f"Bearer {made['auth_token']}"}
        assert http.get(CLUSTERS, params=query, headers=bearer).status_code == 200
        shown = [t for t in tenant.good("GET", "/auth-token/") if t["id"] == made["id"]]
        assert shown[0]["auth_token"] != made["auth_token"]
        tenant.good("DELETE", f"/auth-token/{made['id']}/")
        assert http.get(CLUSTERS, params=query, headers=bearer).status_code == 401


def test_the_operator_makes_teams_and_projects(tenant: Tenant, operator: httpx.Client) -> None:
    team = operator.post(f"{GPU}/teams/", data={"team_name": f"t{tenant.project_id}"}).json()
    assert team["code"] == 201
    path = f"{GPU}/teams/{team['data']['team_id']}/projects/"
    project = operator.post(path, json={"project_name": f"p{tenant.project_id}"}).json()["data"]
    assert project["team_id"] == team["data"]["team_id"]
    assert [p["id"] for p in operator.get(path).json()["data"]] == [project["id"]]
    assert [p["id"] for p in tenant.good("GET", "/projects/")] == [tenant.project_id]
    tenant.bad("POST", f"/teams/{tenant.team_id}/projects/", "detail", code=403, json={"project_name": "mine"})

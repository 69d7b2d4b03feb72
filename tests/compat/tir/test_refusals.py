"""Bad input, each with its envelope; who gets in; and what belongs to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from .conftest import CLUSTERS, GPU, LOCATION, Tenant


def test_a_stranger_is_told_exactly_the_documented_two_fields(tenant: Tenant) -> None:
    known = {"code": 401, "message": "Unauthorized access."}
    query = {"project_id": tenant.project_id, "location": LOCATION}
    bearer = {"authorization": f"Bearer {tenant.key}"}
    with httpx.Client(base_url=f"{tenant.url}{GPU}", params=query) as http:
        for headers, params in (
            ({}, {}),
            ({"authorization": "Bearer mk-nobody"}, {"apikey": "mk-nobody"}),
            (bearer, {"apikey": "mk-another"}),
            ({"authorization": "Basic YTpi"}, {"apikey": tenant.key}),
        ):
            reply = http.get(CLUSTERS, headers=headers, params=params)
            assert (reply.status_code, reply.json()) == (401, known)
        for headers, params in ((bearer, {}), ({}, {"apikey": tenant.key}), (bearer, {"apikey": tenant.key})):
            assert http.get(CLUSTERS, headers=headers, params=params).status_code == 200


def test_two_principals_are_nobody(new_tenant: Callable[..., Tenant]) -> None:
    ann, bob = new_tenant(), new_tenant()
    assert ann.ask("GET", CLUSTERS, params={"apikey": bob.key}).status_code == 401


def test_a_key_is_never_logged(tenant: Tenant, server: Any) -> None:
    tenant.ask("GET", CLUSTERS)
    tenant.ask("GET", "/nowhere/")
    assert tenant.key not in server.log.read_text()


def test_a_create_names_the_field_that_is_wrong(tenant: Tenant) -> None:
    body = tenant.body()
    pfs = tenant.good("POST", "/pfs/", json={"name": "fast", "disk_size": 1000})["id"]
    sfs = tenant.good("POST", "/distributed_jobs/sfs/", json={"name": "slow", "disk_size": 500})["id"]
    one, two = ({"id": sfs, "name": "slow", "mount_path": "/mnt/x"}, {"id": pfs, "name": "f", "mount_path": "/mnt/x"})
    for field, wrong in (
        ("name", {"name": ""}),
        ("name", {"name": "n" * 64}),
        ("name", {"name": 7}),
        ("name", {"name": None}),
        ("image_version_id", {"image_version_id": 10**9}),
        ("image_version_id", {"image_version_id": "1"}),
        ("ssh_key_ids", {"ssh_key_ids": []}),
        ("ssh_key_ids", {"ssh_key_ids": [10**9]}),
        ("security_group_id", {"security_group_id": 10**9}),
        ("sku_id", {"sku_id": 10**9}),
        ("sku_item_price_id", {"sku_item_price_id": 10**9}),
        ("sku_item_price_id", {"sku_item_price_id": tenant.sku("1xH100_SXM")["plans"][-1]["sku_item_price_id"]}),
        ("no_of_nodes", {"no_of_nodes": 0}),
        ("no_of_nodes", {"no_of_nodes": -3}),
        ("no_of_nodes", {"no_of_nodes": 1.5}),
        ("no_of_nodes", {"no_of_nodes": 10**6}),
        ("lifecycle_script", {"script_added": True}),
        ("script_added", {"lifecycle_script": "true"}),
        ("pfs_mount_list", {"sfs_mount_list": [one], "pfs_mount_list": [two]}),
        ("sfs_mount_list", {"sfs_mount_list": [{**one, "mount_path": "relative"}]}),
        ("sfs_mount_list", {"sfs_mount_list": [{**one, "mount_path": "/etc/x"}]}),
        ("sfs_mount_list", {"sfs_mount_list": [{**one, "id": pfs}]}),
        ("dataset_mount_list", {"dataset_mount_list": [one]}),
    ):
        tenant.bad("POST", CLUSTERS, field, json={**body, **wrong})
    for field in ("name", "image_version_id", "ssh_key_ids", "security_group_id", "sku_id", "no_of_nodes"):
        missing = {name: value for name, value in body.items() if name != field}
        assert tenant.bad("POST", CLUSTERS, field, json=missing) == "This field is required."
    for raw in (b"", b"[]", b"{", b"\xff", b"null"):
        assert tenant.ask("POST", CLUSTERS, content=raw).status_code == 400
    assert tenant.good("GET", CLUSTERS) == []


def test_a_price_of_another_location(tenant: Tenant) -> None:
    plans = tenant.good("GET", f"{CLUSTERS}plans/", params={"variant": "nemo", "location": "Chennai"})
    there = next(sku for sku in plans if sku["name"] == "8xH100_SXM")["plans"][-1]
    wrong = tenant.body(sku_item_price_id=there["sku_item_price_id"])
    assert "Chennai" in tenant.bad("POST", CLUSTERS, "sku_item_price_id", json=wrong)


def test_project_and_location_are_required_and_known(tenant: Tenant) -> None:
    for method, path in (
        ("GET", CLUSTERS),
        ("POST", CLUSTERS),
        ("DELETE", f"{CLUSTERS}1/"),
        ("PUT", f"{CLUSTERS}1/"),
    ):
        tenant.bad(method, path, "project_id", params={"project_id": None})
        tenant.bad(method, path, "project_id", params={"project_id": "mine"})
        tenant.bad(method, path, "project_id", code=404, params={"project_id": 10**9})
        tenant.bad(method, path, "location", params={"location": None})
        tenant.bad(method, path, "location", params={"location": "Atlantis"})
    tenant.bad("GET", CLUSTERS, "active_iam", params={"active_iam": 10**9})
    [me] = tenant.good("GET", "/users/iam-accounts/")
    assert tenant.good("GET", CLUSTERS, params={"active_iam": me["id"]}) == []
    old = f"{GPU}/teams/{10**9}/projects/{tenant.project_id}"
    tenant.bad("GET", CLUSTERS, "team_id", code=404, base=old)


def test_what_belongs_to_others_does_not_exist(new_tenant: Callable[..., Tenant]) -> None:
    ann, bob = new_tenant(), new_tenant()
    made = ann.create()
    ip = ann.good("POST", "/reserved_ips/")["id"]
    sfs = ann.good("POST", "/distributed_jobs/sfs/", json={"name": "x", "disk_size": 10})["id"]
    key, group = made["ssh_key_ids"][0], made["security_group_ids"][0]
    for method, path, said in (
        ("GET", f"{CLUSTERS}{made['id']}/", None),
        ("DELETE", f"{CLUSTERS}{made['id']}/", None),
        ("PUT", f"{CLUSTERS}{made['id']}/", {"action": "restart_cluster"}),
        ("GET", f"/distributed_jobs/cluster/{made['id']}/", None),
        ("DELETE", f"/ssh_keys/{key}/", None),
        ("GET", f"/security_groups/{group}/", None),
        ("PUT", f"/security_groups/{group}/rules/", []),
        ("DELETE", f"/security_groups/{group}/rules/", None),
        ("GET", f"/reserved_ips/{ip}/", None),
        ("DELETE", f"/reserved_ips/{ip}/", None),
        ("DELETE", f"/distributed_jobs/sfs/{sfs}/", None),
        ("GET", f"/distributed_jobs/sfs/{sfs}/notebooks/", None),
    ):
        bob.bad(method, path, "detail", code=404, json=said)
    bob.bad("GET", CLUSTERS, "project_id", code=404, params={"project_id": ann.project_id})
    bob.bad("POST", CLUSTERS, "ssh_key_ids", json=bob.body(ssh_key_ids=[key]))
    bob.bad("POST", CLUSTERS, "security_group_id", json=bob.body(security_group_id=group))
    mount = {"id": sfs, "name": "x", "mount_path": "/mnt/x"}
    bob.bad("POST", CLUSTERS, "sfs_mount_list", json=bob.body(sfs_mount_list=[mount]))
    assert bob.good("GET", CLUSTERS) == []


def test_names_are_unique_among_the_living(tenant: Tenant) -> None:
    body = tenant.body(name="taken")
    first = tenant.good("POST", CLUSTERS, code=201, json=body)
    assert tenant.good("POST", CLUSTERS, code=201, json=body)["id"] == first["id"]
    tenant.bad("POST", CLUSTERS, "name", json={**body, "no_of_nodes": 2})


def test_credit_is_asked_for_by_its_name(new_tenant: Callable[..., Tenant]) -> None:
    poor = new_tenant(postpaid=False)
    poor.bad("POST", CLUSTERS, "credits", json=poor.body())


def test_a_reader_may_look_and_not_touch(tenant: Tenant) -> None:
    said = {"name": "reader", "role": "member"}
    secret = tenant.native.post("/muster/v1/keys", json=said).json()["secret"]
    body = tenant.body()
    with httpx.Client(base_url=f"{tenant.url}{GPU}") as http:
        query = {"project_id": tenant.project_id, "location": LOCATION, "apikey": secret}
        assert http.get(CLUSTERS, params=query).status_code == 200
        reply = http.post(CLUSTERS, params=query, json=body)
        assert (reply.status_code, reply.json()["code"]) == (403, 403)


@pytest.mark.parametrize(
    ("path", "product"),
    [
        ("/notebooks/", "notebooks"),
        ("/teams/1/projects/1/notebooks/", "notebooks"),
        ("/teams/1/projects/1/serving/inference/", "inference"),
        ("/projects/1/finetuning/", "fine-tuning"),
        ("//teams/1/projects/1/vector_db/", "vector databases"),
        ("/projects/1/pipelines/", "pipelines"),
        ("/datasets/", "datasets"),
    ],
)
def test_other_products_answer_with_a_sentence(tenant: Tenant, path: str, product: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert product in tenant.bad(method, path, "detail", code=404)


def test_a_wrong_method_and_a_wrong_path(tenant: Tenant) -> None:
    tenant.bad("PATCH", CLUSTERS, "detail", code=405)
    tenant.bad("GET", "/nowhere/", "detail", code=404)
    tenant.bad("GET", "/distributed_jobs_v2/nowhere/", "detail", code=404, base="")

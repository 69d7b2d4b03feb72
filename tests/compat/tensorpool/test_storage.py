"""`tp storage` and `tp cluster attach|detach`: storage's whole life."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import ID, Tenant


def new_storage(tenant: Tenant, *words: str) -> str:
    found = ID.search(tenant.tp("storage", "create", "100", *words, "--wait"))
    assert found
    return found[0]


def test_storage_from_create_to_destroy(tenant: Tenant) -> None:
    id = new_storage(tenant, "--name", "data")
    assert "data" in tenant.tp("storage", "list")
    assert f"/mnt/{id}" in tenant.tp("storage", "info", id)
    assert "200 GB" in tenant.tp("storage", "edit", id, "--name", "more", "-s", "200")
    assert "more" in tenant.tp("storage", "ls", "--org")
    assert "never shrinks" in tenant.tp("storage", "edit", id, "-s", "50", code=1)
    tenant.tp("storage", "destroy", id, "--no-input", "--wait")
    assert "no storage" in tenant.tp("storage", "list")


def test_storage_is_mounted_where_it_is_said(tenant: Tenant) -> None:
    id = new_storage(tenant)
    first = tenant.cluster("8xH100", "-n", "2", "--name", "one")
    second = tenant.cluster("8xH100", "-n", "2", "--name", "two")
    tenant.tp("cluster", "attach", first, id, "--wait")
    both = tenant.good("POST", "/storage/attach", json={"storage_id": id, "cluster_ids": [first, second]})
    assert len(both["request_ids"]) == 2
    assert {first, second} == set(tenant.good("GET", f"/storage/info/{id}")["storage"]["cluster_ids"])
    assert f"/mnt/{id}" in tenant.tp("cluster", "info", first)
    assert "mounted" in tenant.tp("storage", "rm", id, "--no-input", code=1)
    tenant.tp("cluster", "detach", first, id, "--wait")
    tenant.tp("cluster", "detach", second, id, "--wait")
    assert "not mounted" in tenant.tp("cluster", "detach", second, id, code=1)
    tenant.tp("storage", "destroy", id, "--no-input", "--wait")


def test_nothing_is_attached_while_one_name_is_wrong(tenant: Tenant) -> None:
    id, cluster = new_storage(tenant), tenant.cluster("1xH100")
    reply = tenant.ask("POST", "/storage/attach", json={"storage_id": id, "cluster_ids": [cluster, "nowhere"]})
    assert reply.status_code == 404
    assert tenant.good("GET", f"/storage/info/{id}")["storage"]["cluster_ids"] == []
    assert tenant.ask("POST", "/storage/attach", json={"storage_id": id, "cluster_ids": []}).status_code == 422


def test_protected_storage_stays(tenant: Tenant) -> None:
    id = new_storage(tenant, "--deletion-protection")
    assert "protected" in tenant.tp("storage", "destroy", id, "--no-input", code=1)
    tenant.tp("storage", "edit", id, "--deletion-protection", "false")
    tenant.tp("storage", "destroy", id, "--no-input")


def test_names_are_taken_once(tenant: Tenant) -> None:
    new_storage(tenant, "--name", "data")
    assert "There is a volume data" in tenant.tp("storage", "create", "50", "--name", "data", code=1)


def test_a_quote_is_a_price(tenant: Tenant) -> None:
    quote = tenant.good("GET", "/storage/quote", params={"size": 1000})
    assert quote["hourly_rate"] == pytest.approx(quote["monthly_rate"] / 730, rel=1e-3)
    assert quote["monthly_rate"] > 0
    assert tenant.ask("GET", "/storage/quote?size=much").status_code == 422


def test_storage_is_its_owners(new_tenant: Callable[[], Tenant]) -> None:
    ann, bob = new_tenant(), new_tenant()
    id, cluster = new_storage(ann), bob.cluster("1xH100")
    for method, path, body in (
        ("GET", f"/storage/info/{id}", None),
        ("DELETE", f"/storage/{id}", None),
        ("PATCH", f"/storage/edit/{id}", {"tp_storage_name": "x"}),
        ("POST", "/storage/attach", {"storage_id": id, "cluster_ids": [cluster]}),
        ("POST", "/storage/detach", {"storage_id": id, "cluster_id": cluster}),
    ):
        assert bob.ask(method, path, json=body).status_code == 404, path
    assert bob.good("GET", "/storage/list?include_org=True")["storage"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("enable",),
        ("disable",),
        ("credentials",),
        ("configure", "rclone"),
        ("bucket", "list"),
        ("bucket", "create", "b"),
        ("bucket", "delete", "b"),
    ],
)
def test_object_storage_is_refused_in_a_sentence(tenant: Tenant, words: tuple[str, ...]) -> None:
    assert "This server has no object storage" in tenant.tp("object-storage", *words, code=1)

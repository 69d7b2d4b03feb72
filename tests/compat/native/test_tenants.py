"""The tenant matrix: every route, tried with another tenant's ids. A route that is on no list here fails.

Others' things do not exist: 404, whatever the method. What only the operator may do is 403. A member may look.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl someone@example"
BASE = "/muster/v1"

PUBLIC = {"regions", "gpu-types", "instance-types", "images", "prices"}
"""Everybody may read these by id; only the operator changes them."""

OPERATORS = {"hosts", "faults", "calendar-lines"}
"""A tenant is told that these are not for it: they are nobody's in particular."""

WITHOUT_IDS = {
    "whoami",
    "accounts",
    "projects",
    "members",
    "keys",
    "clusters",
    "volumes",
    "ssh-keys",
    "security-groups",
    "reserved-ips",
    "requests",
    "events",
    "capacity",
    "fleet",
    "billing",
    "availability",
    "quotes",
    "reservations",
    "pools",
    "openapi.json",
    "docs",
    "changes",  # a stream: its tenants are told apart in test_native.py
    *PUBLIC,
    *OPERATORS,
}
"""Lists and creates: what another tenant owns must not be in what they answer."""

BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("PATCH", "/projects/{id}"): {"name": "stolen"},
    ("PATCH", "/clusters/{id}"): {"failover": True},
    ("POST", "/clusters/{id}/mounts"): {"volume_id": "VOLUME"},
    ("POST", "/clusters/{id}/address"): {"reserved_ip_id": "IP"},
    ("PATCH", "/volumes/{id}"): {"size_gib": 4096},
    ("PUT", "/security-groups/{id}"): {"rules": []},
    ("POST", "/hosts/{id}/cordon"): {"reason": "mine now"},
    ("PUT", "/regions/{id}"): {"title": "mine"},
    ("PUT", "/gpu-types/{id}"): {"title": "mine", "memory_gib": 1},
    ("PUT", "/instance-types/{id}"): {
        "gpu_type": "H100_SXM",
        "gpus": 8,
        "cpus": 1,
        "memory_gib": 1,
        "scratch_gib": 1,
    },
    ("PUT", "/images/{id}"): {"region": "Delhi", "os": "x", "cuda_version": "1", "driver_version": "1"},
    ("PATCH", "/reservations/{id}"): {"ends_at": "2099-01-01T00:00:00Z"},
    ("PATCH", "/calendar-lines/{id}"): {"share_percent": 100},
    ("PUT", "/billing/budgets/{id}"): {"monthly_micro": 1},
    ("POST", "/pools/{id}/hosts"): {"count": 1},
    ("PUT", "/prices/{id}"): {"item": "8xH100_SXM", "region": "Delhi", "micro": 1},
}
"""Well-formed bodies, so that a refusal cannot be about the shape of the request."""


POOL = {"name": "bobs", "region": "us-central-8", "gpu_type": "H100_SXM"}
SOON = {"region": "us-central-8", "starts_at": (datetime.now(UTC) + timedelta(days=2)).isoformat()}


@pytest.fixture(scope="module")
def bobs(world: Any) -> dict[str, str]:
    """One of everything, Bob's."""
    bob, operator = world.bob, world.operator
    volume = bob.make("/volumes", {"name": "bobs", "region": "us-central-8", "size_gib": 10})
    wish = {"name": "bobs", "type": "kubernetes", "gpu_type": "H100_SXM", "gpus": 8, "region": "us-central-8"}
    cluster = bob.make("/clusters", {**wish, "mounts": [{"volume_id": volume["id"], "path": "/data"}]})
    request = bob.get("/requests", resource_id=cluster["id"])["items"][0]
    ready = bob.get(f"/clusters/{cluster['id']}", wait=30)
    assert ready["phase"] == "ready", ready
    return {
        "accounts": world.bob_account,
        "projects": world.bob_project,
        "members": bob.make("/members", {"name": "carl", "role": "member"})["id"],
        "keys": bob.make("/keys", {"name": "spare", "role": "member"})["id"],
        "clusters": cluster["id"],
        "volumes": volume["id"],
        "ssh-keys": bob.make("/ssh-keys", {"name": "laptop", "public_key": SSH_KEY})["id"],
        "security-groups": bob.make("/security-groups", {"name": "web"})["id"],
        "reserved-ips": bob.make("/reserved-ips", {"region": "us-central-8"})["id"],
        "requests": request["id"],
        "quotes": bob.make("/quotes", {"gpu_type": "H100_SXM", "gpus": 8, "days": 1})["id"],
        "reservations": bob.make("/reservations", {"gpu_type": "H100_SXM", "gpus": 8, "days": 1, **SOON})["id"],
        "pools": operator.make("/pools", {**POOL, "project_id": world.bob_project})["id"],
        "calendar-lines": operator.get("/calendar-lines")["items"][0]["id"],
        "billing": bob.ask("PUT", f"/billing/budgets/{world.bob_project}", json={"monthly_micro": 10**12}).json()[
            "project_id"
        ],
        "hosts": operator.get("/hosts", limit=1)["items"][0]["id"],
        "faults": "no-such-fault",
        "regions": "Delhi",
        "gpu-types": "H100_SXM",
        "instance-types": "8xH100_SXM",
        "images": operator.get("/images")["items"][0]["id"],
        "prices": operator.get("/prices")["items"][0]["id"],
    }


@pytest.fixture(scope="module")
def routes(world: Any) -> list[tuple[str, str]]:
    """(method, path) of every route of the native dialect, as its own page tells."""
    paths = world.ann.get("/openapi.json")["paths"]
    return [(method.upper(), path.removeprefix(BASE)) for path, operations in paths.items() for method in operations]


def _place(path: str) -> str:
    return path.split("/")[1]


def _with_ids(path: str, bobs: dict[str, str]) -> str:
    return path.replace("{id}", bobs.get(_place(path), "")).replace("{volume_id}", bobs["volumes"])


def _body(method: str, path: str, bobs: dict[str, str]) -> dict[str, Any]:
    body = BODIES.get((method, path), {})
    return {key: bobs["volumes"] if value == "VOLUME" else value for key, value in body.items()}


def _expected(method: str, path: str) -> int:
    place = _place(path)
    if place in PUBLIC:
        return 200 if method == "GET" else 403
    return 403 if place in OPERATORS else 404


def test_every_route_is_on_a_list(routes: list[tuple[str, str]], bobs: dict[str, str]) -> None:
    for method, path in routes:
        known = bobs if "{" in path else WITHOUT_IDS
        assert _place(path) in known, f"{method} {path} has no check here: put it on a list"


def test_anothers_things_do_not_exist(world: Any, routes: list[tuple[str, str]], bobs: dict[str, str]) -> None:
    before = world.bob.get(f"/clusters/{bobs['clusters']}")
    wrong = []
    for method, path in routes:
        if "{" not in path:
            continue
        reply = world.ann.ask(method, _with_ids(path, bobs), json=_body(method, path, bobs) or None)
        if reply.status_code != _expected(method, path):
            wrong.append((method, path, reply.status_code, reply.text[:200]))
    assert not wrong
    assert world.bob.get(f"/clusters/{bobs['clusters']}")["version"] == before["version"]


def test_an_absent_thing_and_anothers_are_told_alike(world: Any, bobs: dict[str, str]) -> None:
    absent = "00000000-0000-4000-8000-000000000000"
    for place in (
        "clusters",
        "volumes",
        "ssh-keys",
        "security-groups",
        "reserved-ips",
        "requests",
        "members",
        "keys",
    ):
        theirs = world.ann.ask("GET", f"/{place}/{bobs[place]}")
        nobodys = world.ann.ask("GET", f"/{place}/{absent}")
        assert theirs.status_code == nobodys.status_code == 404
        said = theirs.json()["detail"].replace(bobs[place], "ID"), nobodys.json()["detail"].replace(absent, "ID")
        assert said[0] == said[1]


def test_no_list_shows_anothers_things(world: Any, routes: list[tuple[str, str]], bobs: dict[str, str]) -> None:
    private = {id for place, id in bobs.items() if place not in PUBLIC | OPERATORS}
    for method, path in routes:
        if method == "GET" and "{" not in path and _place(path) not in ("changes", "openapi.json", "docs"):
            reply = world.ann.ask("GET", path, params={"limit": 1000})
            shown = {id for id in private if id in reply.text}
            assert not shown, f"{path} shows {shown}"


def test_naming_anothers_project_finds_nothing(world: Any, routes: list[tuple[str, str]]) -> None:
    page = world.ann.get("/openapi.json")["paths"]
    for path, operations in page.items():
        names = {parameter["name"] for parameter in operations.get("get", {}).get("parameters", [])}
        if "project_id" in names:
            reply = world.ann.ask("GET", path.removeprefix(BASE), params={"project_id": world.bob_project})
            assert reply.status_code == 404, f"{path}: {reply.status_code}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/clusters", {"name": "x", "type": "slurm", "gpu_type": "H100_SXM", "gpus": 8}),
        ("/volumes", {"name": "x", "region": "us-central-8", "size_gib": 10}),
        ("/ssh-keys", {"name": "x", "public_key": SSH_KEY}),
        ("/security-groups", {"name": "x"}),
        ("/reserved-ips", {"region": "us-central-8"}),
        ("/members", {"name": "x", "role": "admin"}),
        ("/keys", {"name": "x", "role": "admin"}),
    ],
)
def test_nothing_is_made_in_anothers_project(world: Any, path: str, body: dict[str, Any]) -> None:
    reply = world.ann.ask("POST", path, json={**body, "project_id": world.bob_project})
    assert reply.status_code == 404, reply.text


def test_anothers_parts_cannot_be_borrowed(world: Any, bobs: dict[str, str]) -> None:
    wish = {"name": "mine", "type": "slurm", "gpu_type": "H100_SXM", "gpus": 8, "region": "us-central-8"}
    for borrowed in (
        {"mounts": [{"volume_id": bobs["volumes"]}]},
        {"ssh_key_ids": [bobs["ssh-keys"]]},
        {"security_group_ids": [bobs["security-groups"]]},
        {"reserved_ip_id": bobs["reserved-ips"]},
    ):
        reply = world.ann.ask("POST", "/clusters", json={**wish, **borrowed})
        assert reply.status_code == 404, (borrowed, reply.text)


def test_a_member_looks_and_changes_nothing(world: Any, routes: list[tuple[str, str]], bobs: dict[str, str]) -> None:
    wrong = []
    for method, path in routes:
        if "{" not in path or _place(path) in OPERATORS:
            continue
        reply = world.bob_reader.ask(method, _with_ids(path, bobs), json=_body(method, path, bobs) or None)
        if reply.status_code != (200 if method == "GET" else 403):
            wrong.append((method, path, reply.status_code, reply.text[:200]))
    assert not wrong


def test_nobody_gets_in_without_a_key(world: Any, routes: list[tuple[str, str]], bobs: dict[str, str]) -> None:
    for method, path in routes:
        if path in ("/openapi.json", "/docs"):
            continue
        reply = world.ann.ask(method, _with_ids(path, bobs), headers={"authorization": ""})
        assert reply.status_code == 401, f"{method} {path}: {reply.status_code}"

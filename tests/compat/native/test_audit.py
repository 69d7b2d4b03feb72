"""Every mutating call leaves a line in the audit log, in the name of whoever made it.

One deed for every route that changes something, in an order in which each of them succeeds. A route without a deed
here fails.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from .conftest import Api
from .test_tenants import BASE, SSH_KEY


class Deed(NamedTuple):
    """`$name` in a body or path stands for the id of what the deed that `makes` it made."""

    who: str
    route: str
    path: str
    body: dict[str, Any] | None = None
    makes: str = ""


WISH = {"name": "audited", "type": "slurm", "gpu_type": "H100_SXM", "gpus": 8, "region": "us-central-8"}
SHAPE = {"gpu_type": "AUDIT", "gpus": 8, "cpus": 1, "memory_gib": 1, "scratch_gib": 1}
HOST = {"name": "audited-1", "region": "Audit", "gpu_type": "AUDIT", "slots": 8, "cpus": 1, "memory_gib": 1}
IMAGE = {"region": "Audit", "os": "ubuntu", "cuda_version": "12.6", "driver_version": "560"}
WINDOW = {"gpu_type": "H200_SXM", "gpus": 8, "days": 1}
PRICE = {"item": "8xAUDIT", "region": "Audit", "micro": 1}
DEEDS = (
    Deed("operator", "POST /accounts", "/accounts", {"name": "audited"}, "account"),
    Deed("operator", "POST /billing/top-ups", "/billing/top-ups", {"account_id": "$account", "micro": 5}),
    Deed("operator", "POST /projects", "/projects", {"name": "audited", "account_id": "$account"}, "project"),
    Deed("operator", "PATCH /projects/{id}", "/projects/$project", {"gpu_quota": 8}),
    Deed("operator", "PUT /billing/budgets/{id}", "/billing/budgets/$project", {"monthly_micro": 5}),
    Deed("operator", "DELETE /billing/budgets/{id}", "/billing/budgets/$project"),
    Deed("ann", "POST /members", "/members", {"name": "audited", "role": "member"}, "member"),
    Deed("ann", "DELETE /members/{id}", "/members/$member"),
    Deed("ann", "POST /keys", "/keys", {"name": "audited", "role": "member"}, "key"),
    Deed("ann", "DELETE /keys/{id}", "/keys/$key"),
    Deed("operator", "PUT /regions/{id}", "/regions/Audit", {"title": "Audit"}),
    Deed("operator", "PUT /gpu-types/{id}", "/gpu-types/AUDIT", {"title": "Audit", "memory_gib": 1}),
    Deed("operator", "PUT /instance-types/{id}", "/instance-types/8xAUDIT", SHAPE),
    Deed("operator", "PUT /images/{id}", "/images/audited", IMAGE),
    Deed("operator", "PUT /prices/{id}", "/prices/audited", PRICE),
    Deed("operator", "DELETE /prices/{id}", "/prices/audited"),
    Deed("operator", "DELETE /images/{id}", "/images/audited"),
    Deed("operator", "DELETE /instance-types/{id}", "/instance-types/8xAUDIT"),
    Deed("operator", "DELETE /gpu-types/{id}", "/gpu-types/AUDIT"),
    Deed("operator", "DELETE /regions/{id}", "/regions/Audit"),
    Deed("operator", "POST /hosts", "/hosts", {"hosts": [{**HOST, "region": "Delhi", "gpu_type": "H100_SXM"}]}),
    Deed("operator", "POST /hosts/{id}/cordon", "/hosts/audited-1/cordon", {"reason": "audit"}),
    Deed("operator", "POST /hosts/{id}/uncordon", "/hosts/audited-1/uncordon"),
    Deed(
        "operator",
        "POST /pools",
        "/pools",
        {"name": "audited", "region": "Delhi", "gpu_type": "H100_SXM", "project_id": "$project"},
        "pool",
    ),
    Deed("operator", "POST /pools/{id}/hosts", "/pools/$pool/hosts", {"hosts": ["audited-1"]}),
    Deed("operator", "DELETE /pools/{id}/hosts/{host_id}", "/pools/$pool/hosts/audited-1"),
    Deed("operator", "DELETE /pools/{id}", "/pools/$pool"),
    Deed("ann", "POST /quotes", "/quotes", WINDOW, "quote"),
    Deed("ann", "DELETE /quotes/{id}", "/quotes/$quote"),
    Deed("ann", "POST /reservations", "/reservations", WINDOW, "reservation"),
    Deed("ann", "PATCH /reservations/{id}", "/reservations/$reservation", {"ends_at": "$later"}),
    Deed("ann", "DELETE /reservations/{id}", "/reservations/$reservation"),
    Deed("operator", "PATCH /calendar-lines/{id}", "/calendar-lines/$line", {"share_percent": 51}),
    Deed("operator", "POST /faults", "/faults", {"kind": "slow-boot", "target": "audited-1"}, "fault"),
    Deed("operator", "DELETE /faults/{id}", "/faults/$fault"),
    Deed("ann", "POST /ssh-keys", "/ssh-keys", {"name": "audited", "public_key": SSH_KEY}, "ssh_key"),
    Deed("ann", "DELETE /ssh-keys/{id}", "/ssh-keys/$ssh_key"),
    Deed("ann", "POST /security-groups", "/security-groups", {"name": "walked"}, "group"),
    Deed(
        "ann",
        "PUT /security-groups/{id}",
        "/security-groups/$group",
        {"rules": [{"direction": "inbound", "protocol": "tcp"}]},
    ),
    Deed("ann", "DELETE /security-groups/{id}", "/security-groups/$group"),
    Deed("ann", "POST /reserved-ips", "/reserved-ips", {"region": "us-central-8"}, "ip"),
    Deed("ann", "DELETE /reserved-ips/{id}", "/reserved-ips/$ip"),
    Deed("ann", "POST /volumes", "/volumes", {"name": "audited", "region": "us-central-8", "size_gib": 10}, "volume"),
    Deed("ann", "PATCH /volumes/{id}", "/volumes/$volume", {"size_gib": 20}),
    Deed("ann", "POST /clusters", "/clusters", WISH, "cluster"),
    Deed("ann", "PATCH /clusters/{id}", "/clusters/$cluster", {"failover": True}),
    Deed("ann", "POST /clusters/{id}/mounts", "/clusters/$cluster/mounts", {"volume_id": "$volume", "path": "/data"}),
    Deed("ann", "DELETE /clusters/{id}/mounts/{volume_id}", "/clusters/$cluster/mounts/$volume"),
    Deed("ann", "POST /clusters/{id}/restart", "/clusters/$cluster/restart", {}),
    Deed("ann", "POST /reserved-ips", "/reserved-ips", {"region": "us-central-8"}, "door"),
    Deed("ann", "POST /clusters/{id}/address", "/clusters/$cluster/address", {"reserved_ip_id": "$door"}),
    Deed("ann", "DELETE /clusters/{id}/address/{ip_id}", "/clusters/$cluster/address/$door"),
    Deed("ann", "POST /clusters/{id}/pause", "/clusters/$cluster/pause"),
    Deed("ann", "POST /clusters/{id}/resume", "/clusters/$cluster/resume"),
    Deed("ann", "DELETE /clusters/{id}", "/clusters/$cluster"),
    Deed("ann", "DELETE /volumes/{id}", "/volumes/$volume"),
)


def test_every_mutating_route_has_a_deed(world: Any) -> None:
    paths = world.ann.get("/openapi.json")["paths"]
    routes = {f"{method.upper()} {path.removeprefix(BASE)}" for path, methods in paths.items() for method in methods}
    assert {route for route in routes if not route.startswith("GET ")} == {deed.route for deed in DEEDS}


def test_every_deed_is_told_of_in_the_doers_name(world: Any) -> None:
    made = {"line": world.operator.get("/calendar-lines")["items"][0]["id"]}
    silent = []
    for deed in DEEDS:
        api: Api = getattr(world, deed.who)
        name = api.get("/whoami")["name"]
        before = last_event(world)
        done = api.ask(deed.route.split()[0], filled(deed.path, made), json=filled(deed.body, made))
        assert done.status_code in (200, 201, 202, 204), f"{deed.route}: {done.text}"
        if deed.makes:
            made[deed.makes] = done.json()["id"]
        if deed.makes == "reservation":
            ends = datetime.fromisoformat(done.json()["ends_at"])
            made["later"] = (ends + timedelta(days=1)).isoformat()
        told = world.operator.get("/events", after=before, limit=1000)["items"]
        if not [event for event in told if event["actor"] == name]:
            silent.append((deed.route, [event["type"] for event in told]))
        if done.status_code in (201, 202):
            rest(api, filled(deed.path, made), done.json())
    assert not silent


def last_event(world: Any) -> int:
    newest = world.operator.get("/events", newest_first=True, limit=1)["items"]
    return int(newest[0]["seq"]) if newest else 0


def filled(said: Any, made: dict[str, str]) -> Any:
    if isinstance(said, dict):
        return {name: filled(value, made) for name, value in said.items()}
    return re.sub(r"\$(\w+)", lambda name: made[name[1]], said) if isinstance(said, str) else said


def rest(api: Api, path: str, thing: dict[str, Any]) -> None:
    """What comes next may need it at rest, and a pause at its end."""
    if not path.startswith(("/clusters", "/volumes")):
        return
    one = f"/{path.split('/')[1]}/{thing['id']}"
    while path.endswith("/pause") and thing["phase"] != "paused":
        seen = {"if-none-match": f'"{thing["version"]}"'}
        reply = api.ask("GET", one, params={"wait": 30}, headers=seen)
        thing = reply.json() if reply.status_code == 200 else thing
    api.ask("GET", one, params={"wait": 30})

"""The native wire as a client lives with it: versions, retries, patience, streams, refusals, trouble on demand."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest

WISH = {"type": "slurm", "gpu_type": "H100_SXM", "gpus": 8, "region": "us-central-8"}


def make(world: Any, name: str, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = world.ann.make("/clusters", {"name": name, **WISH, **more})
    return made


def test_a_cluster_is_made_waited_for_changed_and_deleted(world: Any) -> None:
    reply = world.ann.ask("POST", "/clusters", json={"name": "story", **WISH})
    assert reply.status_code == 201
    made = reply.json()
    assert reply.headers["location"] == f"/muster/v1/clusters/{made['id']}"
    assert reply.headers["etag"] == '"1"'
    assert (made["phase"], made["simulated"], made["stuck"]) == ("network", True, False)
    one = f"/clusters/{made['id']}"
    ready = world.ann.get(one, wait=30)
    assert ready["phase"] == "ready"
    assert [node["phase"] for node in ready["nodes"]] == ["running"] * 3
    assert sum(node["gpus"] for node in ready["nodes"]) == 8
    grown = world.ann.ask("PATCH", one, json={"gpus": 16, "config": {"observability": True}})
    assert grown.status_code == 202, grown.text
    bigger = world.ann.get(one, wait=30)
    assert (bigger["gpus"], bigger["config"]["observability"]) == (16, True)
    assert bigger["observed_generation"] == bigger["generation"]
    assert world.ann.ask("DELETE", one).status_code == 202
    gone = world.ann.ask("GET", one, params={"wait": 30})
    assert gone.status_code == 404


def test_a_patch_of_the_configuration_keeps_what_it_does_not_say(world: Any) -> None:
    config = {"scripts": {"worker_prolog": "#!/bin/sh\necho a", "worker_epilog": "#!/bin/sh\necho b"}, "shm_gib": 8}
    one = f"/clusters/{make(world, 'keeps', config=config)['id']}"
    world.ann.get(one, wait=30)
    assert (
        world.ann.ask("PATCH", one, json={"config": {"scripts": {"worker_prolog": "#!/bin/sh\necho c"}}}).status_code
        == 202
    )
    after = world.ann.get(one)["config"]
    assert (after["scripts"]["worker_prolog"], after["scripts"]["worker_epilog"]) == (
        "#!/bin/sh\necho c",
        "#!/bin/sh\necho b",
    )
    assert after["shm_gib"] == 8
    world.ann.ask("DELETE", one)


def test_the_same_key_and_body_is_one_effect(world: Any) -> None:
    headers = {"idempotency-key": "once-1"}
    wish = {"name": "twice", **WISH}
    first, second = (world.ann.ask("POST", "/clusters", json=wish, headers=headers) for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    other = world.ann.ask("POST", "/clusters", json={**wish, "gpus": 16}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")
    world.ann.ask("DELETE", f"/clusters/{first.json()['id']}")
    members = [
        world.ann.ask(
            "POST", "/members", json={"name": "m", "role": "member"}, headers=headers | {"idempotency-key": k}
        )
        for k in ("a", "a", "b")
    ]
    ids = [reply.json()["id"] for reply in members]
    assert ids[0] == ids[1] != ids[2]


def test_a_new_keys_secret_is_told_once(world: Any) -> None:
    headers = {"idempotency-key": "key-once"}
    first, second = (world.ann.ask("POST", "/keys", json={"name": "k"}, headers=headers).json() for _ in range(2))
    assert first["secret"].startswith("mk-")
    assert second["secret"] is None
    assert first["id"] == second["id"]
    assert "secret" not in world.ann.get(f"/keys/{first['id']}")
    revoked = world.ann.ask("DELETE", f"/keys/{first['id']}").json()
    assert revoked["revoked_at"] is not None
    mine = httpx.get(f"{world.server.url}/muster/v1/whoami", headers={"authorization": f"Bearer {first['secret']}"})
    assert (mine.status_code, mine.headers["www-authenticate"]) == (401, "Bearer")


def test_versions_guard_changes(world: Any) -> None:
    reply = world.ann.ask("POST", "/security-groups", json={"name": "guarded"})
    one, tag = f"/security-groups/{reply.json()['id']}", reply.headers["etag"]
    rules = {"rules": [{"direction": "inbound", "protocol": "tcp", "port_min": 22, "port_max": 22}]}
    assert world.ann.ask("PUT", one, json=rules, headers={"if-match": tag}).status_code == 200
    stale = world.ann.ask("DELETE", one, headers={"if-match": tag})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    assert world.ann.ask("DELETE", one, headers={"if-match": '"nonsense"'}).status_code == 412
    assert world.ann.ask("DELETE", one, headers={"if-match": "*"}).status_code == 204


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "x", **WISH, "gpus": "many"}, "gpus"),
        ({"name": "x", **WISH, "colour": "red"}, "colour"),
        ({"name": "x", **WISH, "config": {"shm_gib": -1}}, "config.shm_gib"),
        ({"name": "x", **WISH, "config": {"scripts": {"what": ""}}}, "config.scripts.what"),
        ({**WISH}, "name"),
        ({"name": "x", **WISH, "type": "mesos"}, "type"),
        ({"name": "x", **WISH, "ends_at": "soon"}, "ends_at"),
        ([], "body"),
    ],
)
def test_a_wrong_body_names_its_field(world: Any, body: Any, field: str) -> None:
    reply = world.ann.ask("POST", "/clusters", json=body)
    problem = reply.json()
    assert (reply.status_code, problem["code"], problem.get("field")) == (400, "invalid", field)
    assert reply.headers["content-type"] == "application/problem+json"
    assert problem["request_id"] == reply.headers["x-request-id"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"name": "\\ud800"}', b"[" * 5_000, b"null"])
def test_a_body_that_is_no_json_is_refused(world: Any, body: bytes) -> None:
    assert world.ann.ask("POST", "/clusters", content=body).status_code == 400


def test_null_means_absent_except_where_it_lifts_a_quota(world: Any) -> None:
    project = f"/projects/{world.ann_project}"
    limited = world.operator.ask("PATCH", project, json={"gpu_quota": 8}).json()
    assert limited["gpu_quota"] == 8
    assert world.operator.ask("PATCH", project, json={"name": None}).json()["gpu_quota"] == 8
    refused = world.ann.ask("POST", "/clusters", json={"name": "big", **WISH, "gpus": 800})
    assert refused.json()["code"] in ("never_fits", "quota_exceeded")
    refused = world.ann.ask("POST", "/clusters", json={"name": "big", **WISH, "gpus": 16, "image_id": None})
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    assert world.operator.ask("PATCH", project, json={"gpu_quota": None}).json()["gpu_quota"] is None


def test_lists_are_paged_to_the_end(world: Any) -> None:
    ids = {world.ann.make("/volumes", {"name": f"v{n}", "region": "Delhi", "size_gib": 10})["id"] for n in range(5)}
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = world.ann.get("/volumes", limit=2, cursor=cursor)
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert ids <= set(seen)
    assert len(seen) == len(set(seen))
    assert [v["name"] for v in world.ann.get("/volumes", name="v3")["items"]] == ["v3"]
    wrong = world.ann.ask("GET", "/volumes", params={"cursor": "!!"})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "cursor")
    for id in ids:
        world.ann.ask("DELETE", f"/volumes/{id}")


def test_waiting_answers_when_the_version_changes(world: Any) -> None:
    volume = world.ann.make("/volumes", {"name": "watched", "region": "Delhi", "size_gib": 10})
    one = f"/volumes/{volume['id']}"
    rested = world.ann.get(one, wait=20)
    assert rested["phase"] == "available"
    change = threading.Timer(0.2, lambda: world.ann.ask("PATCH", one, json={"size_gib": 20}))
    change.start()
    reply = world.ann.ask("GET", one, params={"wait": 20}, headers={"if-none-match": f'"{rested["version"]}"'})
    change.join()
    assert reply.json()["version"] > rested["version"]
    unchanged = world.ann.get(one, wait=20)
    reply = world.ann.ask("GET", one, params={"wait": 0.05}, headers={"if-none-match": f'"{unchanged["version"]}"'})
    assert (reply.status_code, reply.json()["version"]) == (200, unchanged["version"])
    assert world.ann.ask("GET", one, params={"wait": "long"}).status_code == 400


def _changes(world: Any, count: int, **how: Any) -> list[dict[str, Any]]:
    """So many events off the stream."""
    events: list[dict[str, Any]] = []
    with world.ann.http.stream("GET", "/changes", **how) as reply:
        assert reply.headers["content-type"] == "text/event-stream"
        for line in reply.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
                if len(events) == count:
                    break
    return events


def test_the_stream_of_changes_resumes_where_it_was_left_and_shows_only_ones_own(world: Any) -> None:
    before = world.ann.get("/events", newest_first=True, limit=1)["items"]
    start = before[0]["seq"] if before else 0
    world.ann.make("/security-groups", {"name": "s1"})
    world.bob.make("/security-groups", {"name": "s2"})
    world.ann.make("/security-groups", {"name": "s3"})
    events = _changes(world, 2, params={"after": start})
    assert [event["type"] for event in events] == ["security_group.created"] * 2
    assert {event["project_id"] for event in events} == {world.ann_project}
    again = _changes(world, 1, headers={"last-event-id": str(events[0]["seq"])})
    assert again[0]["seq"] == events[1]["seq"]
    (first,) = world.ann.get("/events", limit=1)["items"]
    assert _changes(world, 1, headers={"last-event-id": "0"})[0]["seq"] == first["seq"]


def test_the_audit_log_tells_who_and_what(world: Any) -> None:
    made = world.ann.make("/security-groups", {"name": "audited"})
    (event,) = world.ann.get("/events", resource_id=made["id"])["items"]
    assert (event["type"], event["kind"], event["project_id"]) == (
        "security_group.created",
        "security_group",
        world.ann_project,
    )
    pages = world.operator.get("/events", limit=2)
    assert world.operator.get("/events", limit=2, cursor=pages["next_cursor"])["items"][0]["seq"] > int(
        pages["items"][-1]["seq"]
    )


def test_requests_can_be_waited_for(world: Any) -> None:
    cluster = make(world, "asked")
    (request,) = world.ann.get("/requests", resource_id=cluster["id"])["items"]
    assert request["operation"] == "create"
    assert world.ann.get(f"/requests/{request['id']}", wait=30)["state"] == "completed"
    world.ann.ask("DELETE", f"/clusters/{cluster['id']}")


def test_trouble_on_demand_hits_the_wire_and_can_be_cleared(world: Any) -> None:
    assert world.ann.ask("POST", "/faults", json={"kind": "http-500"}).status_code == 403
    fault = world.operator.make("/faults", {"kind": "http-429", "count": 2})
    # Another process's fault is felt within a second; the one who asked feels it at once.
    codes = [world.ann.ask("GET", "/whoami") for _ in range(3)]
    assert [reply.status_code for reply in codes] == [429, 429, 200]
    assert codes[0].headers["retry-after"] == "1"
    assert fault["kind"] == "http-429"
    twice = [
        world.operator.ask("POST", "/faults", json={"kind": "slow-boot", "target": host}, headers=once).json()["id"]
        for host, once in [(world.operator.get("/hosts", limit=1)["items"][0]["name"], {"idempotency-key": "f"})] * 2
    ]
    assert twice[0] == twice[1]
    assert world.operator.ask("DELETE", f"/faults/{twice[0]}").status_code == 204
    lasting = world.operator.make("/faults", {"kind": "http-500", "seconds": 60})
    assert world.ann.ask("GET", "/whoami").status_code == 500
    assert world.operator.ask("DELETE", f"/faults/{lasting['id']}").status_code == 204
    assert world.ann.ask("GET", "/whoami").status_code == 200
    assert world.operator.get("/faults")["items"] == []
    assert world.operator.ask("POST", "/faults", json={"kind": "host-death", "target": "nowhere"}).status_code == 400


def test_a_region_that_is_sold_out_refuses_who_asks_for_it_and_is_left_by_who_does_not(world: Any) -> None:
    cluster = make(world, "before", region="Delhi")
    fault = world.operator.make("/faults", {"kind": "stock-out", "target": "Delhi"})
    wish = {"name": "after", **WISH, "region": "Delhi"}
    refused = world.ann.ask("POST", "/clusters", json=wish)
    assert (refused.status_code, refused.json()["code"]) == (409, "out_of_stock")
    assert "stock-out" in refused.json()["detail"]
    assert "Delhi" not in [place["region"] for place in refused.json()["details"]["elsewhere"]]
    grow = world.ann.ask("PATCH", f"/clusters/{cluster['id']}", json={"gpus": 2 * WISH["gpus"]})
    assert grow.status_code == 409
    assert make(world, "anywhere", region="")["region"] != "Delhi"
    assert world.operator.ask("DELETE", f"/faults/{fault['id']}").status_code == 204
    assert world.ann.ask("POST", "/clusters", json=wish).status_code == 201
    for made in world.ann.get("/clusters")["items"]:
        world.ann.ask("DELETE", f"/clusters/{made['id']}")


def test_the_operator_edits_hosts_and_the_catalogue(world: Any) -> None:
    spec = {"name": "extra-1", "region": "Delhi", "gpu_type": "H100_SXM", "slots": 8, "cpus": 96, "memory_gib": 1024}
    host = world.operator.make("/hosts", {"hosts": [spec]})["items"][0]
    assert world.operator.get("/hosts/extra-1")["id"] == host["id"]
    cordoned = world.operator.ask("POST", "/hosts/extra-1/cordon", json={"reason": "fan"}).json()
    assert (cordoned["cordoned"], cordoned["cordon_reason"]) == (True, "fan")
    assert world.operator.ask("POST", "/hosts/extra-1/uncordon").json()["cordoned"] is False
    region = world.operator.ask("PUT", "/regions/Lyon", json={"title": "Lyon, France"}).json()
    assert (region["id"], region["title"]) == ("Lyon", "Lyon, France")
    assert "Lyon" in {each["id"] for each in world.ann.get("/regions")["items"]}
    assert world.operator.ask("DELETE", "/regions/Lyon").status_code == 204
    assert world.operator.ask("DELETE", "/regions/Delhi").status_code == 409
    rooms = world.ann.get("/capacity")["items"]
    assert {"region", "gpu_type", "gpus_per_node", "free_nodes", "total_nodes"} == set(rooms[0])
    assert world.ann.get("/fleet")["simulated"] is True


def test_the_open_doors(world: Any) -> None:
    for path, word in (
        ("/healthz", "ok"),
        ("/readyz", "ready"),
        ("/metrics", "muster_free_gpus"),
        ("/metrics", "muster_engine_busy_seconds_total"),
    ):
        reply = httpx.get(world.server.url + path)
        assert reply.status_code == 200
        assert word in reply.text
    assert httpx.get(f"{world.server.url}/muster/v1/openapi.json").json()["openapi"] == "3.1.0"
    wrong = httpx.put(f"{world.server.url}/muster/v1/whoami")
    assert (wrong.status_code, wrong.json()["status"], wrong.headers["allow"]) == (405, 405, "GET, HEAD, OPTIONS")


def test_a_kubeconfig_is_yaml_and_only_kubernetes_has_one(world: Any) -> None:
    cluster = make(world, "kube", type="kubernetes")
    one = f"/clusters/{cluster['id']}"
    world.ann.get(one, wait=30)
    reply = world.ann.ask("GET", f"{one}/kubeconfig")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/yaml")
    assert "apiVersion: v1" in reply.text
    assert reply.headers["cache-control"] == "no-store"
    explained = world.ann.get(f"{one}/explain")
    assert explained["phase"] == "ready"
    assert explained["steps"]
    assert world.ann.get(f"{one}/access")["simulated"] is True
    assert len(world.ann.get(f"{one}/nodes")["items"]) == 3
    world.ann.ask("DELETE", one)


def test_pause_resume_and_protection(world: Any) -> None:
    one = f"/clusters/{make(world, 'naps', deletion_protection=True)['id']}"
    world.ann.get(one, wait=30)
    assert world.ann.ask("DELETE", one).json()["code"] == "protected"
    assert world.ann.ask("POST", f"{one}/pause").status_code == 202
    assert world.ann.get(one, wait=30)["phase"] == "paused"
    assert world.ann.ask("POST", f"{one}/resume").status_code == 202
    assert world.ann.get(one, wait=30)["phase"] == "ready"
    assert world.ann.ask("PATCH", one, json={"deletion_protection": False}).status_code == 202
    assert world.ann.ask("DELETE", one, params={"force": "true"}).status_code == 202


def test_volumes_are_mounted_and_unmounted(world: Any) -> None:
    volume = world.ann.make("/volumes", {"name": "data", "region": "us-central-8", "size_gib": 10})
    one = f"/clusters/{make(world, 'mounts')['id']}"
    world.ann.get(one, wait=30)
    reply = world.ann.ask("POST", f"{one}/mounts", json={"volume_id": volume["id"], "path": "/data"})
    assert reply.status_code == 202, reply.text
    mounted = world.ann.get(one, wait=30)
    assert [(m["volume_id"], m["mount_path"]) for m in mounted["volumes"]] == [(volume["id"], "/data")]
    held = world.ann.ask("DELETE", f"/volumes/{volume['id']}")
    assert (held.status_code, held.json()["code"]) == (409, "protected")
    assert len(world.ann.get(f"/volumes/{volume['id']}")["attachments"]) == 1
    assert world.ann.ask("DELETE", f"{one}/mounts/{volume['id']}").status_code == 202
    assert world.ann.get(one, wait=30)["volumes"] == []
    world.ann.ask("DELETE", one)

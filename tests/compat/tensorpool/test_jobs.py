"""`tp job` against the simulated fleet: the protocol to its last frame, though nothing really runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from muster.dialects.tensorpool.template import TEMPLATE

from .conftest import ID, Tenant

TRAIN = 'commands = ["python train.py", "echo done"]\noutputs = ["*.pt"]\n'


def pushed(tenant: Tenant, text: str, cluster: str, *words: str) -> str:
    told = tenant.tp("job", "push", tenant.file("job.tp.toml", text), cluster, *words)
    found = re.search(rf"Job ({ID.pattern}) accepted", told)
    assert found, told
    return found[1]


def test_a_job_from_init_to_delete(tenant: Tenant) -> None:
    assert "job.tp.toml created" in tenant.tp("job", "init", said="\n")
    assert (tenant.home / "job.tp.toml").read_text().strip() == TEMPLATE.strip()
    cluster = tenant.cluster("1xH100")
    job = pushed(tenant, TRAIN, cluster)
    heard = tenant.tp("job", "listen", job)
    assert "(simulated) $ python train.py" in heard
    assert "(simulated) $ echo done" in heard
    info = tenant.tp("job", "info", job)
    assert "completed" in info
    assert "1xH100" in info
    assert job in tenant.tp("job", "list")
    tenant.tp("job", "pull", job)
    assert "python train.py" in (tenant.home / f"job-{job}.log").read_text()
    tenant.tp("cluster", "destroy", cluster, "--no-input", "--wait")
    assert "python train.py" in tenant.tp("job", "listen", job), "the log outlives the cluster"
    assert "deleted" in tenant.tp("job", "delete", job)
    assert "no jobs" in tenant.tp("job", "ls", "--org")
    assert "There is no job" in tenant.tp("job", "info", job, code=1)


def test_a_job_that_fails_says_so(tenant: Tenant) -> None:
    job = pushed(tenant, 'commands = ["echo begin", "exit 3", "echo never"]\n', tenant.cluster("1xH100"))
    heard = tenant.tp("job", "listen", job, code=1)
    assert "exit code 3" in heard
    assert "(simulated) $ echo begin" in heard
    assert "echo never" not in heard
    assert tenant.good("GET", f"/job/info/{job}")["job_info"]["status"] == "error"


def test_a_job_is_cancelled(tenant: Tenant) -> None:
    job = pushed(tenant, 'commands = ["sleep 600000"]\n', tenant.cluster("1xH100"))
    assert "is pending" in tenant.tp("job", "delete", job, code=1) or "is running" in tenant.tp(
        "job", "delete", job, code=1
    )
    tenant.tp("job", "cancel", job, "--no-input", "--wait")
    assert tenant.good("GET", f"/job/info/{job}")["job_info"]["status"] == "canceled"
    assert "already" in tenant.tp("job", "cancel", job, "--no-input", code=1)
    assert "canceled" in tenant.tp("job", "listen", job, code=1)


def test_teardown_ends_the_cluster(tenant: Tenant) -> None:
    cluster = tenant.cluster("1xH100")
    job = pushed(tenant, TRAIN, cluster, "--teardown")
    tenant.tp("job", "listen", job)
    for _ in range(100):
        reply = tenant.ask("GET", f"/cluster/info/{cluster}")
        if reply.status_code == 404 or reply.json()["cluster"]["status"] == "DESTROYING":
            break
    else:
        raise AssertionError(reply.text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("commands = [", "is not TOML"),
        ("commands = []", "at least one command"),
        ('commands = ["x"]\ninstance_type = "8xH100"', "knows no 'instance_type'"),
        ("commands = [1]", "is not understood"),
        ('commands = ["x"]\noutputs = ["../../etc/passwd"]', "does not stay inside"),
        ('commands = ["x"]\noutputs = ["/etc/passwd"]', "does not stay inside"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_printed(tenant: Tenant, text: str, told: str) -> None:
    said = tenant.tp("job", "push", tenant.file("bad.toml", text), "c-nowhere", code=1)
    assert told in said, said


def test_a_job_needs_a_cluster_of_ones_own(new_tenant: Callable[[], Tenant]) -> None:
    ann, bob = new_tenant(), new_tenant()
    cluster = ann.cluster("1xH100")
    assert "There is no cluster" in bob.tp("job", "push", bob.file("a.toml", TRAIN), cluster, code=1)
    job = pushed(ann, TRAIN, cluster)
    for method, path in (
        ("GET", f"/job/info/{job}"),
        ("GET", f"/job/pull/{job}"),
        ("POST", f"/job/cancel/{job}"),
        ("DELETE", f"/job/delete/{job}"),
    ):
        assert bob.ask(method, path).status_code == 404, path
    assert bob.good("GET", "/job/list?include_org=True")["jobs"] == []
    assert "There is no job" in bob.tp("job", "listen", job, code=1)


def test_a_link_is_good_for_one_file_and_a_while(tenant: Tenant) -> None:
    job = pushed(tenant, TRAIN, tenant.cluster("1xH100"))
    tenant.tp("job", "listen", job)
    (link,) = tenant.good("GET", f"/job/pull/{job}")["download_map"].values()
    head, until, signature = link.rsplit("/", 2)
    tenant.key = "mk-somebody-elses"
    path = link.removeprefix(tenant.url)
    assert b"python train.py" in tenant.ask("GET", path).content, "no key is needed"
    for wrong in (
        f"{head}/{int(until) + 1}/{signature}",
        f"{head}/{until}/{'0' * 64}",
        f"{head}/x/{signature}",
        f"{head}/%C2%B2/{signature}",
        link.replace("/log/", "/0/"),
        link.replace("/log/", "/%2e%2e%2flog/"),
    ):
        reply = tenant.ask("GET", wrong.removeprefix(tenant.url))
        assert reply.status_code in (401, 404), wrong
        assert reply.json()["message"]


def closed(tenant: Tenant, path: str, *frames: Any) -> tuple[int, list[dict[str, Any]]]:
    """The close code of a conversation in which we said this, and what was said to us."""
    heard: list[dict[str, Any]] = []
    with connect(f"{tenant.url.replace('http', 'ws')}{path}") as socket:
        for frame in frames:
            socket.send(frame if isinstance(frame, str) else json.dumps(frame))
        try:
            while True:
                heard.append(json.loads(socket.recv(timeout=30)))
        except ConnectionClosed as end:
            return end.rcvd.code if end.rcvd is not None else 1006, heard


def test_strangers_and_babblers_are_shown_out(tenant: Tenant) -> None:
    key = {"TENSORPOOL_KEY": tenant.key}
    assert closed(tenant, "/job/push", {"TENSORPOOL_KEY": "mk-wrong"})[0] == 4001
    assert closed(tenant, "/job/push", {"hello": 1})[0] == 4001
    for frames in (["{"], ["[]"], [key, "nonsense"], [key, {}], [key, {"tp_config": 1, "cluster_id": "c"}]):
        code, heard = closed(tenant, "/job/push", *frames)
        assert code == 4000, frames
        assert heard[-1]["message"]
    windows = {"tp_config": TRAIN, "cluster_id": "c", "system": "Windows"}
    assert "WSL" in closed(tenant, "/job/push", key, windows)[1][-1]["message"]
    code, heard = closed(tenant, "/job/listen/nowhere", key)
    assert (code, heard[-1]["status"]) == (1000, "error")
    assert closed(tenant, "/job/push", "x" * (2 << 20))[0] == 1009

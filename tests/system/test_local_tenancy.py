"""What Muster adds to real Slurm: nodes that pass muster, names it knows, and who leaves when a cluster shrinks."""

from __future__ import annotations

import httpx
import pytest

from muster.sdk.client import Client
from muster.sdk.errors import ApiError
from muster.testing.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("machine")
SLURM = {"type": "slurm", "gpu_type": "H100_SXM"}
SECONDS = 180

# The first job to come to worker-1 finds it broken, and so it is drained; whoever takes its place finds the mark.
BREAKS_ONE = """#!/bin/sh
[ "$(hostname)" = worker-1 ] && mkdir /home/.broken 2>/dev/null && exit 1
exit 0
"""


def test_a_node_that_does_not_pass_is_replaced_and_the_others_stay(server: LocalServer) -> None:
    with server.client() as client:
        wish = {**SLURM, "gpus": 16, "config": {"scripts": {"worker_prolog": BREAKS_ONE}}}
        made = client.clusters.create(name="demo", **wish)
        first = {node["name"]: node["id"] for node in client.clusters.nodes(made["id"])}
        ready = client.clusters.wait(made["id"], SECONDS)
        assert ready["phase"] == "ready", ready
        nodes = {node["name"]: node["id"] for node in client.clusters.nodes(made["id"]) if node["phase"] == "running"}
        assert nodes["worker-0"] == first["worker-0"], "who passed was not blamed for another's fault"
        assert first["worker-1"] not in nodes.values()
        results = {(each["node_id"], each["test"]) for each in ready["tests"] if each["passed"]}
        workers = [id for name, id in nodes.items() if name.startswith("worker-")]
        assert {(id, test) for id in workers for test in ("munge", "srun", "gpus", "shm", "storage")} <= results


def test_acceptance_is_chosen_and_unknown_images_are_refused_at_the_call(server: LocalServer) -> None:
    with server.client() as client:
        few = client.clusters.create(name="few", **SLURM, gpus=8, acceptance={"skip": ["munge", "gpu_burn"]})
        none = client.clusters.create(name="none", **SLURM, gpus=8, acceptance={"enabled": False})
        tests = {each["test"] for each in client.clusters.wait(few["id"], SECONDS)["tests"]}
        assert {"srun", "gpus", "shm", "storage"} <= tests
        assert not {"munge", "gpu_burn"} & tests
        assert client.clusters.wait(none["id"], SECONDS)["tests"] == []
        refused = _refusal(lambda: client.clusters.create(name="x", **SLURM, gpus=8, config={"slurm_image": "no"}))
        assert (refused.status, refused.field) == (400, "config.slurm_image")
        assert "no image 'no'" in refused.detail
        changed = _refusal(lambda: client.clusters.update(few["id"], config={"slurm_image": "no"}))
        assert changed.field == "config.slurm_image"
    assert "slurm_image" in _together_refuses(server)


def _refusal(ask: object) -> ApiError:
    assert callable(ask)
    with pytest.raises(ApiError) as refused:
        ask()
    return refused.value


def _together_refuses(server: LocalServer) -> str:
    """The same wish in another's words."""
    with server.client() as client:
        url, rooms = client.url, client.capacity()
        region = next(room["region"] for room in rooms if room["gpu_type"] == "H100_SXM")
    key = (server.home / "tenant.key").read_text().strip()
    body = {"cluster_name": "x", "cluster_type": "SLURM", "region": region, "gpu_type": "H100_SXM", "num_gpus": 8}
    body |= {"billing_type": "ON_DEMAND", "cuda_version": "12.6", "nvidia_driver_version": "560", "slurm_image": "no"}
    body |= {"slurm_shm_size_gib": 16}
    reply = httpx.post(
        f"{url}/v1/compute/clusters", json=body, headers={"Authorization": f"Bearer {key}"}, trust_env=False
    )
    assert reply.status_code == 400, reply.text
    return reply.text


def test_drained_and_named_nodes_leave_first(server: LocalServer) -> None:
    with server.client() as client:
        made = client.clusters.create(name="demo", **SLURM, gpus=32)
        client.clusters.wait(made["id"], SECONDS)
        drain = "'sudo scontrol update nodename=worker-1 state=drain reason=mine'"
        server.muster("ssh", "demo", "sh", "-c", drain)
        assert _after(client, made["id"], gpus=24) == ["worker-0", "worker-2", "worker-3"]
        named = next(node["id"] for node in client.clusters.nodes(made["id"]) if node["name"] == "worker-0")
        assert _after(client, made["id"], gpus=16, leave_first=[named]) == ["worker-2", "worker-3"]
        assert sorted(server.muster("ssh", "demo", "srun", "-N2", "hostname").split()) == ["worker-2", "worker-3"]


def test_a_running_job_holds_up_who_leaves_unless_forced(server: LocalServer) -> None:
    with server.client() as client:
        made = client.clusters.create(name="demo", **SLURM, gpus=16)
        client.clusters.wait(made["id"], SECONDS)
        job = server.muster("ssh", "demo", "sbatch", "--parsable", "-w", "worker-1", "--wrap='sleep 600'").strip()
        while f"{job}:RUNNING" not in server.muster("ssh", "demo", "squeue", "-h", "-o", "%i:%T"):
            pass  # each look takes its time
        named = next(node["id"] for node in client.clusters.nodes(made["id"]) if node["name"] == "worker-1")
        client.clusters.update(made["id"], gpus=8, leave_first=[named])
        for seen in client.clusters.watch(made["id"], SECONDS):
            assert {node["name"] for node in seen["nodes"]} >= {"worker-0", "worker-1"}
            if "running work on worker-1" in ((seen.get("waiting") or {}).get("for") or ""):
                break
        assert f"{job}:RUNNING" in server.muster("ssh", "demo", "squeue", "-h", "-o", "%i:%T")
        assert "drain" in server.muster("ssh", "demo", "sinfo", "-hN", "-n", "worker-1", "-o", "%T")
        assert _after(client, made["id"], gpus=8, force=True) == ["worker-0"]
        assert "worker-1" not in server.muster("ssh", "demo", "sinfo", "-hN", "-o", "%N")


def _after(client: Client, id: str, **change: object) -> list[str]:
    client.clusters.update(id, **change)
    client.clusters.wait(id, SECONDS)
    running = [node for node in client.clusters.nodes(id) if node["phase"] == "running"]
    return sorted(node["name"] for node in running if node["role"] == "worker")

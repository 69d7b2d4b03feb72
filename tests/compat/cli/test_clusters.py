"""One cluster's life, as a person types it."""

from __future__ import annotations

import uuid

import pytest
import yaml

from .conftest import Shell


@pytest.fixture
def name(shell: Shell) -> str:
    return f"c-{uuid.uuid4().hex[:8]}"


def test_from_a_name_to_ready_and_gone(shell: Shell, name: str) -> None:
    made = shell.json("cluster", "create", name, "--wait")
    assert (made["name"], made["phase"], made["type"], made["gpus"]) == (name, "ready", "slurm", 8)
    assert made["simulated"] is True
    assert {node["phase"] for node in made["nodes"]} == {"running"}

    assert name in shell.run("cluster", "list").stdout
    shown = yaml.safe_load(shell.run("cluster", "show", name, "-o", "yaml").stdout)
    assert shown["id"] == made["id"]
    assert shell.json("cluster", "show", made["id"])["name"] == name
    assert "worker-0" in shell.run("cluster", "nodes", name).stdout
    assert f"{name} is ready" in shell.run("cluster", "explain", name).stdout
    assert shell.json("cluster", "access", name)["simulated"] is True

    shell.run("cluster", "delete", name, "--yes", "--wait")
    assert "there is no cluster" in shell.run("cluster", "show", name, code=3).stderr
    assert shell.run("cluster", "show", made["id"], code=3)


def test_watching_without_a_terminal_tells_every_phase_once(shell: Shell, name: str) -> None:
    said = shell.run("cluster", "create", name, "--gpus", "16", "--wait").stdout
    assert "(simulated)" in said
    assert said.count("\nready: ") == 1
    shell.run("cluster", "delete", name, "-y", "--wait")


def test_resize_pause_resume_update(shell: Shell, name: str) -> None:
    shell.run("cluster", "create", name, "--wait")
    grown = shell.json("cluster", "resize", name, "24", "--wait")
    assert grown["gpus"] == 24
    assert sum(node["role"] == "worker" and node["phase"] == "running" for node in grown["nodes"]) == 3
    assert shell.json("cluster", "pause", name, "--yes", "--wait")["phase"] == "paused"
    assert shell.json("cluster", "resume", name, "--wait")["phase"] == "ready"
    assert shell.json("cluster", "update", name, "--failover", "--protect")["deletion_protection"] is True
    shell.run("cluster", "delete", name, "--yes", code=4)
    shell.run("cluster", "update", name, "--no-protect")
    shell.run("cluster", "update", name, "-f", "-", "--wait", stdin="config: {shm_gib: 32}")
    assert shell.json("cluster", "show", name)["config"]["shm_gib"] == 32
    shell.run("cluster", "delete", name, "--yes", "--wait")


def test_a_kubernetes_cluster_has_a_kubeconfig(shell: Shell, name: str) -> None:
    shell.run("cluster", "create", name, "--type", "kubernetes", "--gpus", "2", "--wait")
    assert "apiVersion" in shell.run("cluster", "kubeconfig", name).stdout
    shell.run("cluster", "delete", name, "--yes", "--wait")


def test_a_volume_with_a_cluster_outlives_it(shell: Shell, name: str) -> None:
    shell.run("cluster", "create", name, "--new-volume-size", "100", "--wait")
    assert shell.json("volume", "show", f"{name}-data")["phase"] == "available"
    shell.run("cluster", "delete", name, "--yes", "--wait")
    assert shell.json("volume", "grow", f"{name}-data", "200", "--wait")["size_gib"] == 200
    shell.run("volume", "delete", f"{name}-data", "--yes", "--wait")
    shell.run("volume", "show", f"{name}-data", code=3)


def test_refusals_have_codes_and_a_way_out(shell: Shell, name: str) -> None:
    shell.run("cluster", "create", name)
    shell.run("cluster", "create", name, "--gpus", "16", code=4)
    assert "--yes" in shell.run("cluster", "delete", name, code=2).stderr
    shell.run("cluster", "create", f"{name}-big", "--gpus", "8192", code=4)
    assert "try:" in shell.run("cluster", "create", f"{name}-x", "--gpu-type", "ABACUS", code=2).stderr
    shell.run("cluster", "list", "--api-key", "mk-nobody-knows-this", code=5)
    shell.run("cluster", "wait", name)
    shell.run("cluster", "wait", name, "--gone", "--timeout", "0.2s", code=6)
    shell.run("cluster", "delete", name, "--yes", "--wait")


def test_events_and_requests_tell_the_story(shell: Shell, name: str) -> None:
    made = shell.json("cluster", "create", name, "--wait")
    types = [event["type"] for event in shell.json("event", "list", "--resource", made["id"], "--limit", "200")]
    assert types[0] == "cluster.created"
    followed = shell.run("event", "follow", "--after", "0", "--count", "3").stdout.splitlines()
    assert len(followed) == 3
    request = shell.json("request", "list", "--resource", made["id"])[0]
    assert shell.json("request", "wait", request["id"])["state"] == "completed"
    shell.run("cluster", "delete", name, "--yes", "--wait")


def test_preemptible_gpus_beside_its_own(shell: Shell, name: str) -> None:
    shell.run("cluster", "create", name, "--preemptible", "8", "--wait")
    assert "of 8 GPUs wished for" in shell.run("cluster", "show", name).stdout
    changed = shell.json("cluster", "update", name, "--preemptible", "0", "--wait")
    assert changed["preemptible"]["wished"] == 0
    refused = shell.run("cluster", "update", name, "--preemptible", "12", code=2).stderr
    assert "preemptible_gpus must be a multiple of 8" in refused
    shell.run("cluster", "delete", name, "--yes", "--wait")

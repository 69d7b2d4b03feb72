"""The other nouns: made, listed, shown and ended by hand."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import Shell


def test_accounts_projects_members_and_keys(shell: Shell, tmp_path: Path) -> None:
    shell.run("account", "create", "lab", "--postpaid")
    project = shell.json("project", "create", "vision", "--account", "lab", "--gpu-quota", "8")
    assert project["gpu_quota"] == 8
    member = shell.json("member", "add", "ada", "--role", "member", "--project", "vision", "--as-operator")
    secret = tmp_path / "ada.key"
    words = ("--project", "vision", "--member", "ada", "--role", "member", "--as-operator")
    key = shell.json("key", "create", "laptop", *words, "--secret-file", str(secret))
    assert secret.stat().st_mode & 0o777 == 0o600
    assert "secret" not in key

    ada = secret.read_text().strip()
    assert shell.json("whoami", "--api-key", ada)["role"] == "member"
    shell.run("cluster", "create", "no", "--api-key", ada, code=5)
    assert shell.json("cluster", "list", "--api-key", ada) == []

    shell.run("key", "revoke", key["id"], "--yes", "--as-operator")
    shell.run("whoami", "--api-key", ada, code=5)
    shell.run("member", "remove", member["id"], "--yes", "--as-operator")


def test_a_tenant_is_told_to_use_the_operators_key(shell: Shell) -> None:
    tenant = (shell.home / "tenant.key").read_text().strip()
    assert "operator" in shell.run("host", "list", "--api-key", tenant, code=5).stderr


def test_hosts_are_imported_and_set_aside(shell: Shell) -> None:
    host = {
        "name": "lab-1",
        "region": "us-central-8",
        "gpu_type": "H100_SXM",
        "slots": 8,
        "cpus": 208,
        "memory_gib": 1800,
    }
    assert "lab-1" in shell.run("host", "import", "-", stdin=json.dumps({"hosts": [host]})).stdout
    assert shell.json("host", "cordon", "lab-1", "--reason", "new cables")["cordoned"] is True
    assert "new cables" in shell.run("host", "show", "lab-1").stdout
    assert shell.json("host", "uncordon", "lab-1")["cordoned"] is False
    assert len(shell.json("host", "list", "--region", "us-central-8", "--limit", "3")) == 3


def test_the_catalogue_is_the_operators_to_edit(shell: Shell) -> None:
    assert {"us-central-8", "Delhi"} <= {region["id"] for region in shell.json("catalog", "list", "region")}
    shell.run("catalog", "put", "region", "-", stdin="{id: Pune, title: Pune}")
    assert shell.json("catalog", "show", "region", "Pune")["title"] == "Pune"
    shell.run("catalog", "remove", "region", "Pune", "--yes")
    shell.run("catalog", "show", "region", "Pune", code=3)
    assert set(shell.json("catalog", "list")) == {"regions", "gpu_types", "instance_types", "images", "prices"}


def test_an_entry_shown_can_be_put_back(shell: Shell) -> None:
    for part in ("gpu-type", "instance-type", "image", "price"):
        entry = shell.json("catalog", "list", part)[0]
        put = json.loads(shell.run("catalog", "put", part, "-", "-o", "json", stdin=json.dumps(entry)).stdout)
        assert put[0]["id"] == entry["id"]


def test_ssh_keys_groups_and_addresses(shell: Shell, tmp_path: Path) -> None:
    if not shutil.which("ssh-keygen"):
        pytest.skip("needs ssh-keygen: apt-get install openssh-client")
    pair = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", pair], check=True)
    assert "stays where it is" in shell.run("ssh-key", "add", "mine", str(pair), code=2).stderr
    assert shell.json("ssh-key", "add", "mine", f"{pair}.pub")["fingerprint"].startswith("SHA256:")
    shell.run("ssh-key", "remove", "mine", "--yes")

    group = shell.json("security-group", "create", "web", "--rule", "inbound:tcp:443", "--rule", "outbound:any")
    assert len(group["rules"]) == 2
    assert len(shell.json("security-group", "set-rules", "web", "--rule", "inbound:tcp:22:10.0.0.0/8")["rules"]) == 1
    shell.run("security-group", "delete", "web", "--yes")

    address = shell.json("reserved-ip", "reserve", "us-central-8")
    shell.run("reserved-ip", "release", address["id"], "--yes")


def test_a_quota_is_the_operators_to_set(shell: Shell) -> None:
    """The operator's projects too, though a tenant's key is what this home takes by default."""
    shell.run("account", "create", "counted")
    shell.run("project", "create", "counted", "--account", "counted")
    assert shell.json("project", "update", "counted", "--gpu-quota", "8")["gpu_quota"] == 8


def test_hosts_are_set_apart_and_drawn_from(shell: Shell) -> None:
    project = shell.json("project", "list")[0]["name"]
    made = shell.json("pool", "create", "apart", "--region", "us-central-8", "--project", project, "--hosts", "1")
    assert (made["gpus"], made["free_gpus"]) == (8, 8)
    [host] = shell.json("pool", "hosts", "apart")
    more = shell.json("pool", "add-host", "apart", "--hosts", "1")
    assert more["gpus"] == 16
    fewer = shell.json("pool", "remove-host", "apart", host["name"])
    assert fewer["gpus"] == 8
    cluster = shell.json("cluster", "create", "drawn", "--pool", "apart", "--autoscale-max", "16")
    assert (cluster["pool_id"], cluster["pool_gpus"]) == (made["id"], 8)
    assert cluster["autoscale"] == {"max_gpus": 16, "gpus": 8}
    fault = shell.json("fault", "load", "drawn", "--gpus", "8", "--seconds", "10m")
    assert (fault["target"], fault["left"]) == (cluster["id"], 8)
    shell.run("fault", "clear", fault["id"])
    assert "apart" in shell.run("pool", "list").stdout
    shell.run("cluster", "delete", "drawn", "--yes", "--wait")
    [left] = shell.json("pool", "hosts", "apart")
    shell.run("pool", "remove-host", "apart", left["name"])
    shell.run("pool", "delete", "apart", "--yes")
    assert shell.json("pool", "list") == []


def test_faults_are_made_listed_and_cleared(shell: Shell) -> None:
    host = shell.json("host", "list", "--role", "gpu", "--limit", "1")[0]["name"]
    shell.run("fault", "slow-boot", host)
    shell.run("fault", "stock-out", "Chennai", "--seconds", "10m")
    kinds = {fault["kind"] for fault in shell.json("fault", "list")}
    assert {"slow-boot", "stock-out"} <= kinds
    shell.run("fault", "clear", "--all")
    assert shell.json("fault", "list") == []


def test_a_short_trouble_on_the_wire_is_waited_out(shell: Shell) -> None:
    shell.run("fault", "http-429", "--count", "1")
    assert shell.json("whoami")["role"] == "admin"


def test_what_is_free_and_what_it_runs_on(shell: Shell) -> None:
    assert any(row["free_nodes"] > 0 for row in shell.json("capacity", "--gpu-type", "H100_SXM"))
    assert shell.json("fleet")["simulated"] is True


def test_env_is_what_a_script_needs(shell: Shell) -> None:
    lines = shell.run("env").stdout.splitlines()
    exports = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    elsewhere = {"MUSTER_HOME": str(shell.home / "nowhere"), **exports}
    assert json.loads(shell.run("whoami", "-o", "json", **elsewhere).stdout)["role"] == "admin"

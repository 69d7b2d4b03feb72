"""The command line as each version ships it: text, --json, prompts at a terminal, credentials, remediations."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import FIRST, LAST_2, NEWEST, Tenant, bin_of, tg
from .terminal import Terminal

CLUSTERS = "/v1/compute/clusters"
WAYS = [(NEWEST, ("clusters",)), (LAST_2, ("clusters",)), (FIRST, ("beta", "clusters"))]
ALIAS = (LAST_2, ("beta", "clusters"))
"""Hidden in 2.40-2.42, and all there was before."""


def ids(way: Any) -> str:
    return way if isinstance(way, str) else " ".join(way)


def create_args(version: str, name: str) -> list[str]:
    versions = (
        ["--driver-version", "CUDA_12_6_560"]
        if version == FIRST
        else ["--cuda-version", "12.6", "--nvidia-driver-version", "560"]
    )
    return [
        "create",
        "--non-interactive",
        "--name",
        name,
        "--region",
        "us-central-8",
        "--gpu-type",
        "H100_SXM",
        "--num-gpus",
        "8",
        "--billing-type",
        "ON_DEMAND",
        *versions,
    ]


def make(tenant: Tenant, version: str, noun: tuple[str, ...], name: str) -> str:
    shown = tg(tenant, version, *noun, *create_args(version, name)).stdout
    assert "Cluster created successfully" in shown
    return shown.split()[-1]


def ready(tenant: Tenant, cluster_id: str, status: str = "Ready") -> dict[str, Any]:
    ends = time.monotonic() + 60
    while (seen := tenant.wire.good("GET", f"{CLUSTERS}/{cluster_id}"))["status"] != status:
        assert time.monotonic() < ends, seen["status"]
        time.sleep(0.05)
    return dict(seen)


@pytest.mark.parametrize(("version", "noun"), [*WAYS, ALIAS], ids=ids)
def test_a_cluster_from_beginning_to_end(tenant: Tenant, version: str, noun: tuple[str, ...]) -> None:
    made = make(tenant, version, noun, "cli")
    ready(tenant, made)
    assert "cli" in tg(tenant, version, *noun, "list").stdout
    assert made in tg(tenant, version, *noun, "retrieve", made).stdout
    assert "us-central-8" in tg(tenant, version, *noun, "list-regions").stdout
    tg(tenant, version, *noun, "update", made, "--num-gpus", "16")
    assert tenant.wire.good("GET", f"{CLUSTERS}/{made}")["num_gpus"] == 16
    tg(tenant, version, *noun, "delete", made, "--json" if version == FIRST else "--force")
    assert tenant.wire.ask("GET", f"{CLUSTERS}/{made}").json().get("status") in ("Deleting", None)


@pytest.mark.parametrize(("version", "noun"), WAYS, ids=ids)
def test_json_is_the_whole_answer(tenant: Tenant, version: str, noun: tuple[str, ...]) -> None:
    made = json.loads(tg(tenant, version, *noun, *create_args(version, "j"), "--json").stdout)
    assert made["status"] == "WaitingForControlPlaneNodes"
    [listed] = json.loads(tg(tenant, version, *noun, "list", "--json").stdout)["clusters"]
    assert listed["cluster_id"] == made["cluster_id"]
    seen = json.loads(tg(tenant, version, *noun, "retrieve", made["cluster_id"], "--json").stdout)
    assert seen["cluster_name"] == "j"
    regions = json.loads(tg(tenant, version, *noun, "list-regions", "--json").stdout)["regions"]
    assert "us-central-8" in {region["name"] for region in regions}
    ready(tenant, made["cluster_id"])
    updated = tg(tenant, version, *noun, "update", made["cluster_id"], "--num-gpus", "16", "--json").stdout
    assert json.loads(updated)["num_gpus"] == 16
    gone = json.loads(tg(tenant, version, *noun, "delete", made["cluster_id"], "--json").stdout)
    assert gone == {"cluster_id": made["cluster_id"]}


@pytest.mark.parametrize(("version", "noun"), WAYS, ids=ids)
def test_storage(tenant: Tenant, version: str, noun: tuple[str, ...]) -> None:
    storage = (*noun, "storage")
    said = ("--region", "us-central-8", "--size-tib", "1", "--volume-name", "data")
    made = json.loads(tg(tenant, version, *storage, "create", *said, "--json").stdout)
    assert (made["volume_name"], made["size_tib"]) == ("data", 1)
    assert "data" in tg(tenant, version, *storage, "list").stdout
    assert made["volume_id"] in tg(tenant, version, *storage, "retrieve", made["volume_id"]).stdout
    if version != FIRST:
        tg(tenant, version, *storage, "update", made["volume_id"], "--size-tib", "2")
        seen = json.loads(tg(tenant, version, *storage, "retrieve", made["volume_id"], "--json").stdout)
        assert seen["size_tib"] == 2
    deleted = json.loads(tg(tenant, version, *storage, "delete", made["volume_id"], "--json").stdout)
    assert deleted == {"success": True}


def test_errors_are_sentences_and_exit_codes(tenant: Tenant) -> None:
    args = create_args(NEWEST, "x")
    args[args.index("8")] = "7"
    refused = tg(tenant, NEWEST, "clusters", *args, code=1)
    assert "multiple of 8" in refused.stdout + refused.stderr
    told = tg(tenant, NEWEST, "clusters", *args, "--json", code=1)
    assert '"num_gpus"' in told.stdout + told.stderr
    missing = "00000000-0000-4000-8000-000000000000"
    gone = tg(tenant, NEWEST, "clusters", "retrieve", missing, code=1)
    assert "There is no cluster" in gone.stdout + gone.stderr
    nobody = {"TOGETHER_API_KEY": "mk-nobody", "TOGETHER_PROJECT_ID": tenant.project_id}
    stranger = tg(tenant, NEWEST, "clusters", "list", code=1, **nobody)
    assert "key" in stranger.stdout + stranger.stderr
    assert "Traceback" not in stranger.stdout + stranger.stderr


def test_a_bare_id_is_a_cluster(tenant: Tenant) -> None:
    made = make(tenant, NEWEST, ("clusters",), "bare")
    assert made in tg(tenant, NEWEST, "clusters", made).stdout


def test_driver_versions_may_be_chosen_by_os_and_add_ons_by_flag(tenant: Tenant) -> None:
    args = create_args(NEWEST, "os")
    shown = tg(tenant, NEWEST, "clusters", *args, "--os", "ubuntu-22.04", "--headlamp-addon", "--json").stdout
    made = json.loads(shown)
    assert (made["os_image"], made["add_ons"][0]["name"]) == ("ubuntu-22.04", "headlamp")
    ready(tenant, made["cluster_id"])
    tg(tenant, NEWEST, "clusters", "update", made["cluster_id"], "--no-headlamp")
    assert tenant.wire.good("GET", f"{CLUSTERS}/{made['cluster_id']}")["add_ons"] == []


# --- at a terminal ----------------------------------------------------------------------------------------------


def at_terminal(tenant: Tenant, version: str, *args: str) -> Terminal:
    return Terminal([str(bin_of(version) / "together"), *args], tenant.environ(version))


@pytest.mark.parametrize("version", [NEWEST, LAST_2])
def test_create_by_answering_questions(tenant: Tenant, version: str) -> None:
    screen = at_terminal(tenant, version, "clusters", "create")
    screen.answer("Cluster name", "asked")
    screen.answer("GPU type", "H100_SXM")
    screen.answer("region", "us-central-8")
    screen.answer("GPUs count", "")
    screen.answer("preemptible GPUs", "")
    screen.answer("billing type", "")
    screen.answer("Select NVIDIA version", "")
    screen.answer("Cluster type", "")
    screen.answer("new storage volume?", "y")
    screen.answer("volume name", "")
    screen.answer("size (TiB)", "")
    screen.expect("Cluster created successfully")
    assert screen.end() == 0, screen.shown
    [made] = tenant.wire.good("GET", CLUSTERS)["clusters"]
    assert (made["cluster_name"], made["num_gpus"], made["cluster_type"]) == ("asked", 8, "KUBERNETES")
    assert [(v["volume_name"], v["size_tib"]) for v in made["volumes"]] == [("asked-storage", 1)]


def test_create_by_answering_questions_in_the_first_version(tenant: Tenant) -> None:
    screen = at_terminal(tenant, FIRST, "beta", "clusters", "create")
    screen.answer("Cluster name:", "asked")
    screen.answer("GPU type:", "H100_SXM")
    screen.answer("region:", "us-central-8")
    screen.answer("GPUs count", "8")
    screen.answer("billing type:", "")
    screen.answer("driver version:", "")
    screen.answer("Cluster type:", "")
    screen.answer("new storage volume?", "y")
    screen.answer("volume name:", "")
    screen.answer("size (TiB):", "")
    screen.expect("Cluster created successfully")
    assert screen.end() == 0, screen.shown
    [made] = tenant.wire.good("GET", CLUSTERS)["clusters"]
    assert (made["driver_version"], made["volumes"][0]["size_tib"]) == ("CUDA_12_5_555", 1)


def test_deleting_asks_first(tenant: Tenant) -> None:
    made = make(tenant, NEWEST, ("clusters",), "careful")
    screen = at_terminal(tenant, NEWEST, "clusters", "delete", made)
    screen.answer("Are you sure you want to delete cluster careful?", "y")
    screen.expect("Deleted careful")
    assert screen.end() == 0


# --- credentials ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "noun"), WAYS, ids=ids)
def test_credentials_of_two_clusters_in_one_file(
    tenant: Tenant, tmp_path: Path, version: str, noun: tuple[str, ...]
) -> None:
    file = tmp_path / "kube" / "config"
    names = ("one", "two")
    for name in names:
        made = make(tenant, version, noun, name)
        ready(tenant, made)
        tg(tenant, version, *noun, "get-credentials", made, "--file", str(file))
    merged = yaml.safe_load(file.read_text())
    assert [context["name"] for context in merged["contexts"]] == list(names)
    assert [cluster["name"] for cluster in merged["clusters"]] == list(names)
    users = [user["name"] for user in merged["users"]]
    assert len(set(users)) == 2
    assert [context["context"]["user"] for context in merged["contexts"]] == users
    assert merged["current-context"] == "one"
    assert all(cluster["cluster"]["server"].startswith("https://") for cluster in merged["clusters"])


def test_credentials_when_there_are_none(tenant: Tenant) -> None:
    made = make(tenant, NEWEST, ("clusters",), "asleep")
    ready(tenant, made)
    tenant.wire.good("POST", f"/muster/v1/clusters/{made}/pause")
    assert ready(tenant, made, "Paused")["kube_config"] == ""
    shown = tg(tenant, NEWEST, "clusters", "get-credentials", made, "--file", "-", "--json", code=0).stdout
    assert json.loads(shown)["kubeconfig"] is None


# --- remediations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [NEWEST, LAST_2])
def test_remediations_by_bare_id(tenant: Tenant, version: str) -> None:
    other = make(tenant, version, ("clusters",), "other")
    made = make(tenant, version, ("clusters",), "sick")
    ready(tenant, other)
    [node] = ready(tenant, made)["gpu_worker_nodes"]
    remediations = ("clusters", "remediations")
    asked = ("create", made, node["instance_id"], "--mode", "REBOOT_VM", "--reason", "it feels slow", "--json")
    repair = json.loads(tg(tenant, version, *remediations, *asked).stdout)
    assert repair["state"] == "PENDING"
    ends = time.monotonic() + 60
    while True:
        seen = json.loads(tg(tenant, version, *remediations, "retrieve", repair["id"], "--json").stdout)
        if seen["state"] == "SUCCEEDED":
            break
        assert seen["state"] in ("PENDING", "RUNNING"), seen
        assert time.monotonic() < ends, seen
    listed = tg(tenant, version, *remediations, "list", made, "--state", "SUCCEEDED", "--mode", "REBOOT_VM").stdout
    assert repair["id"] in listed
    late = tg(tenant, version, *remediations, "cancel", repair["id"], code=1)
    assert "cannot be cancelled" in late.stdout + late.stderr
    unknown = "00000000-0000-4000-8000-000000000000"
    tg(tenant, version, *remediations, "retrieve", unknown, code=1)

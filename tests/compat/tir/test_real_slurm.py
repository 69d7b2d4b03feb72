"""TIR's story on real Slurm: from the key to the last srun, through a reserved address that rules apply to."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from muster.testing.local import residue, why_not
from muster.testing.local_server import LocalServer

from .conftest import CLUSTERS, GPU, Tenant, drive, rule

PATIENCE_SECONDS = 60.0


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalServer]:
    because = why_not()
    if because:
        pytest.skip(because)
    made = LocalServer(tmp_path)
    made.up()
    try:
        yield made
    finally:
        made.down()
        assert residue(made.home, made.home_id) == []


@pytest.fixture
def here(local: LocalServer) -> Iterator[Tenant]:
    url = json.loads((local.home / "run" / "server.json").read_bytes())["url"]
    key = (local.home / "tenant.key").read_text().strip()
    headers = {"authorization": f"Bearer {key}"}
    with (
        httpx.Client(base_url=url, headers=headers, timeout=60) as http,
        httpx.Client(base_url=url, headers=headers, timeout=60) as native,
    ):
        [project] = http.get(f"{GPU}/projects/").json()["data"]
        yield Tenant(url, key, "", project["project_id"], project["team_id"], http, native, "us-central-8")


def new_key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text()


def ssh(key: Path, host: str, port: int, *words: str) -> subprocess.CompletedProcess[str]:
    options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ConnectTimeout=10"]
    command = ["ssh", "-q", "-F", "none", "-i", str(key), "-p", str(port)]
    command += [word for option in options for word in ("-o", option)]
    return subprocess.run(
        [*command, f"ubuntu@{host}", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def until_gets_in(key: Path, host: str, port: int, *, wanted: bool) -> None:
    """Rules are taken over within moments, not at once."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (ssh(key, host, port, "true").returncode == 0) is not wanted:
        assert time.monotonic() < end, f"{key.name} at {host}: never {wanted}"
        time.sleep(0.2)


def test_from_the_key_to_the_last_srun(here: Tenant, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    keys = [
        here.good("POST", "/ssh_keys/", json={"label": path.name, "ssh_key": new_key(path)})["id"]
        for path in (first, second)
    ]
    group = here.group()
    sfs = here.good("POST", "/distributed_jobs/sfs/", json={"name": "data", "disk_size": 1})["id"]
    ip = here.good("POST", "/reserved_ips/")
    made = here.create(
        name="story",
        no_of_nodes=2,
        ssh_key_ids=[keys[0]],
        security_group_id=group,
        script_added=True,
        lifecycle_script="hostname > /var/tmp/mark",
        sfs_mount_list=[{"id": sfs, "name": "data", "mount_path": "/mnt/data"}],
    )
    here.running(made["id"])
    here.good("PUT", f"{CLUSTERS}{made['id']}/", json={"action": "attach_ip", "reserved_ip_id": ip["id"]})
    login = here.running(made["id"])["login"]
    assert (login["host"], login["user"]) == (ip["ip_address"], "ubuntu")
    host, port = login["host"], login["port"]

    # in through the reserved address; the script ran on every node; the volume is everywhere
    until_gets_in(first, host, port, wanted=True)
    marks = ssh(first, host, port, "cat /var/tmp/mark && srun -N2 cat /var/tmp/mark")
    assert sorted(marks.stdout.split()) == ["login", "worker-0", "worker-1"], marks
    ssh(first, host, port, "sudo chmod 777 /mnt/data && srun -N2 sh -c 'touch /mnt/data/$(hostname)'")
    assert ssh(first, host, port, "ls /mnt/data").stdout.split() == ["worker-0", "worker-1"]

    # refused when the group forbids it, and let in again, while it runs
    rules = f"/security_groups/{group}/rules/"
    here.good("PUT", rules, json=[rule("inbound", ports=["80"])])
    until_gets_in(first, host, port, wanted=False)
    here.good("PUT", rules, json=[rule("inbound", ports=["22"])])
    until_gets_in(first, host, port, wanted=True)

    # one more node; its script ran too
    here.good("PUT", f"{CLUSTERS}{made['id']}/", json={"action": "scale_cluster", "additional_nodes": 1})
    here.running(made["id"])
    ran = ssh(first, host, port, "srun -N3 cat /var/tmp/mark")
    assert sorted(ran.stdout.split()) == ["worker-0", "worker-1", "worker-2"], ran

    # other keys
    here.good("PUT", f"{CLUSTERS}{made['id']}/", json={"action": "update_ssh_keys", "ssh_key_ids": [keys[1]]})
    here.running(made["id"])
    assert ssh(second, host, port, "true").returncode == 0
    assert ssh(first, host, port, "true").returncode != 0

    # the SDK's own kind of job, its replicas side by side
    told = drive(here, "pytorch_job.py", tmp_path, str(made["id"]), str(sfs), "real")
    lines = [line.split(" ", 2)[1:] for line in told.splitlines() if line.startswith("POD ")]
    assert [[pod, said.rpartition(" at ")[0]] for pod, said in lines] == [
        ["train-master-0", "it's 0 of 3"],
        ["train-worker-0", "it's 1 of 3"],
        ["train-worker-1", "it's 2 of 3"],
    ]
    assert {said.rpartition(" at ")[2] for _, said in lines} <= {"worker-0", "worker-1", "worker-2"}

    # booted anew in place, the workers and then everyone, and at work again
    for action in ("restart_workers", "restart_cluster"):
        here.good("PUT", f"{CLUSTERS}{made['id']}/", json={"action": action})
        here.running(made["id"])
        ran = ssh(second, host, port, "srun -N3 hostname")
        assert len(ran.stdout.split()) == 3, (action, ran)

    # without the address there is still the machine's own door
    here.good("PUT", f"{CLUSTERS}{made['id']}/", json={"action": "detach_ip", "reserved_ip_id": ip["id"]})
    own = here.running(made["id"])["login"]
    assert own["host"] != host
    assert ssh(second, own["host"], own["port"], "true").returncode == 0
    assert ssh(second, host, port, "true").returncode != 0
    here.good("DELETE", f"{CLUSTERS}{made['id']}/")

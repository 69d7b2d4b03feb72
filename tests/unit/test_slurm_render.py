"""What a Slurm cluster is told, worked out without one: files, secrets, standings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.contracts.hands import Knock
from muster.contracts.orchestrator import Member, Standing, Target
from muster.errors import Never
from muster.model.clusters import ClusterConfig, ClusterSpec, ClusterType, Scripts
from muster.orchestrators.slurm import roster
from muster.orchestrators.slurm.keys import derive, munge_key, ssh_key
from muster.orchestrators.slurm.render import (
    digest_of,
    extra_lines,
    files_of,
    gpu_word,
    login_of,
    node_spec,
    roles_of,
    workers_of,
)
from muster.orchestrators.slurm.requeue import requeued
from muster.orchestrators.slurm.trial import trial_conf

SECRET = b"a home's secret"


def member(name: str, role: str, *, gpus: int = 0, address: str = "10.77.0.2") -> Member:
    return Member(
        node_id=f"id-{name}",
        name=name,
        role=role,
        address=address,
        gpu_type="H100_SXM" if gpus else "",
        gpus=gpus,
        cpus=192,
        memory_gib=2000,
    )


def target(*members: Member, scripts: Scripts = Scripts()) -> Target:
    spec = ClusterSpec(
        type=ClusterType.SLURM,
        region="r",
        gpu_type="H100_SXM",
        instance_type="8xH100_SXM",
        workers=2,
        image_id="i",
        config=ClusterConfig(scripts=scripts),
    )
    return Target(cluster_id="c-1", name="demo", project_id="p", generation=3, spec=spec, members=members)


WHOLE = target(
    member("worker-10", "worker", gpus=8, address="10.77.0.9"),
    member("controller", "controller"),
    member("worker-2", "worker", gpus=8, address="10.77.0.8"),
    member("login", "login", address="10.77.0.3"),
)


def content(of: Target, path: str) -> str:
    return next(file.content for file in files_of(of, SECRET) if file.path == path)


def test_the_same_target_gives_the_same_bytes_in_any_order() -> None:
    shuffled = replace(WHOLE, members=tuple(reversed(WHOLE.members)))
    assert files_of(WHOLE, SECRET) == files_of(shuffled, SECRET)
    assert digest_of(files_of(WHOLE, SECRET)) != digest_of(files_of(WHOLE, b"another home's"))


def test_membership_is_not_in_what_daemons_have_read() -> None:
    smaller = replace(WHOLE, members=WHOLE.members[1:])
    assert content(WHOLE, "slurm/slurm.conf") == content(smaller, "slurm/slurm.conf")
    assert content(WHOLE, "hosts") != content(smaller, "hosts")


def test_nodes_have_the_second_names_that_slurm_on_kubernetes_gives_them() -> None:
    rows = [line.split()[1:] for line in content(WHOLE, "hosts").splitlines()]
    assert ["worker-2", "worker-2.slurm-compute.slurm"] in rows
    assert ["login", "slurm-login"] in rows
    assert ["controller"] in rows


def test_shapes_and_roles() -> None:
    assert "Gres=gpu:h100:8" in node_spec(WHOLE.members[0])
    assert "CPUs=192" in node_spec(WHOLE.members[0])
    assert "RealMemory=2048000" in node_spec(WHOLE.members[0])
    assert content(WHOLE, "slurm/gres.conf") == "Name=gpu Type=h100 File=/dev/nvidia[0-7]\n"
    assert [worker.name for worker in workers_of(WHOLE)] == ["worker-2", "worker-10"]
    assert [roles_of(WHOLE, each) for each in WHOLE.members] == [["worker"], ["controller"], ["worker"], ["login"]]


def test_a_single_instance_is_its_own_controller_and_login() -> None:
    alone = target(member("worker-0", "worker", gpus=4))
    assert roles_of(alone, alone.members[0]) == ["controller", "login", "worker"]
    door = login_of(alone)
    assert door is not None
    assert door.name == "worker-0"
    assert "SlurmctldHost=worker-0(10.77.0.2)" in content(alone, "slurm/slurm.conf")


@pytest.mark.parametrize(
    ("gpu_type", "word"),
    [("H100_SXM", "h100"), ("RTX_6000_PCI", "rtx_6000"), ("L40_PCIE", "l40"), ("H100_SXM_INF", "h100")],
)
def test_gpus_are_named_as_people_ask_for_them(gpu_type: str, word: str) -> None:
    assert gpu_word(gpu_type) == word


@pytest.mark.parametrize(
    "line",
    [
        "Include /etc/shadow",
        "AuthType=auth/none",
        "authinfo=x",
        "SlurmUser=root",
        "PluginDir=/tmp",
        "PlugStackConfig=/tmp/x",
        "StateSaveLocation=/tmp",
        "SlurmctldPidFile=/tmp/x",
        "Prolog=/bin/true",
        "NodeName=w[1-99]",
        "MaxArraySize=1\\",
        "MaxArraySize=1\x07",
    ],
)
def test_lines_that_are_not_the_tenants_to_write(line: str) -> None:
    with pytest.raises(Never, match=r"extra slurm\.conf"):
        extra_lines(f"MaxArraySize=10\n{line}\n")


def test_extra_lines_come_last_and_comments_are_dropped() -> None:
    conf = content(target(scripts=Scripts(extra_slurm_conf="# mine\nMaxArraySize=7\n\n")), "slurm/slurm.conf")
    assert conf.endswith("State=UP\nMaxArraySize=7\n")


def test_scripts_need_a_shebang_and_become_hooks() -> None:
    with pytest.raises(Never, match="begin with a line like"):
        files_of(target(scripts=Scripts(worker_prolog="echo hi")), SECRET)
    hooked = target(scripts=Scripts(worker_prolog="#!/bin/sh\ntrue", lifecycle="#!/bin/sh\n"))
    assert "Prolog=/etc/slurm/worker_prolog" in content(hooked, "slurm/slurm.conf")
    assert content(hooked, "slurm/worker_prolog") == "#!/bin/sh\ntrue\n"
    assert content(hooked, "init/lifecycle") == "#!/bin/sh\n"


def test_secrets_are_closed_and_differ_by_cluster_and_purpose() -> None:
    closed = {file.path for file in files_of(WHOLE, SECRET) if not file.mode & 0o077}
    assert closed == {"munge.key", "ssh/host_key", "ssh/id_cluster"}
    assert munge_key(SECRET, "a") != munge_key(SECRET, "b")
    assert len({derive(SECRET, "a", "x"), derive(SECRET, "a", "y"), derive(b"z", "a", "x")}) == 3


def test_ssh_keys_are_what_openssh_makes_of_them(tmp_path: Path) -> None:
    key = ssh_key(SECRET, "c-1", "host key")
    file = tmp_path / "key"
    file.write_text(key.private)
    file.chmod(0o600)
    done = subprocess.run(["ssh-keygen", "-y", "-f", str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == key.public.split()


def test_the_port_has_the_first_say_in_a_standing() -> None:
    assert roster.standing("idle", Knock.OPEN) is Standing.IDLE
    assert roster.standing("idle", Knock.REFUSED) is Standing.DOWN
    assert roster.standing("idle", Knock.GONE) is Standing.DOWN
    assert roster.standing("idle", Knock.SILENT) is Standing.UNKNOWN
    assert roster.standing("idle*", Knock.OPEN) is Standing.UNKNOWN
    assert roster.standing("mixed", Knock.OPEN) is Standing.BUSY
    assert roster.standing("drained*", Knock.OPEN) is Standing.DRAINED
    assert roster.standing(None, Knock.OPEN) is Standing.ABSENT
    assert roster.standing(None, Knock.SILENT) is Standing.UNKNOWN
    assert roster.standing("a word of a later Slurm", Knock.OPEN) is Standing.UNKNOWN


def test_only_requeued_jobs_are_hastened() -> None:
    shown = (
        "JobId=1 JobName=a JobState=PENDING Reason=BeginTime Restarts=1 StartTime=x\n"
        "JobId=2 JobName=b JobState=PENDING Reason=BeginTime Restarts=0\n"
        "JobId=3 JobName=c JobState=PENDING Reason=Resources Restarts=1\n"
        "JobId=4 JobName=d JobState=RUNNING Reason=None Restarts=1\n"
    )
    assert requeued(shown) == ["1"]


def test_slurm_is_told_only_of_those_it_still_believes_in() -> None:
    words = roster.parse("w1 idle\nw2 mixed*\nw3 down\nw4 drained\nw5 idle\nslurm_load: error\n")
    knocks = {"w1": Knock.GONE, "w2": Knock.REFUSED, "w3": Knock.GONE, "w4": Knock.GONE, "w5": Knock.SILENT}
    assert roster.fallen(words, knocks) == ["w1", "w2"]


def test_a_trial_keeps_to_itself() -> None:
    """It must not take the cluster's port, state, log or database for its own."""
    counted = replace(WHOLE, spec=replace(WHOLE.spec, config=ClusterConfig(accounting=True)))
    tried = trial_conf(content(counted, "slurm/slurm.conf")).splitlines()
    assert [line for line in tried if line.startswith("SlurmctldPort=")] == ["SlurmctldPort=6899"]
    shared = ("StateSaveLocation=", "SlurmctldPidFile=", "SlurmctldLogFile=", "AccountingStorage")
    assert [line for line in tried if line.startswith(shared)] == []
    assert "GresTypes=gpu" in tried

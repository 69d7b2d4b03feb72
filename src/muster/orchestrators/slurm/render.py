"""The files of a Slurm cluster. Pure: the same target and home secret give the same bytes.

Leans on keys and scripts. Laws: membership is not in slurm.conf (nodes are dynamic and register themselves), so
resizing rewrites nothing that a daemon has read; of a cluster that may grow by itself slurm.conf knows how far; the
tenant's extra lines come last and may not touch authentication, users, includes, or where daemons keep and find
things.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from muster.contracts.hands import File
from muster.contracts.orchestrator import Member, Target
from muster.errors import Never
from muster.model.clusters import Scripts
from muster.orchestrators.slurm.keys import munge_key, ssh_key
from muster.orchestrators.slurm.roster import ROOM_TO_GROW
from muster.orchestrators.slurm.scripts import JOINED, START

NODES_MAX: Final = 1024
USER: Final = "ubuntu"

_DENIED: Final = re.compile(
    r"(?i)^(include|auth.*|cred.*|crypto.*|slurmuser|slurmduser|plugindir|plugstackconfig|.*pidfile|.*logfile"
    r"|statesavelocation|slurmdspooldir|slurmctldhost|slurmctldport|slurmdport|slurmctldparameters|clustername"
    r"|proctracktype|controlmachine|backupcontroller|accountingstorage(type|host|port|user|pass).*|jobcomp(loc|type|pass.*)"
    r"|prolog(slurmctld)?|epilog(slurmctld)?|mailprog|rebootprogram|nodename|maxnodecount|grestypes|slurmdparameters)$"
)
_FORM_FACTOR: Final = re.compile(r"_(sxm|pcie?|nvl|inf)(?=_|$)")
_SHEBANG: Final = "#!"


def controller_of(target: Target) -> Member | None:
    """The controller; on a single instance the node itself."""
    return _first(target, "controller") or (by_name(target.members)[0] if target.members else None)


def login_of(target: Target) -> Member | None:
    return _first(target, "login") or controller_of(target)


def workers_of(target: Target) -> list[Member]:
    """Those that run slurmd: workers, and the one node of a single-node cluster."""
    found = [member for member in target.members if member.role == "worker" or member.gpus]
    return by_name(found)


def roles_of(target: Target, member: Member) -> list[str]:
    roles = []
    if member == controller_of(target):
        roles.append("controller")
    if member == login_of(target):
        roles.append("login")
    if member in workers_of(target):
        roles.append("worker")
    return roles


def by_name(members: Iterable[Member]) -> list[Member]:
    def natural(member: Member) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", member.name) if part]

    return sorted(members, key=natural)


def _first(target: Target, role: str) -> Member | None:
    return next((member for member in by_name(target.members) if member.role == role), None)


def gpu_word(gpu_type: str) -> str:
    """H100_SXM -> h100, RTX_6000_PCI -> rtx_6000: what people write after `--gpus=`."""
    return _FORM_FACTOR.sub("", gpu_type.lower()) or "gpu"


def node_spec(member: Member) -> str:
    """What slurmd says of itself when it registers."""
    cpus = max(1, member.cpus)
    shape = f"CPUs={cpus} Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1"
    gres = f" Gres=gpu:{gpu_word(member.gpu_type)}:{member.gpus}" if member.gpus else ""
    return f"{shape} RealMemory={max(1, member.memory_gib) * 1024}{gres} Feature=worker"


def files_of(target: Target, secret: bytes) -> list[File]:
    """Everything below /etc/cluster."""
    slurm = _slurm_files(target)
    digest = hashlib.sha256("\0".join(f"{f.path}\0{f.content}" for f in slurm).encode()).hexdigest()
    return [
        *slurm,
        File(path="slurm.digest", content=digest),
        File(path="hosts", content=_hosts(target)),
        File(path="munge.key", content=munge_key(secret, target.cluster_id), mode=0o400, owner="munge"),
        File(path="bin/start", content=START, mode=0o755),
        File(path="bin/joined", content=JOINED, mode=0o755),
        *_ssh_files(target, secret),
        *_init_files(target.spec.config.scripts),
    ]


def digest_of(files: Iterable[File]) -> str:
    text = "\0".join(f"{file.path}\0{file.mode}\0{file.content}" for file in files)
    return hashlib.sha256(text.encode()).hexdigest()


def _slurm_files(target: Target) -> list[File]:
    scripts = target.spec.config.scripts
    hooks = {
        "Prolog": ("worker_prolog", scripts.worker_prolog),
        "Epilog": ("worker_epilog", scripts.worker_epilog),
        "PrologSlurmctld": ("controller_prolog", scripts.controller_prolog),
        "EpilogSlurmctld": ("controller_epilog", scripts.controller_epilog),
    }
    given = {key: (name, text) for key, (name, text) in hooks.items() if text}
    lines = [f"{key}=/etc/slurm/{name}" for key, (name, _) in given.items()]
    return [
        File(path="slurm/slurm.conf", content=_slurm_conf(target, lines)),
        File(path="slurm/gres.conf", content=_gres_conf(target)),
        # Never autodetected: with linuxproc no cgroup mount is needed, but slurmd insists on knowing a plug-in.
        File(path="slurm/cgroup.conf", content="CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"),
        File(path="slurm/plugstack.conf", content=""),
        *_slurmdbd_conf(target),
        *(
            File(path=f"slurm/{name}", content=_script(text, name), mode=0o755)
            for name, text in sorted(given.values())
        ),
    ]


def _slurm_conf(target: Target, hooks: list[str]) -> str:
    head = controller_of(target)
    shape = next(iter(workers_of(target)), None)
    per_cpu = shape.memory_gib * 1024 // max(1, shape.cpus) if shape else 1024
    lines = [
        f"ClusterName=c{target.cluster_id.replace('-', '')[:16]}",
        f"SlurmctldHost={head.name}({head.address})" if head else "SlurmctldHost=controller",
        "SlurmUser=slurm",
        "AuthType=auth/munge",
        "StateSaveLocation=/var/spool/slurmctld",
        "SlurmdSpoolDir=/var/spool/slurmd",
        "SlurmctldPidFile=/run/slurm/slurmctld.pid",
        "SlurmdPidFile=/run/slurm/slurmd.pid",
        "SlurmctldLogFile=/var/log/slurm/slurmctld.log",
        "SlurmdLogFile=/var/log/slurm/slurmd.log",
        "SlurmctldParameters=enable_configless",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SchedulerType=sched/backfill",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        f"DefMemPerCPU={max(1, per_cpu)}",
        "GresTypes=gpu",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "SlurmdTimeout=30",
        "SlurmctldTimeout=30",
        "MessageTimeout=10",
        "InactiveLimit=0",
        "KillWait=5",
        "MpiDefault=none",
        "JobCompType=jobcomp/filetxt",
        "JobCompLoc=/var/log/slurm/jobcomp.log",
        *_accounting(target, head),
        "JobAcctGatherType=jobacct_gather/linux",
        f"MaxNodeCount={NODES_MAX + _room(target)}",
        "TreeWidth=65533",
        *_room_to_grow(target, shape),
        "NodeSet=workers Feature=worker",
        "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        *hooks,
        *extra_lines(target.spec.config.scripts.extra_slurm_conf),
    ]
    return "\n".join(lines) + "\n"


def _room(target: Target) -> int:
    """How many nodes more than one it may come to have. Not fewer as it grows: slurmctld cannot take them back."""
    return target.spec.autoscale.max_workers - 1 if target.spec.autoscale is not None else 0


def _room_to_grow(target: Target, shape: Member | None) -> list[str]:
    """Slurm refuses at once what all the nodes it knows could never carry. So it is told of the nodes that may come,
    as down: then such a job waits, which is what makes the cluster grow. Backfill looks often, to start it soon."""
    if not _room(target) or shape is None:
        return []
    names = f"{ROOM_TO_GROW}[1-{_room(target)}]"
    return [
        f"NodeName={names} NodeAddr=127.0.0.1 {node_spec(shape)} State=DOWN Reason=comes_when_jobs_need_it",
        "SchedulerParameters=bf_interval=5",
    ]


def _accounting(target: Target, head: Member | None) -> list[str]:
    """Off by default: a database costs a start some seconds."""
    if not target.spec.config.accounting or head is None:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={head.name}",
        "AccountingStorageTRES=gres/gpu",
    ]


def _slurmdbd_conf(target: Target) -> list[File]:
    head = controller_of(target)
    if not target.spec.config.accounting or head is None:
        return []
    lines = [
        "AuthType=auth/munge",
        f"DbdHost={head.name}",
        f"DbdAddr={head.address}",
        "SlurmUser=slurm",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=slurm",
        "StorageLoc=slurm_accounting",
        "LogFile=/var/log/slurm/slurmdbd.log",
        "PidFile=/run/slurm/slurmdbd.pid",
    ]
    # slurmdbd insists that nobody else can read it, secret or not
    return [File(path="slurm/slurmdbd.conf", content="\n".join(lines) + "\n", mode=0o600, owner="slurm")]


def extra_lines(extra: str) -> list[str]:
    """The tenant's own lines, or `Never` with the one that is not theirs to write."""
    lines = [line.strip() for line in extra.splitlines() if line.strip() and not line.strip().startswith("#")]
    for line in lines:
        key = re.split(r"[=\s]", line, maxsplit=1)[0]
        if _DENIED.match(key) or not re.fullmatch(r"[\x20-\x7e]+", line) or line.endswith("\\"):
            raise Never(f"extra slurm.conf: {key} may not be set here")
    return lines


def _gres_conf(target: Target) -> str:
    shapes = {(gpu_word(member.gpu_type), member.gpus) for member in workers_of(target) if member.gpus}
    return "".join(f"Name=gpu Type={word} File=/dev/nvidia[0-{gpus - 1}]\n" for word, gpus in sorted(shapes)[:1])


def _hosts(target: Target) -> str:
    """Nodes have a second name, as Slurm on Kubernetes gives them: scripts written for that find them here."""
    rows = [
        f"{member.address}\t{member.name} {_second_name(member)}".rstrip() + "\n"
        for member in by_name(target.members)
    ]
    return f"127.0.0.1\tlocalhost\n{''.join(rows)}"


def _second_name(member: Member) -> str:
    if member.role == "login":
        return "slurm-login"
    return f"{member.name}.slurm-compute.slurm" if member.role == "worker" else ""


def _ssh_files(target: Target, secret: bytes) -> list[File]:
    host = ssh_key(secret, target.cluster_id, "host key")
    inner = ssh_key(secret, target.cluster_id, "between nodes")
    keys = "".join(f"{key}\n" for key in (*target.authorized_keys, inner.public))
    config = (
        "Port 22\nHostKey /etc/cluster/ssh/host_key\nPidFile /run/sshd.pid\nUsePAM no\nUseDNS no\nPrintMotd no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin no\nAcceptEnv LANG LC_*\n"
        f"AuthorizedKeysFile /etc/cluster/ssh/authorized_keys/%u .ssh/authorized_keys\nAllowUsers {USER}\n"
        "Subsystem sftp internal-sftp\nMaxStartups 100:30:200\n"
    )
    return [
        File(path="ssh/sshd_config", content=config),
        File(path="ssh/host_key", content=host.private, mode=0o600),
        File(path="ssh/host_key.pub", content=f"{host.public}\n"),
        File(path="ssh/known_hosts", content=f"* {host.public}\n"),
        File(path="ssh/id_cluster", content=inner.private, mode=0o600, owner=USER),
        File(path="ssh/id_cluster.pub", content=f"{inner.public}\n"),
        File(path=f"ssh/authorized_keys/{USER}", content=keys),
    ]


def _init_files(scripts: Scripts) -> list[File]:
    given = {"lifecycle": scripts.lifecycle, "login": scripts.login_init, "nodeset": scripts.nodeset_init}
    return [
        File(path=f"init/{name}", content=_script(text, name), mode=0o755) for name, text in given.items() if text
    ]


def _script(text: str, name: str) -> str:
    if not text.startswith(_SHEBANG):
        raise Never(f"the {name.replace('_', ' ')} script must begin with a line like #!/bin/bash")
    return text if text.endswith("\n") else f"{text}\n"

"""The files a cluster would have. Pure: the same target gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from muster.contracts.orchestrator import Member, Rendered, Target
from muster.model.clusters import ClusterType, Scripts

SIMULATED = "# Simulated by Muster: no daemon reads this."


def render(target: Target) -> Rendered:
    """Files by `role:path`; `all` is every node."""
    files = _slurm(target) if target.spec.type is ClusterType.SLURM else _kubernetes(target)
    files["all:/root/.ssh/authorized_keys"] = "".join(f"{key}\n" for key in target.authorized_keys)
    files["all:/etc/hosts"] = _hosts(target)
    lines = (f"{path}\0{text}" for path, text in sorted(files.items()))
    digest = hashlib.sha256("\0\0".join(lines).encode()).hexdigest()
    return Rendered(digest=digest, files=dict(sorted(files.items())))


def by_name(members: Iterable[Member]) -> list[Member]:
    """w-2 before w-10, and the same order whatever order they were told in."""
    return sorted(members, key=lambda member: (_natural(member.name), member.node_id))


def workers(target: Target) -> list[Member]:
    """Those that carry GPUs; the one node of a single-node cluster is its own controller."""
    found = [member for member in target.members if member.role == "worker"]
    return by_name(found or [member for member in target.members if member.gpus])


def controller(target: Target) -> Member | None:
    return _first(target, "controller")


def login(target: Target) -> Member | None:
    return _first(target, "login")


def _first(target: Target, role: str) -> Member | None:
    """The member of this role, or whoever stands in for it."""
    members = by_name(target.members)
    return next((member for member in members if member.role == role), None) or next(
        (member for member in members if member.role == "controller"), members[0] if members else None
    )


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def _hosts(target: Target) -> str:
    rows = [f"{member.address}\t{member.name}\n" for member in by_name(target.members)]
    return f"{SIMULATED}\n127.0.0.1\tlocalhost\n{''.join(rows)}"


def _slurm(target: Target) -> dict[str, str]:
    scripts = target.spec.config.scripts
    files = {
        "all:/etc/slurm/slurm.conf": _slurm_conf(target),
        "worker:/etc/slurm/gres.conf": _gres_conf(target),
        "all:/etc/slurm/cgroup.conf": f"{SIMULATED}\nConstrainCores=yes\nConstrainDevices=yes\n",
    }
    return files | _scripts(scripts)


def _slurm_conf(target: Target) -> str:
    head = controller(target)
    lines = [
        SIMULATED,
        f"ClusterName={_slug(target.name)}",
        f"SlurmctldHost={head.name if head else 'controller'}({head.address if head else ''})",
        "AuthType=auth/munge",
        "SelectType=select/cons_tres",
        "GresTypes=gpu",
        "TaskPlugin=task/cgroup,task/affinity",
        "ReturnToService=0",
    ]
    if target.spec.config.accounting:
        lines.append("AccountingStorageType=accounting_storage/slurmdbd")
    lines += [_node_line(member) for member in workers(target)]
    nodes = ",".join(member.name for member in workers(target)) or '""'
    lines.append(f"PartitionName=gpu Nodes={nodes} Default=YES MaxTime=INFINITE State=UP")
    extra = target.spec.config.scripts.extra_slurm_conf
    return "\n".join([*lines, *([extra.rstrip("\n")] if extra else [])]) + "\n"


def _node_line(member: Member) -> str:
    gres = f" Gres=gpu:{member.gpu_type.lower()}:{member.gpus}" if member.gpus else ""
    memory_mib = member.memory_gib * 1024
    return f"NodeName={member.name} NodeAddr={member.address} CPUs={member.cpus} RealMemory={memory_mib}{gres}"


def _gres_conf(target: Target) -> str:
    rows = [
        f"NodeName={member.name} Name=gpu Type={member.gpu_type.lower()} File=/dev/nvidia[0-{member.gpus - 1}]\n"
        for member in workers(target)
        if member.gpus
    ]
    return f"{SIMULATED}\n{''.join(rows)}"


def _scripts(scripts: Scripts) -> dict[str, str]:
    """The tenant's own, where they gave any; `extra_slurm_conf` is part of slurm.conf."""
    places = {
        "worker:/etc/slurm/prolog.d/tenant": scripts.worker_prolog,
        "worker:/etc/slurm/epilog.d/tenant": scripts.worker_epilog,
        "controller:/etc/slurm/prolog.d/tenant": scripts.controller_prolog,
        "controller:/etc/slurm/epilog.d/tenant": scripts.controller_epilog,
        "login:/etc/muster/init.d/login": scripts.login_init,
        "worker:/etc/muster/init.d/nodeset": scripts.nodeset_init,
        "all:/etc/muster/init.d/lifecycle": scripts.lifecycle,
    }
    return {place: text for place, text in places.items() if text}


def _kubernetes(target: Target) -> dict[str, str]:
    head = controller(target)
    nodes = [_node_object(member) for member in by_name(target.members)]
    config = msgspec.to_builtins(target.spec.config)
    config.pop("said", None)  # what one dialect must echo is no part of the cluster
    cluster = {
        "apiVersion": "muster.simulated/v1",
        "kind": "Cluster",
        "metadata": {"name": _slug(target.name), "uid": target.cluster_id},
        "spec": {"endpoint": f"https://{head.address if head else ''}:6443", "config": config},
    }
    return {
        "controller:/etc/kubernetes/cluster.json": _json(cluster),
        "controller:/etc/kubernetes/nodes.json": _json({"apiVersion": "v1", "kind": "List", "items": nodes}),
    }


def _node_object(member: Member) -> dict[str, Any]:
    capacity = {"cpu": str(member.cpus), "memory": f"{member.memory_gib}Gi"}
    if member.gpus:
        capacity["nvidia.com/gpu"] = str(member.gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": member.name, "labels": {"muster.role": member.role, "muster.gpu-type": member.gpu_type}},
        "status": {"addresses": [{"type": "InternalIP", "address": member.address}], "capacity": capacity},
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-") or "cluster"

"""Commands that a *client* will run in its shell, and the way into nodes.

*Law.* A command is made of constants and of what the house itself gave: ids, node names, addresses, ports. Never a
name, a pattern or a path of somebody's; each word is quoted all the same.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from muster.contracts.jobs import files_of
from muster.core.clusters.snapshot import ClusterView
from muster.errors import Invalid, Unsupported, WrongPhase
from muster.model.clusters import Cluster, NodeRole
from muster.model.phases import SERVING

_OURS: Final = re.compile(r"[\w.:%@/=+-]+", re.A)
_KEY_PATH: Final = re.compile(r"[\w.~/+@ -]{1,512}")


def ssh_command(view: ClusterView, node_id: str) -> str:
    """Into the node itself when the cluster's door leads there, else through the login node."""
    cluster, facts = view.cluster, view.cluster.status.access
    node = next(node for node in view.nodes if node.id == node_id)
    _require_door(cluster)
    door = _ssh(cluster)
    if node.name == facts.login_name or node.role is NodeRole.LOGIN:
        return _joined([*door, f"{facts.ssh_user}@{facts.ssh_host}"])
    through = _joined([*door, "-W", "%h:%p", f"{facts.ssh_user}@{facts.ssh_host}"])
    inner = ["ssh", *_trusting(f"{cluster.id}-{node.name}"), "-o", f"ProxyCommand={through}"]
    return shlex.join([*inner, f"{facts.ssh_user}@{node.name}"])


def upload_command(cluster: Cluster, job_id: str) -> str:
    """The directory one stands in, to the job's; by rsync, or tar where there is none."""
    _require_door(cluster)
    facts = cluster.status.access
    place = files_of(job_id)
    ssh = _joined([*_ssh(cluster), "-o", "BatchMode=yes"])
    whither = f"{facts.ssh_user}@{facts.ssh_host}"
    made = f"mkdir -p {place}"
    sync = ["rsync", "-az", "-e", ssh, f"--rsync-path={made} && rsync", "./", f"{whither}:{place}/"]
    tar = f"tar -czf - . | {ssh} {_joined([whither])} {shlex.quote(f'{made} && tar -xzf - -C {place}')}"
    return f"if command -v rsync >/dev/null; then {shlex.join(sync)}; else {tar}; fi"


def download_command(cluster: Cluster, job_id: str, key_path: str | None) -> str:
    """What a running job has so far, into a directory of its name. The key is the caller's word, told back to it."""
    _require_door(cluster)
    facts = cluster.status.access
    key = [] if key_path is None else ["-i", _key(key_path)]
    ssh = shlex.join([*_ssh(cluster), *key, "-o", "BatchMode=yes"])
    return shlex.join(
        ["rsync", "-az", "-e", ssh, f"{facts.ssh_user}@{facts.ssh_host}:{files_of(job_id)}/", f"./{job_id}/"]
    )


def _require_door(cluster: Cluster) -> None:
    if cluster.phase not in SERVING or not cluster.status.access.ssh_host:
        raise WrongPhase(f"cluster {cluster.name} is {cluster.phase}", hint="wait until it is RUNNING")
    if cluster.status.access.simulated:
        raise Unsupported("this fleet is simulated: there is no machine to log in to")


def _ssh(cluster: Cluster) -> list[str]:
    return ["ssh", *_trusting(cluster.id), "-p", str(cluster.status.access.ssh_port)]


def _trusting(alias: str) -> list[str]:
    """Host keys are remembered under the cluster's id: ports and addresses are given again to others."""
    return ["-o", f"HostKeyAlias={alias}", "-o", "StrictHostKeyChecking=accept-new"]


def _joined(words: list[str]) -> str:
    """Words of ours, none of which a shell could take for anything else."""
    for word in words:
        if not _OURS.fullmatch(word):
            raise ValueError(f"{word!r} is not fit for somebody's shell")
    return shlex.join(words)


def _key(path: str) -> str:
    if not _KEY_PATH.fullmatch(path) or path.startswith("-"):
        raise Invalid("this is no path of a private key", field="private_key_path")
    return path

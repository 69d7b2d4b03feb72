"""`muster ssh CLUSTER [COMMAND]`: in, with a key of this command line's own, and as ssh from there on.

*Laws.* The key is made once, beside the profiles, and never leaves; the server learns its public half only. A cluster
that does not know it yet is told, and entered when it has taken it in. What follows is ssh itself: its exit code,
its terminal, its signals.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click

from muster.cli.ending import FAILED, REFUSED, Ended
from muster.cli.target import config_path
from muster.cli.verb import Session, Verb, timeout_option


@click.command("ssh", cls=Verb, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name_or_id")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@timeout_option
@click.pass_obj
def ssh(session: Session, name_or_id: str, command: tuple[str, ...], timeout: float) -> None:
    """Log in to a cluster, or run a command on its login node."""
    cluster = session.client.clusters.find(name_or_id)
    if cluster.get("simulated"):
        raise Ended(f"{cluster['name']} is simulated: there is nothing to log in to", REFUSED)
    key = own_key(config_path(os.environ).parent)
    cluster = known_there(session, cluster, key.with_suffix(".pub").read_text().strip(), timeout)
    facts = session.client.clusters.access(cluster["id"])
    if not facts.get("ssh_port"):
        raise Ended(f"{cluster['name']} is {cluster['phase']}: no way in yet", FAILED, "muster cluster wait")
    session.close()
    arguments = ssh_arguments(cluster["id"], facts, key, command)
    os.execvp(arguments[0], arguments)  # noqa: S606


def own_key(directory: Path) -> Path:
    key = directory / "id_ed25519"
    if not key.exists():
        if shutil.which("ssh-keygen") is None:
            raise Ended("ssh is not installed here", FAILED, "apt-get install openssh-client")
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        comment = f"muster@{os.uname().nodename}"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(key)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)  # noqa: S603
    return key


def known_there(session: Session, cluster: dict[str, Any], public: str, timeout: float) -> dict[str, Any]:
    """The cluster once it lets this key in."""
    known = list(cluster.get("ssh_keys") or ())
    if public.split()[1] in " ".join(known).split():
        return cluster
    session.client.ssh_keys.create(name=f"muster on {os.uname().nodename}", public_key=public)
    session.client.clusters.update(cluster["id"], ssh_keys=[*known, public])
    waited: dict[str, Any] = session.client.clusters.wait(cluster["id"], timeout)
    return waited


def ssh_arguments(id: str, facts: dict[str, Any], key: Path, command: tuple[str, ...]) -> list[str]:
    options = {
        "IdentitiesOnly": "yes",
        "HostKeyAlias": id,
        "UserKnownHostsFile": str(key.parent / "known_hosts"),
        "StrictHostKeyChecking": "accept-new",
        "LogLevel": "ERROR",
    }
    said = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return [
        "ssh",
        "-i",
        str(key),
        *said,
        "-p",
        str(facts["ssh_port"]),
        f"{facts['ssh_user']}@{facts['ssh_host']}",
        *command,
    ]

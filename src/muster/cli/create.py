"""`cluster create`: everything has a default but the name."""

from __future__ import annotations

from shlex import quote
from typing import Any

import click

from muster.cli.ending import USAGE, Ended, as_typed
from muster.cli.files import read_data, read_text
from muster.cli.show import Thing, emit, facts
from muster.cli.verb import Session, Verb, project_id, project_option, timeout_option, wait_option
from muster.cli.watch import title, watch_to_rest


def mount_of(session: Session, text: str) -> Thing:
    """NAME_OR_ID[:PATH[:ro]]."""
    name, _, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if mode not in ("", "ro", "rw"):
        raise Ended(f"{text!r} is no mount", USAGE, "NAME, NAME:/path or NAME:/path:ro")
    return {"volume_id": session.client.volumes.find(name)["id"], "path": path, "read_only": mode == "ro"}


def mounts_of(session: Session, name: str, volumes: tuple[str, ...], new_size: int | None) -> list[Thing]:
    mounts = [mount_of(session, text) for text in volumes]
    if new_size is not None:
        mounts.append({"new": {"name": f"{name}-data", "size_gib": new_size}})
    return mounts


def named_ids(session: Session, of: str, names: tuple[str, ...]) -> list[str]:
    return [getattr(session.client, of).find(name)["id"] for name in names]


def body_from(file: str | None) -> Thing:
    if file is None:
        return {}
    data = read_data(file)
    if not isinstance(data, dict):
        raise Ended(f"{file} must hold the fields of one cluster", USAGE)
    return data


@click.command("create", cls=Verb)
@click.argument("name")
@click.option(
    "--type", "type_", type=click.Choice(["slurm", "kubernetes"]), help="What it becomes.  [default: slurm]"
)
@click.option("--gpus", type=click.IntRange(1), help="In all.  [default: 8]")
@click.option("--gpu-type", help="See `muster catalog list gpu-type`.  [default: H100_SXM]")
@click.option(
    "--gpus-per-node", type=click.IntRange(1), help="1, 2, 4 or 8; fewer than 8 share a host.  [default: 8]"
)
@click.option(
    "--autoscale-max", type=click.IntRange(1), help="GPUs it may grow to by itself while jobs wait for them."
)
@click.option(
    "--preemptible",
    "preemptible_gpus",
    type=click.IntRange(0),
    metavar="GPUS",
    help="So many more while hosts are idle; they are given back after notice.",
)
@click.option("--region", help="Where; the one with most room when not given.")
@click.option("--image", "image_id", help="The newest of the region when not given.")
@click.option(
    "--volume", "volumes", multiple=True, metavar="NAME[:PATH[:ro]]", help="Mount a volume; may be repeated."
)
@click.option("--new-volume-size", type=click.IntRange(1), metavar="GIB", help="Make a volume with it and mount it.")
@click.option("--ssh-key", "ssh_keys", multiple=True, metavar="FILE", help="Let this public key in; may be repeated.")
@click.option("--security-group", "groups", multiple=True, help="By name or id; may be repeated.")
@click.option("--reserved-ip", help="An address of yours, by id.")
@click.option("--ends-at", help="When it may end by itself, as 2026-05-01T12:00:00Z.")
@click.option("--starts-at", help="When it is to be ready, as 2026-05-01T12:00:00Z; needs --ends-at.")
@click.option("--days", "duration_days", type=float, help="Reserve it for so many days from its being ready.")
@click.option("--pool", help="Hosts set apart for you, by the pool's name or id.")
@click.option("--pool-gpus", type=click.IntRange(0), help="So many of its GPUs from the pool; all when not given.")
@click.option("--reserved-gpus", type=int, help="With --days: reserve only so many of its GPUs; the rest on demand.")
@click.option("--quote", "quote_id", help="A quote or reservation to draw from, by id.")
@click.option("--queue", is_flag=True, help="When it is not free now, wait in turn; explain says until when.")
@click.option("--single-node", is_flag=True, help="One instance that is its own controller.")
@click.option("--failover", is_flag=True, help="Replace dead workers without asking.")
@click.option("--protect", is_flag=True, help="Refuse deletion until unprotected.")
@click.option("--skip-tests", is_flag=True, help="Ready without acceptance tests.")
@click.option("--file", "-f", help="More fields, from YAML or JSON; flags win over them.")
@project_option
@wait_option
@timeout_option
@click.pass_obj
def create(session: Session, /, name: str, wait: bool, timeout: float, **flags: Any) -> None:
    """Make a cluster. Everything but its NAME has a default."""
    made = session.client.clusters.create(**body(session, name, flags))
    if not wait:
        emit(session.output, made, lambda: f"{title(made)}\n{accepted(made)}")
        return
    rested = watch_to_rest(session, made["id"], timeout)
    emit(session.output, rested, lambda: way_in(rested))


def body(session: Session, name: str, flags: dict[str, Any]) -> Thing:
    """The wish as it goes over the wire: what was said by flag, over the file's fields, over the defaults."""
    said = {
        "type": flags["type_"],
        "gpus": flags["gpus"],
        "gpu_type": flags["gpu_type"],
        "gpus_per_node": flags["gpus_per_node"],
        "autoscale": {"max_gpus": flags["autoscale_max"]} if flags["autoscale_max"] else None,
        "preemptible_gpus": flags["preemptible_gpus"],
        "region": flags["region"],
        "image_id": flags["image_id"],
        "ends_at": flags["ends_at"],
        "starts_at": flags["starts_at"],
        "duration_days": flags["duration_days"],
        "reserved_gpus": flags["reserved_gpus"],
        "billing": billing_of(flags),
        "pool_id": session.client.pools.find(flags["pool"])["id"] if flags["pool"] else None,
        "pool_gpus": flags["pool_gpus"],
        "quote_id": flags["quote_id"],
        "queue": flags["queue"] or None,
        "reserved_ip_id": flags["reserved_ip"],
        "project_id": project_id(session, flags["project"]),
        "single_node": flags["single_node"] or None,
        "failover": flags["failover"] or None,
        "deletion_protection": flags["protect"] or None,
        "acceptance": {"enabled": False} if flags["skip_tests"] else None,
        "ssh_keys": [read_text(file).strip() for file in flags["ssh_keys"]] or None,
        "security_group_ids": named_ids(session, "security_groups", flags["groups"]) or None,
        "mounts": mounts_of(session, name, flags["volumes"], flags["new_volume_size"]) or None,
    }
    default = {"type": "slurm", "gpus": 8, "gpu_type": "H100_SXM"}
    given = {field: value for field, value in said.items() if value is not None}
    return with_node_size({**default, **body_from(flags["file"]), **given, "name": name})


def billing_of(flags: dict[str, Any]) -> str | None:
    """What the words about time mean; nothing said is on demand."""
    if flags["starts_at"]:
        return "scheduled"
    return "reserved" if flags["duration_days"] else None


def with_node_size(wish: Thing) -> Thing:
    """Whoever asks for 1, 2 or 4 GPUs means a slice of a host, not a fraction of a whole one."""
    if wish["gpus"] in (1, 2, 4) and not wish.get("gpus_per_node"):
        return {**wish, "gpus_per_node": wish["gpus"]}
    return wish


def accepted(made: Thing) -> str:
    wait = as_typed(f"muster cluster wait {quote(made['name'])}")
    return f"accepted, now {made['phase']}; watch it with: {wait}"


def way_in(cluster: Thing) -> str:
    """What to type next, once it is there."""
    access, name = cluster.get("access") or {}, quote(cluster["name"])
    if cluster.get("simulated") or not access:
        return "ready; look at it with: " + as_typed(f"muster cluster show {name}")
    if access.get("kube_api"):
        get = as_typed(f"muster cluster kubeconfig {name}")
        return f"{get} > kubeconfig && kubectl --kubeconfig kubeconfig get nodes"
    if access.get("ssh_host"):
        return f"ssh -p {access.get('ssh_port') or 22} {access.get('ssh_user')}@{access['ssh_host']}"
    return facts(access, [(name.upper(), name) for name in access])

"""cluster: make, look at, change and end clusters."""

from __future__ import annotations

import click

from muster.cli.create import body_from, create
from muster.cli.nouns import Shown, add_list
from muster.cli.show import Column, Thing, age, emit, facts, table
from muster.cli.told import explained
from muster.cli.verb import Session, Verb, group, timeout_option, wait_option, yes_option
from muster.cli.watch import watch_to_end, watch_to_rest


def size(cluster: Thing) -> str:
    return f"{cluster['gpus']} × {cluster['gpu_type']}"


def autoscale(cluster: Thing) -> str:
    said = cluster.get("autoscale")
    return f"{said['gpus']} of at most {said['max_gpus']} GPUs" if said else ""


def preemptible(cluster: Thing) -> str:
    lent = cluster["preemptible"]
    return f"{lent['allocated']} of {lent['wished']} GPUs wished for" if any(lent.values()) else ""


def given_back(node: Thing) -> str:
    """On what terms a node is held, if not on its cluster's own."""
    if node["share"] != "preemptible":
        return "" if node["share"] == "own" else node["share"]
    return f"preemptible until {node['reclaim_at']}" if node["reclaim_at"] else "preemptible"


CLUSTER = Shown(
    "cluster",
    lambda client: client.clusters,
    [
        ("NAME", "name"),
        ("PHASE", "phase"),
        ("TYPE", "type"),
        ("GPUS", size),
        ("REGION", "region"),
        ("BECAUSE", "because"),
        ("ID", "id"),
    ],
    [
        ("NAME", "name"),
        ("ID", "id"),
        ("PHASE", "phase"),
        ("SINCE", "phase_since"),
        ("BECAUSE", "because"),
        ("STUCK", "stuck"),
        ("TYPE", "type"),
        ("GPUS", size),
        ("PREEMPTIBLE", preemptible),
        ("WORKERS", "workers"),
        ("AUTOSCALE", autoscale),
        ("POOL", "pool_id"),
        ("POOL GPUS", "pool_gpus"),
        ("INSTANCE TYPE", "instance_type"),
        ("REGION", "region"),
        ("IMAGE", "image_id"),
        ("BILLING", "billing"),
        ("FAILOVER", "failover"),
        ("PROTECTED", "deletion_protection"),
        ("CONDITIONS", lambda c: [f"{held['type']}: {held['message']}" for held in c.get("conditions", [])]),
        ("VOLUMES", lambda c: [f"{v['name']} on {v['mount_path']}" for v in c.get("volumes", [])]),
        ("SIMULATED", "simulated"),
        ("CREATED", "created_at"),
    ],
)


@group("cluster", "Clusters: Slurm and Kubernetes, made, resized, watched and ended.")
def cluster() -> None: ...


cluster.add_command(create)
add_list(cluster, CLUSTER)


def node_table(session: Session, nodes: list[Thing]) -> str:
    columns: list[Column] = [
        ("NODE", "name"),
        ("ROLE", "role"),
        ("PHASE", "phase"),
        ("FOR", age("phase_since", session.now())),
        ("HOST", "host_name"),
        ("ADDRESS", "address"),
        ("GPUS", "gpus"),
        ("SHARE", given_back),
        ("BECAUSE", "because"),
    ]
    return table(nodes, columns) if nodes else "no nodes"


def whole(session: Session, found: Thing) -> None:
    """A cluster and its nodes."""
    emit(
        session.output,
        found,
        lambda: facts(found, CLUSTER.fields) + "\n\n" + node_table(session, found.get("nodes", [])),
    )


@cluster.command("show", cls=Verb)
@click.argument("name_or_id")
@click.pass_obj
def show(session: Session, name_or_id: str) -> None:
    """Show a cluster and its nodes."""
    whole(session, session.client.clusters.find(name_or_id))


@cluster.command("nodes", cls=Verb)
@click.argument("name_or_id")
@click.pass_obj
def nodes(session: Session, name_or_id: str) -> None:
    """List a cluster's nodes."""
    found = session.client.clusters.nodes(session.client.clusters.find(name_or_id)["id"])
    emit(session.output, found, lambda: node_table(session, found))


@cluster.command("explain", cls=Verb)
@click.argument("name_or_id")
@click.pass_obj
def explain(session: Session, name_or_id: str) -> None:
    """Say what a cluster is doing: phase, reason, since when, waiting for what until when, last steps."""
    told = session.client.clusters.explain(session.client.clusters.find(name_or_id)["id"])
    emit(session.output, told, lambda: explained(told, session.now()))


@cluster.command("access", cls=Verb)
@click.argument("name_or_id")
@click.pass_obj
def access(session: Session, name_or_id: str) -> None:
    """How to get in."""
    told = session.client.clusters.access(session.client.clusters.find(name_or_id)["id"])
    session.one(told, [(name.upper().replace("_", " "), name) for name in told])


@cluster.command("kubeconfig", cls=Verb)
@click.argument("name_or_id")
@click.pass_obj
def kubeconfig(session: Session, name_or_id: str) -> None:
    """Print the kubeconfig of a Kubernetes cluster."""
    click.echo(session.client.clusters.kubeconfig(session.client.clusters.find(name_or_id)["id"]).rstrip("\n"))


@cluster.command("wait", cls=Verb)
@click.argument("name_or_id")
@click.option("--gone", is_flag=True, help="Until it is gone, not until it rests.")
@timeout_option
@click.pass_obj
def wait(session: Session, name_or_id: str, gone: bool, timeout: float) -> None:
    """Watch a cluster until it rests: ready, degraded, paused or failed (exit code 1)."""
    found = session.client.clusters.find(name_or_id)
    if gone:
        watch_to_end(session, found["id"], timeout)
        session.say(f"cluster {found['name']} is gone")
    else:
        done(session, found, True, timeout)


def done(session: Session, changed: Thing, wait: bool, timeout: float) -> None:
    """After a wish: say how it stands, or watch it come true."""
    if wait:
        rested = watch_to_rest(session, changed["id"], timeout)
        emit(session.output, rested, lambda: "")
    else:
        emit(session.output, changed, lambda: facts(changed, CLUSTER.columns))


@cluster.command("update", cls=Verb)
@click.argument("name_or_id")
@click.option("--gpus", type=click.IntRange(1), help="The new total.")
@click.option("--autoscale-max", type=click.IntRange(0), help="GPUs it may grow to by itself; 0 = none but its own.")
@click.option("--preemptible", "preemptible_gpus", type=click.IntRange(0), help="More, while hosts are idle.")
@click.option("--pool-gpus", type=click.IntRange(0), help="So many of its GPUs from its pool.")
@click.option("--failover/--no-failover", default=None, help="Replace dead workers without asking.")
@click.option("--protect/--no-protect", "deletion_protection", default=None, help="Refuse deletion.")
@click.option("--image", "image_id", help="Another image.")
@click.option("--force", is_flag=True, help="Shrink without waiting for running jobs.")
@click.option("--file", "-f", help="More fields, like config, from YAML or JSON; flags win over them.")
@click.option("--if-version", type=int, help="Only if nobody changed it since.")
@wait_option
@timeout_option
@click.pass_obj
def update(
    session: Session,
    name_or_id: str,
    gpus: int | None,
    autoscale_max: int | None,
    preemptible_gpus: int | None,
    pool_gpus: int | None,
    failover: bool | None,
    deletion_protection: bool | None,
    image_id: str | None,
    force: bool,
    file: str | None,
    if_version: int | None,
    wait: bool,
    timeout: float,
) -> None:
    """Change a cluster; what is not named stays."""
    found = session.client.clusters.find(name_or_id)
    said = {
        "gpus": gpus,
        "autoscale": None if autoscale_max is None else {"max_gpus": autoscale_max},
        "preemptible_gpus": preemptible_gpus,
        "pool_gpus": pool_gpus,
        "failover": failover,
        "deletion_protection": deletion_protection,
        "image_id": image_id,
        "force": force or None,
    }
    given = {field: value for field, value in said.items() if value is not None}
    changed = session.client.clusters.update(found["id"], if_version=if_version, **{**body_from(file), **given})
    done(session, changed, wait, timeout)


@cluster.command("resize", cls=Verb)
@click.argument("name_or_id")
@click.argument("gpus", type=click.IntRange(1))
@click.option("--force", is_flag=True, help="Shrink without waiting for running jobs.")
@wait_option
@timeout_option
@click.pass_obj
def resize(session: Session, name_or_id: str, gpus: int, force: bool, wait: bool, timeout: float) -> None:
    """Grow or shrink a cluster to GPUS in all."""
    found = session.client.clusters.find(name_or_id)
    done(session, session.client.clusters.resize(found["id"], gpus, force=force), wait, timeout)


@cluster.command("pause", cls=Verb)
@click.argument("name_or_id")
@yes_option
@wait_option
@timeout_option
@click.pass_obj
def pause(session: Session, name_or_id: str, yes: bool, wait: bool, timeout: float) -> None:
    """Stop a cluster's nodes; its volumes and its name stay."""
    found = session.client.clusters.find(name_or_id)
    session.confirm(f"Pause {found['name']}? What runs on it ends.", yes)
    done(session, session.client.clusters.pause(found["id"]), wait, timeout)


@cluster.command("resume", cls=Verb)
@click.argument("name_or_id")
@wait_option
@timeout_option
@click.pass_obj
def resume(session: Session, name_or_id: str, wait: bool, timeout: float) -> None:
    """Start a paused cluster again."""
    found = session.client.clusters.find(name_or_id)
    done(session, session.client.clusters.resume(found["id"]), wait, timeout)


@cluster.command("restart", cls=Verb)
@click.argument("name_or_id")
@click.option("--all", "control", is_flag=True, help="The controller and the login node too.")
@yes_option
@wait_option
@timeout_option
@click.pass_obj
def restart(session: Session, name_or_id: str, control: bool, yes: bool, wait: bool, timeout: float) -> None:
    """Boot a cluster's workers anew, in place."""
    found = session.client.clusters.find(name_or_id)
    session.confirm(f"Restart {found['name']}? What runs on it ends.", yes)
    done(session, session.client.clusters.restart(found["id"], control=control), wait, timeout)


@cluster.command("delete", cls=Verb)
@click.argument("names_or_ids", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Without waiting for running jobs.")
@yes_option
@wait_option
@timeout_option
@click.pass_obj
def delete(
    session: Session, names_or_ids: tuple[str, ...], force: bool, yes: bool, wait: bool, timeout: float
) -> None:
    """Delete clusters. Their volumes stay unless they were made to go with them."""
    found = [session.client.clusters.find(name) for name in names_or_ids]
    names = ", ".join(thing["name"] for thing in found)
    session.confirm(f"Delete {names}? What runs there ends.", yes)
    for thing in found:
        session.client.clusters.delete(thing["id"], force=force)
    for thing in found if wait else ():
        watch_to_end(session, thing["id"], timeout)
    session.say(f"{names} {'gone' if wait else 'being deleted'}")


@cluster.command("mount", cls=Verb)
@click.argument("name_or_id")
@click.argument("volume")
@click.option("--path", default="", help="Where; the default place when not given.")
@click.option("--read-only", is_flag=True)
@click.pass_obj
def mount(session: Session, name_or_id: str, volume: str, path: str, read_only: bool) -> None:
    """Mount a volume on a cluster."""
    found = session.client.clusters.find(name_or_id)
    volume_id = session.client.volumes.find(volume)["id"]
    session.client.clusters.mount(found["id"], volume_id, path, read_only=read_only)
    session.say(f"{volume} is being mounted on {found['name']}")


@cluster.command("unmount", cls=Verb)
@click.argument("name_or_id")
@click.argument("volume")
@yes_option
@click.pass_obj
def unmount(session: Session, name_or_id: str, volume: str, yes: bool) -> None:
    """Take a volume off a cluster; the volume stays."""
    found = session.client.clusters.find(name_or_id)
    volume_id = session.client.volumes.find(volume)["id"]
    session.confirm(f"Unmount {volume} from {found['name']}?", yes)
    session.client.clusters.unmount(found["id"], volume_id)
    session.say(f"{volume} is being unmounted from {found['name']}")

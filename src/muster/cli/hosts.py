"""host, fleet: the operator's machines."""

from __future__ import annotations

import click

from muster.cli.files import read_list
from muster.cli.nouns import Shown, add_show
from muster.cli.show import Thing
from muster.cli.verb import Session, Verb, group, limit_option

CHUNK = 1_000


def state(host: Thing) -> str:
    return "cordoned" if host.get("cordoned") else str(host.get("health", "-"))


HOST = Shown(
    "host",
    lambda client: client.hosts,
    [
        ("NAME", "name"),
        ("STATE", state),
        ("REGION", "region"),
        ("POD", "pod"),
        ("LEAF", "leaf"),
        ("ROLE", "role"),
        ("GPU TYPE", "gpu_type"),
        ("SLOTS", "slots"),
        ("CORDON", "cordon_reason"),
    ],
    [
        ("NAME", "name"),
        ("ID", "id"),
        ("STATE", state),
        ("REGION", "region"),
        ("POD", "pod"),
        ("LEAF", "leaf"),
        ("ROLE", "role"),
        ("GPU TYPE", "gpu_type"),
        ("SLOTS", "slots"),
        ("CPUS", "cpus"),
        ("MEMORY GIB", "memory_gib"),
        ("SUBSTRATE", "substrate"),
        ("CORDON", "cordon_reason"),
        ("POOL", "pool_id"),
        ("CREATED", "created_at"),
    ],
    operator=True,
    by_project=False,
)


@group("host", "Hosts: the operator's machines.")
def host() -> None: ...


add_show(host, HOST)


@host.command("list", cls=Verb, operator=True)
@click.option("--region", help="Only those there.")
@click.option("--role", type=click.Choice(["gpu", "control"]), help="Only those of this kind.")
@limit_option
@click.pass_obj
def list_hosts(session: Session, region: str | None, role: str | None, limit: int | None) -> None:
    """List hosts."""
    session.rows(session.client.hosts.list(region=region, role=role, limit=limit), HOST.columns, none="no hosts")


@host.command("import", cls=Verb, operator=True)
@click.argument("file")
@click.pass_obj
def import_hosts(session: Session, file: str) -> None:
    """Enrol or change hosts from a YAML or JSON FILE ('-' reads standard input).

    \b
    hosts:
      - {name: gpu-1, region: us-central-8, pod: pod-0, leaf: leaf-0, gpu_type: H100_SXM,
         slots: 8, cpus: 208, memory_gib: 1800}
    """
    hosts = read_list(file, "hosts")
    made: list[Thing] = []
    for start in range(0, len(hosts), CHUNK):
        made += session.client.hosts.import_hosts(hosts[start : start + CHUNK])
    session.rows(made, HOST.columns, none="the file names no hosts")


@host.command("cordon", cls=Verb, operator=True)
@click.argument("name_or_id")
@click.option("--reason", default="by hand", show_default=True, help="Why: told to whoever asks.")
@click.pass_obj
def cordon(session: Session, name_or_id: str, reason: str) -> None:
    """Put nothing new on a host; what runs there goes on."""
    session.one(session.client.hosts.cordon(session.client.hosts.find(name_or_id)["id"], reason), HOST.columns)


@host.command("uncordon", cls=Verb, operator=True)
@click.argument("name_or_id")
@click.pass_obj
def uncordon(session: Session, name_or_id: str) -> None:
    """Let a host be used again."""
    session.one(session.client.hosts.uncordon(session.client.hosts.find(name_or_id)["id"]), HOST.columns)


@click.command("fleet", cls=Verb)
@click.pass_obj
def fleet(session: Session) -> None:
    """What this server runs on, and whether it is simulated."""
    told = session.client.fleet()
    session.one(told, [(name.upper().replace("_", " "), name) for name in told])

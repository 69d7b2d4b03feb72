"""pool: hosts that the operator sets apart for an account or a project."""

from __future__ import annotations

from dataclasses import replace

import click

from muster.cli.hosts import HOST
from muster.cli.nouns import Shown, add_delete, add_list, add_show
from muster.cli.verb import Session, Verb, group

POOL = Shown(
    "pool",
    lambda client: client.pools,
    [
        ("NAME", "name"),
        ("REGION", "region"),
        ("GPU TYPE", "gpu_type"),
        ("FREE", "free_gpus"),
        ("GPUS", "gpus"),
        ("ACCOUNT", "account_id"),
        ("PROJECT", "project_id"),
        ("ID", "id"),
    ],
    by_project=False,
)


@group("pool", "Pools: hosts set apart for an account or a project, drawn from by id.")
def pool() -> None: ...


add_list(pool, POOL)
add_show(pool, POOL)
add_delete(pool, replace(POOL, operator=True))


@pool.command("create", cls=Verb, operator=True)
@click.argument("name")
@click.option("--region", required=True, help="Where its hosts are.")
@click.option("--gpu-type", default="H100_SXM", show_default=True)
@click.option("--account", help="For all projects of this account, by name or id.")
@click.option("--project", help="For this project alone, by name or id.")
@click.option("--hosts", "count", type=click.IntRange(0), default=0, help="Set so many free hosts apart at once.")
@click.pass_obj
def create(
    session: Session, name: str, region: str, gpu_type: str, account: str | None, project: str | None, count: int
) -> None:
    """Set hosts apart for an account or a project."""
    client = session.client
    made = client.pools.create(
        name=name,
        region=region,
        gpu_type=gpu_type,
        account_id=client.accounts.find(account)["id"] if account else None,
        project_id=client.projects.find(project)["id"] if project else None,
    )
    if count:
        made = client.pools.add_hosts(made["id"], [], count)
    session.one(made, POOL.columns)


@pool.command("hosts", cls=Verb, operator=True)
@click.argument("name_or_id")
@click.pass_obj
def hosts(session: Session, name_or_id: str) -> None:
    """List a pool's hosts."""
    found = session.client.pools.find(name_or_id)
    session.rows(session.client.hosts.list(pool_id=found["id"]), HOST.columns, none="no hosts")


@pool.command("add-host", cls=Verb, operator=True)
@click.argument("name_or_id")
@click.argument("names", nargs=-1)
@click.option("--hosts", "count", type=click.IntRange(0), default=0, help="So many others that are free.")
@click.pass_obj
def add_host(session: Session, name_or_id: str, names: tuple[str, ...], count: int) -> None:
    """Set hosts apart: NAMES, or so many that are free. A host in use cannot join."""
    found = session.client.pools.find(name_or_id)
    session.one(session.client.pools.add_hosts(found["id"], list(names), count), POOL.columns)


@pool.command("remove-host", cls=Verb, operator=True)
@click.argument("name_or_id")
@click.argument("host")
@click.pass_obj
def remove_host(session: Session, name_or_id: str, host: str) -> None:
    """Give a free host back to everybody."""
    found = session.client.pools.find(name_or_id)
    session.one(session.client.pools.remove_host(found["id"], host), POOL.columns)

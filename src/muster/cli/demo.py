"""`muster demo`: the whole story in one command, on a home of its own that is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from muster.cli import local
from muster.cli.down import await_end, end
from muster.cli.target import Asked, key_in_home
from muster.cli.verb import Session
from muster.cli.watch import watch_to_rest

TIME_SCALE = "20"
CAN_DO = """
This is a simulated fleet, {scale} times faster than a real one. In another terminal:

  export MUSTER_HOME={home}
  {muster} cluster list                      what there is
  {muster} cluster create mine --gpus 16 --wait
  {muster} cluster resize demo 32 --wait     a resize never leaves ready
  {muster} cluster explain demo              phase, reason, waiting for what
  {muster} fault host-death {host}
                                             kill a host under it, and watch
  {muster} event follow                      everything as it happens
  {muster} capacity                          what is free, where
  eval $({muster} env)                       for scripts: {url}

Ctrl-C takes everything down again."""


@click.command("demo")
@click.option("--once", is_flag=True, help="End when the first cluster is ready, without waiting for Ctrl-C.")
@click.option("--gpus", type=click.IntRange(1), default=16, show_default=True)
@click.option("--type", "type_", type=click.Choice(["slurm", "kubernetes"]), default="slurm", show_default=True)
@click.option("--time-scale", default=TIME_SCALE, show_default=True, help="How much faster than real.")
def demo(once: bool, gpus: int, type_: str, time_scale: str) -> None:
    """Up, a first cluster watched to ready, what it can do; everything is taken down on Ctrl-C."""
    with temporary_home() as home, server_on(home, time_scale) as info:
        click.echo(f"server at {info['url']}, home {home}\n\n$ muster cluster create demo --gpus {gpus} --wait\n")
        session = Session(Asked(url=str(info["url"]), key=key_in_home(home, operator=False)), "table")
        try:
            made = session.client.clusters.create(name="demo", type=type_, gpus=gpus, gpu_type="H100_SXM")
            ready = watch_to_rest(session, made["id"], 600)
            hosts = [node["host_name"] for node in ready["nodes"] if node["role"] == "worker"]
            click.echo(
                CAN_DO.format(
                    muster=os.environ.get("MUSTER_COMMAND", "muster"),
                    scale=time_scale,
                    home=home,
                    url=info["url"],
                    host=hosts[0],
                )
            )
            if not once:
                wait_for_ctrl_c()
        finally:
            session.close()


def wait_for_ctrl_c() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


@contextlib.contextmanager
def temporary_home() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="muster-demo-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def server_on(home: Path, time_scale: str) -> Iterator[dict[str, Any]]:
    """A server that ends its clusters and itself when we leave, also by Ctrl-C or SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    log = home / "server.log"
    flags = ["--port", "0", "--host", "127.0.0.1", "--fleet", "simulated", "--time-scale", time_scale]
    # What the shell says of another server (its database, its keys) is not for this one.
    environ = {name: said for name, said in os.environ.items() if not name.startswith("MUSTER_")}
    child = local.start(home, flags, log, environ)
    try:
        info = local.wait_until_ready(child, home, log)
        yield info
        take_down(home, info)
    except KeyboardInterrupt:
        if child.poll() is None and "info" in locals():
            take_down(home, info)
        raise
    finally:
        local.stop_child(child)
        signal.signal(signal.SIGTERM, before)


def take_down(home: Path, info: dict[str, Any]) -> None:
    click.echo("\ntaking everything down")
    with local.operator_client(home, info) as client:
        clusters = list(client.clusters.list())
        for cluster in clusters:
            end(client, cluster)
        await_end(client.clusters, clusters, "cluster", 60)
    click.echo("nothing is left")

"""`muster demo`: the whole story in one command, on a home of its own that is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from muster.cli import local
from muster.cli.down import await_end, end, leave_machine
from muster.cli.ending import FAILED, Ended
from muster.cli.show import Thing
from muster.cli.target import Asked, key_in_home
from muster.cli.verb import Session
from muster.cli.watch import watch_to_rest
from muster.settings import read

TIME_SCALE = "20"
GPUS_PER_NODE = 8
CAN_DO = """
{fleet} In another terminal:

  export MUSTER_HOME={home}
  {muster} cluster list                      what there is
  {muster} cluster create mine --gpus 16 --wait
  {muster} cluster resize demo 32 --wait     a resize never leaves ready
  {muster} cluster explain demo              phase, reason, waiting for what
  {muster} {trouble}
  {muster} event follow                      everything as it happens
  {muster} capacity                          what is free, where
  eval $({muster} env)                       for scripts: {url}

Ctrl-C takes everything down again."""


@click.command("demo")
@click.option("--once", is_flag=True, help="End when the first cluster is ready, without waiting for Ctrl-C.")
@click.option("--gpus", type=click.IntRange(1), default=16, show_default=True)
@click.option("--type", "type_", type=click.Choice(["slurm", "kubernetes"]), default="slurm", show_default=True)
@click.option(
    "--fleet",
    type=click.Choice(["auto", "local", "simulated"]),
    envvar="MUSTER_FLEET",
    default="auto",
    show_default=True,
    help="Real nodes on this machine where it can carry them, or simulated ones.",
)
@click.option("--time-scale", default=TIME_SCALE, show_default=True, help="How much faster than real, if simulated.")
def demo(once: bool, gpus: int, type_: str, fleet: str, time_scale: str) -> None:
    """Up, a first cluster watched to ready, what it can do; everything is taken down on Ctrl-C."""
    chosen = fleet_for(fleet, type_)
    with temporary_home() as home, server_on(home, chosen, time_scale) as info:
        click.echo(f"server at {info['url']}, home {home}\n\n$ muster cluster create demo --gpus {gpus} --wait\n")
        session = Session(Asked(url=str(info["url"]), key=key_in_home(home, operator=False)), "table")
        try:
            made = session.client.clusters.create(name="demo", type=type_, gpus=gpus, gpu_type="H100_SXM")
            ready = watch_to_rest(session, made["id"], 600)
            if chosen == "local":
                use_it(home, gpus)
            click.echo(what_it_can_do(home, str(info["url"]), ready, time_scale))
            if not once:
                wait_for_ctrl_c()
        finally:
            session.close()


def fleet_for(asked: str, type_: str) -> str:
    """The named one, or real nodes where they can be had, prepared here and now, with progress; else one sentence."""
    if asked == "simulated":
        return asked
    from muster.hostd.launch import prepare

    because = prepare(read({}, os.environ).cache, click.echo)
    if not because and type_ == "kubernetes":
        because = "real Kubernetes nodes are not there yet"
    if because and asked == "local":
        raise Ended(f"no local fleet: {because}", FAILED, "muster demo --fleet simulated")
    if because:
        click.echo(f"simulated fleet: {because}")
    return "simulated" if because else "local"


def use_it(home: Path, gpus: int) -> None:
    """The proof: a job over every node, through ssh, as a user types it."""
    nodes = -(-gpus // GPUS_PER_NODE)
    words = ["ssh", "demo", "srun", f"-N{nodes}", f"--gpus={gpus}", "hostname"]
    click.echo(f"\n$ muster {' '.join(words)}\n")
    # Its own place for the command line's key: it goes with the demo.
    environ = own_environ() | {"MUSTER_HOME": str(home), "XDG_CONFIG_HOME": str(home / "cli")}
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "muster.cli.main", *words], env=environ, capture_output=True, text=True, check=False
    )
    click.echo(done.stdout, nl=False)
    if done.returncode:
        raise Ended(f"srun ended with {done.returncode}: {done.stderr.strip()}", FAILED)


def what_it_can_do(home: Path, url: str, cluster: Thing, time_scale: str) -> str:
    worker = next(node for node in cluster["nodes"] if node["role"] == "worker")
    fleet, trouble = "These nodes are real, their GPUs are not.", "ssh demo                          log in"
    if cluster["simulated"]:
        fleet = f"This is a simulated fleet, {time_scale} times faster than a real one."
        trouble = f"fault host-death {worker['host_name']}\n{' ' * 45}kill a host under it, and watch"
    typed = os.environ.get("MUSTER_COMMAND", "muster")
    return CAN_DO.format(muster=typed, fleet=fleet, trouble=trouble, home=home, url=url)


def own_environ() -> dict[str, str]:
    """What the shell says of another server (database, keys) is not for this one; the cache is everybody's."""
    return {n: said for n, said in os.environ.items() if not n.startswith("MUSTER_") or n == "MUSTER_CACHE"}


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
def server_on(home: Path, fleet: str, time_scale: str) -> Iterator[dict[str, Any]]:
    """A server that ends its clusters and itself when we leave, also by Ctrl-C or SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    log = home / "server.log"
    flags = ["--port", "0", "--host", "127.0.0.1", "--fleet", fleet, "--time-scale", time_scale]
    child = local.start(home, flags, log, own_environ())
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
        leave_machine(home)
        signal.signal(signal.SIGTERM, before)


def take_down(home: Path, info: dict[str, Any]) -> None:
    click.echo("\ntaking everything down")
    with local.operator_client(home, info) as client:
        clusters = list(client.clusters.list())
        for cluster in clusters:
            end(client, cluster)
        await_end(client.clusters, clusters, "cluster", 60)
    click.echo("nothing is left")

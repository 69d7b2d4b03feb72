"""`muster env`: exports for the shell, for our own command and for other providers' unchanged clients."""

from __future__ import annotations

import shlex

import click

from muster.cli.show import emit
from muster.cli.target import Target
from muster.cli.verb import Session, Verb


def native(target: Target) -> dict[str, str]:
    return {"MUSTER_URL": target.url, "MUSTER_API_KEY": target.key}


def together(target: Target) -> dict[str, str]:
    return {"TOGETHER_BASE_URL": target.url, "TOGETHER_API_KEY": target.key}


def tensorpool(target: Target) -> dict[str, str]:
    return {"TENSORPOOL_ENGINE": target.url, "TENSORPOOL_KEY": target.key}


def tir(target: Target) -> dict[str, str]:
    """Its SDK joins paths to the host as it is, so the slash at the end matters."""
    host = f"{target.url}/myaccount/"
    return {"E2E_TIR_API_HOST": host, "E2E_TIR_API_KEY": target.key, "E2E_TIR_ACCESS_TOKEN": target.key}


CLIENTS = {"muster": native, "together": together, "tensorpool": tensorpool, "tir": tir}


@click.command("env", cls=Verb)
@click.argument("client", type=click.Choice(list(CLIENTS)), default="muster")
@click.pass_obj
def env(session: Session, client: str) -> None:
    """Print exports for the shell: eval $(muster env), or eval $(muster env together)."""
    told = CLIENTS[client](session.target)
    emit(
        session.output,
        told,
        lambda: "\n".join(f"export {name}={shlex.quote(value)}" for name, value in told.items()),
    )

"""`muster profile`: servers and keys remembered by name, in a file only its owner may read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from muster.cli.ending import NOT_FOUND, USAGE, Ended
from muster.cli.files import read_text
from muster.cli.show import emit, table
from muster.cli.target import config_path, read_profiles
from muster.cli.verb import group, yes_option


@group("profile", "Profiles: servers and keys remembered by name.")
def profile() -> None: ...


def load() -> dict[str, Any]:
    kept = read_profiles(config_path(os.environ))
    return {"current": kept.get("current"), "profiles": kept.get("profiles") or {}}


def save(kept: dict[str, Any]) -> None:
    """Whole or not at all, and never for a moment readable by others: it holds keys."""
    import yaml

    path = config_path(os.environ)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = Path(f"{path}.{os.getpid()}")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        yaml.safe_dump(kept, file, sort_keys=False)
    beside.replace(path)


def known(kept: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in kept["profiles"]:
        raise Ended(f"there is no profile {name}", NOT_FOUND, "muster profile list")
    found: dict[str, Any] = kept["profiles"][name]
    return found


@profile.command("add")
@click.argument("name")
@click.option("--url", required=True, help="The server's address.")
@click.option("--key-file", help="A file with the API key ('-' reads standard input).")
@click.option("--operator-key-file", help="A file with the operator's key, for the operator's verbs.")
def add(name: str, url: str, key_file: str | None, operator_key_file: str | None) -> None:
    """Remember a server; the first one becomes current. Keys come from files, so that no shell history has them."""
    if not url.startswith(("http://", "https://")):
        raise Ended(f"{url!r} is no address", USAGE, "like https://muster.example.org")
    kept = load()
    entry = {**kept["profiles"].get(name, {}), "url": url.rstrip("/")}
    for field, file in (("api_key", key_file), ("operator_key", operator_key_file)):
        if file:
            entry[field] = read_text(file).strip()
    kept["profiles"][name] = entry
    kept["current"] = kept["current"] or name
    save(kept)
    click.echo(f"profile {name} kept in {config_path(os.environ)}")


@profile.command("use")
@click.argument("name")
def use(name: str) -> None:
    """Make a profile current: used when no local server runs."""
    kept = load()
    known(kept, name)
    save({**kept, "current": name})
    click.echo(f"now using {name}")


@profile.command("list")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table")
def list_profiles(output: str) -> None:
    """List profiles, without their keys."""
    kept = load()
    rows = [
        {"name": name, "url": entry.get("url"), "current": name == kept["current"]}
        for name, entry in kept["profiles"].items()
    ]
    columns = [("NAME", "name"), ("URL", "url"), ("CURRENT", "current")]
    emit(output, rows, lambda: table(rows, columns) if rows else "no profiles")


@profile.command("remove")
@click.argument("name")
@yes_option
def remove(name: str, yes: bool) -> None:
    """Forget a profile and its keys."""
    kept = load()
    known(kept, name)
    if not yes:
        click.confirm(f"Forget profile {name}?", abort=True)
    del kept["profiles"][name]
    kept["current"] = None if kept["current"] == name else kept["current"]
    save(kept)
    click.echo(f"profile {name} forgotten")

"""`muster backup` and `muster restore`: what a home remembers, in one file, and back again.

Leans on the store's copies and on the home's locks. *Laws.* A backup is taken while the server runs and is there
whole or not at all; it holds keys and is 0600. A restore never runs beside a server and never overwrites what it was
not told to; what was there before is kept until everything new lies ready.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import click

from muster.cli.ending import REFUSED, USAGE, Ended
from muster.cli.target import home_path
from muster.cli.verb import yes_option
from muster.homestead import AlreadyRunning, held, make_home
from muster.settings import DEFAULT_HOME
from muster.store.copies import copy_database, is_whole

MEMORY: Final = "muster.db"
DATABASES: Final = (MEMORY, "world.db")
"""The wishes first, the simulated world after: what the world has too much is swept, what it lacks would be lost."""
KEPT: Final = ("operator.key", "tenant.key", "fleet")

home_option = click.option("--home", help=f"Whose (MUSTER_HOME).  [default: {DEFAULT_HOME}]")


@click.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@home_option
def backup(file: Path, home: str | None) -> None:
    """Write what a home remembers to FILE (.tar.gz): accounts, clusters, ledger, events, keys. The server may run.

    What lies on volumes is not in it, nor are nodes. A server on PostgreSQL is backed up with pg_dump.
    """
    where = home_path(home, os.environ)
    if not (where / MEMORY).exists():
        raise Ended(f"{where} holds no database", USAGE, "a server on PostgreSQL is backed up with pg_dump")
    if file.exists():
        raise Ended(f"{file} is there already", REFUSED, "choose another name")
    part = file.with_name(f".{file.name}.part")
    try:
        with tempfile.TemporaryDirectory(prefix="muster-backup-") as folder:
            names = _gather(where, Path(folder))
            _pack(part, Path(folder), names)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    click.echo(
        f"{file}: {', '.join(names)} ({file.stat().st_size / 1e6:.1f} MB). It holds keys: keep it to yourself."
    )


def _gather(home: Path, folder: Path) -> list[str]:
    databases = [name for name in DATABASES if (home / name).exists()]
    for name in databases:
        copy_database(home / name, folder / name)
    texts = [name for name in KEPT if (home / name).exists()]
    for name in texts:
        shutil.copyfile(home / name, folder / name)
    return databases + texts


def _pack(file: Path, folder: Path, names: list[str]) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name in names:
                archive.add(folder / name, arcname=name)
        out.flush()
        os.fsync(out.fileno())


@click.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@home_option
@yes_option
def restore(file: Path, home: str | None, yes: bool) -> None:
    """Make a home what it was when FILE was written. The server must be down; the next `muster up` goes on from it.

    Real nodes that the backup does not know are taken down by that next start, and clusters whose nodes are gone are
    mended or end as they would after a power cut.
    """
    where = home_path(home, os.environ)
    if (where / MEMORY).exists() and not yes:
        click.confirm(f"{where} has a database: replace it with what is in {file}?", abort=True)
    make_home(where)
    try:
        with held(where, answers=True, moves=True):
            names = _put_back(file, where)
    except AlreadyRunning as running:
        raise Ended(str(running), REFUSED, "muster down --keep-clusters, then once more") from None
    click.echo(f"{where} is as it was: {', '.join(names)}. Now: muster up")


def _put_back(file: Path, home: Path) -> list[str]:
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=home) as folder:
        names = _unpack(file, Path(folder))
        for name in names:
            if name in DATABASES and not is_whole(Path(folder) / name):
                raise Ended(f"{file}: {name} in it is damaged", USAGE)
        owner = home.stat()
        for name in names:
            ready = Path(folder) / name
            ready.chmod(0o600)
            if os.geteuid() == 0:
                os.chown(ready, owner.st_uid, owner.st_gid)
            for left in ("-wal", "-shm"):
                (home / f"{name}{left}").unlink(missing_ok=True)
            ready.replace(home / name)
    return names


def _unpack(file: Path, folder: Path) -> list[str]:
    """Only what a backup holds, by name, as plain files: an archive from elsewhere writes nowhere else."""
    try:
        with tarfile.open(file, mode="r:gz") as archive:
            wanted = [member for member in archive if member.isfile() and member.name in (*DATABASES, *KEPT)]
            archive.extractall(folder, members=wanted, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise Ended(f"{file} is no backup of Muster: {error}", USAGE) from None
    names = [member.name for member in wanted]
    if MEMORY not in names:
        raise Ended(f"{file} is no backup of Muster: {MEMORY} is not in it", USAGE)
    return names

"""The first start: a catalogue and a fleet to begin with, an operator's key, a demo tenant and its key.

Leans on core's services, speaking as the system. *Laws.* Every step looks before it writes, so a start that was cut
short is finished by the next; what the operator removed or revoked does not come back by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from muster.contracts.store import Find
from muster.core.demo import demo_catalog, demo_hosts
from muster.core.hosts.rules import HostSpec
from muster.core.house import House
from muster.errors import CallError, Unauthenticated
from muster.homestead import keep, kept
from muster.model.accounts import SYSTEM, Account, ApiKey, Project, Role
from muster.model.base import Noun
from muster.settings import Settings

DEMO: Final = "demo"
OPERATOR_KEY_FILE: Final = "operator.key"
TENANT_KEY_FILE: Final = "tenant.key"

_log = logging.getLogger("muster.bootstrap")


async def first_start(house: House, settings: Settings) -> None:
    await _furnish(house, settings)
    await _operator(house, settings)
    await _tenant(house, settings)


async def _furnish(house: House, settings: Settings) -> None:
    """A catalogue that has any region is somebody's and is left alone. Hosts are imported until an operator's key,
    which comes after them, says that the import was finished: the same name twice is one host."""
    if await house.store.count(Find(ApiKey, equals={"role": Role.OPERATOR})):
        return
    catalogue, hosts = _furniture(house, settings)
    if not (await house.catalog.current()).regions:
        await house.catalog.put_all(SYSTEM, catalogue)
    await house.hosts.import_fleet(SYSTEM, hosts)


def _furniture(house: House, settings: Settings) -> tuple[Sequence[Noun], Iterable[HostSpec]]:
    if settings.fleet_file is None:
        hosts = demo_hosts(settings.hosts) if settings.fleet in ("simulated", "local") else ()
        return demo_catalog(house.clock.now()), hosts
    from muster.core.fleet_file import read_fleet_file  # and YAML with it, only for whoever has such a file

    fleet = read_fleet_file(settings.fleet_file, house.clock.now())
    return fleet.catalog, fleet.hosts()


async def _operator(house: House, settings: Settings) -> None:
    path = settings.home / OPERATOR_KEY_FILE
    secret = settings.operator_key or kept(path)
    if secret is not None and await _known(house, secret):
        _remember(path, secret)
        return
    await _make_key(house, path, secret, name="operator", role=Role.OPERATOR, project=None)


async def _tenant(house: House, settings: Settings) -> None:
    path = settings.home / TENANT_KEY_FILE
    secret = settings.tenant_key or kept(path)
    if secret is not None and await _known(house, secret):
        _remember(path, secret)
        return
    project = await _demo_project(house)
    await _make_key(house, path, secret, name=DEMO, role=Role.ADMIN, project=project)


async def _make_key(
    house: House, path: Path, secret: str | None, *, name: str, role: Role, project: Project | None
) -> None:
    try:
        _, told = await house.accounts.create_key(
            SYSTEM, name=name, role=role, project_id=project.id if project else None, secret=secret
        )
    except CallError as refused:
        # A known secret that opens nothing was revoked; bringing it back would undo somebody's decision.
        _log.warning("the key in %s was refused: %s", path, refused.message)
        return
    _remember(path, told)


async def _known(house: House, secret: str) -> bool:
    try:
        await house.accounts.authenticate(secret)
    except Unauthenticated:
        return False
    return True


def _remember(path: Path, secret: str) -> None:
    if kept(path) != secret:
        keep(path, secret + "\n")


async def _demo_project(house: House) -> Project:
    account = await _demo_account(house)
    known = await house.accounts.projects(SYSTEM, account_id=account.id, name=DEMO, limit=1)
    if known.items:
        return known.items[0]
    return await house.accounts.create_project(SYSTEM, account_id=account.id, name=DEMO)


async def _demo_account(house: House) -> Account:
    known = await house.accounts.accounts(SYSTEM, name=DEMO, limit=1)
    if known.items:
        return known.items[0]
    return await house.accounts.create_account(SYSTEM, name=DEMO, postpaid=True)

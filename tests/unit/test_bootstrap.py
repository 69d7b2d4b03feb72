"""The first start: cut short anywhere, the next one finishes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from muster import app, settings
from muster.contracts.store import Find
from muster.core.hosts.rules import HostSpec
from muster.core.hosts.service import HostService
from muster.model.accounts import Account, ApiKey
from muster.model.hosts import Host


def read(home: Path) -> settings.Settings:
    home.mkdir(exist_ok=True)
    return settings.read({"home": str(home), "fleet": "simulated", "hosts": "64", "port": "0"}, {})


async def start(home: Path) -> tuple[int, int, int]:
    async with AsyncExitStack() as closing:
        running = await app.assemble(read(home), closing)
        store = running.house.store
        return await store.count(Find(Host)), await store.count(Find(ApiKey)), await store.count(Find(Account))


def test_a_second_start_adds_nothing(tmp_path: Path) -> None:
    first = asyncio.run(start(tmp_path))
    assert first == asyncio.run(start(tmp_path))
    assert (tmp_path / "operator.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "tenant.key").stat().st_mode & 0o777 == 0o600


def test_an_import_that_was_cut_short_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asyncio.run(start(tmp_path / "whole"))[0]

    class Cut(BaseException):
        pass

    async def cut(self: HostService, actor: object, hosts: Iterator[HostSpec]) -> int:
        await self.import_hosts(actor, [next(hosts) for _ in range(10)])  # type: ignore[arg-type]
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(HostService, "import_fleet", cut)
        with pytest.raises(Cut):
            asyncio.run(start(tmp_path / "cut"))
    assert asyncio.run(start(tmp_path / "cut"))[0] == whole


def test_the_operators_catalogue_is_left_alone(tmp_path: Path) -> None:
    asyncio.run(start(tmp_path))

    async def remove_and_start() -> bool:
        from muster.model.accounts import SYSTEM
        from muster.model.catalog import Image

        async with AsyncExitStack() as closing:
            running = await app.assemble(read(tmp_path), closing)
            image = next(iter((await running.house.catalog.current()).images.values()))
            await running.house.catalog.remove(SYSTEM, Image, image.id)
        async with AsyncExitStack() as closing:
            running = await app.assemble(read(tmp_path), closing)
            return image.id in (await running.house.catalog.current()).images

    assert not asyncio.run(remove_and_start())

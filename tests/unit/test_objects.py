"""Object storage: who gets keys, what a crash between the two books leaves, and requests signed as AWS does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.clock import SeededEntropy
from muster.contracts.objects import ObjectKey
from muster.contracts.steps import Step
from muster.core.objects.service import ObjectService
from muster.engine.failpoints import store_with
from muster.errors import Forbidden, Invalid, NotFound, Protected, TryLater, Unavailable, Unsupported
from muster.model.accounts import SYSTEM, Actor, Role
from muster.objectstores.signing import signed
from muster.objectstores.versity import place_of, program
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock

ADMIN = Actor(role=Role.ADMIN, name="ada", account_id="a", project_id="p", key_id="k")
MEMBER = Actor(role=Role.MEMBER, name="mia", account_id="a", project_id="p", key_id="m")
OTHER = Actor(role=Role.ADMIN, name="eve", account_id="b", project_id="q", key_id="e")


class Shelves:
    """An S3 server with memory."""

    endpoint = "http://s3"
    region = "here"

    def __init__(self) -> None:
        self.users: dict[str, str] = {}
        self.held: dict[str, str] = {}
        self.away = False

    def _let_in(self, key: ObjectKey) -> None:
        if self.away:
            raise TryLater("nobody answers")
        assert self.users.get(key.access) == key.secret, "a key that the server was not told"

    async def admit(self, key: ObjectKey) -> None:
        if self.away:
            raise TryLater("nobody answers")
        self.users[key.access] = key.secret

    async def expel(self, access: str) -> None:
        self.users.pop(access, None)

    async def buckets(self, key: ObjectKey) -> list[str]:
        self._let_in(key)
        return sorted(name for name, owner in self.held.items() if owner == key.access)

    async def make_bucket(self, key: ObjectKey, name: str) -> None:
        self._let_in(key)
        self.held[name] = key.access

    async def remove_bucket(self, key: ObjectKey, name: str) -> None:
        self._let_in(key)
        del self.held[name]


class Desk:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.shelves = Shelves()
        self.clock = ManualClock()
        self.service = self.made(store)

    def made(self, store: Any) -> ObjectService:
        return ObjectService(store, self.clock, SeededEntropy(1), self.shelves)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    store = SqliteStore.open(tmp_path / "m.db", inline=True)
    yield Desk(store)
    asyncio.run(store.close())


def told(story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await story()

    asyncio.run(run())


def test_enabled_once_shown_often_rotated_and_disabled(desk: Desk) -> None:
    async def story() -> None:
        first = await desk.service.enable(ADMIN)
        assert await desk.service.enable(ADMIN) == first
        assert await desk.service.access(MEMBER) == first
        await desk.service.make_bucket(MEMBER, "data-1")
        later = await desk.service.rotate(ADMIN)
        assert later.access_key == first.access_key
        assert desk.shelves.users == {first.access_key: later.secret_key}
        assert await desk.service.buckets(ADMIN) == ["data-1"]
        with pytest.raises(Protected):
            await desk.service.disable(ADMIN)
        await desk.service.remove_bucket(ADMIN, "data-1")
        await desk.service.disable(ADMIN)
        assert desk.shelves.users == {}
        with pytest.raises(NotFound):
            await desk.service.access(ADMIN)
        events = await desk.store.events(after=0, limit=9)
        assert [event.type.partition(".")[2] for event in events] == ["enabled", "rotated", "disabled"]
        assert not [event for event in events if first.secret_key in str(event) or later.secret_key in str(event)]

    told(story)


def test_accounts_have_keys_of_their_own(desk: Desk) -> None:
    async def story() -> None:
        ours, theirs = await desk.service.enable(ADMIN), await desk.service.enable(OTHER)
        assert ours.access_key != theirs.access_key
        await desk.service.make_bucket(ADMIN, "ours")
        assert await desk.service.buckets(OTHER) == []

    told(story)


def test_who_may(desk: Desk) -> None:
    async def story() -> None:
        with pytest.raises(Forbidden):
            await desk.service.enable(MEMBER)
        await desk.service.enable(ADMIN)
        for verb in (desk.service.rotate, desk.service.disable):
            with pytest.raises(Forbidden):
                await verb(MEMBER)
        with pytest.raises(Invalid):
            await desk.service.enable(SYSTEM)
        with pytest.raises(Unsupported):
            await ObjectService(desk.store, desk.clock, SeededEntropy(1)).enable(ADMIN)

    told(story)


@pytest.mark.parametrize("name", ["", "a", "UPPER", "a_b", "-ab", "ab-", "a" * 64, "../etc", "a/b", "a.b"])
def test_names_of_buckets(desk: Desk, name: str) -> None:
    async def story() -> None:
        await desk.service.enable(ADMIN)
        with pytest.raises(Invalid):
            await desk.service.make_bucket(ADMIN, name)

    told(story)


def test_a_server_that_is_away_is_told_later(desk: Desk) -> None:
    async def story() -> None:
        desk.shelves.away = True
        with pytest.raises(Unavailable):
            await desk.service.enable(ADMIN)
        desk.shelves.away = False
        access = await desk.service.access(ADMIN)
        assert desk.shelves.users == {access.access_key: access.secret_key}

    told(story)


class Crash(Exception):
    pass


class DieOnce:
    def __init__(self, side: str, nth: int) -> None:
        self._side, self._left = side, nth

    async def _pass(self, step: Step, side: str) -> None:
        if (step, side) == (Step.OBJECTS_WRITE, self._side):
            self._left -= 1
            if self._left == 0:
                raise Crash

    async def before(self, step: Step) -> None:
        await self._pass(step, "before")

    async def after(self, step: Step) -> None:
        await self._pass(step, "after")


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_crash_between_the_two_books_heals(desk: Desk, side: str, nth: int) -> None:
    async def story() -> None:
        service = desk.made(store_with(DieOnce(side, nth), desk.store))

        async def stubbornly(act: Callable[[Actor], Awaitable[Any]]) -> None:
            for _ in range(3):
                try:
                    await act(ADMIN)
                    return
                except Crash:
                    continue
                except NotFound:
                    return  # it was done before the crash

        await stubbornly(service.enable)
        await stubbornly(service.rotate)
        access = await service.access(ADMIN)
        assert desk.shelves.users == {access.access_key: access.secret_key}
        await stubbornly(service.disable)
        assert desk.shelves.users == {}
        with pytest.raises(NotFound):
            await service.access(ADMIN)

    told(story)


def test_requests_are_signed_as_aws_does() -> None:
    """The example "GET Bucket Lifecycle" of the S3 documentation, Signature Version 4."""
    key = ObjectKey("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    at = 1_369_353_600_000  # 2013-05-24T00:00:00Z
    host = "examplebucket.s3.amazonaws.com"
    headers = signed(key, "us-east-1", "GET", host, "/", {"lifecycle": ""}, b"", at)
    assert headers["authorization"].endswith(
        "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    )


def test_the_place_is_kept_for_the_homes_whole_life(tmp_path: Path) -> None:
    place = place_of(tmp_path, "127.0.0.1", SeededEntropy(1))
    assert place_of(tmp_path, "127.0.0.1", SeededEntropy(2)) == place
    assert (tmp_path / "objects.json").stat().st_mode & 0o077 == 0


def test_the_program_in_the_cache_comes_first(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "versitygw").touch()
    assert program(tmp_path) == str(tmp_path / "bin" / "versitygw")

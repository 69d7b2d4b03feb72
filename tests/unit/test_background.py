"""Work that outlasts a call: who is called when it is done, and who need not be."""

from __future__ import annotations

import asyncio

import pytest

from muster.errors import TryLater
from muster.orchestrators.slurm.background import Background


def test_short_work_is_answered_on_the_spot_and_calls_nobody() -> None:
    async def story() -> None:
        called = list[str]()
        work: Background[int] = Background(called.append)

        async def quick() -> int:
            return 7

        assert await work.follow("c", "1", quick) == 7
        assert called == []

    asyncio.run(story())


def test_whoever_left_is_called_once_when_it_is_done() -> None:
    async def story() -> None:
        called = list[str]()
        work: Background[int] = Background(called.append)
        go = asyncio.Event()

        async def slow() -> int:
            await go.wait()
            return 7

        assert await work.follow("c", "1", slow) is None
        assert await work.follow("c", "1", slow) is None
        assert called == []
        go.set()
        assert await work.follow("c", "1", slow) == 7
        assert called == ["c"]

    asyncio.run(story())


def test_a_failure_calls_too_and_other_work_in_its_place_does_not() -> None:
    async def story() -> None:
        called = list[str]()
        work: Background[int] = Background(called.append)
        go = asyncio.Event()

        async def fails() -> int:
            await go.wait()
            raise TryLater("not now")

        assert await work.follow("c", "1", fails) is None
        assert await work.follow("c", "2", fails) is None
        assert called == [], "what was given up is nobody's news"
        go.set()
        with pytest.raises(TryLater):
            await work.follow("c", "2", fails)
        assert called == ["c"]

    asyncio.run(story())

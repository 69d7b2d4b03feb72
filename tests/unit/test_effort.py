"""The engine's share of the thread: stretches are measured, waits are not, and cancelling works as without it."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from muster.engine.effort import Effort


def test_stretches_are_counted_and_waits_are_not() -> None:
    """Every look at these ticks is a second later than the last: a stretch takes one, however long the wait."""
    ticks = count()
    effort = Effort(lambda: float(next(ticks)))

    async def work() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)

    asyncio.run(effort.of(work()))
    assert effort.seconds == 3


def test_what_work_raises_comes_out() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise LookupError("gone")

    with pytest.raises(LookupError):
        asyncio.run(Effort(lambda: 0.0).of(work()))


def test_a_cancelled_piece_of_work_can_still_tidy_up() -> None:
    tidied = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.append(True)

    async def story() -> None:
        task = asyncio.create_task(Effort(lambda: 0.0).of(work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert tidied == [True]


def test_a_wait_that_times_out_inside_is_the_works_own_affair() -> None:
    heard = []

    async def work() -> None:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            heard.append(True)

    asyncio.run(Effort(lambda: 0.0).of(work()))
    assert heard == [True]

"""How a contract suite is written: one test per law, told as a story to a rig, skipped by declared capability.

A driver's own test file supplies a factory of rigs; the suite supplies the laws. The factory is an async context
manager, so that real drivers may open connections on the loop the story runs on and clean up behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import pytest

SETTLE_STEPS_MAX = 2_000


class Capability(StrEnum):
    """What a driver (with its rig) can do beyond the mandatory; a suite never asks for a driver's name."""

    CAN_KILL_HOST = "can_kill_host"
    CAN_LOSE_REPLY = "can_lose_reply"
    CAN_HIDE_HOST = "can_hide_host"  # cut it off, so that it is unknown rather than dead
    CAN_FAIL_BOOT = "can_fail_boot"
    CAN_RUN_OUT = "can_run_out"
    CAN_REOPEN = "can_reopen"  # a second driver over the same machines, as after a restart
    ANNOUNCES = "announces"  # `watch` is more than a promise
    VIRTUAL_TIME = "virtual_time"  # time passes only when told to, so hints can be checked to the instant
    REFUSES_UNDRAINED_EXPEL = "refuses_undrained_expel"
    HAS_KUBECONFIG = "has_kubeconfig"
    HAS_QUEUE = "has_queue"  # of work whose GPUs can be told


class Rig(Protocol):
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    async def settle(self) -> None:
        """Let a little time pass: a step of the virtual clock, or a short real sleep."""


R = TypeVar("R", bound=Rig)
RigFactory = Callable[[], AbstractAsyncContextManager[R]]


def law(*needs: Capability) -> Callable[[Callable[[Any, R], Awaitable[None]]], Callable[[Any, RigFactory[R]], None]]:
    """Turn an async story over a rig into a plain test over the factory fixture `rigs`."""

    def told(story: Callable[[Any, R], Awaitable[None]]) -> Callable[[Any, RigFactory[R]], None]:
        async def tell(suite: object, rigs: RigFactory[R]) -> None:
            async with rigs() as rig:
                missing = sorted(set(needs) - rig.capabilities)
                if missing:
                    pytest.skip(f"capability: {', '.join(missing)}")
                await story(suite, rig)

        def test(self: object, rigs: RigFactory[R]) -> None:
            asyncio.run(tell(self, rigs))

        test.__name__ = getattr(story, "__name__", "test")
        test.__doc__ = story.__doc__
        return test

    return told


async def until(rig: Rig, met: Callable[[], Awaitable[bool]], what: str) -> None:
    """Let time pass until it is so; a law that says "eventually" means within this many settling steps."""
    for _ in range(SETTLE_STEPS_MAX):
        if await met():
            return
        await rig.settle()
    raise AssertionError(f"never came true: {what}")

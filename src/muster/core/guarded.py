"""How services write: read, decide, submit; when someone was quicker, look again instead of telling the caller.

Leans on the store's contract. Keeps its law from the caller's side: a refused batch wrote nothing, so the whole
decision may simply be made anew. A caller who pinned a version (`If-Match`) is told `Stale` the moment it differs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from muster.contracts.steps import Step
from muster.contracts.store import Batch, Insert, Op, Store
from muster.core.idempotency import Once
from muster.errors import Stale, StoreFull, Unavailable, UniqueViolation, VersionMismatch
from muster.model.base import N, Noun
from muster.model.events import Event

ATTEMPTS_MAX: Final = 8

T = TypeVar("T")


async def guarded(work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work`, made anew from fresh rows a bounded number of times when a guarded write was refused."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return await work()
        except VersionMismatch:
            continue
    raise Stale("this is changing too fast just now", hint="read it again and repeat the request")


def require_version(noun: Noun, if_version: int | None) -> None:
    if if_version is not None and noun.version != if_version:
        raise Stale(
            f"this is at version {noun.version}, not {if_version}",
            hint="read it again and decide on what it is now",
            details={"version": noun.version},
        )


async def submit(store: Store, batch: Batch) -> Mapping[str, int]:
    """Apply a batch on behalf of a caller: a full disk is ours to apologise for."""
    try:
        return await store.apply(batch)
    except StoreFull as full:
        raise Unavailable("there is no room to write this down", hint="ask again later") from full


async def insert(
    store: Store,
    step: Step,
    noun: N,
    events: Sequence[Event],
    *,
    also: Sequence[Op] = (),
    once: Once | None = None,
    scope: str = "",
) -> N:
    """Write a new noun and what belongs to it in one batch; what the store made of it (its number), or, when this
    very call was made before under the same client's key, what that one made."""
    ops: list[Op] = [Insert(noun), *also]
    if once is not None:
        ops.append(Insert(once.record(scope, events[0].kind, noun.id, events[0].at)))
    try:
        await submit(store, Batch(step, ops, events))
    except UniqueViolation:
        first = await first_made(store, type(noun), once, scope)
        if first is None:
            raise
        return first
    return await store.get(type(noun), noun.id) or noun


async def first_made(store: Store, noun: type[N], once: Once | None, scope: str) -> N | None:
    """What the first call under this client's key made; None when this is the first, or there is no key."""
    id = await once.first_answer(store, scope) if once is not None else None
    return None if id is None else await store.get(noun, id)

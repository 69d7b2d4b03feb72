"""Group commit towards PostgreSQL: batches that arrive while a call is under way form the next call.

One call of `muster_apply` is one transaction with a subtransaction for each batch, so one refusal does not fail its
neighbours, and one flush of the server's log serves the whole group.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import asyncpg

from muster.contracts.store import Batch
from muster.errors import StoreError
from muster.store.postgres_apply import encoded, refusal

GROUP_LIMIT: Final = 64
"""Batches in one call: bounds how long other replicas wait for their turn."""

TRIES_MAX: Final = 5
"""Of a call that lost a deadlock or a serialisation race; nothing of it was written."""


class _Asked(NamedTuple):
    batch: bytes
    answer: asyncio.Future[None]


class GroupWriter:
    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool
        self._waiting: list[_Asked] = []
        self._pump: asyncio.Task[None] | None = None
        self._closed = False

    async def apply(self, batch: Batch) -> None:
        if self._closed:
            raise StoreError("the store is closed")
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(encoded(batch), answer))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._write_all())
        await answer

    async def close(self) -> None:
        """What was submitted is still written."""
        self._closed = True
        if self._pump is not None:
            await self._pump

    async def _write_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:GROUP_LIMIT], self._waiting[GROUP_LIMIT:]
            await self._write(group)

    async def _write(self, group: list[_Asked]) -> None:
        try:
            verdicts = await self._call([asked.batch for asked in group])
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.SyntaxOrAccessError) as error:
            # One of them cannot be written at all (a NUL in a text, say). Alone, each gets its own verdict.
            await self._write_each(group, error)
        except Exception as error:
            _fail(group, error)
        else:
            for asked, verdict in zip(group, verdicts, strict=True):
                _answer(asked, refusal(verdict))

    async def _write_each(self, group: list[_Asked], error: Exception) -> None:
        if len(group) == 1:
            return _fail(group, error)
        for asked in group:
            await self._write([asked])

    async def _call(self, batches: list[bytes]) -> list[str]:
        argument = f"[{','.join(batch.decode() for batch in batches)}]"
        for _ in range(TRIES_MAX - 1):
            try:
                return list(await self._pool.fetchval("SELECT muster_apply($1::jsonb)", argument))
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                continue
        return list(await self._pool.fetchval("SELECT muster_apply($1::jsonb)", argument))


def _answer(asked: _Asked, error: Exception | None) -> None:
    if asked.answer.done():
        return  # its caller went away; the batch stands all the same
    if error is not None:
        asked.answer.set_exception(error)
    else:
        asked.answer.set_result(None)


def _fail(group: list[_Asked], error: Exception) -> None:
    for asked in group:
        _answer(asked, error)

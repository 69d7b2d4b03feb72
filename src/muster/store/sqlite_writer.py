"""The one writer of a SQLite file: many jobs, one transaction, one fsync.

A job is anything that runs inside a transaction: a batch, a claim, a release. Jobs that arrive while a commit runs
form the next group. One refusal does not fail its neighbours: a group in which somebody is refused is run again,
each job in its own savepoint.
`inline` writers have no thread and commit at once, in the caller: that is what simulation runs on.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from muster.errors import StoreError, StoreFull, Unavailable, UniqueViolation
from muster.store.schema import rule_by_columns

GROUP_LIMIT: Final = 256
"""Jobs in one transaction: bounds how long the first of a group waits for the last."""

GROUP_LEAST: Final = 16
"""So many who wait are one group. Of more, half, if the disk is quick: while one half waits for it, the other half's
callers work."""

QUICK: Final = 2.0
"""A disk is quick that takes no longer to flush a group than this many times what writing its rows took."""

Job: TypeAlias = Callable[[], Any]
Ticks: TypeAlias = Callable[[], float]
"""Seconds from an arbitrary point."""

_RULES: Final = rule_by_columns()
_UNIQUE: Final = "UNIQUE constraint failed: "
_PASSING: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class Verdict(NamedTuple):
    """What a job came to: an answer, or the error that refused it."""

    answer: Any
    error: BaseException | None


def translated(error: sqlite3.Error) -> BaseException:
    """SQLite's complaint in the house's words; what has none is our own bug and passes as it is."""
    said = str(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if said.startswith(_UNIQUE):
        return UniqueViolation(_RULES.get(said.removeprefix(_UNIQUE), said))
    if code == sqlite3.SQLITE_FULL:
        return StoreFull("the disk that holds the database is full; nothing was written")
    if code in _PASSING:
        return Unavailable("another process is holding the database", hint="try again in a moment")
    if code == sqlite3.SQLITE_IOERR:
        return Unavailable(f"the disk that holds the database answers with an error: {said}")
    return error


class PutOff(Protocol):
    """What jobs left for the end of their transaction."""

    def settle(self) -> None:
        """Write it; the transaction is about to be committed."""

    def forget(self) -> None:
        """The transaction was rolled back."""


class Groups:
    """Runs groups of jobs on one connection. Not thread-safe: one thread at a time."""

    def __init__(self, db: sqlite3.Connection, put_off: PutOff) -> None:
        self._db = db
        self._put_off = put_off

    def be_patient(self, busy_ms: int) -> None:
        """How long a beginning waits for another process's transaction."""
        self._db.execute(f"PRAGMA busy_timeout = {busy_ms}")

    def run(self, jobs: list[Job]) -> list[Verdict]:
        """All of it here and now."""
        try:
            self.begin()
            answers = self.begun(jobs)
            if answers is None:
                return self.each_by_itself(jobs)
            self.commit()
        except sqlite3.Error:
            return self.each_by_itself(jobs)
        return [Verdict(answer, None) for answer in answers]

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def begun(self, jobs: list[Job]) -> list[Any] | None:
        """All of them in the open transaction. Nearly always nobody is refused, and then no savepoint is needed: each
        costs a copy of every page that is touched. None when somebody was: nothing is open, jobs may be repeated."""
        try:
            answers = [job() for job in jobs]
            self._put_off.settle()
        except Exception:
            self._roll_back()
            return None
        return answers

    def commit(self) -> None:
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise

    def each_by_itself(self, jobs: list[Job]) -> list[Verdict]:
        """Each in its own savepoint, so that one refusal does not fail its neighbours."""
        if len(jobs) == 1:
            return [self._alone(jobs[0])]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            verdicts = [self._one_of_many(job) for job in jobs]
            self._db.execute("COMMIT")
        except sqlite3.Error:
            # The transaction itself failed (a full disk ends it), and with it every job. Alone, each gets its own
            # verdict: what still fits is written, what does not is refused.
            self._roll_back()
            return [self._alone(job) for job in jobs]
        return verdicts

    def _alone(self, job: Job) -> Verdict:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            answer = job()
            self._put_off.settle()
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return Verdict(None, translated(error))
        except BaseException as error:
            self._roll_back()
            return Verdict(None, error)
        return Verdict(answer, None)

    def _one_of_many(self, job: Job) -> Verdict:
        self._db.execute("SAVEPOINT job")
        try:
            answer = job()
            self._put_off.settle()
        except sqlite3.IntegrityError as error:
            return self._undone(translated(error))
        except sqlite3.Error:
            raise
        except Exception as error:
            return self._undone(error)
        self._db.execute("RELEASE job")
        return Verdict(answer, None)

    def _undone(self, error: BaseException) -> Verdict:
        self._put_off.forget()
        self._db.execute("ROLLBACK TO job")
        self._db.execute("RELEASE job")
        return Verdict(None, error)

    def _roll_back(self) -> None:
        self._put_off.forget()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


class InlineWriter:
    """Commits in the caller, at once."""

    def __init__(self, db: sqlite3.Connection, put_off: PutOff) -> None:
        self._db = db
        self._groups = Groups(db, put_off)

    async def submit(self, job: Job) -> Any:
        verdict = self._groups.run([job])[0]
        if verdict.error is not None:
            raise verdict.error
        return verdict.answer

    async def close(self) -> None:
        self._db.close()


class _Asked(NamedTuple):
    job: Job
    answer: asyncio.Future[Any]


class GroupWriter:
    """Runs jobs on the loop's own thread, a group at a time, and leaves only the waiting for the disk to another.

    Rows are written where their callers run: a thread of its own would fight them for the interpreter at every row.
    What costs real time is the commit, and that waits outside the interpreter while the next group gathers.
    """

    def __init__(self, db: sqlite3.Connection, put_off: PutOff, busy_ms: int, ticks: Ticks) -> None:
        self._db = db
        self._busy_ms = busy_ms
        self._ticks = ticks
        self._quick = True
        self._groups = Groups(db, put_off)
        self._groups.be_patient(0)
        self._waiting: list[_Asked] = []
        self._flushing: asyncio.Task[None] | None = None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="muster-store-commit")
        self._closed = False

    async def submit(self, job: Job) -> Any:
        if self._closed:
            raise StoreError("the store is closed")
        loop = asyncio.get_running_loop()
        asked = _Asked(job, loop.create_future())
        self._waiting.append(asked)
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush(loop))
        return await asked.answer

    async def close(self) -> None:
        """What was submitted is still written."""
        if not self._closed:
            self._closed = True
            if self._flushing is not None:
                await self._flushing
            self._disk.shutdown()
            self._db.close()

    async def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """Group after group, until nobody waits. Whoever asks while a commit runs is in the next group."""
        try:
            while self._waiting:
                count = _group_of(len(self._waiting), self._quick)
                group, self._waiting = self._waiting[:count], self._waiting[count:]
                _resolve(group, await self._written(loop, [asked.job for asked in group]))
        finally:
            self._flushing = None

    async def _written(self, loop: asyncio.AbstractEventLoop, jobs: list[Job]) -> list[Verdict]:
        """Whatever may wait (for another process's lock, for the disk) waits on the other thread."""
        try:
            await self._begin(loop)
        except sqlite3.Error as error:
            return [Verdict(None, translated(error)) for _ in jobs]
        began = self._ticks()
        answers = self._groups.begun(jobs)
        written = self._ticks()
        try:
            if answers is not None:
                flushed = await loop.run_in_executor(self._disk, self._commit)
                self._quick = flushed - written <= QUICK * (written - began)
                return [Verdict(answer, None) for answer in answers]
        except sqlite3.Error:
            pass  # the group failed as a whole: each gets its own verdict
        return await loop.run_in_executor(self._disk, self._patiently, self._groups.each_by_itself, jobs)

    async def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nearly always the file is nobody else's, and then there is nothing to wait for."""
        try:
            self._groups.begin()
        except sqlite3.OperationalError:
            await loop.run_in_executor(self._disk, self._patiently, self._groups.begin)

    def _commit(self) -> float:
        """When it was done: the loop may be busy with others by then and look much later."""
        self._groups.commit()
        return self._ticks()

    def _patiently(self, act: Callable[..., Any], *args: Any) -> Any:
        self._groups.be_patient(self._busy_ms)
        try:
            return act(*args)
        finally:
            self._groups.be_patient(0)


def _group_of(waiting: int, quick: bool) -> int:
    return min(GROUP_LIMIT, max(GROUP_LEAST, (waiting + 1) // 2) if quick else waiting)


def _resolve(group: list[_Asked], verdicts: list[Verdict]) -> None:
    for asked, verdict in zip(group, verdicts, strict=True):
        if asked.answer.done():
            continue  # its caller went away; the batch stands all the same
        if verdict.error is not None:
            asked.answer.set_exception(verdict.error)
        else:
            asked.answer.set_result(verdict.answer)

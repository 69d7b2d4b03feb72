"""The one writer of a SQLite file: many jobs, one transaction, one fsync.

A job is anything that runs inside a transaction: a batch, a claim, a release. Jobs that arrive while a commit runs
form the next group. One refusal does not fail its neighbours: a group in which somebody is refused is run again,
each job in its own savepoint.
`inline` writers have no thread and commit at once, in the caller: that is what simulation runs on.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeAlias

from muster.errors import StoreError, StoreFull, Unavailable, UniqueViolation
from muster.store.schema import rule_by_columns

GROUP_LIMIT: Final = 256
"""Jobs in one transaction: bounds how long the first of a group waits for the last."""

Job: TypeAlias = Callable[[], Any]

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


class Groups:
    """Runs groups of jobs on one connection. Not thread-safe: one thread at a time."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def run(self, jobs: list[Job]) -> list[Verdict]:
        if len(jobs) == 1:
            return [self._alone(jobs[0])]
        return self._all_or_none(jobs) or self._each_by_itself(jobs)

    def _all_or_none(self, jobs: list[Job]) -> list[Verdict] | None:
        """Nearly always nobody is refused, and then no savepoint is needed: each costs a copy of every page that is
        touched. None when somebody was: nothing was written, and a job may be run again."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            answers = [job() for job in jobs]
            self._db.execute("COMMIT")
        except Exception:
            self._roll_back()
            return None
        return [Verdict(answer, None) for answer in answers]

    def _each_by_itself(self, jobs: list[Job]) -> list[Verdict]:
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
        except sqlite3.IntegrityError as error:
            return self._undone(translated(error))
        except sqlite3.Error:
            raise
        except Exception as error:
            return self._undone(error)
        self._db.execute("RELEASE job")
        return Verdict(answer, None)

    def _undone(self, error: BaseException) -> Verdict:
        self._db.execute("ROLLBACK TO job")
        self._db.execute("RELEASE job")
        return Verdict(None, error)

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


class InlineWriter:
    """Commits in the caller, at once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._groups = Groups(db)

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


class ThreadWriter:
    """One thread that owns the connection; callers wait on futures of their own loop."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._groups = Groups(db)
        self._queue: SimpleQueue[_Asked | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="muster-store-writer", daemon=True)
        self._thread.start()

    async def submit(self, job: Job) -> Any:
        if self._closed:
            raise StoreError("the store is closed")
        answer = asyncio.get_running_loop().create_future()
        self._queue.put(_Asked(job, answer))
        return await answer

    async def close(self) -> None:
        """What was submitted is still written."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self._db.close()

    def _serve(self) -> None:
        open_ = True
        while open_:
            group, open_ = self._next_group()
            if group:
                verdicts = self._groups.run([asked.job for asked in group])
                _answer(group, verdicts)

    def _next_group(self) -> tuple[list[_Asked], bool]:
        asked = self._queue.get()
        group: list[_Asked] = []
        while asked is not None:
            group.append(asked)
            if len(group) == GROUP_LIMIT:
                return group, True
            try:
                asked = self._queue.get_nowait()
            except Empty:
                return group, True
        return group, False


def _answer(group: list[_Asked], verdicts: list[Verdict]) -> None:
    """Wake each loop once for the whole group (in practice there is one)."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Verdict]]] = {}
    for asked, verdict in zip(group, verdicts, strict=True):
        by_loop.setdefault(asked.answer.get_loop(), []).append((asked.answer, verdict))
    for loop, answers in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, answers)


def _resolve(answers: list[tuple[asyncio.Future[Any], Verdict]]) -> None:
    for future, verdict in answers:
        if future.done():
            continue  # its caller went away; the batch stands all the same
        if verdict.error is not None:
            future.set_exception(verdict.error)
        else:
            future.set_result(verdict.answer)

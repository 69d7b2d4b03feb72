"""Copies of an embedded database: taken while it is in use, and made fit to go on from.

Leans on SQLite alone. *Law.* A database that is put back in place grants tokens greater than any that was granted
after the copy was taken: drivers that remember newer claims than it does would refuse all of its own.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

TOKENS_AHEAD: Final = 1_000_000_000
"""More claims than any home makes between a copy and its return."""


def copy_database(source: Path, target: Path) -> None:
    """The database as it is at one instant; whoever writes to it meanwhile is not held up."""
    target.touch(mode=0o600, exist_ok=False)
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def is_whole(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            return bool(database.execute("PRAGMA integrity_check").fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False


def go_on_from(file: Path) -> None:
    """Nobody holds anything in it any more, and its next claim is newer than all that others may remember."""
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(
            "INSERT INTO counter (noun, last) VALUES ('claim', ?1) ON CONFLICT (noun) DO UPDATE SET last = last + ?1",
            (TOKENS_AHEAD,),
        )
        database.execute("UPDATE work SET worker = NULL, ready_at = due_at WHERE worker IS NOT NULL")

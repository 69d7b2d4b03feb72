"""Copies of an embedded database, taken at one instant while it is in use. Leans on SQLite alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


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

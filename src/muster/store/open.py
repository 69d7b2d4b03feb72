"""Which memory a URL means."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from muster.contracts.store import Store
from muster.errors import Invalid, Unavailable
from muster.store.sqlite import SqliteStore

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


async def open_store(url: str, ticks: Callable[[], float] = lambda: 0.0) -> Store:
    """`sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/name`; made and migrated."""
    if url.startswith(_POSTGRES):
        # Only for whoever uses it: a server on SQLite starts sooner and smaller without.
        from muster.store.postgres import PostgresStore

        return await PostgresStore.open(url)
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        path = url.removeprefix(_SQLITE)
        try:
            return SqliteStore.open(path, ticks=ticks)
        except sqlite3.Error as error:
            raise Unavailable(f"cannot open the database {path}: {error}") from error
    raise Invalid(
        "this is not a database we know",
        field="database",
        hint="use sqlite:///path/to/file.db or postgresql://user@host/name",
    )

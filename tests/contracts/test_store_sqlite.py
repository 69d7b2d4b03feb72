"""SQLite keeps the store's laws, with its writer thread and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.contracts.store import Store
from muster.store.sqlite import SqliteStore
from muster.testing.calendar_suite import CalendarSuite
from muster.testing.store_rig import Open


@pytest.mark.parametrize("inline", [False, True], ids=["threaded", "inline"])
class TestSqliteStore(CalendarSuite):
    @pytest.fixture
    def opened(self, tmp_path: Path, inline: bool) -> Open:
        async def open_() -> Store:
            return SqliteStore.open(tmp_path / "muster.db", inline=inline)

        return open_

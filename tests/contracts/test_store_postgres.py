"""PostgreSQL keeps the store's laws, on a real server."""

from __future__ import annotations

import pytest

from muster.contracts.store import Store
from muster.store.postgres import PostgresStore
from muster.testing.calendar_suite import CalendarSuite
from muster.testing.postgres import postgres_dsn, postgres_server
from muster.testing.store_rig import Open

__all__ = ["postgres_dsn", "postgres_server"]


class TestPostgresStore(CalendarSuite):
    @pytest.fixture
    def opened(self, postgres_dsn: str) -> Open:
        async def open_() -> Store:
            return await PostgresStore.open(postgres_dsn)

        return open_

"""A migrated database is exactly what store/schema.py declares, and a newer one is refused."""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
import re
import sqlite3
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncpg
import pytest

from muster import model
from muster.contracts.store import Find, Insert, Remove, Store
from muster.errors import UniqueViolation
from muster.model.accounts import ApiKey
from muster.model.base import Noun
from muster.model.clusters import Cluster, Node
from muster.model.events import Request
from muster.model.hosts import Host, Lease
from muster.model.volumes import Attachment, Volume
from muster.store.find import SqliteSyntax, question
from muster.store.migrate import SchemaTooNew, migrations, written_for
from muster.store.open import open_store
from muster.store.postgres import PostgresStore
from muster.store.schema import TABLES, Kind
from muster.store.sqlite import SqliteStore
from muster.testing.postgres import postgres_dsn, postgres_server
from muster.testing.store_rig import batch, lease

__all__ = ["postgres_dsn", "postgres_server"]

MODEL = [import_module(f"muster.model.{found.name}") for found in pkgutil.iter_modules(model.__path__)]
SQLITE_TYPES = {Kind.TEXT: "TEXT", Kind.INTEGER: "INTEGER", Kind.BOOLEAN: "INTEGER", Kind.JSON: "TEXT"}
POSTGRES_TYPES = {Kind.TEXT: "text", Kind.INTEGER: "bigint", Kind.BOOLEAN: "boolean", Kind.JSON: "text"}


def nouns_of(module: ModuleType) -> set[type[Noun]]:
    return {
        found
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, Noun) and found is not Noun
    }


def plain(sql: str) -> str:
    return re.sub(r"[()\s]", "", sql).lower()


@pytest.fixture
def file(tmp_path: Path) -> sqlite3.Connection:
    asyncio.run(SqliteStore.open(tmp_path / "m.db").close())
    return sqlite3.connect(tmp_path / "m.db")


def test_every_noun_has_its_table() -> None:
    assert set(TABLES) == set().union(*map(nouns_of, MODEL))


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_sqlite_has_the_declared_columns_rules_and_indexes(file: sqlite3.Connection, table: Any) -> None:
    columns = [
        (name, type_, not filled) for _, name, type_, filled, *_ in file.execute(f"PRAGMA table_info({table.name})")
    ]
    # A column that came later stands behind the others; rows are read and written by name.
    assert sorted(columns) == sorted((one.name, SQLITE_TYPES[one.kind], one.nullable) for one in table.columns)

    made = {
        (bool(unique), tuple(row[2] for row in file.execute(f"PRAGMA index_info({name})")))
        for _, name, unique, *_ in file.execute(f"PRAGMA index_list({table.name})")
    }
    declared = {(True, rule.columns) for rule in table.rules} | {(False, index.columns) for index in table.indexes}
    assert made == declared
    for index in table.indexes:
        [sql] = file.execute("SELECT sql FROM sqlite_master WHERE name = ?", (index.name,)).fetchone()
        assert plain(sql).endswith(plain(f"WHERE {index.where}" if index.where else f"{index.columns[-1]}"))
    file.close()


def test_postgres_has_the_declared_columns_rules_and_indexes(postgres_dsn: str) -> None:
    async def look() -> tuple[list[Any], list[Any]]:
        await (await PostgresStore.open(postgres_dsn)).close()
        db = await asyncpg.connect(postgres_dsn)
        try:
            columns = await db.fetch(
                "SELECT table_name, column_name, data_type, is_nullable, collation_name"
                " FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position"
            )
            indexes = await db.fetch(
                "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
            )
        finally:
            await db.close()
        return columns, indexes

    columns, indexes = asyncio.run(look())
    assert {row["collation_name"] for row in columns if row["data_type"] == "text"} == {"C"}
    for table in TABLES.values():
        made = [
            (row["column_name"], row["data_type"], row["is_nullable"] == "YES")
            for row in columns
            if row["table_name"] == table.name
        ]
        assert sorted(made) == sorted((one.name, POSTGRES_TYPES[one.kind], one.nullable) for one in table.columns)
        defined = {row["indexname"]: plain(row["indexdef"]) for row in indexes if row["tablename"] == table.name}
        declared = [(rule.name, "unique", rule.columns, "") for rule in table.rules]
        declared += [(index.name, "", index.columns, index.where) for index in table.indexes]
        assert defined == {
            name: plain(
                f"CREATE {unique} INDEX {name} ON public.{table.name} USING btree {','.join(fields)}"
                + (f" WHERE {where}" if where else "")
            )
            for name, unique, fields, where in declared
        }


def test_migrations_are_numbered_without_gaps_and_leave_no_token() -> None:
    assert [one.version for one in migrations()] == list(range(1, len(migrations()) + 1))
    for migration in migrations():
        for database in ("sqlite", "postgres"):
            assert not re.search(r"\{[a-z]+\}", written_for(database, migration.text))


OLD_LEASES = (
    "INSERT INTO lease (id, version, host_id, slots, node_id, cluster_id, project_id, generation, taken_at) VALUES"
    " ('a', 1, 'h1', 5, 'n', 'c', 'p', 1, 1), ('b', 1, 'h1', 10, 'n', 'c', 'p', 1, 1),"
    " ('c', 1, 'h2', 255, 'n', 'c', 'p', 1, 1)"
)
BEFORE_HOST_SLOTS = 8


async def carried_over(store: Store) -> None:
    assert await store.slots_taken() == {"h1": 15, "h2": 255}
    with pytest.raises(UniqueViolation, match="lease_slot"):
        await store.apply(batch(Insert(lease("d", "h1", 0b1000))))
    await store.apply(batch(Insert(lease("d", "h1", 0b10000)), Remove(Lease, "a")))
    assert (await store.slots_taken())["h1"] == 0b11010
    await store.close()


def test_a_file_with_leases_keeps_what_is_taken(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "m.db")
    for migration in migrations()[:BEFORE_HOST_SLOTS]:
        old.executescript(written_for("sqlite", migration.text))
    old.execute(OLD_LEASES)
    old.execute(f"PRAGMA user_version = {BEFORE_HOST_SLOTS}")
    old.commit()
    old.close()
    asyncio.run(carried_over(SqliteStore.open(tmp_path / "m.db", inline=True)))


def test_a_postgres_schema_with_leases_keeps_what_is_taken(postgres_dsn: str) -> None:
    async def story() -> None:
        db = await asyncpg.connect(postgres_dsn)
        await db.execute("CREATE TABLE schema_version (version bigint PRIMARY KEY)")
        for migration in migrations()[:BEFORE_HOST_SLOTS]:
            await db.execute(written_for("postgres", migration.text))
        await db.execute(OLD_LEASES)
        await db.execute(f"INSERT INTO schema_version VALUES ({BEFORE_HOST_SLOTS})")
        await db.close()
        await carried_over(await PostgresStore.open(postgres_dsn))

    asyncio.run(story())


def test_a_newer_sqlite_schema_refuses_to_start(file: sqlite3.Connection, tmp_path: Path) -> None:
    file.execute("PRAGMA user_version = 999")
    file.close()
    with pytest.raises(SchemaTooNew, match=r"schema version 999.*start the newer Muster"):
        SqliteStore.open(tmp_path / "m.db")


def test_a_newer_postgres_schema_refuses_to_start(postgres_dsn: str) -> None:
    async def story() -> None:
        await (await PostgresStore.open(postgres_dsn)).close()
        db = await asyncpg.connect(postgres_dsn)
        await db.execute("INSERT INTO schema_version VALUES (999)")
        await db.close()
        with pytest.raises(SchemaTooNew, match="schema version 999"):
            await PostgresStore.open(postgres_dsn)

    asyncio.run(story())


def test_a_url_names_the_store(tmp_path: Path, postgres_dsn: str) -> None:
    async def kinds() -> list[type[Any]]:
        stores = [await open_store(f"sqlite:///{tmp_path}/m.db"), await open_store(postgres_dsn)]
        for store in stores:
            await store.close()
        return [type(store) for store in stores]

    assert asyncio.run(kinds()) == [SqliteStore, PostgresStore]
    assert (tmp_path / "m.db").exists()


HOT: list[tuple[Find[Any], bool]] = [
    (Find(Cluster, {"project_id": "p", "gone_at": None}, order="created_at", limit=100), True),
    (Find(Cluster, {"project_id": "p", "gone_at": None}, order="created_at", after=(1, "c"), limit=100), True),
    (Find(Cluster, {"gone_at": None}, order="created_at", limit=100), True),
    (Find(Cluster, {"project_id": "p", "live_name": "n"}), False),
    (Find(Node, {"cluster_id": "c"}, order="created_at"), False),
    (Find(Lease, {"cluster_id": "c"}), False),
    (Find(Lease, one_of={"host_id": ["h"]}), False),
    (Find(Attachment, {"cluster_id": "c"}), False),
    (Find(Attachment, {"volume_id": "v"}), False),
    (Find(Volume, {"project_id": "p", "gone_at": None}, order="created_at", limit=100), True),
    (Find(Request, {"resource_id": "c"}, order="created_at", descending=True, limit=100), True),
    (Find(Request, {"project_id": "p"}, order="created_at", descending=True, limit=100), True),
    (Find(ApiKey, {"digest": "d"}), False),
    (Find(Host, {"region": "r"}, order="created_at", limit=100), True),
    (Find(Host, order="created_at", limit=100), True),
    (Find(Host, one_of={"name": ["n"]}), False),
    (Find(Host, after=("h", "h"), limit=1_000), True),
]


@pytest.mark.parametrize(
    ("query", "walks"), HOT, ids=lambda value: value.noun.__name__ if isinstance(value, Find) else ""
)
def test_the_questions_that_are_asked_often_have_an_index(
    file: sqlite3.Connection, query: Find[Any], walks: bool
) -> None:
    """`walks`: pages come straight off the index, in order, however long the list is."""
    sql, parameters = question(query, "*", SqliteSyntax())
    plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
    file.close()
    assert any("USING INDEX" in step or "USING COVERING INDEX" in step for step in plan), plan
    if walks:
        assert not any("TEMP B-TREE" in step for step in plan), plan
    else:
        assert any(step.startswith("SEARCH") for step in plan), plan

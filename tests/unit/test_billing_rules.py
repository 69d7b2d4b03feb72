"""Prices never change backwards, promises are paid once, storage without credit is kept but not lent; and PostgreSQL
keeps the ledger's laws as SQLite does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.clock import SeededEntropy
from muster.contracts.metering import Agreement, Want
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Replace
from muster.core.billing.booking import top_up_entry
from muster.core.billing.purse import HousePurse, term_cost
from muster.core.billing.verify import verify
from muster.core.catalog.service import CatalogService
from muster.core.clusters.commands import MountWish
from muster.core.clusters.mounts import attach_ops
from muster.errors import InsufficientBalance, Invalid, Protected, VersionMismatch
from muster.model.accounts import SYSTEM, Account, Project
from muster.model.base import DAY, HOUR, changed
from muster.model.billing import Book, LedgerEntry, account_book
from muster.model.catalog import Price, Region
from muster.model.clusters import Cluster, ClusterSpec, ClusterType
from muster.model.phases import Phase
from muster.model.volumes import Volume
from muster.store.postgres import PostgresStore
from muster.store.sqlite import SqliteStore
from muster.testing.clock import BIRTHDAY, ManualClock
from muster.testing.postgres import postgres_dsn, postgres_server

__all__ = ["postgres_dsn", "postgres_server"]

Story = Callable[[SqliteStore, ManualClock], Coroutine[Any, Any, None]]


def told(tmp_path: Path, story: Story) -> None:
    async def tell() -> None:
        store = SqliteStore.open(tmp_path / "muster.db", inline=True)
        try:
            rows = [
                Region(id="eu"),
                Account(id="a", name="a", created_at=1),
                Project(id="p", account_id="a", name="p", slug="p", created_at=1),
            ]
            await store.apply(Batch(Step.ACCOUNT_WRITE, [Insert(row) for row in rows]))
            await story(store, ManualClock())
        finally:
            await store.close()

    asyncio.run(tell())


def volume_price(id: str, at: int, micro: int = 5, currency: str = "USD") -> Price:
    return Price(
        id=id, item="volume", region="eu", unit="gib_month", micro=micro, currency=currency, valid_from=BIRTHDAY + at
    )


def test_a_price_changes_from_a_date_on_and_never_backwards(tmp_path: Path) -> None:
    async def story(store: SqliteStore, clock: ManualClock) -> None:
        catalog = CatalogService(store, clock)
        await catalog.put(SYSTEM, volume_price("first", 0))
        await catalog.put(SYSTEM, volume_price("first", 0))  # the same again is no change
        clock.advance(3600)
        for wrong in (volume_price("first", 0, micro=6), volume_price("first", 2 * HOUR)):
            with pytest.raises(Invalid, match="history"):
                await catalog.put(SYSTEM, wrong)
        with pytest.raises(Invalid, match="never backwards"):
            await catalog.put(SYSTEM, volume_price("second", 1))
        with pytest.raises(Invalid, match="USD"):
            await catalog.put(SYSTEM, volume_price("second", 2 * HOUR, currency="EUR"))
        await catalog.put(SYSTEM, volume_price("second", 2 * HOUR))
        await catalog.put(SYSTEM, volume_price("second", 3 * HOUR, micro=7))  # has not begun: may still change
        await catalog.put(SYSTEM, volume_price("third", 4 * HOUR))
        await catalog.remove(SYSTEM, Price, "third")
        with pytest.raises(Protected, match="has held"):
            await catalog.remove(SYSTEM, Price, "first")

    told(tmp_path, story)


def test_a_promise_is_paid_in_the_batch_that_gives_it(tmp_path: Path) -> None:
    async def story(store: SqliteStore, clock: ManualClock) -> None:
        purse = HousePurse(store, clock)
        project = await store.get(Project, "p")
        assert project is not None
        want = Want("8xH", "eu", 1, "reserved")
        promise = Agreement("r", "c", want, clock.now(), clock.now() + DAY, micro=100, memo="30 days of 8xH")
        with pytest.raises(InsufficientBalance) as refused:
            await purse.agree(project, promise, "ada")
        assert refused.value.details["missing_micro"] == 100
        top_up = top_up_entry("t", "a", 150, "", "me", clock.now())
        await store.apply(Batch(Step.BILLING_WRITE, [Insert(top_up)]))
        ops = await purse.agree(project, promise, "ada")
        other = await purse.agree(project, promise._replace(id="s"), "bob")
        await store.apply(Batch(Step.CLUSTER_ACCEPT, ops))
        with pytest.raises(VersionMismatch):  # both saw the same credit; it is there once
            await store.apply(Batch(Step.CLUSTER_ACCEPT, other))
        book = await store.get(Book, account_book("a"))
        assert book is not None
        assert book.micro == 50
        assert (await verify(store)).holds

    told(tmp_path, story)


def test_a_term_has_its_own_price_or_is_paid_by_the_hour() -> None:
    def price(id: str, billing: str, micro: int, days: int = 0) -> Price:
        unit = "term" if days else "node_hour"
        return Price(
            id=id, item="8xH", region="eu", billing=billing, committed_days=days, unit=unit, micro=micro, valid_from=1
        )

    prices = [price("h", "on_demand", 10), price("t", "reserved", 1_000, 30), price("s", "scheduled", 8)]
    reserved, scheduled = Want("8xH", "eu", 3, "reserved"), Want("8xH", "eu", 3, "scheduled")
    assert term_cost(prices, reserved, 30 * DAY, 5) == 3_000
    assert term_cost(prices, reserved, 29 * DAY, 5) == 3 * 10 * 24 * 29
    assert term_cost(prices, scheduled, 2 * HOUR, 5) == 3 * 8 * 2
    assert term_cost(prices, scheduled, 2 * HOUR, 0) == 0, "not begun"


def test_storage_without_credit_is_not_lent(tmp_path: Path) -> None:
    async def story(store: SqliteStore, clock: ManualClock) -> None:
        now = clock.now()
        spec = ClusterSpec(
            type=ClusterType.SLURM, region="eu", gpu_type="H", instance_type="8xH", workers=1, image_id=""
        )
        cluster = Cluster(
            id="c",
            account_id="a",
            project_id="p",
            name="c",
            live_name="c",
            region="eu",
            phase=Phase.READY,
            phase_since=now,
            spec=spec,
            digest="",
            created_at=now,
            updated_at=now,
        )
        volume = Volume(
            id="v",
            account_id="a",
            project_id="p",
            name="v",
            live_name="v",
            region="eu",
            size_gib=1,
            phase_since=now,
            created_at=now,
            updated_at=now,
        )
        await store.apply(Batch(Step.CLUSTER_ACCEPT, [Insert(cluster), Insert(volume)]))
        wish, entropy = MountWish(volume_id="v"), SeededEntropy(1)
        await attach_ops(store, entropy, SYSTEM, cluster, wish, now)
        await store.apply(Batch(Step.BILLING_WISH, [Replace(changed(volume, unfunded_since=now))]))
        with pytest.raises(Protected, match="no credit"):
            await attach_ops(store, entropy, SYSTEM, cluster, wish, now)

    told(tmp_path, story)


def test_postgresql_keeps_the_ledger_too(postgres_dsn: str) -> None:
    async def story() -> None:
        store = await PostgresStore.open(postgres_dsn)
        try:
            good = top_up_entry("t", "a", 5, "", "me", 1)
            for bad in (replace(good, micro=-5), replace(good, credit=good.debit)):
                with pytest.raises(Exception, match="check constraint"):
                    await store.apply(Batch(Step.BILLING_WRITE, [Insert(bad)]))
            await store.apply(Batch(Step.BILLING_WRITE, [Insert(good), Insert(replace(good, id="u"))]))
            with pytest.raises(Exception, match="only ever added to"):
                await store.apply(Batch(Step.BILLING_WRITE, [Replace(changed(good, micro=6))]))
            books = {book.id: (book.micro, book.version) for book in await store.find(Find(Book))}
            assert books == {"operator:cash": (-10, 2), account_book("a"): (10, 2)}
            assert await store.count(Find(LedgerEntry)) == 2
            assert (await verify(store)).holds
        finally:
            await store.close()

    asyncio.run(story())

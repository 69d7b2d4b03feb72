"""Whatever happens to usage, prices and the clock, and whenever it is booked: charges are what was served, the books
add up, and the proof agrees. A charge is also reckoned here second by second, by the simplest means there are."""

from __future__ import annotations

import asyncio
import itertools
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.contracts.metering import listened
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Replace
from muster.core.billing.booking import booked, booking_ops, due_until
from muster.core.billing.funds import price_book
from muster.core.billing.metering import Meter
from muster.core.billing.rates import PriceBook, lasts, spent
from muster.core.billing.verify import verify
from muster.model.base import DAY, HOUR, changed
from muster.model.billing import Book, EntryKind, LedgerEntry, Usage, UsageClass
from muster.model.catalog import Price
from muster.model.phases import VolumePhase
from muster.model.volumes import Volume
from muster.store.sqlite import SqliteStore
from muster.testing.clock import BIRTHDAY, ManualClock

MICROS = st.integers(0, 10**9)
OFFSETS = st.integers(0, 5 * DAY)


def price_at(n: int, micro: int, at: int, item: str = "8xH", unit: str = "node_hour") -> Price:
    return Price(id=f"p{n}", item=item, region="eu", unit=unit, micro=micro, valid_from=BIRTHDAY + at)


def usage_of(quantity: int, opened: int) -> Usage:
    return Usage(
        id="u",
        account_id="a",
        project_id="p",
        kind="cluster",
        resource_id="c",
        resource_name="c",
        item="8xH",
        region="eu",
        billing="on_demand",
        usage_class=UsageClass.SERVING,
        quantity=quantity,
        opened_at=BIRTHDAY + opened,
        open_key="c",
        booked_until=BIRTHDAY + opened,
    )


@given(
    prices=st.dictionaries(OFFSETS, MICROS, max_size=4),
    quantity=st.integers(1, 5000),
    opened=OFFSETS,
    bookings=st.lists(st.integers(0, 6 * DAY), min_size=1, max_size=8),
)
def test_bookings_telescope_to_the_charge(
    prices: dict[int, int], quantity: int, opened: int, bookings: list[int]
) -> None:
    book = PriceBook([price_at(n, micro, at) for n, (at, micro) in enumerate(prices.items())])
    usage = usage_of(quantity, opened)
    step, paid, ids = usage, 0, set[str]()
    for until in (usage.opened_at + more for more in bookings):
        step, entries = booked(step, book, until, until)
        for entry in entries:
            assert entry.micro > 0
            assert entry.since is not None
            assert entry.since <= entry.at
            assert entry.kind is EntryKind.CORRECTION or (entry.at - 1) // DAY == entry.since // DAY
            assert entry.id not in ids
            ids.add(entry.id)
            paid += entry.micro if entry.kind is EntryKind.USAGE else -entry.micro
        assert paid == step.booked_micro == _charge(usage, until, prices)


def _charge(usage: Usage, until: int, prices: dict[int, int]) -> int:
    total = Fraction(0)
    cuts = sorted({usage.opened_at, until, *(BIRTHDAY + at for at in prices)})
    for since, end in itertools.pairwise(cuts):
        if usage.opened_at <= since < until:
            begun = [at for at in prices if BIRTHDAY + at <= since]
            total += Fraction(usage.quantity * (end - since) * (prices[max(begun)] if begun else 0), HOUR)
    return int(total)


@given(micro=st.integers(0, 10**12), quantity=st.integers(1, 10_000), price=st.integers(1, 10**9))
def test_credit_lasts_as_long_as_it_is_said_to(micro: int, quantity: int, price: int) -> None:
    book = PriceBook([price_at(0, price, 0)])
    usage = usage_of(quantity, 0)
    burn = book.burn([usage], BIRTHDAY)
    ms = lasts(burn, micro)
    assert ms is not None
    assert book.charge(usage, BIRTHDAY + ms) <= micro
    assert spent(burn, ms + 1) >= micro


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["wait", "grow", "book", "unfund", "refund", "reprice", "delete"]), st.integers(1, DAY)
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(moves=MOVES)
def test_the_proof_holds_whatever_a_volume_goes_through(moves: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(_life(Path(directory), moves))


async def _life(directory: Path, moves: list[tuple[str, int]]) -> None:
    raw = SqliteStore.open(directory / "m.db", inline=True, fsync=False)
    clock = ManualClock()
    store = listened(raw, Meter(raw, clock))
    try:
        await store.apply(Batch(Step.CATALOG_WRITE, [Insert(price_at(0, 999_983, 0, "volume", "gib_month"))]))
        volume = Volume(
            id="v",
            account_id="a",
            project_id="p",
            name="v",
            live_name="v",
            region="eu",
            size_gib=7,
            phase_since=clock.now(),
            created_at=clock.now(),
            updated_at=clock.now(),
        )
        await store.apply(Batch(Step.VOLUME_ACCEPT, [Insert(volume)]))
        volume = replace(volume.advance(VolumePhase.AVAILABLE, because="", at=clock.now()), actual_gib=7)
        await store.apply(Batch(Step.VOLUME_RECORD, [Replace(volume)]))
        for n, (what, ms) in enumerate(moves, 1):
            clock.advance(ms / 1000)
            volume = await _move(store, clock, volume, what, n)
            verdict = await verify(raw)
            assert verdict.holds, verdict.problems
        assert sum(book.micro for book in await raw.find(Find(Book))) == 0
        entries = await raw.find(Find(LedgerEntry))
        assert len({entry.id for entry in entries}) == len(entries)
    finally:
        await raw.close()


async def _move(store: SqliteStore, clock: ManualClock, volume: Volume, what: str, n: int) -> Volume:
    now = clock.now()
    gone = volume.phase is VolumePhase.DELETING
    if what == "reprice":
        later = price_at(n, 1_000 * n + 1, now - BIRTHDAY, "volume", "gib_month")
        await store.apply(Batch(Step.CATALOG_WRITE, [Insert(later)]))
    elif what == "book":
        prices = await price_book(store)
        usages = await store.find(Find(Usage, equals={"closed_at": None}))
        due = [usage for usage in usages if usage.charged]
        until = [due_until(usage, prices, now) for usage in due]
        await store.apply(Batch(Step.BILLING_BOOK, booking_ops(due, prices, until, now)))
    elif not gone and what != "wait":
        changes = {
            "grow": changed(volume, actual_gib=volume.actual_gib + 3, updated_at=now),
            "unfund": changed(volume, unfunded_since=now, updated_at=now),
            "refund": changed(volume, unfunded_since=None, updated_at=now),
            "delete": volume.advance(VolumePhase.DELETING, because="", at=now),
        }
        volume = changes[what]
        await store.apply(Batch(Step.VOLUME_RECORD, [Replace(volume)]))
    return volume

"""Cursor paging: page by page is everything once, in order, whatever comes and goes; no cursor breaks it."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.contracts.steps import Step
from muster.contracts.store import Batch, Insert, Remove
from muster.core.paging import PAGE_LIMIT_MAX, cursor_of, page_of, read_cursor
from muster.errors import Invalid
from muster.model.accounts import Account
from muster.store.sqlite import SqliteStore

RENDEZVOUS = st.lists(st.tuples(st.integers(0, 3), st.uuids()), unique_by=lambda row: row[1], max_size=25)
"""Few instants, so that many are born in the same one."""


def account(at: int, id: str) -> Account:
    return Account(id=id, name=id, created_at=at)


async def walk(
    store: SqliteStore, limit: int, descending: bool, between: list[list[Insert | Remove]]
) -> list[tuple[int, str]]:
    """Every page, with something happening after each."""
    seen: list[tuple[int, str]] = []
    cursor = None
    while True:
        page = await page_of(store, Account, {}, cursor=cursor, limit=limit, descending=descending)
        assert len(page.items) <= limit
        seen += [(each.created_at, each.id) for each in page.items]
        if page.next_cursor is None:
            return seen
        assert page.items, "a page with a next one is never empty"
        cursor = page.next_cursor
        if between:
            await store.apply(Batch(Step.ACCOUNT_WRITE, between.pop()))


@settings(max_examples=40, deadline=None)
@given(RENDEZVOUS, RENDEZVOUS, st.integers(1, 7), st.booleans())
def test_pages_are_everything_once_and_in_order(
    rows: list[tuple[int, object]], others: list[tuple[int, object]], limit: int, descending: bool
) -> None:
    stay = [(at, str(id)) for at, id in rows]
    come = [(at, str(id)) for at, id in others if str(id) not in {id for _, id in stay}]
    go, come = come[::2], come[1::2]

    async def story(folder: str) -> list[tuple[int, str]]:
        store = SqliteStore.open(Path(folder) / "paging.db", inline=True)
        try:
            await store.apply(Batch(Step.ACCOUNT_WRITE, [Insert(account(at, id)) for at, id in stay + go]))
            happens: list[list[Insert | Remove]] = [[Insert(account(at, id))] for at, id in come]
            happens += [[Remove(Account, id)] for _, id in go]
            return await walk(store, limit, descending, happens)
        finally:
            await store.close()

    with tempfile.TemporaryDirectory() as folder:
        seen = asyncio.run(story(folder))
    assert seen == sorted(set(seen), reverse=descending)
    assert set(stay) <= set(seen) <= {*stay, *come, *go}


@given(st.integers(0, 2**62), st.text(min_size=1).filter(lambda id: "\x00" not in id))
def test_a_cursor_comes_back_as_it_went(at: int, id: str) -> None:
    assert read_cursor(cursor_of(at, id)) == (at, id)


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode("utf-8", "replace")).decode().rstrip("=")


@given(st.text() | st.text().map(encoded) | st.integers().map(lambda at: encoded(f"{at}:x")))
def test_any_other_text_is_the_callers_mistake(cursor: str) -> None:
    """What is read from a cursor goes to the database, which takes 64 bits and no NUL."""
    read = None
    with suppress(Invalid):
        read = read_cursor(cursor)
    assert read is None or (0 <= read[0] < 2**63 and "\x00" not in read[1])


@pytest.mark.parametrize("at", [2**63, -1, 10**40])
def test_a_cursor_beyond_64_bits_is_refused(at: int) -> None:
    with pytest.raises(Invalid, match="not one of ours"):
        read_cursor(encoded(f"{at}:x"))


@pytest.mark.parametrize("limit", [0, -1, PAGE_LIMIT_MAX + 1])
def test_a_page_has_bounds(limit: int, tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "paging.db", inline=True)
    try:
        with pytest.raises(Invalid, match="limit must be between"):
            asyncio.run(page_of(store, Account, {}, cursor=None, limit=limit))
    finally:
        asyncio.run(store.close())

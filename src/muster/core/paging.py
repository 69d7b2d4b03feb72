"""Cursor paging: a page of nouns, and an opaque cursor that means "after this one"."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Generic, NamedTuple

from muster.contracts.store import Find, Store
from muster.errors import Invalid
from muster.model.base import N

PAGE_LIMIT_MAX = 1_000
PAGE_LIMIT_DEFAULT = 100
AT_MAX = (1 << 63) - 1


class Page(NamedTuple, Generic[N]):
    items: list[N]
    next_cursor: str | None


def cursor_of(at: Any, id: str) -> str:
    return base64.urlsafe_b64encode(f"{at}:{id}".encode()).decode().rstrip("=")


def read_cursor(cursor: str | None) -> tuple[int, str] | None:
    """The (order value, id) behind a cursor of ours; anything else is the caller's mistake."""
    if not cursor:
        return None
    try:
        said, id = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().split(":", 1)
        at = int(said)
        # Beyond these no database could be asked.
        if not 0 <= at <= AT_MAX or "\0" in id:
            raise ValueError(cursor)
    except (ValueError, binascii.Error) as error:
        raise Invalid(
            "this cursor is not one of ours", field="cursor", hint="use next_cursor of the last page"
        ) from error
    return at, id


def page_limit(limit: int | None) -> int:
    if limit is None:
        return PAGE_LIMIT_DEFAULT
    if not 1 <= limit <= PAGE_LIMIT_MAX:
        raise Invalid(f"limit must be between 1 and {PAGE_LIMIT_MAX}", field="limit")
    return limit


async def page_of(
    store: Store,
    noun: type[N],
    equals: dict[str, Any],
    *,
    cursor: str | None,
    limit: int | None,
    descending: bool = False,
) -> Page[N]:
    """One page, ordered by (created_at, id)."""
    most = page_limit(limit)
    query = Find(
        noun,
        equals=equals,
        order="created_at",
        after=read_cursor(cursor),
        limit=most + 1,
        descending=descending,
    )
    rows = await store.find(query)
    if len(rows) <= most:
        return Page(rows, None)
    last = rows[most - 1]
    return Page(rows[:most], cursor_of(last.created_at, last.id))  # type: ignore[attr-defined]

"""How a native answer is put together: JSON, its tag, its place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from muster.contracts.http import Reply
from muster.core.paging import Page
from muster.dialects.native.translate import V, shown

BASE: Final = "/muster/v1"


def answer(view: Any, *, status: int = 200, tag: int | None = None, location: str | None = None) -> Reply:
    headers: list[tuple[str, str]] = []
    if tag is not None:
        headers.append(("etag", f'"{tag}"'))
    if location is not None:
        headers.append(("location", f"{BASE}/{location}"))
    return Reply(status, msgspec.json.encode(view), headers=headers)


def listing(items: Iterable[Any], next_cursor: str | None = None) -> Reply:
    return Reply(200, msgspec.json.encode({"items": list(items), "next_cursor": next_cursor}))


def page_reply(page: Page[Any], view: type[V]) -> Reply:
    return listing((shown(noun, view) for noun in page.items), page.next_cursor)


def nothing() -> Reply:
    return Reply(204)

"""What all nouns share: instants, and the frozen struct they are made of."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, TypeVar

import msgspec

Instant: TypeAlias = int
"""Milliseconds since the Unix epoch, UTC."""

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


class Noun(msgspec.Struct, frozen=True, kw_only=True):
    """A stored thing. Scalar fields become columns, compound ones JSON columns (store/schema.py)."""

    id: str
    version: int = 1


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a noun that is only said, never queried: lives in a JSON column."""


N = TypeVar("N", bound=Noun)


def changed(noun: N, **fields: Any) -> N:
    """The next value of a noun: given fields replaced, version raised by one."""
    return msgspec.structs.replace(noun, version=noun.version + 1, **fields)

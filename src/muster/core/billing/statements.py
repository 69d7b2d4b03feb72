"""Statements: the ledger, and what has accrued since, summed by whatever one asks for. Pure.

A statement is made of entries that each cover one UTC day and one price, so days, clusters and projects add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from muster.core.billing.rates import PriceBook
from muster.model.base import SECOND, Instant
from muster.model.billing import EntryKind, LedgerEntry, Usage

BY: Final = ("day", "resource", "project", "entry")


class Line(NamedTuple):
    """One line: what an account is charged (positive) or credited (negative) for."""

    day: str
    project_id: str
    resource_id: str
    resource_name: str
    kind: str
    item: str
    unit_seconds: int  # nodes or GiB times seconds
    micro: int
    booked: bool  # False = accrued, not in the ledger yet


_SIGN: Final = {
    EntryKind.TOP_UP: -1,
    EntryKind.OVERRUN: -1,
    EntryKind.CORRECTION: -1,
    EntryKind.REFUND: -1,
    EntryKind.USAGE: 1,
    EntryKind.CONTRACT: 1,
}


def lines_of(
    entries: Iterable[LedgerEntry], usages: Sequence[Usage], prices: PriceBook, now: Instant, by: str
) -> list[Line]:
    """Every entry as a line, and every open interval that costs something; summed unless asked by entry."""
    lines = [_line(entry) for entry in entries]
    lines += [_accrued(usage, prices, now) for usage in usages if prices.owed(usage, now)]
    return lines if by == "entry" else _summed(lines, by)


def _line(entry: LedgerEntry) -> Line:
    held = entry.quantity * (entry.at - entry.since) // SECOND if entry.since is not None else 0
    # What is owed up to midnight belongs to the day that ends there.
    day = day_of(entry.at - 1 if entry.since is not None else entry.at)
    return Line(
        day,
        entry.project_id or "",
        entry.resource_id or "",
        entry.resource_name or entry.memo,
        entry.kind,
        entry.item,
        held,
        _SIGN[entry.kind] * entry.micro,
        True,
    )


def _accrued(usage: Usage, prices: PriceBook, now: Instant) -> Line:
    held = usage.quantity * (now - usage.booked_until) // SECOND
    return Line(
        day_of(now),
        usage.project_id,
        usage.resource_id,
        usage.resource_name,
        EntryKind.USAGE,
        usage.item,
        held,
        prices.owed(usage, now),
        False,
    )


def _summed(lines: Iterable[Line], by: str) -> list[Line]:
    sums: dict[tuple[str, ...], Line] = {}
    for line in lines:
        key = _key(line, by)
        known = sums.get(key)
        sums[key] = (
            _named(line, by)
            if known is None
            else known._replace(
                unit_seconds=known.unit_seconds + line.unit_seconds,
                micro=known.micro + line.micro,
                booked=known.booked and line.booked,
            )
        )
    return [sums[key] for key in sorted(sums)]


def _key(line: Line, by: str) -> tuple[str, ...]:
    if by == "day":
        return line.day, line.project_id, line.resource_id, line.kind, line.item
    return (
        (line.project_id, line.resource_id, line.kind, line.item)
        if by == "resource"
        else (line.project_id, line.kind)
    )


def _named(line: Line, by: str) -> Line:
    """A sum says only what is the same in all its parts."""
    if by == "day":
        return line
    if by == "resource":
        return line._replace(day="")
    return line._replace(day="", resource_id="", resource_name="", item="")


def day_of(at: Instant) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).date().isoformat()

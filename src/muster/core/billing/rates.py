"""What a stretch of usage costs: exact integers, rounded once. Pure.

Leans on model only. *Laws.* A charge is a function of the interval and of the prices' history: the same question has
the same answer whoever asks, and however often the interval was booked in between. Rounding happens once per
interval, downwards, to the micro-unit; what pieces of it cost is the difference of what it cost up to their ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from muster.model.base import DAY, HOUR, Instant
from muster.model.billing import MONTH_HOURS, ON_DEMAND, PREEMPTIBLE, UNIT_MS, Usage
from muster.model.catalog import Price

_WHOLE: Final = MONTH_HOURS * HOUR
"""The common multiple of all units of time: charges are summed in fractions of it, so nothing is lost on the way."""


class Piece(NamedTuple):
    """A part of an interval with one price."""

    since: Instant
    until: Instant
    price: Price | None


class PriceBook:
    """The prices' history, by what they are for."""

    def __init__(self, prices: Iterable[Price]) -> None:
        self._by_item: dict[tuple[str, str, str], list[Price]] = defaultdict(list)
        for price in sorted(prices, key=lambda price: (price.valid_from, price.number, price.id)):
            if price.unit in UNIT_MS and not price.committed_days:
                self._by_item[price.item, price.region, price.billing].append(price)

    def of(self, item: str, region: str, billing: str) -> Sequence[Price]:
        """From the first to the last; of two that begin together the later one holds. Preemptible hosts cost what
        others do until they have a price of their own."""
        mine = self._by_item.get((item, region, billing), [])
        if billing != PREEMPTIBLE:
            return mine
        plain = self._by_item.get((item, region, ON_DEMAND), [])
        return [price for price in plain if not mine or price.valid_from < mine[0].valid_from] + mine

    def at(self, item: str, region: str, billing: str, at: Instant) -> Price | None:
        begun = [price for price in self.of(item, region, billing) if price.valid_from <= at]
        return begun[-1] if begun else None

    def pieces(self, usage: Usage, since: Instant, until: Instant) -> list[Piece]:
        """The stretch from `since` to `until`, cut where the price changes."""
        prices = self.of(usage.item, usage.region, usage.billing)
        cuts = sorted({since, *(price.valid_from for price in prices if since < price.valid_from < until)})
        return [
            Piece(cut, end, self.at(usage.item, usage.region, usage.billing, cut))
            for cut, end in zip(cuts, [*cuts[1:], until], strict=True)
            if end > cut
        ]

    def charge(self, usage: Usage, until: Instant) -> int:
        """What this interval costs from its opening up to `until`."""
        if not usage.charged or until <= usage.opened_at:
            return 0
        parts = (
            usage.quantity * (piece.until - piece.since) * share(piece.price)
            for piece in self.pieces(usage, usage.opened_at, until)
            if piece.price is not None
        )
        return sum(parts) // _WHOLE

    def owed(self, usage: Usage, at: Instant) -> int:
        """What was used and is not booked yet."""
        return self.charge(usage, at if usage.closed_at is None else usage.closed_at) - usage.booked_micro

    def burn(self, usages: Iterable[Usage], at: Instant) -> int:
        """What open intervals cost together at this instant's prices, as a rate: see `spent`, `lasts`, `per_hour`."""
        return sum(
            usage.quantity * share(self.at(usage.item, usage.region, usage.billing, at))
            for usage in usages
            if usage.charged and usage.closed_at is None
        )

    def next_change(self, usages: Iterable[Usage], now: Instant) -> Instant | None:
        """The next instant at which one of these begins to cost something else."""
        ahead = [
            price.valid_from
            for usage in usages
            if usage.charged
            for price in self.of(usage.item, usage.region, usage.billing)
            if price.valid_from > now
        ]
        return min(ahead, default=None)

    def last_change(self, usage: Usage, now: Instant) -> Instant:
        begun = [p.valid_from for p in self.of(usage.item, usage.region, usage.billing) if p.valid_from <= now]
        return max(begun, default=0)


def share(price: Price | None) -> int:
    """A price as a rate: micro-units for one unit in the time `_WHOLE`."""
    return 0 if price is None else price.micro * (_WHOLE // UNIT_MS[price.unit])


def per_hour(burn: int) -> int:
    return spent(burn, HOUR)


def spent(burn: int, ms: int) -> int:
    """Micro-units that a rate costs in so many milliseconds, rounded up."""
    return -(-burn * ms // _WHOLE)


def lasts(burn: int, micro: int) -> int | None:
    """For how many milliseconds so much credit lasts; None = for ever."""
    return None if burn <= 0 else max(0, micro) * _WHOLE // burn


def midnight(at: Instant) -> Instant:
    """The beginning of the UTC day that `at` is in."""
    return at - at % DAY

"""Until when what is taken will be held, as far as anybody knows. Pure bookkeeping beside the placement index.

Leans on nothing. *Law.* A host's end is known only when every taken slot of it has a known end.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from muster.model.base import Instant

STRETCH_WEIGHS: Final = 80
"""Keeping a whole host busy for longer, beside leaving one GPU of it idle for as long."""

_end = itemgetter(1)


class Holds:
    __slots__ = ("_by_host",)

    def __init__(self) -> None:
        self._by_host: dict[str, list[tuple[int, Instant]]] = {}  # host id -> (slots, end); only known ends

    def put(self, host_id: str, slots: int, ends_at: Instant | None) -> None:
        """These slots are taken until then; what was said of them before no longer counts."""
        self.free(host_id, slots)
        if ends_at is not None:
            self._by_host.setdefault(host_id, []).append((slots, ends_at))

    def free(self, host_id: str, slots: int) -> None:
        known = self._by_host.get(host_id)
        if known is None:
            return
        left = [(mask & ~slots, end) for mask, end in known if mask & ~slots]
        if left:
            self._by_host[host_id] = left
        else:
            del self._by_host[host_id]

    def says(self, host_id: str, slots: int, ends_at: Instant | None) -> bool:
        """Whether just this is known of just these slots."""
        known = self._by_host.get(host_id)
        return ends_at is None if known is None else (slots, ends_at) in known

    def set_host(self, host_id: str, held: Iterable[tuple[int, Instant | None]]) -> None:
        self._by_host.pop(host_id, None)
        for slots, ends_at in held:
            self.put(host_id, slots, ends_at)

    def known(self) -> list[str]:
        """Hosts of which some end is known."""
        return list(self._by_host)

    def fits_at(self, host_id: str, free: int, gpus: int) -> Instant | None:
        """When this host will have so many slots free, if its known ends say so; 0 = it has."""
        count = free.bit_count()
        if count >= gpus:
            return 0
        known = self._by_host.get(host_id, ())
        if len(known) == 1:
            return known[0][1] if count + known[0][0].bit_count() >= gpus else None
        for slots, end in sorted(known, key=_end):
            count += slots.bit_count()
            if count >= gpus:
                return end
        return None

    def gains(self, host_id: str, free: int, gpus: int) -> list[tuple[Instant, int]]:
        """(when, how many more nodes of so many GPUs this host will then have), by its known ends; 0 = it has."""
        count = free.bit_count()
        found = [(0, count // gpus)] if count >= gpus else []
        known = self._by_host.get(host_id, ())
        for slots, end in sorted(known, key=_end) if len(known) > 1 else known:
            more = count + slots.bit_count()
            if more // gpus > count // gpus:
                found.append((end, more // gpus - count // gpus))
            count = more
        return found

    def end_of(self, host_id: str, taken: int) -> Instant | None:
        """When all that is taken of it will be given back; None when nobody knows."""
        known = self._by_host.get(host_id)
        if known is None:
            return None
        if len(known) == 1:
            return None if taken & ~known[0][0] else known[0][1]
        covered, last = 0, 0
        for slots, end in known:
            covered |= slots
            last = max(last, end)
        return None if taken & ~covered else last


class Lifetime(NamedTuple):
    """Somebody who comes `now` and stays until a known end; what others' ends are is in `holds`."""

    now: Instant
    ends_at: Instant
    holds: Holds

    def misfit(self, host_id: str, taken: int, gpus: int) -> int:
        """How badly so many GPUs would sit there: how much longer the host would be busy for their sake, or, far
        less bad, for how long they leave a hole beside whoever stays. Nobody knows its end: not at all."""
        end = self.holds.end_of(host_id, taken)
        if end is None:
            return 0
        stay = max(end, self.now)
        return (self.ends_at - stay) * STRETCH_WEIGHS if stay < self.ends_at else (stay - self.ends_at) * gpus

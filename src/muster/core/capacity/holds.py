"""Until when what is taken will be held, as far as anybody knows. Pure bookkeeping beside the placement index.

Leans on nothing. *Law.* A host's end is known only when every taken slot of it has a known end.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.model.base import Instant


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

    def set_host(self, host_id: str, held: Iterable[tuple[int, Instant | None]]) -> None:
        self._by_host.pop(host_id, None)
        for slots, ends_at in held:
            self.put(host_id, slots, ends_at)

    def end_of(self, host_id: str, taken: int) -> Instant | None:
        """When all that is taken of it will be given back; None when nobody knows."""
        known = self._by_host.get(host_id)
        if known is None:
            return None
        covered, last = 0, 0
        for slots, end in known:
            covered |= slots
            last = max(last, end)
        return None if taken & ~covered else last

"""One table of every dialect's routes: which handler a method and a path belong to.

Leans on contracts.http only. *Laws.* No two dialects claim a path, and no route is declared twice: either refuses to
start, naming both. Inside one dialect a fixed segment wins over a parameter. Paths without parameters, and those with
one at their end, are one lookup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from muster.contracts.http import Dialect, Route, SocketRoute

R = TypeVar("R", Route, SocketRoute)

_REST: Final = "..."


class RouteClash(Exception):
    """Two routes could answer the same request; the house does not start."""


class Entry(Generic[R]):
    """A route, the dialect it belongs to, and the names of its parameters in order."""

    __slots__ = ("dialect", "names", "route")

    def __init__(self, dialect: Dialect, route: R, names: tuple[str, ...]) -> None:
        self.dialect = dialect
        self.route: R = route
        self.names = names


class Found(NamedTuple, Generic[R]):
    """A path that is known: its entries by method ("" for sockets), and the parameters' values."""

    entries: Mapping[str, Entry[R]]
    values: Sequence[str]


class _Place(Generic[R]):
    """One position in the tree of segments."""

    __slots__ = ("any", "entries", "fixed", "rest")

    def __init__(self) -> None:
        self.fixed: dict[str, _Place[R]] = {}
        self.any: _Place[R] | None = None
        self.rest: dict[str, Entry[R]] = {}
        self.entries: dict[str, Entry[R]] = {}


class Router(Generic[R]):
    """Finds the entries of a path; built once at start."""

    def __init__(self, routes: Iterable[tuple[Dialect, R]]) -> None:
        self._whole: dict[str, Found[R]] = {}
        self._ends: dict[str, _Place[R]] = {}  # "/muster/v1/clusters" -> the place that {id} follows
        self._root: _Place[R] = _Place()
        self._entries: list[Entry[R]] = []
        for dialect, route in routes:
            self._add(dialect, route)
        _refuse_shared_paths(self._entries)

    def __iter__(self) -> Iterator[Entry[R]]:
        return iter(self._entries)

    def find(self, path: str) -> Found[R] | None:
        whole = self._whole.get(path)
        if whole is not None:
            return whole
        head, _, last = path.rpartition("/")
        place = self._ends.get(head)
        if place is not None and last and last not in place.fixed and place.any is not None and place.any.entries:
            return Found(place.any.entries, (last,))
        return _walk(self._root, path.split("/"), 1, [])

    def _add(self, dialect: Dialect, route: R) -> None:
        segments = route.pattern.split("/")[1:]
        names = tuple(name for name in map(_parameter, segments) if name is not None)
        entry = Entry(dialect, route, names)
        self._entries.append(entry)
        entries = self._place(segments)
        if len(names) == 1 and _parameter(segments[-1]) is not None and not names[0].endswith(_REST):
            self._ends["/" + "/".join(segments[:-1])] = self._at(segments[:-1])
        method = route.method if isinstance(route, Route) else ""
        if method in entries:
            raise RouteClash(_clash(entries[method], entry))
        entries[method] = entry
        if not names:
            self._whole[route.pattern] = Found(entries, ())

    def _at(self, segments: Sequence[str]) -> _Place[R]:
        place = self._root
        for segment in segments:
            place = place.fixed[segment]
        return place

    def _place(self, segments: Sequence[str]) -> dict[str, Entry[R]]:
        place = self._root
        for segment in segments:
            name = _parameter(segment)
            if name is None:
                place = place.fixed.setdefault(segment, _Place())
            elif name.endswith(_REST):
                return place.rest
            else:
                place.any = place.any or _Place()
                place = place.any
        return place.entries


def _walk(place: _Place[R], segments: Sequence[str], at: int, values: list[str]) -> Found[R] | None:
    """Fixed before parameter before rest; steps back when a branch leads nowhere."""
    if at == len(segments):
        return Found(place.entries, tuple(values)) if place.entries else None
    segment = segments[at]
    fixed = place.fixed.get(segment)
    if fixed is not None:
        found = _walk(fixed, segments, at + 1, values)
        if found is not None:
            return found
    if place.any is not None and segment:
        found = _walk(place.any, segments, at + 1, [*values, segment])
        if found is not None:
            return found
    if place.rest:
        return Found(place.rest, (*values, "/".join(segments[at:])))
    return None


def _parameter(segment: str) -> str | None:
    """`{id}` -> id, `{rest...}` -> rest..., anything else -> None."""
    return segment[1:-1] if segment.startswith("{") and segment.endswith("}") else None


def params_of(entry: Entry[R], values: Sequence[str]) -> dict[str, str]:
    """The parameters by the names this very route gave them."""
    return {name.removesuffix(_REST): value for name, value in zip(entry.names, values, strict=True)}


def _refuse_shared_paths(entries: Sequence[Entry[R]]) -> None:
    """Two dialects must not be able to answer one path, whatever the method and however it is spelled."""
    for index, one in enumerate(entries):
        for other in entries[index + 1 :]:
            if one.dialect is not other.dialect and _overlap(one.route.pattern, other.route.pattern):
                raise RouteClash(_clash(one, other))


def _overlap(one: str, other: str) -> bool:
    """Whether some path matches both patterns."""
    left, right = one.split("/"), other.split("/")
    for mine, theirs in zip(left, right, strict=False):
        mine_name, their_name = _parameter(mine), _parameter(theirs)
        if (mine_name or "").endswith(_REST) or (their_name or "").endswith(_REST):
            return True
        if mine_name is None and their_name is None and mine != theirs:
            return False
    return len(left) == len(right)


def _clash(one: Entry[R], other: Entry[R]) -> str:
    return f"two routes claim one path: {_said(one)} and {_said(other)}"


def _said(entry: Entry[R]) -> str:
    method = f"{entry.route.method} " if isinstance(entry.route, Route) else ""
    return f"{entry.dialect.name}.{entry.route.name} ({method}{entry.route.pattern})"

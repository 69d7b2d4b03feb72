"""Together's dialect: the table of its calls, under each base that people configure, as the door wants it.

Leans on the table of calls and on refusals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MethodType

from muster.contracts.http import Call, Reply, Route, SocketRoute
from muster.core.house import House
from muster.dialects.together import refusals
from muster.dialects.together.calls import COMPUTE, LEGACY, SURFACES, Surface
from muster.errors import CallError, Unauthenticated


def routes_of(surface: Surface, house: House) -> Iterator[Route]:
    """One name for a call, whichever base it came by."""
    room = surface.room(house)
    for base in surface.bases:
        for row in surface.rows:
            name = f"{row.method} {surface.bases[0]}{row.path}"
            yield Route(row.method, base + row.path, MethodType(row.handle, room), name=name)


class Together:
    """The dialect as the door is handed it."""

    name = "together"

    def __init__(self, house: House) -> None:
        self._routes = tuple(route for surface in SURFACES for route in routes_of(surface, house))

    def routes(self) -> Sequence[Route]:
        return self._routes

    def sockets(self) -> Sequence[SocketRoute]:
        return ()

    def claims(self, path: str) -> bool:
        return path.startswith((*COMPUTE, "/v1/", "/v3/", f"{LEGACY}/gpu_cluster", f"{LEGACY}/shared_volume"))

    def credentials(self, headers: Mapping[str, str], query: str) -> str | None:
        said = headers.get("authorization")
        if said is None:
            return None
        if said[:7].lower() != "bearer ":
            raise Unauthenticated(
                "the Authorization header is not a bearer key", hint="set TOGETHER_API_KEY to a key of this server"
            )
        return said[7:].strip()

    def refuse(self, error: CallError, call: Call) -> Reply:
        return refusals.refusal(error, call)

    def crash(self, call: Call) -> Reply:
        return refusals.crash(call)

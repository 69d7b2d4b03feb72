"""The door: what a dialect hands to the web server, free of any HTTP framework.

*Laws.* A dialect is translation only: no store, no clock, no house rule. It is total: every phase, error code and
field has a wire form. One visible table holds every dialect's routes, and no two dialects claim a path. Whoever is
not let in, or breaks something, is told so in the dialect's own envelope.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qs

from muster.errors import CallError, NotFound
from muster.model.accounts import SYSTEM, Actor


class Call:
    """One request, already authenticated. Query and headers are parsed only when asked for."""

    __slots__ = (
        "_headers",
        "_query",
        "_raw_headers",
        "_raw_query",
        "actor",
        "body",
        "id",
        "method",
        "params",
        "path",
    )

    def __init__(
        self,
        *,
        id: str,
        method: str,
        path: str,
        params: Mapping[str, str],
        raw_query: bytes = b"",
        raw_headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        actor: Actor = SYSTEM,
    ) -> None:
        self.id = id
        self.method = method
        self.path = path
        self.params = params
        self.body = body
        self.actor = actor
        self._raw_query = raw_query
        self._raw_headers = raw_headers
        self._query: dict[str, list[str]] | None = None
        self._headers: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, list[str]]:
        if self._query is None:
            text = self._raw_query.decode("ascii", "replace")
            self._query = parse_qs(text, keep_blank_values=True) if text else {}
        return self._query

    def asked(self, name: str, default: str | None = None) -> str | None:
        """The first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else default

    @property
    def headers(self) -> dict[str, str]:
        if self._headers is None:
            self._headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in self._raw_headers}
        return self._headers

    def says(self, name: bytes, value: bytes) -> bool:
        """Whether it has this very header (names in lower case): costs nothing, where the others are not needed."""
        return (name, value) in self._raw_headers


class NoSuchPath(NotFound):
    """Nobody claims this path: a 404, in the words of whose it looks like."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is nothing at {path}")


class WrongMethod(NotFound):
    """The path is known, but not with this method: a 405, in the words of the path's own dialect."""

    def __init__(self, method: str, path: str, allow: str) -> None:
        super().__init__(f"{path} does not answer to {method}", hint=f"it answers to {allow}")
        self.allow = allow


@dataclass(slots=True)
class Reply:
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Sequence[tuple[str, str]] = ()


@dataclass(slots=True)
class Stream:
    """A reply that goes on: server-sent events, downloads."""

    chunks: AsyncIterator[bytes]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Sequence[tuple[str, str]] = ()


Handler: TypeAlias = Callable[[Call], Awaitable[Reply | Stream]]


@dataclass(frozen=True, slots=True)
class Route:
    """`pattern` like /muster/v1/clusters/{id}; `{rest...}` takes what is left. `describe` feeds the OpenAPI page."""

    method: str
    pattern: str
    handle: Handler
    name: str
    open: bool = False  # True = answers without a key
    body_limit_bytes: int = 1 << 20
    describe: Mapping[str, Any] = field(default_factory=dict)


class WebSocket(Protocol):
    """A WebSocket already accepted; the dialect authenticates by its own first message."""

    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]

    async def receive(self) -> str | bytes | None:
        """The next message, or None when the other side has gone."""

    async def send(self, message: str | bytes) -> None: ...

    async def close(self, code: int = 1000, reason: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class SocketRoute:
    pattern: str
    handle: Callable[[WebSocket], Awaitable[None]]
    name: str
    frame_limit_bytes: int = 1 << 20


class Dialect(Protocol):
    @property
    def name(self) -> str: ...

    def routes(self) -> Sequence[Route]: ...

    def sockets(self) -> Sequence[SocketRoute]: ...

    def claims(self, path: str) -> bool:
        """Whether an unknown path under this prefix is this dialect's to refuse."""

    def credentials(self, headers: Mapping[str, str], query: str) -> str | None:
        """The API key in this request, if any; raises Unauthenticated when two disagree."""

    def refuse(self, error: CallError, call: Call) -> Reply:
        """Any CallError in this dialect's words."""

    def crash(self, call: Call) -> Reply:
        """A 5xx that tells the call's id and nothing else."""

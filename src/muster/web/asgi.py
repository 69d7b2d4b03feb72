"""The door itself: a plain ASGI application over one table of routes.

Leans on contracts.http and this room. A request is found in the table, let in (credentials, rate, open calls), read
up to its limit, handed to its dialect's handler, and answered; refusals and crashes are worded by the same dialect.
*Laws.* Nothing is read from a stranger before it is let in; every answer carries the call's id; a crash tells the id
and nothing else; nothing per request that a benchmark would notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from muster.contracts.clock import Clock, Entropy
from muster.contracts.faults import FaultDesk, WireFault
from muster.contracts.http import Call, Dialect, NoSuchPath, Reply, Route, Stream, WrongMethod
from muster.errors import CallError, RateLimited, StoreFull, TooLarge, Unauthenticated, Unavailable
from muster.model.accounts import Actor, Role
from muster.web.limits import OpenCalls, RateLimit
from muster.web.logs import CALL_ID
from muster.web.metrics import Meter, Metrics
from muster.web.router import Entry, Found, Router, params_of
from muster.web.sockets import Sockets

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Answer: TypeAlias = Reply | Stream

NOBODY: Final = Actor(role=Role.MEMBER, name="nobody")
"""Who calls an open route: no key, no project, no right."""

SLOW_READER_SECONDS: Final = 30.0
"""How long one piece of a stream may wait for its reader before the reader is cut off."""

FAULT_FREE: Final = "fault_free"
"""In a route's `describe`: wire faults never touch it, so that a fault can always be cleared."""

_log = logging.getLogger("muster.web")
_SAFETY: Final = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_BODILESS: Final = frozenset({"GET", "HEAD"})
_NO_PARAMS: Final[Mapping[str, str]] = {}


class Authenticator(Protocol):
    async def authenticate(self, secret: str) -> Actor: ...


class RawHeaders(Mapping[str, str]):
    """Headers as ASGI hands them over, decoded one at a time: letting someone in needs one or two of them."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        wanted = name.lower().encode("latin-1")
        for key, value in self._raw:
            if key == wanted:
                return value.decode("latin-1")
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        wanted = name.lower().encode("latin-1")
        for key, value in self._raw:
            if key == wanted:
                return value.decode("latin-1")
        return default

    def __iter__(self) -> Iterator[str]:
        return iter({key.decode("latin-1"): None for key, _ in self._raw})

    def __len__(self) -> int:
        return len({key for key, _ in self._raw})


class Gone(Exception):
    """The client left before it had said everything."""


class Limits:
    """The bounds of one server: per key, and per stranger's address."""

    def __init__(self, clock: Clock, *, rate: float, burst: int, calls: int) -> None:
        self.rate = RateLimit(clock, rate=rate, burst=burst)
        self.strangers = RateLimit(clock, rate=rate, burst=burst)
        self.calls = OpenCalls(calls)


class _Known:
    """A route with what is needed at every request looked up beforehand."""

    __slots__ = ("body_limit", "dialect", "faulty", "handle", "meter", "names", "open")

    def __init__(self, entry: Entry[Route], meter: Meter, body_limit: int) -> None:
        self.dialect = entry.dialect
        self.handle = entry.route.handle
        self.names = entry.names
        self.open = entry.route.open
        self.body_limit = min(entry.route.body_limit_bytes, body_limit)
        self.faulty = not entry.route.open and not entry.route.describe.get(FAULT_FREE)
        self.meter = meter


class App:
    """The ASGI application. `dialects[0]` words the refusal of paths that nobody claims."""

    def __init__(
        self,
        dialects: Sequence[Dialect],
        accounts: Authenticator,
        *,
        clock: Clock,
        entropy: Entropy,
        ticks: Callable[[], float],
        metrics: Metrics,
        limits: Limits | None = None,
        faults: FaultDesk | None = None,
        body_limit: int = 1 << 20,
    ) -> None:
        self.router: Router[Route] = Router((d, route) for d in dialects for route in d.routes())
        self.stopping = asyncio.Event()
        self._sockets = Sockets(dialects)
        self._dialects = dialects
        self._accounts = accounts
        self._clock = clock
        self._ticks = ticks
        self._limits = limits
        self._faults = faults
        self._known = {
            id(entry): _Known(entry, metrics.meter(entry.dialect.name, entry.route.name), body_limit)
            for entry in self.router
        }
        self._lost = metrics.meter("none", "unknown path")
        self._prefix = entropy.uuid()[:8]
        self._count = 0

    @property
    def calls(self) -> int:
        """How many calls came in since the start."""
        return self._count

    @property
    def has_sockets(self) -> bool:
        return self._sockets.any

    def stop(self) -> None:
        """Ends every stream, so that a graceful stop does not wait for those who would listen for ever."""
        self.stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            await self._sockets.serve(scope, receive, send)
        else:
            await _lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = self._ticks()
        call = self._call(scope)
        CALL_ID.set(call.id)
        # No thing of ours has a NUL in its name, and one of the databases cannot even be asked for it.
        found = None if "\x00" in call.path else self.router.find(call.path)
        known = self._choose(found, call)
        try:
            answer = await self._answer(known, call, scope, receive) if known else self._no_route(found, call)
            await self._send(answer, call, receive, send)
        except Gone:
            return
        finally:
            if known is not None and not known.open:
                self._leave(call.actor)
        (known.meter if known else self._lost).note(answer.status, self._ticks() - started)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s %s %d", call.method, call.path, answer.status, extra={"actor": call.actor.name})

    def _call(self, scope: Scope) -> Call:
        self._count += 1
        return Call(
            id=f"req-{self._prefix}-{self._count:x}",
            method=scope["method"],
            path=scope["path"],
            params=_NO_PARAMS,
            raw_query=scope["query_string"],
            raw_headers=scope["headers"],
            actor=NOBODY,
        )

    def _choose(self, found: Found[Route] | None, call: Call) -> _Known | None:
        if found is None:
            return None
        entry = found.entries.get(call.method)
        if entry is None and call.method == "HEAD":
            entry = found.entries.get("GET")
        if entry is None:
            return None
        if entry.names:
            call.params = params_of(entry, found.values)
        return self._known[id(entry)]

    def _no_route(self, found: Found[Route] | None, call: Call) -> Reply:
        """A path nobody has, or one that does not answer to this method."""
        if found is None:
            claimant = next((d for d in self._dialects if d.claims(call.path)), self._dialects[0])
            return claimant.refuse(NoSuchPath(call.path), call)
        allow = _allowed(found)
        if call.method == "OPTIONS":
            return Reply(204, headers=(("allow", allow),))
        dialect = next(iter(found.entries.values())).dialect
        reply = dialect.refuse(WrongMethod(call.method, call.path, allow), call)
        return Reply(405, reply.body, reply.content_type, (*reply.headers, ("allow", allow)))

    async def _answer(self, known: _Known, call: Call, scope: Scope, receive: Receive) -> Answer:
        try:
            if not known.open:
                await self._let_in(known, call, scope)
            if call.method not in _BODILESS:
                call.body = await _read_body(call, receive, known.body_limit)
            fault = self._faults.wire_fault() if self._faults is not None and known.faulty else None
            if fault is not None:
                await self._suffer(fault)
            return await known.handle(call)
        except CallError as error:
            return known.dialect.refuse(error, call)
        except StoreFull:
            return known.dialect.refuse(Unavailable("the disk is full; nothing was written"), call)
        except Gone:
            raise
        except Exception:
            _log.exception("%s %s broke", call.method, call.path)
            return known.dialect.crash(call)

    async def _let_in(self, known: _Known, call: Call, scope: Scope) -> None:
        """Credentials, then rate, then open calls. Whoever guesses keys is limited by address."""
        limits = self._limits
        try:
            secret = known.dialect.credentials(RawHeaders(scope["headers"]), scope["query_string"].decode("latin-1"))
            if secret is None:
                raise Unauthenticated("this needs an API key", hint="send Authorization: Bearer YOUR_KEY")
            actor = await self._accounts.authenticate(secret)
        except Unauthenticated:
            if limits is not None:
                client = scope.get("client")
                limits.strangers.take(client[0] if client else "")
            raise
        if limits is not None:
            limits.rate.take(actor.key_id or "")
            limits.calls.enter(actor.key_id or "")
        call.actor = actor

    def _leave(self, actor: Actor) -> None:
        if self._limits is not None and actor is not NOBODY:
            self._limits.calls.leave(actor.key_id or "")

    async def _suffer(self, fault: WireFault) -> None:
        """Trouble on demand, in the dialect's own words."""
        if fault.delay_seconds:
            await self._clock.sleep(fault.delay_seconds)
        if fault.status == 429:
            raise RateLimited("too many requests (a fault somebody asked for)", retry_after_seconds=1)
        if fault.status >= 500:
            raise InjectedCrash

    async def _send(self, answer: Answer, call: Call, receive: Receive, send: Send) -> None:
        if isinstance(answer, Reply):
            headers = _headers(answer, call)
            headers.append((b"content-length", b"%d" % len(answer.body)))
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": answer.body})
        else:
            await send({"type": "http.response.start", "status": answer.status, "headers": _headers(answer, call)})
            if call.method == "HEAD" or await self._pump(answer, receive, send):
                await send({"type": "http.response.body", "body": b""})

    async def _pump(self, stream: Stream, receive: Receive, send: Send) -> bool:
        """Pieces go out until the stream ends, the client leaves, or the server stops.

        False when the reader was too slow or the stream broke: then there is no proper end to send.
        """
        pumping = asyncio.create_task(_pieces(stream, send))
        ends = [asyncio.create_task(_client_left(receive)), asyncio.create_task(self.stopping.wait())]
        try:
            await asyncio.wait([pumping, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pumping, *ends):
                task.cancel()
            (pumped, *_) = await asyncio.gather(pumping, *ends, return_exceptions=True)
        if isinstance(pumped, TimeoutError):
            _log.info("a reader was too slow and was cut off")
        elif isinstance(pumped, Exception):
            _log.error("a stream broke", exc_info=pumped)
        return not isinstance(pumped, Exception)


class InjectedCrash(Exception):
    """An http-500 somebody asked for; takes the road of every other crash."""


async def _pieces(stream: Stream, send: Send) -> None:
    async for chunk in stream.chunks:
        async with asyncio.timeout(SLOW_READER_SECONDS):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(call: Call, receive: Receive, limit: int) -> bytes:
    headers = call.headers
    length = headers.get("content-length")
    if length is None and "transfer-encoding" not in headers:
        return b""
    if length is not None and int(length) > limit:
        raise TooLarge(f"the body may have at most {limit} bytes, not {length}")
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body") and message["type"] == "http.request" and len(body) <= limit:
        return body
    return await _read_rest(bytearray(body), message, receive, limit)


async def _read_rest(body: bytearray, message: MutableMapping[str, Any], receive: Receive, limit: int) -> bytes:
    while True:
        if message["type"] == "http.disconnect":
            raise Gone
        if len(body) > limit:
            raise TooLarge(f"the body may have at most {limit} bytes")
        if not message.get("more_body"):
            return bytes(body)
        message = await receive()
        body += message.get("body", b"")


def _headers(answer: Answer, call: Call) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"content-type", answer.content_type.encode("latin-1")),
        (b"x-request-id", call.id.encode()),
        *_SAFETY,
    ]
    if answer.headers:
        headers.extend((k.encode("latin-1"), v.encode("latin-1")) for k, v in answer.headers)
    if answer.status == 413:
        # What was not read must not be taken for the next request.
        headers.append((b"connection", b"close"))
    return headers


def _allowed(found: Found[Route]) -> str:
    methods = {*found.entries, "OPTIONS"}
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods))


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return

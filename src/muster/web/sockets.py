"""WebSockets over the ASGI protocol, for dialects that have them.

Leans on contracts.http. *Laws.* A socket is accepted only on a declared path; a frame longer than its route allows
ends it; what a handler raises closes the socket and tells nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final

from muster.contracts.http import Dialect, SocketRoute
from muster.web.router import Router, params_of

_log = logging.getLogger("muster.web")
TOO_BIG: Final = 1009
BROKE: Final = 1011


class Socket:
    """A WebSocket already accepted (contracts.http.WebSocket)."""

    def __init__(
        self,
        scope: MutableMapping[str, Any],
        params: Mapping[str, str],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        frame_limit_bytes: int,
    ) -> None:
        self.path: str = scope["path"]
        self.params = params
        self.headers: Mapping[str, str] = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        self._receive = receive
        self._send = send
        self._limit = frame_limit_bytes
        self._closed = False

    async def receive(self) -> str | bytes | None:
        if self._closed:
            return None
        message = await self._receive()
        if message["type"] != "websocket.receive":
            self._closed = True
            return None
        frame: str | bytes = message["text"] if message.get("text") is not None else message["bytes"]
        if len(frame) > self._limit:
            await self.close(TOO_BIG, "the frame is too long")
            return None
        return frame

    async def send(self, message: str | bytes) -> None:
        if not self._closed:
            kind = "text" if isinstance(message, str) else "bytes"
            await self._send({"type": "websocket.send", kind: message})

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if not self._closed:
            self._closed = True
            await self._send({"type": "websocket.close", "code": code, "reason": reason})


class Sockets:
    """Finds a socket's route and lives its life."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self._router: Router[SocketRoute] = Router((d, route) for d in dialects for route in d.sockets())
        self.any = any(True for _ in self._router)

    async def serve(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        found = self._router.find(scope["path"])
        await receive()
        if found is None:
            await send({"type": "websocket.close", "code": 1008})
            return
        entry = found.entries[""]
        await send({"type": "websocket.accept"})
        params = params_of(entry, found.values)
        socket = Socket(scope, params, receive, send, entry.route.frame_limit_bytes)
        try:
            await entry.route.handle(socket)
            await socket.close()
        except Exception:
            _log.exception("socket %s broke", entry.route.name)
            await socket.close(BROKE, "this broke on our side")

"""Answers leave in one piece: uvicorn writes the head and the body of each by themselves, which is two system calls
and two packets where one will do.

Leans on uvicorn's HTTP protocol, which hands every request to `_start_asgi_task`; a test notices if that changes.
*Law.* Only the head of an answer whose length was told is held back, and only until the very next write or the end:
heads of streams, and of answers to HEAD, which have no body, go out at once.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length: "


class OnePiece:
    """The transport of one answer, as far as uvicorn uses it there."""

    __slots__ = ("_begun", "_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._begun = False
        self._head = b""

    def write(self, data: bytes) -> None:
        if not self._begun:
            self._begun = not data.startswith(b"HTTP/1.1 100 ")
            if self._begun and data.endswith(_END) and _LENGTH in data:
                self._head = data
                return
        if self._head:
            data, self._head = self._head + data, b""
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()


class WholeAnswers(HttpToolsProtocol):
    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["method"] != "HEAD":
            cycle.transport = OnePiece(cycle.transport)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

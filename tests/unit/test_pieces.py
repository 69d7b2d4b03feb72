"""Answers leave in one piece, as uvicorn's own protocol writes them to a transport."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from muster.web.pieces import WholeAnswers

PLAIN = b"GET /plain HTTP/1.1\r\nhost: x\r\n\r\n"


class Recorded(asyncio.Transport):
    """What was written, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        return None

    def resume_reading(self) -> None:
        return None

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/asked":
        await receive()
    length = [] if scope["path"] == "/stream" else [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    if scope["path"] == "/broken":
        raise ZeroDivisionError
    if scope["path"] == "/stream":
        await asyncio.Event().wait()
    await send({"type": "http.response.body", "body": b"body"})


def said(request: bytes) -> Recorded:
    async def story() -> Recorded:
        config = uvicorn.Config(app, http=WholeAnswers, ws="none", lifespan="off", log_config=None)
        config.load()
        protocol, transport = WholeAnswers(config, ServerState(), {}), Recorded()
        protocol.connection_made(transport)
        protocol.data_received(request)
        for _ in range(20):
            await asyncio.sleep(0)
        for task in protocol.tasks:
            task.cancel()
        protocol.connection_lost(None)
        return transport

    return asyncio.run(story())


def test_head_and_body_are_one_write() -> None:
    (written,) = said(PLAIN).writes
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert written.endswith(b"\r\n\r\nbody")


def test_requests_in_a_row_are_each_answered_in_one_write() -> None:
    assert [written[-8:] for written in said(PLAIN * 3).writes] == [b"\r\n\r\nbody"] * 3


def test_what_has_no_body_or_no_known_length_is_not_held_back() -> None:
    (head,) = said(PLAIN.replace(b"GET", b"HEAD")).writes
    assert head.endswith(b"content-length: 4\r\n\r\n")
    (stream,) = said(PLAIN.replace(b"plain", b"stream")).writes
    assert b"transfer-encoding: chunked\r\n" in stream


def test_a_client_that_waits_to_be_asked_is_asked_first() -> None:
    request = b"POST /asked HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 0\r\n\r\n"
    first, answer = said(request).writes
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.endswith(b"\r\n\r\nbody")


def test_an_answer_that_breaks_off_still_shows_its_head() -> None:
    transport = said(PLAIN.replace(b"plain", b"broken"))
    assert transport.closed
    assert transport.writes[0].endswith(b"content-length: 4\r\n\r\n")

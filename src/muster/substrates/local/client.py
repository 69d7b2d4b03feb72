"""Speaking with hostd: one connection for calls and announcements, one more per carried descriptor.

Leans on hostd.wire. Laws: a call whose answer never came raises `UnknownOutcome`; a hostd that is not there raises
`TryLater`; the connection is made when first needed and again after it broke.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from muster import errors
from muster.errors import DriverError, TryLater, UnknownOutcome
from muster.hostd import wire
from muster.hostd.socketpath import short

_ERRORS: Final[dict[str, type[DriverError]]] = {
    kind.__name__: kind
    for kind in (errors.TryLater, errors.NoneLeft, errors.Never, errors.UnknownOutcome, errors.FencedOff)
}
_RECONNECT_SECONDS: Final = 0.5


class Hostd:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._wake: Callable[[str], None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def call(self, verb: wire.Verb) -> Any:
        """One verb, its answer; DriverErrors come out as hostd raised them."""
        writer = await self._connected()
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            writer.write(wire.encode(msgspec.structs.replace(verb, number=number)) + b"\n")
            return await answer
        except (ConnectionError, BrokenPipeError) as error:
            raise UnknownOutcome(f"hostd hung up: {error}") from error
        finally:
            self._waiting.pop(number, None)

    async def carry(self, verb: wire.Connect) -> socket.socket:
        """A verb answered with a descriptor: on a connection of its own, so that it cannot be mistaken."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
            try:
                with short(self._path) as place:
                    await loop.sock_connect(connection, place)
            except OSError as error:
                raise TryLater(f"hostd does not answer: {error}") from error
            await loop.sock_sendall(connection, wire.encode(verb) + b"\n")
            line, descriptors = await _receive(connection)
        answer = wire.decode_answer(line)
        if answer.error:
            raise _ERRORS.get(answer.error, TryLater)(answer.because)
        if not descriptors:
            raise UnknownOutcome("hostd sent no connection")
        carried = socket.socket(fileno=descriptors[0])
        carried.setblocking(False)
        return carried

    def listen(self, wake: Callable[[str], None]) -> None:
        """Announcements from now on; kept up across hostd's restarts."""
        self._wake = wake
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.encode(wire.Watch()) + b"\n")
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep_connected())

    async def _keep_connected(self) -> None:
        while True:
            with contextlib.suppress(DriverError):
                await self._connected()
            listening = self._listening
            if listening is not None:
                await asyncio.wait([listening])
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is not None and not self._writer.is_closing():
                return self._writer
            try:
                with short(self._path) as place:
                    reader, writer = await asyncio.open_unix_connection(place, limit=wire.LINE_MAX)
            except OSError as error:
                raise TryLater(f"hostd does not answer: {error}") from error
            self._writer = writer
            self._listening = asyncio.create_task(self._listen(reader, writer))
            if self._wake is not None:
                writer.write(wire.encode(wire.Watch()) + b"\n")
            return writer

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._heard(wire.decode_answer(line))
        except (OSError, ValueError):
            pass
        finally:
            writer.close()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionError("the connection ended"))

    def _heard(self, answer: wire.Answer) -> None:
        if answer.changed:
            if self._wake is not None:
                self._wake(answer.changed)
            return
        waiting = self._waiting.get(answer.number)
        if waiting is None or waiting.done():
            return
        if answer.error:
            waiting.set_exception(_ERRORS.get(answer.error, TryLater)(answer.because))
        else:
            waiting.set_result(answer.result)

    async def close(self) -> None:
        for task in (self._keeping, self._listening):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()


async def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection.fileno(), lambda: None if heard.done() else heard.set_result(None))
    try:
        await heard
    finally:
        loop.remove_reader(connection.fileno())
    line, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 1)
    return line, list(descriptors)

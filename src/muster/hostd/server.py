"""hostd's door: a Unix socket that one user (and root) may open, one JSON object per line.

Leans on wire and keeper. Laws: the peer's uid is the kernel's word, not the peer's; a line that is no verb ends the
connection; many requests of one connection run side by side; a descriptor travels beside the answer it belongs to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.errors import DriverError, Never
from muster.hostd import wire
from muster.hostd.keeper import Keeper
from muster.hostd.socketpath import short

log = logging.getLogger("muster.hostd")
_CALLS_AT_ONCE: Final = 256
_IDLE_SECONDS: Final = 60.0  # whoever started us may take its time to come: a first start on a busy machine does


class Server:
    def __init__(
        self, keeper: Keeper, greeting: wire.Greeting, path: Path, uid: int, *, leave_when_idle: bool = False
    ) -> None:
        """`leave_when_idle`: with no node to keep and nobody to serve, end; whoever needs hostd starts it again."""
        self._leave_when_idle = leave_when_idle
        self._keeper = keeper
        self._greeting = greeting
        self._path = path
        self._uid = uid
        self._serving: set[asyncio.Task[None]] = set()
        self._served = 0
        self._stop = asyncio.Event()

    def bind(self) -> socket.socket:
        """Made under another name, given away, then renamed: never open to anybody else, never absent on restart."""
        making = self._path.with_name(f".{self._path.name}.new")
        making.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        before = os.umask(0o177)
        try:
            with short(making) as place:
                listener.bind(place)
        finally:
            os.umask(before)
        os.chown(making, self._uid, -1, follow_symlinks=False)
        making.rename(self._path)
        listener.listen(128)
        return listener

    async def serve(self, listener: socket.socket, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        accepting = asyncio.create_task(self._accept(loop, listener))
        self._stop = stop
        self._look_whether_idle()
        await stop.wait()
        accepting.cancel()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(accepting, *self._serving, return_exceptions=True)
        listener.close()
        self._path.unlink(missing_ok=True)

    async def _accept(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        while True:
            connection, _ = await loop.sock_accept(listener)
            if _peer_uid(connection) not in (0, self._uid):
                connection.close()
                continue
            self._served += 1
            task = asyncio.create_task(Conversation(connection, self._keeper, self._greeting).hold())
            self._serving.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._look_whether_idle()

    def _look_whether_idle(self) -> None:
        if self._leave_when_idle and not self._serving:
            asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._leave_if_idle, self._served)

    def _leave_if_idle(self, served: int) -> None:
        """Nobody came in the meantime, and no cluster needs us: volumes are files and wait by themselves."""
        if self._served == served and not self._serving and not self._keeper.has_nodes():
            self._stop.set()


def _peer_uid(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("iii", raw)[1])


class Conversation:
    """One connection."""

    def __init__(self, connection: socket.socket, keeper: Keeper, greeting: wire.Greeting) -> None:
        self._connection = connection
        self._keeper = keeper
        self._greeting = greeting
        self._saying = asyncio.Lock()
        self._calls: set[asyncio.Task[None]] = set()
        self._stop_listening: Callable[[], None] = lambda: None

    async def hold(self) -> None:
        try:
            await self._hear()
        except (OSError, msgspec.ValidationError, msgspec.DecodeError) as error:
            log.info("connection ended: %s", error)
        finally:
            self._stop_listening()
            for call in list(self._calls):
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)
            self._connection.close()

    async def _hear(self) -> None:
        loop = asyncio.get_running_loop()
        heard = bytearray()
        while True:
            chunk = await loop.sock_recv(self._connection, 1 << 16)
            if not chunk or len(heard) > wire.LINE_MAX:
                return
            heard += chunk
            while (end := heard.find(b"\n")) >= 0:
                verb = wire.decode_verb(bytes(heard[:end]))
                del heard[: end + 1]
                if len(self._calls) >= _CALLS_AT_ONCE:
                    await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(self._answer(verb))
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)

    async def _answer(self, verb: wire.Verb) -> None:
        carried: socket.socket | None = None
        try:
            if isinstance(verb, wire.Connect):
                carried = await self._keeper.connect(verb)
                answer = wire.Answer(number=verb.number)
            else:
                answer = wire.Answer(number=verb.number, result=await self._do(verb))
        except DriverError as error:
            answer = wire.Answer(number=verb.number, error=type(error).__name__, because=error.because)
        except OSError as error:
            log.exception("%s", type(verb).__name__)
            answer = wire.Answer(number=verb.number, error="TryLater", because=str(error))
        with contextlib.suppress(OSError):
            await self._say(answer, carried)

    async def _do(self, verb: wire.Verb) -> Any:
        keeper = self._keeper
        match verb:
            case wire.Hello():
                return self._greeting
            case wire.Ensure():
                return keeper.ensure(verb)
            case wire.Observe():
                return keeper.observe(verb.keys)
            case wire.EnsureAbsent():
                return keeper.ensure_absent(verb.keys, verb.fence)
            case wire.ListOwned():
                return keeper.owned()
            case wire.ListImages():
                return keeper.images()
            case wire.Run():
                return await keeper.run(verb)
            case wire.Place():
                return keeper.place(verb)
            case wire.Hold():
                return keeper.hold(verb.fence)
            case wire.KnockAt():
                return await keeper.knock(verb.ports, verb.seconds)
            case wire.Link():
                return keeper.link(verb.node, up=verb.up)
            case wire.Watch():
                self._stop_listening = keeper.listen(self._changed)
                return None
        raise Never("unknown verb")

    def _changed(self, owner: str) -> None:
        task = asyncio.create_task(self._say(wire.Answer(changed=owner), None))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _say(self, answer: wire.Answer, carried: socket.socket | None) -> None:
        line = wire.encode(answer) + b"\n"
        async with self._saying:
            if carried is None:
                await asyncio.get_running_loop().sock_sendall(self._connection, line)
                return
            try:
                socket.send_fds(self._connection, [line], [carried.fileno()])
            finally:
                carried.close()

"""Every child of hostd has one parent here: who ended, and how. hostd is subreaper, so nodes' inits come here too.

Leans on SIGCHLD and the event loop. Laws: exactly one place waits for children; a child that ends before anybody asks
is remembered until somebody does, or until its pid is used again.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from muster.errors import TryLater

_OUTPUT_MAX = 1 << 20


class Children:
    def __init__(self) -> None:
        self._ended: dict[int, int] = {}
        self._asked: dict[int, asyncio.Future[int]] = {}

    def start(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            asked = self._asked.pop(pid, None)
            if asked is None:
                self._ended[pid] = code
            elif not asked.done():
                asked.set_result(code)

    def expect(self, pid: int) -> asyncio.Future[int]:
        """Resolves to the exit code of a child forked just now."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if pid in self._ended:
            future.set_result(self._ended.pop(pid))
        else:
            self._asked[pid] = future
        return future

    def forget(self, pid: int) -> None:
        self._ended.pop(pid, None)

    async def in_child(self, work: Callable[[], None], *, seconds: float = 10.0) -> None:
        """Do something that changes the process's namespaces, in a child; raise what it raised, as text."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                work()
            except BaseException as error:
                os.write(write, str(error).encode()[:4096])
            finally:
                os._exit(0)
        os.close(write)
        said = await collect(read, seconds=seconds, limit=4096)
        self.expect(pid).add_done_callback(lambda _: None)
        if said:
            raise TryLater(said.decode(errors="replace"))

    async def run(self, argv: list[str], *, seconds: float = 60.0) -> bytes:
        """Run a tool of the machine to its end."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                null = os.open("/dev/null", os.O_RDONLY)
                os.dup2(null, 0)
                os.dup2(write, 1)
                os.dup2(write, 2)
                os.closerange(3, 65536)
                os.execvpe(argv[0], argv, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"})  # noqa: S606
            finally:
                os._exit(127)
        os.close(write)
        ended = self.expect(pid)
        said = await collect(read, seconds=seconds, limit=_OUTPUT_MAX)
        code = await ended
        if code:
            raise TryLater(f"{argv[0]} failed: {said.decode(errors='replace').strip()[-300:]}")
        return said


async def collect(fd: int, *, seconds: float, limit: int) -> bytes:
    """All a pipe says until its end, or TimeoutError. The rest beyond `limit` is read and thrown away."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    said = bytearray()
    os.set_blocking(fd, False)

    def more() -> None:
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return
        if not chunk:
            loop.remove_reader(fd)
            if not done.done():
                done.set_result(None)
        elif len(said) < limit:
            said.extend(chunk[: limit - len(said)])

    loop.add_reader(fd, more)
    try:
        await asyncio.wait_for(done, seconds)
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    return bytes(said)


def settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def read_line(fd: int, *, seconds: float) -> bytes:
    """The next line of a pipe that says one line at a time; empty at its end."""
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, settle, heard)
    try:
        await asyncio.wait_for(heard, seconds)
    finally:
        loop.remove_reader(fd)
    return os.read(fd, 4096).strip()

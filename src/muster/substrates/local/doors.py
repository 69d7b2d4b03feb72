"""Ports of the machine that lead into clusters: how people outside reach a login node.

Leans on hostd's `connect`, which applies the cluster's rules to the visitor's address. Laws: the same node and port
keep the same door for the cluster's life, across restarts; a door that could not be opened again says so rather than
moving silently; nothing is read from a connection before the rules have let it in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from muster.contracts.hands import Door
from muster.errors import DriverError, TryLater

log = logging.getLogger("muster.doors")
_CHUNK: Final = 1 << 16

Connect = Callable[[str, int, str], Awaitable[socket.socket]]


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    node: str
    node_port: int
    port: int
    address: str = ""  # a reserved address that leads there too, by the same port


class Doors:
    def __init__(self, file: Path, host: str, connect: Connect) -> None:
        self._file = file
        self._host = host
        self._connect = connect
        self._kept: dict[str, _Kept] = {each.owner: each for each in _load(file)}
        self._open: dict[tuple[str, str], asyncio.Server] = {}  # by owner and the address they listen at
        self._visits: set[asyncio.Task[None]] = set()

    async def open(self, owner: str, node: str, node_port: int, address: str = "") -> Door:
        """One door per owner, to its login node; a new node behind it keeps the port. A reserved address is a second
        way to the same door, and goes when it is no longer asked for."""
        kept = self._kept.get(owner)
        port = kept.port if kept else 0
        wanted = _Kept(owner=owner, node=node, node_port=node_port, port=port, address=address)
        if kept is not None and kept.address != address:
            self._shut_at(owner, kept.address)
        wanted = await self._listen(wanted)
        if wanted != kept:
            self._kept[owner] = wanted
            self._save()
        return Door(address or self._host, wanted.port)

    async def reopen(self, owners: set[str]) -> None:
        """After a restart: the doors of clusters that still are; the rest are forgotten."""
        for owner in set(self._kept) - owners:
            await self.shut(owner)
        for kept in list(self._kept.values()):
            try:
                await self._listen(kept)
            except TryLater as error:
                log.warning("%s", error.because)

    async def _listen(self, kept: _Kept) -> _Kept:
        """At the machine's address and at the reserved one, wherever it does not listen yet."""
        port = await self._listen_at(self._host, kept)
        kept = msgspec.structs.replace(kept, port=port)
        if kept.address:
            await self._listen_at(kept.address, kept)
        return kept

    async def _listen_at(self, host: str, kept: _Kept) -> int:
        if (kept.owner, host) in self._open:
            return kept.port

        async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._visit(kept.owner, reader, writer)

        try:
            server = await asyncio.start_server(visit, host, kept.port)
        except OSError as error:
            raise TryLater(f"port {kept.port} of {host} is taken: {error}") from error
        self._open[kept.owner, host] = server
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _visit(self, owner: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._visits.add(task)
        try:
            kept = self._kept[owner]
            source = writer.get_extra_info("peername")[0]
            inner = await self._connect(kept.node, kept.node_port, source)
            await _join(reader, writer, *await asyncio.open_connection(sock=inner))
        except (DriverError, OSError, KeyError) as error:
            log.info("a visit to %s ended: %s", owner, error)
        finally:
            self._visits.discard(task)
            await _hang_up(writer)

    async def shut(self, owner: str) -> None:
        kept = self._kept.pop(owner, None)
        self._shut_at(owner, self._host)
        if kept is not None:
            self._shut_at(owner, kept.address)
            self._save()

    def _shut_at(self, owner: str, host: str) -> None:
        server = self._open.pop((owner, host), None)
        if server is not None:
            server.close()

    async def close(self) -> None:
        """Stop listening; the doors stay kept for the next start."""
        for server in self._open.values():
            server.close()
        self._open.clear()
        for visit in list(self._visits):
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    def _save(self) -> None:
        making = self._file.with_name(f".{self._file.name}.new")
        making.write_bytes(msgspec.json.encode(list(self._kept.values())))
        making.replace(self._file)


def _load(file: Path) -> list[_Kept]:
    return msgspec.json.decode(file.read_bytes(), type=list[_Kept]) if file.exists() else []


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    inner_reader: asyncio.StreamReader,
    inner_writer: asyncio.StreamWriter,
) -> None:
    try:
        await asyncio.gather(_pass_on(reader, inner_writer), _pass_on(inner_reader, writer))
    finally:
        await _hang_up(inner_writer)


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            if writer.can_write_eof():
                writer.write_eof()

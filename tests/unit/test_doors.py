"""Doors of the local fleet: one per cluster, kept over restarts, with a reserved address as a second way in."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from muster.contracts.hands import Door
from muster.substrates.local.doors import Doors

HOST, RESERVED, OTHER = "127.0.0.1", "127.96.0.1", "127.96.0.2"


async def echo(node: str, port: int, source: str) -> socket.socket:
    """Instead of a node: whoever connects is told where they came from and which node they reached."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.sendall(f"{node}:{port} from {source}".encode())
    far.shutdown(socket.SHUT_WR)
    far.close()
    return near


async def visit(host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write_eof()
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()


async def refused(host: str, port: int) -> bool:
    try:
        await visit(host, port)
    except ConnectionRefusedError:
        return True
    return False


def test_a_reserved_address_leads_to_the_same_door_until_it_is_taken_off(tmp_path: Path) -> None:
    async def story() -> None:
        doors = Doors(tmp_path / "doors.json", HOST, echo)
        door = await doors.open("c", "login-1", 22)
        assert await visit(*door) == "login-1:22 from 127.0.0.1"
        assert await refused(RESERVED, door.port)
        assert await doors.open("c", "login-2", 22, RESERVED) == Door(RESERVED, door.port)
        assert (await visit(RESERVED, door.port)).startswith("login-2:22 from 127.")
        assert (await visit(HOST, door.port)).startswith("login-2:22")
        await doors.open("c", "login-2", 22, OTHER)
        assert await refused(RESERVED, door.port)
        assert (await visit(OTHER, door.port)).startswith("login-2:22")
        assert await doors.open("c", "login-2", 22) == door
        assert await refused(OTHER, door.port)
        await doors.close()

    asyncio.run(story())


def test_both_ways_are_open_again_after_a_restart_and_shut_with_their_owner(tmp_path: Path) -> None:
    async def story() -> None:
        before = Doors(tmp_path / "doors.json", HOST, echo)
        door = await before.open("c", "login", 22, RESERVED)
        await before.close()
        assert await refused(RESERVED, door.port)
        after = Doors(tmp_path / "doors.json", HOST, echo)
        await after.reopen({"c"})
        for host in (HOST, RESERVED):
            assert (await visit(host, door.port)).startswith("login:22")
        await after.shut("c")
        for host in (HOST, RESERVED):
            assert await refused(host, door.port)
        await after.close()

    asyncio.run(story())


@pytest.mark.parametrize("owners", [set(), {"another"}])
def test_doors_of_clusters_that_are_gone_stay_shut(tmp_path: Path, owners: set[str]) -> None:
    async def story() -> None:
        before = Doors(tmp_path / "doors.json", HOST, echo)
        door = await before.open("c", "login", 22, RESERVED)
        await before.close()
        after = Doors(tmp_path / "doors.json", HOST, echo)
        await after.reopen(owners)
        assert await refused(HOST, door.port)
        assert await refused(RESERVED, door.port)
        await after.close()

    asyncio.run(story())

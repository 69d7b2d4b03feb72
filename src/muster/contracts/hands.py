"""Reaching into nodes: run a command, place files, open a connection. What an orchestrator needs of a substrate.

*Laws.*
| rule | mandatory |
|---|---|
| a node is named by the key of its `NodeWish`; a cluster's files by the owner in the fence | yes |
| a command runs confined as the node's own processes do, never with more power than its root has | yes |
| a placed file appears whole, on every node of the cluster at once, those to come included | yes |
| an older generation of files, or an older token, is refused (`FencedOff`) | yes |
| unreachable raises `TryLater`; a command cut off in the middle raises `UnknownOutcome` | yes |
| nothing here waits longer than the seconds it was given | yes |
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from muster.contracts.substrate import Fence
from muster.model.base import Part


class File(Part, frozen=True, kw_only=True):
    """A file below /etc/cluster on every node of a cluster. `owner` is a user of the node's image."""

    path: str
    content: str
    mode: int = 0o644
    owner: str = "root"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Knock(StrEnum):
    """What a port of a node answers to an attempt to connect."""

    OPEN = "open"
    REFUSED = "refused"  # the node answers, but nobody listens
    SILENT = "silent"  # no answer: cut off, or too busy; never read as gone
    GONE = "gone"  # the node itself is known not to run


class Door(NamedTuple):
    """Where people outside reach a port of a node."""

    host: str
    port: int


class Hands(Protocol):
    async def run(
        self,
        node: str,
        argv: Sequence[str],
        *,
        user: str = "root",
        stdin: str = "",
        env: Mapping[str, str] = {},
        seconds: float = 10.0,
    ) -> Ran: ...

    async def place(self, files: Sequence[File], generation: int, fence: Fence) -> None:
        """Replace the cluster's directory by exactly these files."""

    async def images(self) -> list[str]:
        """The names that `NodeWish.rootfs` may have, beside ""."""

    async def hold(self, fence: Fence) -> None:
        """Make sure that this token is the newest seen for its owner; `FencedOff` otherwise."""

    async def knock(self, ports: Sequence[tuple[str, int]], *, seconds: float = 1.0) -> list[Knock]:
        """Try these (node, port) side by side; the answers in the same order."""

    async def connect(self, node: str, port: int, *, seconds: float = 5.0) -> socket.socket:
        """A connected, non-blocking TCP socket to that port of the node. Connections of the house itself."""

    async def door(self, owner: str, node: str, port: int, address: str = "") -> Door:
        """An address outside that leads there, the same for the cluster's whole life; rules apply to it. With an
        `address` of its own it leads there from that one as well, until it is asked for without."""

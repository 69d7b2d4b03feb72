"""Just enough rtnetlink: links, veth pairs, addresses, routes, permanent neighbours. No `ip` process per node.

Leans on a raw socket. Laws: a `Netlink` speaks for the network namespace it was opened in, for as long as it lives,
wherever its process goes later; every request is acknowledged or raises OSError.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

_NEWLINK, _DELLINK, _NEWADDR, _NEWROUTE, _NEWNEIGH = 16, 17, 20, 24, 28
_REQUEST_ACK, _CREATE, _REPLACE, _EXCL = 5, 0x400, 0x100, 0x200
_IFF_UP: Final = 1
_LINK_SCOPE, _UNIVERSE = 253, 0
_UNICAST, _UNREACHABLE = 1, 7


def mac_of(address: str) -> bytes:
    """Locally administered, and the same for the same address."""
    return b"\x02\x4d" + socket.inet_aton(address)


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _link(index: int = 0, flags: int = 0) -> bytes:
    return struct.pack("BxHiII", 0, 0, index, flags, flags)


class Netlink:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)

    def close(self) -> None:
        self._socket.close()

    def _request(self, kind: int, flags: int, body: bytes, what: str) -> None:
        self._socket.send(struct.pack("IHHII", 16 + len(body), kind, flags | _REQUEST_ACK, 1, 0) + body)
        answer = self._socket.recv(65536)
        error = struct.unpack_from("i", answer, 16)[0]
        if error:
            raise OSError(-error, f"{os.strerror(-error)} ({what})")

    def up(self, index: int) -> None:
        self._request(_NEWLINK, 0, _link(index, _IFF_UP), f"link {index} up")

    def set_link(self, name: str, *, up: bool) -> None:
        body = struct.pack("BxHiII", 0, 0, 0, _IFF_UP if up else 0, _IFF_UP) + _text(3, name)
        self._request(_NEWLINK, 0, body, f"link {name} {'up' if up else 'down'}")

    def add_veth(self, name: str, mac: bytes, *, peer: str, peer_mac: bytes, peer_netns_pid: int) -> None:
        """One end here and up, the other in the namespace of that process."""
        other = _link() + _text(3, peer) + _attribute(1, peer_mac) + _attribute(19, struct.pack("I", peer_netns_pid))
        info = _text(1, "veth") + _attribute(2, _attribute(1, other))
        body = _link(0, _IFF_UP) + _text(3, name) + _attribute(1, mac) + _attribute(18, info)
        self._request(_NEWLINK, _CREATE | _EXCL, body, f"veth {name}")

    def delete_link(self, name: str) -> None:
        self._request(_DELLINK, 0, _link() + _text(3, name), f"delete {name}")

    def add_address(self, index: int, address: str) -> None:
        raw = socket.inet_aton(address)
        body = struct.pack("BBBBi", 2, 32, 0, 0, index) + _attribute(2, raw) + _attribute(1, raw)
        self._request(_NEWADDR, _CREATE | _REPLACE, body, f"address {address}")

    def add_route(self, index: int, destination: str = "", *, via: str = "") -> None:
        """To one address (on the link), or everywhere (`via` a gateway)."""
        scope = _UNIVERSE if via else _LINK_SCOPE
        body = struct.pack("BBBBBBBBI", 2, 32 if destination else 0, 0, 0, 254, 3, scope, _UNICAST, 0)
        if destination:
            body += _attribute(1, socket.inet_aton(destination))
        if via:
            body += _attribute(5, socket.inet_aton(via))
        body += _attribute(4, struct.pack("I", index))
        self._request(_NEWROUTE, _CREATE | _REPLACE, body, f"route {destination or 'default'}")

    def add_unreachable(self, network: str, bits: int) -> None:
        """Addresses of the fabric that no node holds are refused at once rather than sought."""
        body = struct.pack("BBBBBBBBI", 2, bits, 0, 0, 254, 3, _UNIVERSE, _UNREACHABLE, 0)
        self._request(_NEWROUTE, _CREATE | _REPLACE, body + _attribute(1, socket.inet_aton(network)), "unreachable")

    def add_neighbour(self, index: int, address: str, mac: bytes) -> None:
        """Permanent: the ARP table is the whole machine's, so nobody ever asks."""
        body = struct.pack("BxHiHBB", 2, 0, index, 0x80, 0, 0)
        body += _attribute(1, socket.inet_aton(address)) + _attribute(2, mac)
        self._request(_NEWNEIGH, _CREATE | _REPLACE, body, f"neighbour {address}")


def quieten() -> None:
    """No IPv6 in this network namespace: link-local scanning would be a path around the IPv4 rules."""
    for which in ("all", "default"):
        write_sysctl(f"net/ipv6/conf/{which}/disable_ipv6", "1")


def write_sysctl(name: str, value: str) -> None:
    try:
        with open(f"/proc/sys/{name}", "w") as handle:
            handle.write(value)
    except FileNotFoundError:
        return  # a kernel built without it has nothing to switch off

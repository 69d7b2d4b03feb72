"""Looking up a tenant's OIDC issuer with care: the one place where we fetch what a stranger names.

Leans on contracts/issuers.py, whose laws it keeps. HTTP/1.0, so that the answer ends with the connection and there is
nothing to decode but a head and a body.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from muster.errors import Invalid
from muster.model.clusters import Oidc

SECONDS_MAX: Final = 3.0
BYTES_MAX: Final = 64 << 10
DISCOVERY: Final = "/.well-known/openid-configuration"
FIELD: Final = "config.oidc"
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class Place(NamedTuple):
    host: str
    port: int
    path: str


class WebIssuers:
    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private

    async def check(self, oidc: Oidc) -> None:
        place = place_of(oidc.issuer_url)
        trust = _trust(oidc.ca_cert)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                address = await self._address(place)
                answer = await _fetch(place, address, trust)
        except TimeoutError:
            raise _refused("the issuer did not answer within three seconds") from None
        except (OSError, asyncio.IncompleteReadError):
            raise _refused("the issuer could not be reached") from None
        check_document(answer, oidc.issuer_url)

    async def _address(self, place: Place) -> str:
        """One address of the host; all of them must be fit to be called."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]) for entry in found]
        if not addresses or not (self._allow_private or all(is_public(address) for address in addresses)):
            raise _refused("the issuer is not on the public internet", hint="ask the operator to allow it")
        return addresses[0]


def place_of(issuer_url: str) -> Place:
    """Where the discovery document is; raises Invalid for anything but a plain https URL."""
    try:
        parts = urlsplit(issuer_url)
        port = parts.port or 443
    except ValueError:
        raise _refused("issuer_url is no URL") from None
    if parts.scheme != "https" or not parts.hostname:
        raise _refused("issuer_url must begin with https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise _refused("issuer_url is a plain URL, without user, query or fragment")
    path = parts.path.rstrip("/") + DISCOVERY
    if not (path.isascii() and path.isprintable() and " " not in path and parts.hostname.isascii()):
        raise _refused("issuer_url has characters that do not belong into a URL")
    return Place(parts.hostname, port, path)


def is_public(address: str) -> bool:
    """An IPv6 address that leads to an IPv4 one (mapped, NAT64, 6to4, Teredo) is as public as that."""
    found = ipaddress.ip_address(address.split("%", 1)[0])
    inner = _embedded(found) if isinstance(found, ipaddress.IPv6Address) else None
    return (inner or found).is_global and not (inner or found).is_multicast


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def check_document(answer: bytes, issuer_url: str) -> None:
    """The discovery document names its own issuer: that is what makes it this issuer's."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise _refused("the issuer has no discovery document", hint=f"it is looked for at ISSUER{DISCOVERY}")
    try:
        document: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise _refused("the issuer's discovery document is not JSON") from None
    if not isinstance(document, dict) or document.get("issuer") != issuer_url:
        raise _refused("the discovery document is another issuer's", hint="issuer_url must be exactly its `issuer`")
    if not str(document.get("jwks_uri", "")).startswith("https://"):
        raise _refused("the discovery document names no keys over https")


def _trust(ca_cert: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=ca_cert or None)
    except (ssl.SSLError, ValueError):
        raise _refused("ca_cert is no PEM certificate") from None


async def _fetch(place: Place, address: str, trust: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection(
        address, place.port, ssl=trust, server_hostname=place.host, limit=BYTES_MAX
    )
    try:
        request = f"GET {place.path} HTTP/1.0\r\nHost: {place.host}\r\nAccept: application/json\r\n\r\n"
        writer.write(request.encode("ascii"))
        answer = bytearray()
        while chunk := await reader.read(BYTES_MAX + 1 - len(answer)):
            answer += chunk
            if len(answer) > BYTES_MAX:
                raise _refused("the issuer's discovery document is too long")
        return bytes(answer)
    finally:
        writer.transport.abort()


def _refused(message: str, *, hint: str | None = None) -> Invalid:
    return Invalid(message, field=FIELD, hint=hint)

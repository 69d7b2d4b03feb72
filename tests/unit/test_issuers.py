"""Looking up a tenant's OIDC issuer: what is called, what is refused, and a real one over TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.errors import Invalid
from muster.model.clusters import Oidc
from muster.web.issuers import BYTES_MAX, DISCOVERY, WebIssuers, check_document, is_public, place_of


def oidc(url: str, ca_cert: str = "") -> Oidc:
    return Oidc(
        issuer_url=url,
        client_id="c",
        username_claim="email",
        username_prefix="",
        group_claim="groups",
        group_prefix="",
        ca_cert=ca_cert,
    )


def document(issuer: str, **more: object) -> bytes:
    body = json.dumps({"issuer": issuer, "jwks_uri": f"{issuer}/keys"} | more)
    return f"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example.org",
        "ftp://id.example.org",
        "https://",
        "id.example.org",
        "https://user@id.example.org",
        "https://id.example.org/?x=1",
        "https://id.example.org/#x",
        "https://id.example.org:99999",
        "https://id.example.org/a b",
        "https://id.example.org/\r\nX: 1",
        "https://[::1",
    ],
)
def test_only_a_plain_https_url_is_called(url: str) -> None:
    with pytest.raises(Invalid):
        place_of(url)


def test_where_the_document_is() -> None:
    assert place_of("https://id.example.org/tenant/") == ("id.example.org", 443, f"/tenant{DISCOVERY}")
    assert place_of("https://[2001:db8::1]:8443") == ("2001:db8::1", 8443, DISCOVERY)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "10.1.2.3",
        "192.168.0.1",
        "172.16.0.1",
        "169.254.169.254",
        "fe80::1%eth0",
        "fc00::1",
        "0.0.0.0",
        "224.0.0.1",
        "100.64.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:a00:1::1",
        "::",
    ],
)
def test_addresses_inside_a_network_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_addresses_of_the_internet_are(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:1/", "https://localhost:1/", "https://[::1]:1/", "https://10.0.0.1/"]
)
def test_an_issuer_inside_our_network_is_not_even_called(url: str) -> None:
    with pytest.raises(Invalid, match=r"public internet|reached"):
        asyncio.run(WebIssuers(allow_private=False).check(oidc(url)))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 302 Found\r\nLocation: https://x\r\n\r\n",
        b"HTTP/1.0 404 Not Found\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\n<html>",
        b"HTTP/1.0 200 OK\r\n\r\n[]",
        document("https://other"),
        document("https://me", jwks_uri="http://me/keys"),
        document("https://me", jwks_uri=None),
    ],
)
def test_a_document_that_does_not_speak_for_its_issuer_is_refused(answer: bytes) -> None:
    with pytest.raises(Invalid):
        check_document(answer, "https://me")


def test_a_good_document_passes() -> None:
    check_document(document("https://me"), "https://me")


def test_a_ca_cert_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match="PEM"):
        asyncio.run(WebIssuers(allow_private=True).check(oidc("https://localhost:1/", "rubbish")))


# --- over TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that nobody but its bearer trusts."""
    place = tmp_path_factory.mktemp("tls")
    cert, key = place / "cert.pem", place / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = ["openssl", "req", *kind, "-keyout", str(key), "-out", str(cert), *subject]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def asked(identity: tuple[Path, Path], answer: Callable[[str], bytes], *, trusted: bool = True) -> list[bytes]:
    """Run one check against a server on loopback; what it was asked."""
    cert, key = identity
    heard: list[bytes] = []

    async def story() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        url = ""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer(url))
            writer.close()

        server = await asyncio.start_server(serve, "localhost", 0, ssl=context)
        try:
            url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
            own = cert.read_text() if trusted else ""
            await WebIssuers(allow_private=True).check(oidc(url, own))
        finally:
            server.close()

    asyncio.run(story())
    return heard


def test_a_real_issuer_is_asked_for_its_document_and_nothing_else(identity: tuple[Path, Path]) -> None:
    [request] = asked(identity, document)
    assert request.startswith(f"GET {DISCOVERY} HTTP/1.0\r\nHost: localhost".encode())


def test_an_issuer_nobody_trusts_is_refused(identity: tuple[Path, Path]) -> None:
    with pytest.raises(Invalid, match="reached"):
        asked(identity, document, trusted=False)


def test_an_endless_answer_is_cut_off(identity: tuple[Path, Path]) -> None:
    with pytest.raises(Invalid, match="too long"):
        asked(identity, lambda url: b"HTTP/1.0 200 OK\r\n\r\n" + b" " * (BYTES_MAX * 2))

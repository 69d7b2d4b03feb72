"""Listening: sockets of our own, uvicorn on top, and a graceful end.

Leans on uvicorn (with uvloop and httptools). *Laws.* The port is known before anybody is told; signals belong to the
composition root, not to the server library; a stop first ends streams, then waits for the calls at hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvicorn

from muster.web.asgi import App
from muster.web.pieces import WholeAnswers

BACKLOG: Final = 2_048
GRACE_SECONDS: Final = 8


class CannotListen(Exception):
    """The address is taken, or not ours."""


def check_pair(cert: Path | None, key: Path | None) -> None:
    """Whether this certificate can be shown: better asked before anything is made."""
    if cert is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise CannotListen(
            f"cannot use {cert} with {key}: they are no PEM certificate and its key ({error})"
        ) from None


def listen(host: str, port: int) -> socket.socket:
    """A bound, not yet listening socket; port 0 takes any free one."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, proto)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise CannotListen(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    bound.setblocking(False)
    return bound


def url_of(bound: socket.socket, scheme: str) -> str:
    """How this machine reaches the socket: the wildcard is reached by loopback."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Server(uvicorn.Server):
    """Uvicorn without its own ideas about signals."""

    def __init__(self, app: App, *, tls_cert: Path | None = None, tls_key: Path | None = None) -> None:
        self._app = app
        self.listening = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=WholeAnswers,
                ws="websockets-sansio" if app.has_sockets else "none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=GRACE_SECONDS,
                ssl_certfile=tls_cert,
                ssl_keyfile=tls_key,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Answer what is at hand, end the streams, accept nothing more."""
        self._app.stop()
        self.should_exit = True

"""One HTTP call, made properly: the key, a retry key on every POST, patience when asked for it, errors as `ApiError`.

Leans on httpx. *Laws.* A 429 or 503 is tried again after what Retry-After says, a bounded number of times; because
every POST carries an Idempotency-Key, trying again never makes a thing twice. A reply that was lost is tried again
the same way; an address where nobody listens is not.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx

from muster.clock import RealEntropy
from muster.contracts.clock import Entropy
from muster.sdk.errors import ApiError, Unreachable, Untrusted

BASE = "/muster/v1"
ATTEMPTS = 5
RETRY_SECONDS_MAX = 30.0
REPLY_SECONDS = 30.0
PATIENT = (429, 503)


class Transport:
    def __init__(
        self,
        url: str,
        key: str,
        *,
        verify: bool | ssl.SSLContext = True,
        pause: Callable[[float], None] = time.sleep,
        entropy: Entropy | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._pause = pause
        self._entropy = entropy or RealEntropy()
        # A proxy from the environment must not come between a user and their own machine: loopback goes direct.
        self._http = http or httpx.Client(verify=verify, timeout=REPLY_SECONDS, trust_env=not is_loopback(url))
        self._headers = {"Authorization": f"Bearer {key}", "User-Agent": "muster-sdk"}

    def close(self) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0,
        open_path: bool = False,
    ) -> httpx.Response:
        """The reply, when it is a good one (2xx, or 304)."""
        sent = {**self._headers, **(headers or {})}
        if method == "POST":
            sent.setdefault("Idempotency-Key", self._entropy.uuid())
        request = self._http.build_request(
            method,
            self.url + ("" if open_path else BASE) + path,
            params=given(query or {}),
            json=body,
            headers=sent,
            timeout=REPLY_SECONDS + wait_seconds,
        )
        return self._patiently(request)

    def _patiently(self, request: httpx.Request) -> httpx.Response:
        for attempt in range(1, ATTEMPTS + 1):
            last = attempt == ATTEMPTS
            try:
                reply = self._http.send(request)
            except httpx.ConnectError as error:
                if "CERTIFICATE" in str(error):
                    raise Untrusted(f"{self.url} shows a certificate that nobody here trusts ({error})") from None
                raise Unreachable(f"nobody answers at {self.url} ({error})") from None
            except httpx.TransportError as error:
                if last or request.method == "PATCH":
                    raise Unreachable(
                        f"the reply from {self.url} was lost ({error or type(error).__name__})"
                    ) from None
                self._pause(backoff_seconds(attempt))
                continue
            if last or reply.status_code not in PATIENT:
                return checked(reply)
            self._pause(retry_seconds(reply, attempt))
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def stream(self, path: str, query: Mapping[str, Any], silence_seconds: float) -> Iterator[Iterator[str]]:
        """Lines of a reply that goes on; silence longer than the server's heartbeat is an error."""
        timeout = httpx.Timeout(REPLY_SECONDS, read=silence_seconds)
        sent = {**self._headers, "Accept": "text/event-stream"}
        asked = given(query)
        try:
            with self._http.stream(
                "GET", self.url + BASE + path, params=asked, headers=sent, timeout=timeout
            ) as reply:
                if reply.status_code >= 400:
                    reply.read()
                    checked(reply)
                yield reply.iter_lines()
        except httpx.TransportError as error:
            raise Unreachable(f"the stream from {self.url} ended ({error or type(error).__name__})") from None


def is_loopback(url: str) -> bool:
    return httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")


def given(query: Mapping[str, Any]) -> dict[str, str]:
    return {name: worded(value) for name, value in query.items() if value is not None}


def worded(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def backoff_seconds(attempt: int) -> float:
    return float(min(0.2 * 2**attempt, RETRY_SECONDS_MAX))


def retry_seconds(reply: httpx.Response, attempt: int) -> float:
    """What the server asks for, within reason."""
    try:
        return min(max(float(reply.headers["Retry-After"]), 0.0), RETRY_SECONDS_MAX)
    except (KeyError, ValueError):
        return backoff_seconds(attempt)


def checked(reply: httpx.Response) -> httpx.Response:
    if reply.status_code < 400:
        return reply
    try:
        said = reply.json()
    except ValueError:
        said = {}
    if not isinstance(said, dict):
        said = {}
    detail = said.get("detail") or said.get("title") or f"{reply.status_code} {reply.reason_phrase}"
    raise ApiError(
        reply.status_code,
        str(said.get("code") or "unknown"),
        str(detail),
        said.get("field"),
        said.get("hint"),
        said.get("details"),
        said.get("request_id"),
    )

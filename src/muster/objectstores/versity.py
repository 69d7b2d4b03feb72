"""The Versity S3 gateway: objects as plain files beneath the home, users told to it through its admin calls.

Leans on signing and httpx. Laws: those of contracts/objects.py. Why this one: docs/decisions/0012-object-storage.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import httpx
import msgspec

from muster.contracts.clock import Clock, Entropy
from muster.contracts.objects import ObjectKey
from muster.errors import NameTaken, NotFound, Protected, TryLater
from muster.objectstores.signing import signed

PROGRAM: Final = "versitygw"
VERSION: Final = "1.8.0"
REGION: Final = "us-east-1"
CALL_SECONDS: Final = 10.0
RESTART_SECONDS: Final = 1.0
_NAME: Final = re.compile(rb"<Bucket><Name>([^<]+)</Name>|<Bucket>.*?<Name>([^<]+)</Name>", re.S)
_CODE: Final = re.compile(rb"<Code>(\w+)</Code>")


def program(cache: Path) -> str | None:
    """Where it is: in the cache, or on the PATH."""
    cached = cache / "bin" / PROGRAM
    return str(cached) if cached.exists() else shutil.which(PROGRAM)


def how_to_get(cache: Path) -> str:
    return f"GOBIN={cache / 'bin'} go install github.com/versity/versitygw/cmd/versitygw@v{VERSION}"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same across restarts: clients keep the endpoint in their configuration."""

    host: str
    port: int
    access: str
    secret: str


class Versity:
    """The gateway as a client of its own sees it."""

    region = REGION

    def __init__(self, place: Place, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self.endpoint = f"http://{place.host}:{place.port}"
        self._root = ObjectKey(place.access, place.secret)
        self._http = httpx.AsyncClient(base_url=self.endpoint, timeout=CALL_SECONDS)
        self._admitted: dict[str, str] = {}

    async def admit(self, key: ObjectKey) -> None:
        if self._admitted.get(key.access) == key.secret:
            return
        access, secret = escape(key.access), escape(key.secret)
        user = f"<Account><Access>{access}</Access><Secret>{secret}</Secret><Role>userplus</Role></Account>"
        made = await self._ask(self._root, "PATCH", "/create-user", body=user)
        if made.status_code == 409:
            props = f"<MutableProps><Secret>{secret}</Secret></MutableProps>"
            made = await self._ask(self._root, "PATCH", "/update-user", {"access": key.access}, props)
        _require(made)
        self._admitted[key.access] = key.secret

    async def expel(self, access: str) -> None:
        self._admitted.pop(access, None)
        gone = await self._ask(self._root, "PATCH", "/delete-user", {"access": access})
        if gone.status_code != 404:
            _require(gone)

    async def buckets(self, key: ObjectKey) -> list[str]:
        told = _require(await self._ask(key, "GET", "/"))
        return sorted((one or other).decode() for one, other in _NAME.findall(told.content))

    async def make_bucket(self, key: ObjectKey, name: str) -> None:
        made = await self._ask(key, "PUT", f"/{name}")
        if made.status_code == 409:
            if _code(made) == "BucketAlreadyOwnedByYou":
                return
            raise NameTaken(f"somebody has a bucket named {name}", field="bucket_name", hint="choose another name")
        _require(made)

    async def remove_bucket(self, key: ObjectKey, name: str) -> None:
        gone = await self._ask(key, "DELETE", f"/{name}")
        if gone.status_code in (403, 404):
            raise NotFound(f"there is no bucket {name}")
        if gone.status_code == 409:
            raise Protected(f"bucket {name} is not empty", hint="delete what is in it first")
        _require(gone)

    async def _ask(
        self, key: ObjectKey, method: str, path: str, query: Mapping[str, str] | None = None, body: str = ""
    ) -> httpx.Response:
        host = urlsplit(self.endpoint).netloc
        data = body.encode()
        headers = signed(key, REGION, method, host, path, query or {}, data, self._clock.now())
        try:
            return await self._http.request(method, path, params=dict(query or {}), content=data, headers=headers)
        except httpx.HTTPError as error:
            raise TryLater(f"{type(error).__name__} at {self.endpoint}") from error

    async def close(self) -> None:
        await self._http.aclose()


def _require(reply: httpx.Response) -> httpx.Response:
    if reply.status_code >= 300:
        raise TryLater(f"it answered {reply.status_code} {_code(reply)}")
    return reply


def _code(reply: httpx.Response) -> str:
    found = _CODE.search(reply.content)
    return found[1].decode() if found else ""


def place_of(home: Path, host: str, entropy: Entropy) -> Place:
    """Kept in the home: the same port and root key for its whole life."""
    file = home / "objects.json"
    if file.exists():
        return msgspec.json.decode(file.read_bytes(), type=Place)
    with socket.socket() as free:
        free.bind((host, 0))
        place = Place(host=host, port=free.getsockname()[1], access=entropy.token(12), secret=entropy.token(30))
    making = file.with_name(".objects.json.new")
    making.write_bytes(msgspec.json.encode(place))
    making.chmod(0o600)
    making.replace(file)
    return place


async def keep_running(command: str, place: Place, home: Path, stop: asyncio.Event) -> None:
    """The gateway beside the engine, started again when it dies, ended with us."""
    data, users = home / "objects", home / "objects-iam"
    for folder in (data, users):
        folder.mkdir(mode=0o700, exist_ok=True)
    words = ["--quiet", "--port", f"{place.host}:{place.port}", "--region", REGION, "--iam-dir", str(users)]
    environment = {"ROOT_ACCESS_KEY": place.access, "ROOT_SECRET_KEY": place.secret, "HOME": str(home)}
    while not stop.is_set():
        # pdeathsig: a server that is killed takes its gateway along
        process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "TERM", command, *words, "posix", str(data)),
            env={"PATH": "/usr/bin:/bin", **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
        await _until(process, stop)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RESTART_SECONDS)


async def _until(process: asyncio.subprocess.Process, stop: asyncio.Event) -> None:
    ends = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(stop.wait())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    if process.returncode is None:
        process.terminate()
        await process.wait()

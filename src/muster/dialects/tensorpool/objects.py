"""Object storage: known, and refused in a sentence until there is a server behind it (docs/decisions)."""

from __future__ import annotations

from typing import Final, NoReturn

from muster.contracts.http import Call
from muster.errors import Unsupported

PATHS: Final = (
    ("POST", "/object-storage/enable"),
    ("DELETE", "/object-storage/disable"),
    ("GET", "/object-storage/credentials"),
    ("POST", "/object-storage/rotate-keys"),
    ("GET", "/object-storage/configure/rclone"),
    ("GET", "/object-storage/configure/aws"),
    ("GET", "/object-storage/bucket/list"),
    ("PUT", "/object-storage/bucket/create/{bucket_name}"),
    ("DELETE", "/object-storage/bucket/delete/{bucket_name}"),
)


async def refused(call: Call) -> NoReturn:
    raise Unsupported("this server has no object storage", hint="shared storage is there: tp storage create 100")

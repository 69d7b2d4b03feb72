"""A thin client of the native API. Knows no server package; leans on httpx and the contract of the wire.

`Client` is imported when first asked for: the command line prints its help, and becomes the server, without httpx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.sdk.errors import ApiError, SdkError, TimedOut, Unreachable, Untrusted

if TYPE_CHECKING:
    from muster.sdk.client import Client

__all__ = ["ApiError", "Client", "SdkError", "TimedOut", "Unreachable", "Untrusted"]


def __getattr__(name: str) -> Any:
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from muster.sdk.client import Client

    return Client

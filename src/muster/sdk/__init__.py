"""A thin client of the native API. Knows no server package; leans on httpx and the contract of the wire."""

from muster.sdk.client import Client
from muster.sdk.errors import ApiError, SdkError, TimedOut, Unreachable

__all__ = ["ApiError", "Client", "SdkError", "TimedOut", "Unreachable"]

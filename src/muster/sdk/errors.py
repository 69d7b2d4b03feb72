"""What a call through the SDK can end in, other than well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SdkError(Exception):
    """Root of the tree; never raised itself."""


class Unreachable(SdkError):
    """Nobody answered at the server's address."""


class Untrusted(Unreachable):
    """Somebody answered, and could not prove to be who we asked for."""


class TimedOut(SdkError):
    """The thing waited for did not come in time; `last` is how it looked when we stopped waiting."""

    def __init__(self, message: str, last: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.last = last


class ApiError(SdkError):
    """The server said no: a sentence, a stable code, the offending field and a way out."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        field: str | None = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.field = field
        self.hint = hint
        self.details = dict(details or {})
        self.request_id = request_id

"""Refusals in the native dialect: application/problem+json with a stable code, the field, and a way out.

Leans on errors. *Law.* Total: every CallError has a status here; a test holds the table against the tree.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Final

import msgspec

from muster.contracts.http import Call, NoSuchPath, Reply, WrongMethod
from muster.dialects.native.views import Problem
from muster.errors import CallError, Invalid

CONTENT_TYPE: Final = "application/problem+json"
REFERENCE: Final = "/muster/v1/docs"
STATUS: Final[dict[str, int]] = {
    "invalid": 400,
    "unauthenticated": 401,
    "insufficient_balance": 402,
    "forbidden": 403,
    "quota_exceeded": 403,
    "not_found": 404,
    "name_taken": 409,
    "protected": 409,
    "wrong_phase": 409,
    "never_fits": 409,
    "out_of_stock": 409,
    "idempotency_mismatch": 409,
    "stale": 412,
    "too_large": 413,
    "unsupported": 422,
    "rate_limited": 429,
    "unavailable": 503,
}
RETRY_SECONDS: Final = 2
"""When to ask again after a 503: long enough for a writer to catch up."""


def refusal(error: CallError, call: Call) -> Reply:
    status = 405 if isinstance(error, WrongMethod) else STATUS[error.code]
    problem = Problem(
        type=f"urn:muster:error:{error.code}",
        title=HTTPStatus(status).phrase,
        status=status,
        code=error.code,
        detail=error.message,
        request_id=call.id,
        field=error.field,
        hint=error.hint or _way_out(error),
        details=error.details or None,
    )
    return Reply(status, msgspec.json.encode(problem), CONTENT_TYPE, _headers(error, status))


def _way_out(error: CallError) -> str | None:
    """Whoever asked for the wrong thing, or in the wrong way, finds the right one in the reference."""
    return f"see {REFERENCE}" if isinstance(error, Invalid | NoSuchPath) else None


def crash(call: Call) -> Reply:
    problem = Problem(
        type="urn:muster:error:internal",
        title=HTTPStatus(500).phrase,
        status=500,
        code="internal",
        detail="this broke on our side; nothing was half written",
        request_id=call.id,
        hint="ask again, and tell the operator this request_id",
    )
    return Reply(500, msgspec.json.encode(problem), CONTENT_TYPE)


def _headers(error: CallError, status: int) -> tuple[tuple[str, str], ...]:
    if status == 401:
        return (("www-authenticate", "Bearer"),)
    if status in (429, 503):
        seconds = error.details.get("retry_after_seconds", RETRY_SECONDS)
        return (("retry-after", str(max(1, math.ceil(seconds)))),)
    return ()

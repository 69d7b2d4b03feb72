"""Refusals as `tp` can show them: always a `message`, and `detail` where other clients look.

Leans on errors. *Laws.* Total: every CallError has a status here. The message alone tells a person what to do.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from muster.contracts.http import Call, Reply, WrongMethod
from muster.dialects.tensorpool import answers
from muster.dialects.tensorpool.asking import Misshapen
from muster.errors import CallError

STATUS: Final[dict[str, int]] = {
    "invalid": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "name_taken": 400,  # as documented: "Invalid parameters or cluster name conflict"
    "stale": 409,
    "protected": 409,
    "wrong_phase": 409,
    "never_fits": 400,
    "quota_exceeded": 403,
    "insufficient_balance": 402,
    "out_of_stock": 409,
    "unsupported": 400,
    "idempotency_mismatch": 409,
    "too_large": 413,
    "rate_limited": 429,
    "unavailable": 503,
}
MISSHAPEN: Final = 422
PATIENCE_SECONDS: Final = 2


def refusal(error: CallError, call: Call) -> Reply:
    told = message_of(error)
    body = answers.Refusal(message=told, detail=_detail(error, told), code=error.code, details=error.details)
    return Reply(_status(error), msgspec.json.encode(body), headers=_headers(error))


def crash(call: Call) -> Reply:
    told = f"This broke on our side and nothing was half written. Tell the operator this id: {call.id}."
    return Reply(500, msgspec.json.encode(answers.Refusal(message=told, detail=told, code="internal", details={})))


def message_of(error: CallError) -> str:
    """What is wrong and the way out, as sentences."""
    parts = [part for part in (error.message, error.hint) if part]
    return " ".join(_sentence(part) for part in parts)


def _sentence(text: str) -> str:
    """A field's name is written as it is spelled, even at the beginning."""
    first = text.split(maxsplit=1)[0]
    begun = text if "_" in first or ":" in first else text[0].upper() + text[1:]
    return begun.rstrip(".") + "."


def _status(error: CallError) -> int:
    if isinstance(error, WrongMethod):
        return 405
    return MISSHAPEN if isinstance(error, Misshapen) else STATUS[error.code]


def _detail(error: CallError, told: str) -> str | list[answers.Problem]:
    if isinstance(error, Misshapen):
        return [answers.Problem(loc=error.loc, msg=error.message, type="value_error")]
    return told


def _headers(error: CallError) -> tuple[tuple[str, str], ...]:
    status = STATUS[error.code]
    if status == 401:
        return (("www-authenticate", "Bearer"),)
    if status in (429, 503):
        wait = error.details.get("retry_after_seconds", PATIENCE_SECONDS)
        return (("retry-after", str(max(1, math.ceil(wait)))),)
    return ()

"""Refusals in TIR's envelope: `errors` names the field, `message` is the documented one.

Leans on errors. *Laws.* Total: every CallError has a status here. A 401 is exactly the documented two fields.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Final

import msgspec

from muster.contracts.http import Call, Reply, WrongMethod
from muster.dialects.tir.answers import Out
from muster.dialects.tir.words import BASE
from muster.errors import CallError

STATUS: Final[dict[str, int]] = {
    "invalid": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "name_taken": 400,
    "stale": 409,
    "protected": 400,
    "wrong_phase": 400,
    "never_fits": 400,
    "quota_exceeded": 403,
    "insufficient_balance": 400,  # as theirs: with `errors.credits`
    "out_of_stock": 400,
    "unsupported": 400,
    "idempotency_mismatch": 409,
    "too_large": 413,
    "rate_limited": 429,
    "unavailable": 503,
}
UNAUTHORIZED: Final = "Unauthorized access."
NO_FIELD: Final = "detail"
PATIENCE_SECONDS: Final = 2

_WORDS: Final[dict[str, str]] = {
    "gpus": "no_of_nodes",
    "gpus_per_node": "sku_id",
    "gpu_type": "sku_id",
    "image_id": "image_version_id",
    "billing": "sku_item_price_id",
    "duration_days": "sku_item_price_id",
    "region": "location",
    "mounts": "sfs_mount_list",
    "public_key": "ssh_key",
    "size_gib": "disk_size",
    "config.scripts": "lifecycle_script",
    "config.scripts.lifecycle": "lifecycle_script",
}
OTHER_PRODUCTS: Final[dict[str, str]] = {
    "notebooks": "notebooks",
    "serving": "inference endpoints and models",
    "inference": "inference endpoints",
    "model-api": "model endpoints",
    "finetuning": "fine-tuning",
    "vector_db": "vector databases",
    "pipelines": "pipelines",
    "pipeline": "pipelines",
    "integrations": "integrations",
    "datasets": "datasets",
    "private-cluster": "private clusters",
}


class Refusal(Out, frozen=True, kw_only=True):
    code: int
    errors: dict[str, str]
    message: str


class Stranger(Out, frozen=True, kw_only=True):
    code: int = 401
    message: str = UNAUTHORIZED


def refusal(error: CallError, call: Call) -> Reply:
    status = 405 if isinstance(error, WrongMethod) else STATUS[error.code]
    if status == 401:
        return Reply(401, msgspec.json.encode(Stranger()), headers=(("www-authenticate", "Bearer"),))
    told = Refusal(code=status, errors={_field(error): _sentence(error, call)}, message=HTTPStatus(status).phrase)
    return Reply(status, msgspec.json.encode(told), headers=_headers(error, status))


def crash(call: Call) -> Reply:
    sentence = f"This broke on our side and nothing was half written. Tell the operator this id: {call.id}."
    told = Refusal(code=500, errors={NO_FIELD: sentence}, message=HTTPStatus(500).phrase)
    return Reply(500, msgspec.json.encode(told))


def _field(error: CallError) -> str:
    """The offending field as this caller knows it: the outermost one, which is a key of what they sent."""
    if error.code == "insufficient_balance":
        return "credits"
    field = (error.field or NO_FIELD).split(" ", 1)[0]
    return _WORDS.get(field, field)


def _sentence(error: CallError, call: Call) -> str:
    product = _product(call.path) if error.code == "not_found" else None
    if product is not None:
        return f"This server makes training clusters; it has no {product}."
    return " ".join(_ended(text) for text in (error.message, error.hint) if text)


def _product(path: str) -> str | None:
    """Which other product of theirs a path is about, if it is about one."""
    rest = [segment for segment in path.removeprefix(BASE).split("/") if segment]
    for layer in ("teams", "projects"):
        rest = rest[2:] if rest[:1] == [layer] else rest
    return OTHER_PRODUCTS.get(rest[0]) if rest else None


def _ended(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _headers(error: CallError, status: int) -> tuple[tuple[str, str], ...]:
    if status not in (429, 503):
        return ()
    seconds = error.details.get("retry_after_seconds", PATIENCE_SECONDS)
    return (("retry-after", str(max(1, math.ceil(seconds)))),)

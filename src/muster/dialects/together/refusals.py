"""Refusals in the envelope that Together's command line prints: {"error": {message, type, param, code}}.

Leans on errors. *Laws.* Total: every CallError has a status and a type here. The message alone tells a person what to
do, for it is all that the command line shows. A 409 says whether asking again can help, for the SDK would otherwise.
"""

from __future__ import annotations

import math
import re
from typing import Final

import msgspec

from muster.contracts.http import Call, Reply, WrongMethod
from muster.errors import CallError

STATUS: Final[dict[str, int]] = {
    "invalid": 400,
    "wrong_phase": 400,  # a precondition: 409 would be retried by older clients
    "unauthenticated": 401,
    "insufficient_balance": 402,
    "forbidden": 403,
    "quota_exceeded": 403,
    "not_found": 404,
    "name_taken": 409,
    "stale": 409,
    "protected": 409,
    "never_fits": 409,
    "out_of_stock": 409,
    "idempotency_mismatch": 409,
    "too_large": 413,
    "unsupported": 422,
    "rate_limited": 429,
    "unavailable": 503,
}
TYPE: Final[dict[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_balance_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    422: "unprocessable_entity_error",
    429: "rate_limit_error",
    500: "internal_server_error",
    503: "service_unavailable_error",
}
WORTH_RETRYING: Final = frozenset({"stale"})
"""Of the 409s: somebody else was quicker, and the same request may well succeed now."""

RETRY_SECONDS: Final = 2
CRASHED: Final = "internal"
_WORD: Final = re.compile(r"[a-z]+'?[a-z]*[,:;]?")

_CLUSTER_WORDS: Final[dict[str, str]] = {
    "name": "cluster_name",
    "type": "cluster_type",
    "gpus": "num_gpus",
    "preemptible_gpus": "num_preemptible_gpus",
    "pool_id": "capacity_pool_id",
    "pool_gpus": "num_capacity_pool_gpus",
    "autoscale": "auto_scale",
    "autoscale.max_gpus": "auto_scale_max_gpus",
    "gpus_per_node": "num_gpus",
    "image_id": "nvidia_version_id",
    "billing": "billing_type",
    "starts_at": "reservation_start_time",
    "ends_at": "reservation_end_time",
    "mounts": "shared_volume",
    "size_gib": "shared_volume.size_tib",
    "config.shm_gib": "slurm_shm_size_gib",
    "config.slurm_image": "slurm_image",
    "config.oidc": "oidc_config",
    "config.load_balancer": "cluster_config.load_balancer",
    "config.ingress": "cluster_config.ingress",
    "config.observability": "cluster_config.observability",
    "config.jumphost": "cluster_config.jumphost_enabled",
    "config.ssh_ca": "cluster_config.ssh_ca_enabled",
    "config.gpu_operator_version": "cluster_config.gpu_operator_version",
    "config.network_operator_version": "cluster_config.network_operator_version",
    "config.scripts": "cluster_config.slurm_startup_scripts",
    "config.scripts.login_init": "cluster_config.slurm_startup_scripts.login_init_script",
    "config.scripts.nodeset_init": "cluster_config.slurm_startup_scripts.nodeset_init_script",
    "config.add_ons": "add_ons",
    "cursor": "page_token",
}
_VOLUME_WORDS: Final[dict[str, str]] = {"name": "volume_name", "size_gib": "size_tib"}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    error: Told


def refusal(error: CallError, call: Call) -> Reply:
    status = 405 if isinstance(error, WrongMethod) else STATUS[error.code]
    told = Told(
        message=_words(error, call.path), type=TYPE[status], param=_param(error.field, call.path), code=error.code
    )
    return Reply(status, msgspec.json.encode(Envelope(error=told)), headers=_headers(error, status))


def crash(call: Call) -> Reply:
    message = f"This broke on our side and nothing was half written. Tell the operator this id: {call.id}."
    told = Told(message=message, type=TYPE[500], param=None, code=CRASHED)
    return Reply(500, msgspec.json.encode(Envelope(error=told)))


def _words(error: CallError, path: str) -> str:
    """Message and way out, as two sentences; stock-outs begin with the words that scripts look for."""
    message = f"Out of stock: {error.message}" if error.code == "out_of_stock" else _in_their_words(error, path)
    hint = (error.hint or "").replace("next_cursor", "next_page_token")
    return " ".join(_sentence(text) for text in (message, hint) if text)


def _in_their_words(error: CallError, path: str) -> str:
    """A sentence that names the field by the house's word names it by the caller's."""
    told = _param(error.field, path)
    if error.field is None or told is None:
        return error.message
    whole = error.field.split(" ", 1)[0]
    if "." in whole and whole in error.message:
        return error.message.replace(whole, told)
    ours = whole.rsplit(".", 1)[-1]
    return told + error.message.removeprefix(ours) if error.message.startswith(f"{ours} ") else error.message


def _sentence(text: str) -> str:
    """Begun with a capital, unless it begins with a name: those are told as they are written."""
    first = text.split(" ", 1)[0]
    begun = text[:1].upper() + text[1:] if _WORD.fullmatch(first) else text
    return begun + ("" if text.endswith((".", "!", "?")) else ".")


def _param(field: str | None, path: str) -> str | None:
    """The offending field as this caller knows it."""
    if field is None:
        return None
    if "/volumes" in path or "/shared_volume" in path:
        return _VOLUME_WORDS.get(field, field)
    plain = field.split(" ", 1)[0]  # "config.add_ons (dashboard)"
    scripts = "config.scripts."
    if plain.startswith(scripts) and plain not in _CLUSTER_WORDS:
        return f"cluster_config.slurm_startup_scripts.{plain.removeprefix(scripts)}"
    return _CLUSTER_WORDS.get(plain, plain)


def _headers(error: CallError, status: int) -> tuple[tuple[str, str], ...]:
    if status == 401:
        return (("www-authenticate", "Bearer"),)
    if status == 409:
        return (("x-should-retry", "true" if error.code in WORTH_RETRYING else "false"),)
    if status in (429, 503):
        seconds = error.details.get("retry_after_seconds", RETRY_SECONDS)
        return (("retry-after", str(max(1, math.ceil(seconds)))),)
    return ()

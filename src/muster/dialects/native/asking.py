"""Reading what a call says beside its path: body, paging, versions, retries, patience.

Leans on contracts.http and wire. *Laws.* Every mistake names its field; `null` means absent; an If-Match that is not
one of our tags matches nothing.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypedDict, TypeVar

import msgspec

from muster.contracts.http import Call
from muster.core.idempotency import Once, digest_of
from muster.dialects.native.wire import Body
from muster.errors import Invalid

WAIT_SECONDS_MAX: Final = 60.0
_NUMBER_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 32
_AT: Final = re.compile(r"^(?P<said>.*?)(?: - at `(?P<path>.+)`)?$", re.S)
_NAMED: Final = re.compile(r"(?:unknown|required) field `(?P<name>.+?)`")
_TAG: Final = re.compile(r'^(?:W/)?"(\d{1,18})"$')

B = TypeVar("B", bound=Body)


class Paging(TypedDict):
    cursor: str | None
    limit: int | None


def read(call: Call, body: type[B], *, keep_null: bool = False) -> B:
    """The call's body as this struct. `keep_null` is for the rare body where null says something."""
    if rb"\u0000" in call.body:
        raise Invalid("the body has a NUL character, which nothing here can hold", field="body")
    try:
        if keep_null or b"null" not in call.body:
            return msgspec.json.decode(call.body or b"{}", type=body)
        return msgspec.convert(without_null(msgspec.json.decode(call.body)), body)
    except msgspec.ValidationError as error:
        raise _wrong_body(str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Invalid(f"the body is not JSON: {error}", field="body") from None


def without_null(said: Any) -> Any:
    """The same object without the fields that are null, at every depth."""
    if isinstance(said, dict):
        return {key: without_null(value) for key, value in said.items() if value is not None}
    return [without_null(item) for item in said] if isinstance(said, list) else said


def _wrong_body(message: str) -> Invalid:
    """msgspec's sentence ends with a path like `$.mounts[...].path`; that is our field."""
    found = _AT.match(message)
    said, path = (found["said"], found["path"] or "$") if found else (message, "$")
    named = _NAMED.search(said)
    parts = [part for part in (path.removeprefix("$").lstrip("."), named["name"] if named else "") if part]
    field = ".".join(parts) or "body"
    return Invalid(f"{field}: {said[:1].lower()}{said[1:]}", field=field)


def text(call: Call, name: str) -> str | None:
    """A query parameter; an empty one was not given."""
    said = call.asked(name)
    if said and "\x00" in said:
        raise Invalid(f"{name} has a character nobody can print", field=name)
    return said or None


def number(call: Call, name: str) -> int | None:
    said = text(call, name)
    if said is None:
        return None
    found = whole(said)
    if found is None:
        raise Invalid(f"{name} must be a whole number", field=name)
    return found


def whole(said: str) -> int | None:
    """A number that a database can hold. Its length is asked first: Python refuses to read thousands of digits."""
    if len(said) > _DIGITS_MAX or not said.isascii() or not said.isdigit() or int(said) > _NUMBER_MAX:
        return None
    return int(said)


def read_seq(said: str | None) -> int | None:
    """An event's number as a browser repeats it; anything else is ignored, as a browser cannot be told."""
    return whole(said) if said else None


def flag(call: Call, name: str) -> bool:
    said = text(call, name)
    if said is None:
        return False
    if said not in ("true", "false", "1", "0"):
        raise Invalid(f"{name} must be true or false", field=name)
    return said in ("true", "1")


def paging(call: Call) -> Paging:
    return {"cursor": text(call, "cursor"), "limit": number(call, "limit")}


def patience(call: Call) -> float | None:
    """How many seconds the caller would wait for news."""
    said = text(call, "wait")
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= WAIT_SECONDS_MAX:
        raise Invalid(f"wait must be between 0 and {WAIT_SECONDS_MAX:g} seconds", field="wait")
    return seconds


def if_match(call: Call) -> int | None:
    """The version the caller decided on; None = whatever it is now. A tag that is not ours matches no version."""
    said = call.headers.get("if-match")
    return None if said is None or said.strip() == "*" else version_of(said)


def seen_version(call: Call) -> int | None:
    said = call.headers.get("if-none-match")
    return None if said is None else version_of(said)


def version_of(tag: str) -> int:
    found = _TAG.match(tag.strip())
    return int(found[1]) if found else -1


def once(call: Call, command: Any, route: str) -> Once | None:
    """The caller's own key for this very call, if it gave one."""
    key = call.headers.get("idempotency-key")
    if key is None:
        return None
    if not (1 <= len(key) <= 255 and key.isascii() and key.isprintable()):
        raise Invalid("Idempotency-Key must be 1 to 255 printable characters", field="Idempotency-Key")
    return Once(key, digest_of({"route": route, "said": command}))

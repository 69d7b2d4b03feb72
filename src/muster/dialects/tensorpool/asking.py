"""Reading a request: its body, with null as absent, and Python's own booleans in queries.

Leans on contracts.http and wire. *Law.* Whatever cannot be read is a 422 that names the place, in FastAPI's shape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from muster.contracts.http import Call
from muster.dialects.tensorpool.wire import Body
from muster.errors import Invalid

_TRUE: Final = frozenset({"true", "1", "yes", "on", "t", "y"})
_FALSE: Final = frozenset({"false", "0", "no", "off", "f", "n"})
_PLACE: Final = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")

B = TypeVar("B", bound=Body)


class Misshapen(Invalid):
    """The request itself cannot be read: a 422, where `Invalid` of the house is a 400."""

    def __init__(self, message: str, loc: Sequence[str | int]) -> None:
        super().__init__(message, field=".".join(map(str, loc[1:])) or "body")
        self.loc = list(loc)


def read(call: Call, body: type[B]) -> B:
    try:
        said = msgspec.json.decode(call.body or b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Misshapen(f"the body is not JSON: {error}", ["body"]) from None
    if not isinstance(said, dict):
        raise Misshapen("the body is a JSON object", ["body"])
    return parsed(said, body)


def parsed(said: dict[str, Any], body: type[B]) -> B:
    present = {name: value for name, value in said.items() if value is not None}
    try:
        return msgspec.convert(present, body)
    except msgspec.ValidationError as error:
        raise _misshapen(str(error)) from None


def _misshapen(told: str) -> Misshapen:
    """msgspec says "... - at `$.num_nodes`", or names a missing field in its sentence."""
    place = _PLACE.search(told)
    sentence = told[: place.start()] if place else told
    missing = re.search(r"required field `(\w+)`", sentence)
    path = place["path"] if place else (missing[1] if missing else "")
    loc = ["body", *re.findall(r"\w+", path)]
    return Misshapen(f"{'.'.join(loc[1:]) or 'body'}: {sentence[:1].lower()}{sentence[1:]}", loc)


def flag(call: Call, name: str) -> bool:
    """`include_org=True`, as Python's clients write it."""
    said = call.asked(name)
    if said is None or said.lower() in _FALSE:
        return False
    if said.lower() in _TRUE:
        return True
    raise Misshapen(f"{name} is true or false, not {said}", ["query", name])


def count(call: Call, name: str, *, most: int) -> int:
    said = call.asked(name) or ""
    if not said.isascii() or not said.isdigit() or len(said) > 12 or not 1 <= int(said) <= most:
        raise Misshapen(f"{name} is a whole number from 1 to {most}", ["query", name])
    return int(said)

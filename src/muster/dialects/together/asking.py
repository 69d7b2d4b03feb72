"""Reading a request: its body with null as absent, the fields nobody knows, and words from closed lists.

Leans on contracts.http and wire. *Laws.* Every mistake names its field. An unknown field is never a mistake: it is
told back in a header, so that a client newer than we are can see what we did not understand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from muster.contracts.http import Call
from muster.dialects.together.wire import Body
from muster.errors import Invalid

IGNORED: Final = "x-muster-ignored-fields"
IGNORED_MAX: Final = 20

_AT: Final = re.compile(r"^(?P<said>.*?)(?: - at `(?P<path>.+)`)?$", re.S)
_PLAIN: Final = re.compile(r"[\w.-]{1,80}", re.A)

B = TypeVar("B", bound=Body)
T = TypeVar("T")


class Asked(NamedTuple, Generic[T]):
    """What was said that we know, and the names of what we do not."""

    said: T
    ignored: tuple[str, ...]

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        return ((IGNORED, ", ".join(self.ignored)),) if self.ignored else ()

    @property
    def note(self) -> dict[str, Any]:
        """For the audit log."""
        return {"ignored_fields": list(self.ignored)} if self.ignored else {}


def read(call: Call, body: type[B]) -> Asked[B]:
    try:
        said = without_null(msgspec.json.decode(call.body or b"{}"))
        if not isinstance(said, dict):
            raise Invalid("the body is a JSON object", field="body")
        return Asked(msgspec.convert(said, body), _named(_unknown(said, _shape(body))))
    except msgspec.ValidationError as error:
        raise _wrong(str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Invalid(f"the body is not JSON: {error}", field="body") from None


def without_null(said: Any) -> Any:
    """The same without what is null, at every depth: the command line says null for what nobody asked."""
    if isinstance(said, dict):
        return {key: without_null(value) for key, value in said.items() if value is not None}
    return [without_null(item) for item in said] if isinstance(said, list) else said


def _wrong(message: str) -> Invalid:
    """msgspec's sentence ends with a path like `$.shared_volume.size_tib`; that is the field."""
    found = _AT.match(message)
    said, path = (found["said"], found["path"] or "$") if found else (message, "$")
    field = path.removeprefix("$").lstrip(".") or "body"
    return Invalid(f"{field}: {said[:1].lower()}{said[1:]}".replace(" | null", ""), field=field)


# --- fields that nobody knows -------------------------------------------------------------------------------------

Shape = Mapping[str, Any]
"""Field name -> the shape inside it, None for a plain value."""


@functools.cache
def _shape(body: type[Body]) -> Shape:
    info = inspect.type_info(body)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: _inside(field.type) for field in info.fields}


def _inside(type_: inspect.Type) -> Shape | None:
    match type_:
        case inspect.StructType(cls=cls):
            return _shape(cls)
        case inspect.UnionType(types=types):
            return next((shape for inner in types if (shape := _inside(inner)) is not None), None)
        case inspect.VarTupleType(item_type=item):
            return _inside(item)
    return None


def _unknown(said: Any, shape: Shape, where: str = "") -> Iterator[str]:
    if isinstance(said, list):
        for item in said:
            yield from _unknown(item, shape, where)
    elif isinstance(said, dict):
        for name, value in said.items():
            if name not in shape:
                yield where + name
            elif shape[name] is not None:
                yield from _unknown(value, shape[name], f"{where}{name}.")


def _named(unknown: Iterable[str]) -> tuple[str, ...]:
    """Each once; of very many the first, and how many more there are."""
    names = tuple(dict.fromkeys(_tidy(name) for name in unknown))
    more = len(names) - IGNORED_MAX
    return names if more <= 0 else (*names[:IGNORED_MAX], f"({more} more)")


def _tidy(name: str) -> str:
    """A name fit for a header, whatever somebody typed."""
    return name if _PLAIN.fullmatch(name) else "(unprintable)"


# --- words from closed lists --------------------------------------------------------------------------------------


def word(said: str, words: Mapping[T, str], field: str) -> T:
    """The house's word for one of theirs."""
    for ours, theirs in words.items():
        if theirs == said:
            return ours
    raise Invalid(f"{field} cannot be {said}", field=field, hint=f"Use one of {', '.join(words.values())}")


def words(call: Call, name: str, table: Mapping[T, str], *, unspoken: Sequence[str] = ()) -> tuple[T, ...] | None:
    """A filter: values joined by commas or repeated; None when it was not given."""
    given = [part for value in call.query.get(name, ()) for part in value.split(",") if part]
    if not given:
        return None
    return tuple(word(part, table, name) for part in given if part not in unspoken)


def required(said: Body, within: str = "") -> None:
    """Everything that is missing, in one sentence; `within` is the field whose parts these are."""
    missing = [f"{within}{'.' if within else ''}{name}" for name in said.needs if getattr(said, name) is None]
    if missing:
        *others, last = missing
        listed = f"{', '.join(others)} and {last} are" if others else f"{last} is"
        raise Invalid(f"{listed} required", field=missing[0])

"""Between a noun and its row: as little work as can be, for this is on every hot path.

A row is a plain tuple in the order of `Table.columns`. Both databases use it; PostgreSQL's booleans pass unharmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from muster.model.base import N
from muster.store.schema import TABLES, Column, Kind, Table, columns_of

S = TypeVar("S", bound=msgspec.Struct)
Convert = Callable[[Any], Any]

_encode_json = msgspec.json.Encoder().encode


def _field(column: Column) -> str:
    """How the column is read off a noun: an enum by its value, so that no step of ours comes between."""
    plain = column.kind is Kind.JSON or column.nullable or not issubclass(column.type, Enum)
    return column.name if plain else f"{column.name}._value_"


def _writer(column: Column) -> Convert | None:
    """For what may be null."""
    if column.kind is Kind.JSON or not column.nullable:
        return None
    return attrgetter("_value_") if issubclass(column.type, Enum) else None


def _reader(column: Column) -> Convert | None:
    if column.kind is Kind.JSON:
        return msgspec.json.Decoder(column.type).decode
    if column.kind is Kind.BOOLEAN:
        return bool
    if issubclass(column.type, Enum):
        return {member.value: member for member in column.type}.__getitem__
    return None


class Rows(Generic[S]):
    """Turns structs of one type into rows and back."""

    def __init__(self, struct: type[S], columns: Sequence[Column]) -> None:
        self._struct = struct
        self._names = tuple(column.name for column in columns)
        self._fields = attrgetter(*map(_field, columns))
        self._json = [at for at, column in enumerate(columns) if column.kind is Kind.JSON]
        self._writers = [(at, write) for at, column in enumerate(columns) if (write := _writer(column))]
        self._readers = [(at, read) for at, column in enumerate(columns) if (read := _reader(column))]

    def row(self, noun: msgspec.Struct) -> list[Any]:
        row = list(self._fields(noun))
        for at in self._json:
            if row[at] is not None:
                row[at] = _encode_json(row[at]).decode()
        for at, write in self._writers:
            if row[at] is not None:
                row[at] = write(row[at])
        return row

    def struct(self, row: Sequence[Any]) -> S:
        values = list(row)
        for at, read in self._readers:
            if values[at] is not None:
                values[at] = read(values[at])
        return self._struct(**dict(zip(self._names, values, strict=True)))

    def structs(self, rows: Iterable[Sequence[Any]]) -> list[S]:
        return [self.struct(row) for row in rows]

    def named(self, noun: msgspec.Struct) -> dict[str, Any]:
        return dict(zip(self._names, self.row(noun), strict=True))


def rows_of(struct: type[S]) -> Rows[S]:
    return Rows(struct, columns_of(struct))


_ROWS: dict[type[Any], Rows[Any]] = {noun: rows_of(noun) for noun in TABLES}


def table_rows(noun: type[N]) -> tuple[Table, Rows[N]]:
    """The table of a noun and its codec; asking for anything else is our own mistake."""
    return TABLES[noun], _ROWS[noun]

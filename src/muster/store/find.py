"""A `Find` as SQL: the text depends only on the question's shape, so that statements stay prepared.

Pure. The two databases differ in how a parameter is written and how a list is handed over; `Syntax` says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

import msgspec

from muster.contracts.store import Find
from muster.store.schema import TABLES, Kind, Table


class Syntax(Protocol):
    def parameter(self, at: int) -> str:
        """How the `at`-th parameter (from 1) is written."""

    def member_of(self, column: str, kind: Kind, at: int) -> str:
        """`column` is one of the list in the `at`-th parameter."""

    def list_of(self, values: Sequence[Any]) -> Any:
        """The list as a parameter."""


class SqliteSyntax:
    def parameter(self, at: int) -> str:
        return "?"

    def member_of(self, column: str, kind: Kind, at: int) -> str:
        return f"{column} IN (SELECT value FROM json_each(?))"

    def list_of(self, values: Sequence[Any]) -> Any:
        return msgspec.json.encode(values).decode()


class PostgresSyntax:
    _ARRAYS = {Kind.TEXT: "text[]", Kind.INTEGER: "bigint[]", Kind.BOOLEAN: "boolean[]", Kind.JSON: "text[]"}

    def parameter(self, at: int) -> str:
        return f"${at}"

    def member_of(self, column: str, kind: Kind, at: int) -> str:
        return f"{column} = ANY(${at}::{self._ARRAYS[kind]})"

    def list_of(self, values: Sequence[Any]) -> Any:
        return list(values)


class Question(NamedTuple):
    sql: str
    parameters: list[Any]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _known(table: Table, name: str) -> str:
    """Only declared columns reach the SQL text: nothing a caller says can be spliced in."""
    if name not in table.names:
        raise ValueError(f"{table.name} has no column {name}")
    return name


class _Conditions:
    def __init__(self, table: Table, syntax: Syntax) -> None:
        self._table = table
        self._syntax = syntax
        self.parameters: list[Any] = []
        self.texts: list[str] = []

    def bind(self, value: Any) -> str:
        self.parameters.append(_plain(value))
        return self._syntax.parameter(len(self.parameters))

    def equal(self, name: str, value: Any) -> None:
        column = _known(self._table, name)
        self.texts.append(f"{column} IS NULL" if value is None else f"{column} = {self.bind(value)}")

    def one_of(self, name: str, values: Sequence[Any]) -> None:
        column = _known(self._table, name)
        self.parameters.append(self._syntax.list_of([_plain(value) for value in values]))
        self.texts.append(self._syntax.member_of(column, self._table.kinds[name], len(self.parameters)))

    def beyond(self, order: str, descending: bool, after: tuple[Any, str]) -> None:
        sign = "<" if descending else ">"
        if order == "id":
            self.texts.append(f"id {sign} {self.bind(after[1])}")
        else:
            self.texts.append(f"({order}, id) {sign} ({self.bind(after[0])}, {self.bind(after[1])})")


def _conditions(query: Find[Any], table: Table, syntax: Syntax, *, only_alive: bool) -> _Conditions:
    conditions = _Conditions(table, syntax)
    for name, value in query.equals.items():
        conditions.equal(name, value)
    for name, values in query.one_of.items():
        conditions.one_of(name, values)
    if only_alive and "gone_at" in table.names and "gone_at" not in query.equals:
        conditions.equal("gone_at", None)
    return conditions


def _where(conditions: _Conditions) -> str:
    return f" WHERE {' AND '.join(conditions.texts)}" if conditions.texts else ""


def question(query: Find[Any], columns: str, syntax: Syntax, *, only_alive: bool = False) -> Question:
    table = TABLES[query.noun]
    conditions = _conditions(query, table, syntax, only_alive=only_alive)
    order = _known(table, query.order)
    if query.after is not None:
        conditions.beyond(order, query.descending, query.after)
    way = " DESC" if query.descending else ""
    by = f"id{way}" if order == "id" else f"{order}{way}, id{way}"
    limit = f" LIMIT {int(query.limit)}" if query.limit is not None else ""
    sql = f"SELECT {columns} FROM {table.name}{_where(conditions)} ORDER BY {by}{limit}"
    return Question(sql, conditions.parameters)


def count_question(query: Find[Any], syntax: Syntax) -> Question:
    """How many there are in all: order, `after` and `limit` do not matter."""
    table = TABLES[query.noun]
    conditions = _conditions(query, table, syntax, only_alive=False)
    return Question(f"SELECT count(*) FROM {table.name}{_where(conditions)}", conditions.parameters)

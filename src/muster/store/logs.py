"""Questions to the event log, for both databases. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from muster.model.events import Event
from muster.store.find import Question, Syntax
from muster.store.schema import columns_of

EVENT_COLUMNS: Final = columns_of(Event)
_NAMES = ", ".join(column.name for column in EVENT_COLUMNS)


def events_question(
    syntax: Syntax, equals: Mapping[str, str | None], *, after: int, limit: int, newest_first: bool
) -> Question:
    """`equals` of None are left out. From `after` on, towards the newer or (0 = from the end) the older."""
    parameters: list[str | int] = []
    conditions = []
    for name, value in equals.items():
        if value is not None:
            parameters.append(value)
            conditions.append(f"{name} = {syntax.parameter(len(parameters))}")
    if after or not newest_first:
        parameters.append(after)
        conditions.append(f"seq {'<' if newest_first else '>'} {syntax.parameter(len(parameters))}")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    way = " DESC" if newest_first else ""
    parameters.append(limit)
    sql = f"SELECT {_NAMES} FROM event{where} ORDER BY seq{way} LIMIT {syntax.parameter(len(parameters))}"
    return Question(sql, list(parameters))

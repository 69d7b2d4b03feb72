"""The OpenAPI page of this dialect, made from its table of calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from muster.dialects.tensorpool import answers
from muster.dialects.tensorpool.refusals import MISSHAPEN, STATUS

_SCHEMAS: Final = "#/components/schemas/{name}"
_BOOLEANS: Final = frozenset({"include_org", "instances", "dry_run"})


class Described(Protocol):
    """A row of the table of calls."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def tag(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def answer(self) -> type[msgspec.Struct]: ...
    @property
    def body(self) -> type[msgspec.Struct] | None: ...
    @property
    def query(self) -> tuple[str, ...]: ...


def build(rows: Sequence[Described]) -> dict[str, Any]:
    structs = {row.answer for row in rows} | {row.body for row in rows if row.body is not None} | {answers.Refusal}
    listed = sorted(structs, key=lambda struct: (struct.__module__, struct.__name__))
    schemas, components = msgspec.json.schema_components(listed, ref_template=_SCHEMAS)
    named = dict(zip(listed, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, named)
    return {
        "openapi": "3.1.0",
        "info": {"title": "TensorPool API, as Muster speaks it", "version": "0.1.0"},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"HTTPBearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(row: Described, named: dict[type[msgspec.Struct], dict[str, Any]]) -> dict[str, Any]:
    refused = {str(status): "refused" for status in sorted({*STATUS.values(), MISSHAPEN, 500})}
    refusal = {"application/json": {"schema": named[answers.Refusal]}}
    operation: dict[str, Any] = {
        "tags": [row.tag],
        "summary": row.summary,
        "operationId": re.sub(r"\W+", "_", f"{row.path}_{row.method.lower()}").strip("_"),
        "security": [{"HTTPBearer": []}],
        "parameters": [_parameter(name, "path") for name in re.findall(r"{(\w+)}", row.path)]
        + [_parameter(name, "query") for name in row.query],
        "responses": {
            str(row.status): {
                "description": "as asked",
                "content": {"application/json": {"schema": named[row.answer]}},
            },
            **{status: {"description": said, "content": refusal} for status, said in refused.items()},
        },
    }
    if row.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": named[row.body]}}}
    return operation


def _parameter(name: str, place: str) -> dict[str, Any]:
    kind = "boolean" if name in _BOOLEANS else "string"
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": kind}}

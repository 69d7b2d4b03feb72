"""The OpenAPI 3.1 page, made from the table of routes and the structs it names; nothing is written twice.

*Laws.* Every route of the dialect is on the page; every status it can answer is declared, refusals included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from muster import __version__
from muster.contracts.http import Call, Reply, Route
from muster.core.paging import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX
from muster.dialects.native import problem
from muster.dialects.native.asking import WAIT_SECONDS_MAX
from muster.dialects.native.views import Problem

_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"{(\w+)}")
_ANYWHERE: Final = (400, 401, 403, 404, 429, 503)
_CHANGING: Final = (409, 412)
_TEXT: Final[dict[str, Any]] = {"type": "string"}

QUERY: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "cursor": (_TEXT, "next_cursor of the page before"),
    "limit": (
        {"type": "integer", "minimum": 1, "maximum": PAGE_LIMIT_MAX, "default": PAGE_LIMIT_DEFAULT},
        "how many at most",
    ),
    "name": (_TEXT, "only those of this name"),
    "project_id": (_TEXT, "of this project; the key's own when left out"),
    "account_id": (_TEXT, "of this account"),
    "region": (_TEXT, "in this region"),
    "gpu_type": (_TEXT, "of this GPU type"),
    "days": ({"type": "integer", "minimum": 1, "maximum": 365, "default": 60}, "so many days from now on"),
    "role": ({"type": "string", "enum": ["gpu", "control"]}, "of this role"),
    "pool_id": (_TEXT, "set apart in this pool"),
    "kind": (_TEXT, "about this noun: cluster, volume, …"),
    "resource_id": (_TEXT, "about this one"),
    "after": ({"type": "integer", "minimum": 0}, "only events after this number"),
    "newest_first": ({"type": "boolean"}, "backwards"),
    "since": (_TEXT, "from this day or instant on; the month's first when left out"),
    "until": (_TEXT, "up to this day or instant; now when left out"),
    "by": ({"type": "string", "enum": ["day", "resource", "project", "entry"]}, "summed by"),
    "force": ({"type": "boolean"}, "do not wait for running jobs"),
    "wait": (
        {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX},
        "seconds to wait until it is at rest, or (with If-None-Match) until it changes",
    ),
}
HEADERS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "Idempotency-Key": ({"type": "string", "minLength": 1, "maxLength": 255}, "the same key and body: one effect"),
    "If-Match": (_TEXT, "refuse unless this is still its ETag"),
    "If-None-Match": (_TEXT, "the ETag you know"),
    "Last-Event-ID": (_TEXT, "resume after this event"),
}


class OpenApi:
    """Built when first asked for: a server must start quickly, and few ask."""

    def __init__(self, routes: Callable[[], Sequence[Route]]) -> None:
        self._routes = routes
        self._page = b""

    async def serve(self, call: Call) -> Reply:
        if not self._page:
            self._page = msgspec.json.encode(build(self._routes()))
        return Reply(200, self._page)


def build(routes: Sequence[Route]) -> dict[str, Any]:
    schemas = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Muster",
            "version": __version__,
            "description": "Run your own GPU cloud. In request bodies null means absent.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas.components,
        },
    }


class _Schemas:
    def __init__(self, types: Sequence[Any]) -> None:
        found, self.components = msgspec.json.schema_components(types, ref_template=_REF)
        self._found = dict(zip(map(_key, types), found, strict=True))

    def of(self, type: Any) -> dict[str, Any]:
        return self._found[_key(type)]


def _key(type: Any) -> str:
    return repr(type)


def _schemas(routes: Sequence[Route]) -> _Schemas:
    types: dict[str, Any] = {_key(Problem): Problem}
    for route in routes:
        for type in (route.describe["gives"], route.describe["takes"]):
            if type is not None:
                types[_key(type)] = type
    return _Schemas(list(types.values()))


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    said = route.describe
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "tags": [route.pattern.split("/")[3]],
        "summary": said["summary"],
        "parameters": _parameters(route),
        "responses": _responses(route, schemas),
    }
    if said["takes"] is not None:
        content = {"application/json": {"schema": schemas.of(said["takes"])}}
        operation["requestBody"] = {"required": True, "content": content}
    if route.open:
        operation["security"] = []
    return operation


def _operation_id(route: Route) -> str:
    path = route.pattern.removeprefix("/muster/v1/").replace("{", "").replace("}", "")
    return re.sub(r"[^a-z0-9]+", "_", f"{route.method.lower()} {path}")


def _parameters(route: Route) -> list[dict[str, Any]]:
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(route.pattern)
    ]
    query = [_parameter("query", name, *QUERY[name]) for name in route.describe["query"]]
    return [*path, *query, *(_parameter("header", name, *HEADERS[name]) for name in _headers(route))]


def _headers(route: Route) -> list[str]:
    if route.method == "POST":
        return ["Idempotency-Key"]
    if route.method in ("PUT", "PATCH", "DELETE"):
        return ["If-Match"]
    if route.describe["media"] == "text/event-stream":
        return ["Last-Event-ID"]
    return ["If-None-Match"] if "wait" in route.describe["query"] else []


def _parameter(where: str, name: str, schema: dict[str, Any], sentence: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": False, "schema": schema, "description": sentence}


def _responses(route: Route, schemas: _Schemas) -> dict[str, Any]:
    said = route.describe
    good: dict[str, Any] = {"description": HTTPStatus(said["status"]).phrase}
    if said["gives"] is not None:
        good["content"] = {said["media"]: {"schema": schemas.of(said["gives"])}}
    refusal = {problem.CONTENT_TYPE: {"schema": schemas.of(Problem)}}
    return {
        str(said["status"]): good,
        **{str(s): {"description": HTTPStatus(s).phrase, "content": refusal} for s in _refusals(route)},
    }


def _refusals(route: Route) -> list[int]:
    if route.open:
        return []
    statuses = {*_ANYWHERE, *route.describe["also"]}
    if route.method != "GET":
        statuses |= {*_CHANGING, 413}
    return sorted(statuses)

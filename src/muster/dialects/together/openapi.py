"""This wire as an OpenAPI 3.1 document, made from the table of calls, the structs and the tables of words.

`python -m muster.dialects.together.openapi` prints it. Together serves no such page, so neither does the door; it is
what the wire is tried against: any request, and no reply that is not declared here.

*Laws.* Every call is in it under its documented base; every status a call can answer with is declared, refusals
included; an answer has the fields of its struct and no others, and its words come from the tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from muster import __version__
from muster.dialects.together import answers, words
from muster.dialects.together.calls import SURFACES, Row, Surface
from muster.dialects.together.config import ADD_ONS, BURN_SECONDS_MAX, USERNAME_CLAIMS
from muster.dialects.together.refusals import CRASHED, STATUS, TYPE, Envelope
from muster.dialects.together.remediations import ORDERS, PAGE_SIZE_MAX
from muster.dialects.together.terms import NODE_GPUS
from muster.dialects.together.translate import SIZE_TIB_MAX
from muster.dialects.together.wire import Body

Schema = dict[str, Any]
Shapes = Mapping[type, Schema]

PARAMETER: Final = re.compile(r"{(\w+)}")
_ANYWHERE: Final = (400, 401, 403, 404, 429, 500, 503)
_CHANGING: Final = (402, 409, 413, 422)


def _one_of(spoken: Iterable[str]) -> Schema:
    return {"type": "string", "enum": list(dict.fromkeys(spoken))}


def _some_of(spoken: Iterable[str]) -> Schema:
    return {"type": "array", "items": _one_of(spoken)}


_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_NODES: Final[Schema] = {"type": "integer", "multipleOf": NODE_GPUS, "minimum": 0, "maximum": 2**31 - 1}
ASKED: Final[dict[str, Schema]] = {
    "billing_type": _one_of(words.BILLING.values()),
    "cluster_type": _one_of(words.TYPE.values()),
    "load_balancer": _one_of(words.LOAD_BALANCER.values()),
    "dcgm_diag_level": _one_of(words.DCGM_LEVEL.values()),
    "add_on_type": _one_of(ADD_ONS),
    "username_claim": _one_of(USERNAME_CLAIMS),
    "mode": _one_of(words.MODE.values()),
    "num_gpus": _NODES | {"minimum": NODE_GPUS},
    "num_reserved_gpus": _NODES,
    "num_preemptible_gpus": _NODES,
    "num_capacity_pool_gpus": _NODES,
    "auto_scale_max_gpus": _NODES,
    "gpu_burn_duration": {"type": "integer", "minimum": 0, "maximum": BURN_SECONDS_MAX},
    "reservation_start_time": _TIME,
    "reservation_end_time": _TIME,
    "size_tib": {"type": "integer", "minimum": 1, "maximum": SIZE_TIB_MAX},
}
"""What a field of a request takes beyond its plain type, by its name: it means the same in every body."""

TOLD: Final[dict[type, dict[str, Schema]]] = {
    answers.Cluster: {
        "status": _one_of(words.STATUS.values()),
        "cluster_type": _one_of(words.TYPE.values()),
        "billing_type": _one_of(words.BILLING.values()),
    },
    answers.ControlNode: {"status": _one_of(words.NODE_STATUS.values())},
    answers.WorkerNode: {"status": _one_of(words.NODE_STATUS.values())},
    answers.Transition: {
        "phase": _one_of([*words.PHASE.values(), words.NCCL_FAILED, *words.NODE_PHASE.values()]),
        "transition_time": _TIME,
    },
    answers.Condition: {"type": _one_of(words.CONDITION.values())},
    answers.Config: {"load_balancer": _one_of(words.LOAD_BALANCER.values())},
    answers.Volume: {"status": _one_of([*words.VOLUME_STATUS.values(), words.BOUND])},
    answers.Remediation: {
        "mode": _one_of(words.MODE.values()),
        "state": _one_of(words.STATE.values()),
        "trigger": _one_of(words.TRIGGER.values()),
    },
    answers.LegacyCluster: {"status": _one_of(words.LEGACY_STATUS.values())},
    answers.LegacyAccepted: {"status": _one_of(words.LEGACY_STATUS.values())},
    answers.LegacyNode: {"status": _one_of(words.NODE_STATUS.values())},
}
"""The words that a field of an answer may be."""

QUERY: Final[dict[str, Schema]] = {
    "projectId": {"type": "string"},
    "remediation_id": {"type": "string", "format": "uuid"},
    "mode": _some_of(words.MODE.values()),
    "state": _some_of([*words.STATE.values(), *words.UNSPOKEN_STATES]),
    "trigger": _some_of(words.TRIGGER.values()),
    "order_by": _one_of(ORDERS),
    "page_size": {"type": "integer", "minimum": 0, "maximum": PAGE_SIZE_MAX},
    "page_token": {"type": "string"},
}


def build() -> dict[str, Any]:
    asked, taken = _asked()
    told, given = _told()
    paths: dict[str, dict[str, Any]] = {}
    for surface in SURFACES:
        for row in surface.rows:
            operation = _operation(surface, row, asked, told)
            paths.setdefault(surface.bases[0] + row.path, {})[row.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Together's GPU clusters, as Muster speaks them", "version": __version__},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {**taken, **given},
        },
    }


def _rows() -> Iterator[Row]:
    return (row for surface in SURFACES for row in surface.rows)


# --- bodies ---------------------------------------------------------------------------------------------------------


def _components(structs: Iterable[type], ending: str) -> tuple[Shapes, dict[str, Schema]]:
    """Requests and answers have parts of the same name, so each kind of part has its own ending."""
    listed = sorted(set(structs), key=lambda struct: struct.__name__)
    template = f"#/components/schemas/{{name}}{ending}"
    shapes, parts = msgspec.json.schema_components(listed, ref_template=template)
    for part in parts.values():
        part.pop("description", None)  # our own words about our own code
    return dict(zip(listed, shapes, strict=True)), {name + ending: part for name, part in parts.items()}


def _asked() -> tuple[Shapes, dict[str, Schema]]:
    shapes, parts = _components((row.takes for row in _rows() if row.takes is not None), "Asked")
    for struct in _family(Body):
        part = parts.get(f"{struct.__name__}Asked")
        if part is not None:
            needs = frozenset(struct.needs)
            part["required"] = sorted(needs)
            fields = part["properties"]
            part["properties"] = {name: _field(name, fields[name], name in needs) for name in fields}
    return shapes, parts


def _field(name: str, plain: Schema, needed: bool) -> Schema:
    """Null means absent, and what is needed cannot be absent."""
    [said] = [one for one in plain["anyOf"] if one != {"type": "null"}]
    said = ASKED.get(name, said)
    return said if needed else {"anyOf": [said, {"type": "null"}]}


def _told() -> tuple[Shapes, dict[str, Schema]]:
    shapes, parts = _components([Envelope, *(row.gives for row in _rows())], "")
    for part in parts.values():
        part["additionalProperties"] = False
    for struct, fields in TOLD.items():
        parts[struct.__name__]["properties"].update(fields)
    parts["Told"]["properties"]["code"] = _one_of([*STATUS, CRASHED])
    parts["Told"]["properties"]["type"] = _one_of(TYPE.values())
    return shapes, parts


def _family(base: type[Body]) -> Iterator[type[Body]]:
    for struct in base.__subclasses__():
        yield struct
        yield from _family(struct)


# --- calls ----------------------------------------------------------------------------------------------------------


def _operation(surface: Surface, row: Row, asked: Shapes, told: Shapes) -> dict[str, Any]:
    path = surface.bases[0] + row.path
    operation: dict[str, Any] = {
        "operationId": row.handle.__qualname__.lower().replace(".", "_"),
        "tags": [row.handle.__qualname__.partition(".")[0].lower()],
        "parameters": [*map(_place, PARAMETER.findall(path)), *map(_filter, row.query)],
        "responses": _responses(row, told),
    }
    if row.takes is not None:
        operation["requestBody"] = {"required": True, "content": _json(asked[row.takes])}
    return operation


def _place(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _filter(name: str) -> dict[str, Any]:
    """Several values are joined by commas, as the clients do."""
    joined = {"style": "form", "explode": False} if QUERY[name]["type"] == "array" else {}
    return {"name": name, "in": "query", "required": False, "schema": QUERY[name], **joined}


def _responses(row: Row, told: Shapes) -> dict[str, Any]:
    refusals = {*_ANYWHERE, *(() if row.method == "GET" else _CHANGING)}
    good = {"description": HTTPStatus.OK.phrase, "content": _json(told[row.gives])}
    refused = {
        str(status): {"description": HTTPStatus(status).phrase, "content": _json(told[Envelope])}
        for status in sorted(refusals)
    }
    return {"200": good, **refused}


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(build()), indent=2).decode() + "\n")

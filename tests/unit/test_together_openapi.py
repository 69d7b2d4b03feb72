"""The document says what the structs and tables say, and leaves nothing out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.dialects.together import openapi, wire
from muster.dialects.together.asking import required
from muster.dialects.together.calls import SURFACES
from muster.errors import Invalid

PAGE = openapi.build()
PARTS: dict[str, dict[str, Any]] = PAGE["components"]["schemas"]


def test_every_call_is_declared_once_under_its_documented_base() -> None:
    calls = [(row.method.lower(), surface.bases[0] + row.path) for surface in SURFACES for row in surface.rows]
    declared = [(method, path) for path, methods in PAGE["paths"].items() for method in methods]
    assert sorted(calls) == sorted(declared)
    ids = [operation["operationId"] for methods in PAGE["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)


def test_every_part_that_is_named_is_there() -> None:
    text = msgspec.json.encode(PAGE).decode()
    named = {piece.partition('"')[0] for piece in text.split('"#/components/schemas/')[1:]}
    assert named == set(PARTS)


def test_every_refinement_is_of_a_field_that_exists() -> None:
    said = {name for part, shape in PARTS.items() if part.endswith("Asked") for name in shape["properties"]}
    assert set(openapi.ASKED) <= said
    for struct, fields in openapi.TOLD.items():
        assert set(fields) <= set(struct.__struct_fields__), struct
    asked = {name for surface in SURFACES for row in surface.rows for name in row.query}
    assert asked == set(openapi.QUERY)


@pytest.mark.parametrize("struct", [wire.NewCluster, wire.NewVolume, wire.VolumeChange, wire.LegacyNewCluster])
def test_what_a_body_needs_is_refused_when_missing_and_declared_required(struct: type[wire.Body]) -> None:
    with pytest.raises(Invalid) as refused:
        required(struct())
    part = PARTS[f"{struct.__name__}Asked"]
    assert all(name in refused.value.message for name in part["required"])
    assert all({"type": "null"} not in part["properties"][name].get("anyOf", []) for name in part["required"])


def test_answers_have_no_field_that_is_not_declared() -> None:
    assert all(shape["additionalProperties"] is False for part, shape in PARTS.items() if not part.endswith("Asked"))

"""A refusal on demand as each dialect tells it: the ways out in words for all, in fields where there is room."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from muster.contracts.http import Call, NoSuchPath, Reply
from muster.core.capacity.placement import Ask, Refusal, Why
from muster.core.capacity.refusals import Nearest, refuse
from muster.dialects.native import problem as native
from muster.dialects.tensorpool import refusals as tensorpool
from muster.dialects.tir import refusals as tir
from muster.dialects.together import refusals as together
from muster.errors import CallError, Invalid, OutOfStock
from muster.model.base import HOUR

NOW = 490_000 * HOUR
WAYS = (
    "Chennai has 6 such nodes free; or ask for at most 2 nodes (16 GPUs) here; or wait for all of it here: as things "
    "stand from Mon 2025-11-24 21:00 UTC (a new cluster may queue for it, a quote promises its start)"
)
CALL = Call(id="r", method="POST", path="/", params={})


def out_of_stock() -> OutOfStock:
    refusal = Refusal(Why.NOT_NOW, "4 nodes were asked; 2 of 8 are free in Delhi", 2, 8, (("Chennai", 6),))
    with pytest.raises(OutOfStock) as told:
        refuse(Ask("Delhi", "H100_SXM", 8, 4, at=NOW), refusal, Nearest(2, NOW + 5 * HOUR, whole_hosts=True))
    return told.value


@pytest.mark.parametrize("refusal", [native.refusal, together.refusal, tir.refusal, tensorpool.refusal])
def test_every_dialect_says_the_ways_out(refusal: Callable[[CallError, Call], Reply]) -> None:
    body = refusal(out_of_stock(), CALL).body
    assert isinstance(body, bytes)
    assert WAYS in body.decode()


def test_one_is_one_node() -> None:
    with pytest.raises(OutOfStock) as told:
        refuse(Ask("Delhi", "H100_SXM", 1, 2), Refusal(Why.NOT_NOW, "", 1, 8, (("Chennai", 1),)), Nearest(1))
    assert (told.value.hint or "").startswith("Chennai has 1 such node free; or ask for at most 1 node (1 GPU) here")


@pytest.mark.parametrize("error", [Invalid("a mistake"), NoSuchPath("/nowhere")])
def test_whoever_asked_wrongly_is_shown_the_reference(error: CallError) -> None:
    body = native.refusal(error, CALL).body
    assert isinstance(body, bytes)
    assert msgspec.json.decode(body)["hint"] == "see /muster/v1/docs"


@pytest.mark.parametrize("refusal", [native.refusal, tensorpool.refusal])
def test_the_ways_out_are_fields_as_well(refusal: Callable[[CallError, Call], Reply]) -> None:
    body = refusal(out_of_stock(), CALL).body
    assert isinstance(body, bytes)
    assert msgspec.json.decode(body)["details"] == {
        "region": "Delhi",
        "gpu_type": "H100_SXM",
        "gpus_per_node": 8,
        "asked_nodes": 4,
        "free_nodes": 2,
        "total_nodes": 8,
        "smaller": {"nodes": 2, "gpus": 16},
        "elsewhere": [{"region": "Chennai", "free_nodes": 6}],
        "later": "2025-11-24T21:00:00.000Z",
    }

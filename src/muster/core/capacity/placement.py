"""What placement is asked and what it answers: pure data.

*Laws.* Pure and total: request × inventory × policy gives an assignment, or a refusal that says why and what would
help. The order is total, so the same inventory and ask give the same assignment. Slices of a host are packed, never
spread; whole-host gangs go to the best-fitting leaf, then pod. The index behind it is only a hint: the database
refuses a double grant.
"""

from __future__ import annotations

import functools
from enum import StrEnum
from typing import NamedTuple

from muster.model.base import Instant


class Ask(NamedTuple):
    """`nodes` nodes of `gpus_per_node` GPUs each, and `control` slices of control hosts, all in one region."""

    region: str
    gpu_type: str
    gpus_per_node: int
    nodes: int
    control: int = 0
    avoid: frozenset[str] = frozenset()  # host ids not to use: a repair must not land where it came from
    ends_at: Instant | None = None  # when they will be given back, if that is known
    at: Instant = 0  # when it is asked
    promised: int = 0  # of the nodes, so many were promised to it: no other promise stands against those
    spare: bool = False  # it repairs what was promised: the hosts kept back are for it
    pool_id: str = ""  # hosts set apart, of which it gets
    pool_nodes: int = 0  # so many, beside the others


class Grant(NamedTuple):
    """Slots of one host, as a bit mask."""

    host_id: str
    slots: int
    host_name: str = ""


class LineKey(NamedTuple):
    """Whole hosts that are counted together in the calendar; those set apart by the pool that they are in."""

    region: str
    gpu_type: str
    slots: int
    pool_id: str = ""

    @property
    def id(self) -> str:
        return _line_id(self)


@functools.cache
def _line_id(key: LineKey) -> str:
    """There are few lines, and every create asks for one."""
    return ":".join((key.region, key.gpu_type, str(key.slots), *filter(None, (key.pool_id,))))


class Placement(NamedTuple):
    """`lines` says of which lines of the calendar whole hosts were taken, and how many."""

    workers: tuple[Grant, ...]
    control: tuple[Grant, ...]
    lines: tuple[tuple[LineKey, int], ...] = ()
    pooled: tuple[Grant, ...] = ()  # workers on hosts set apart; nobody else counts on those


class Why(StrEnum):
    UNKNOWN_SHAPE = "unknown_shape"  # no host of this type in this region at all
    NEVER = "never"  # more than the fleet has, even when empty
    NOT_NOW = "not_now"


class Refusal(NamedTuple):
    """Why not, in a sentence, and what is nearest: fewer nodes here, the same elsewhere."""

    why: Why
    message: str
    free_nodes: int  # of this shape, here, now
    total_nodes: int  # of this shape, here, when everything is free
    elsewhere: tuple[tuple[str, int], ...] = ()  # (region, free nodes of this shape), most first


def counted(count: int, noun: str = "node") -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

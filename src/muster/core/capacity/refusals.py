"""A refusal on demand, as an error with its ways out: less of it, the same elsewhere, or later. Pure.

Leans on the words of placement. *Law.* Whatever the hint says in words, the details say in fields: `smaller`,
`elsewhere`, `later`. Windows are refused in booking.py, which knows their lengths.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from muster.core.capacity.placement import Ask, Refusal, Why, counted
from muster.core.moments import iso, said_at
from muster.errors import NeverFits, OutOfStock
from muster.model.base import Instant


class Nearest(NamedTuple):
    """What comes nearest to a wish where it was asked for, by what is believed of hosts and promises."""

    nodes: int = 0  # that could be had now; 0 = none, or no fewer than were asked
    later: Instant | None = None  # from when all of it could be had; None = nobody knows
    whole_hosts: bool = False  # of which a start can be promised


def refuse(ask: Ask, refusal: Refusal, nearest: Nearest) -> NoReturn:
    error = OutOfStock if refusal.why is Why.NOT_NOW else NeverFits
    gpus = nearest.nodes * ask.gpus_per_node
    details = {
        "region": ask.region,
        "gpu_type": ask.gpu_type,
        "gpus_per_node": ask.gpus_per_node,
        "asked_nodes": ask.nodes,
        "free_nodes": refusal.free_nodes,
        "total_nodes": refusal.total_nodes,
        "smaller": {"nodes": nearest.nodes, "gpus": gpus} if nearest.nodes else None,
        "elsewhere": [{"region": region, "free_nodes": nodes} for region, nodes in refusal.elsewhere],
        "later": None if nearest.later is None else iso(nearest.later),
    }
    raise error(refusal.message, hint=_hint(ask, refusal, nearest), details=details)


def when_free(later: Instant | None, now: Instant) -> str:
    """From when something could be had, in words, and why nobody can say if so."""
    if later is None:
        return "nobody knows when, for what is held has no end"
    return "as things stand at any moment" if later <= now else f"as things stand from {said_at(later)}"


def _hint(ask: Ask, refusal: Refusal, nearest: Nearest) -> str:
    """What is nearest to the wish: the same elsewhere, less of it here, or all of it later."""
    ways = []
    if refusal.elsewhere:
        region, nodes = refusal.elsewhere[0]
        ways.append(f"{region} has {counted(nodes, 'such node')} free")
    here = nearest.nodes if refusal.why is Why.NOT_NOW else refusal.total_nodes
    if 0 < here < ask.nodes:
        ways.append(f"ask for at most {counted(here)} ({counted(here * ask.gpus_per_node, 'GPU')}) here")
    if refusal.why is Why.NOT_NOW:
        ways.append(f"wait for all of it here: {when_free(nearest.later, ask.at)} ({_waiting(nearest)})")
    return "; or ".join(ways) or "ask the operator for more hosts, or choose another GPU type"


def _waiting(nearest: Nearest) -> str:
    """How to wait: a quote is only given on whole hosts, and where an end is known."""
    promised = nearest.whole_hosts and nearest.later is not None
    queue = "a new cluster may queue for it"
    return f"{queue}, a quote promises its start" if promised else queue

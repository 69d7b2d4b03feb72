"""What a replay comes to, in figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from muster.core.replay.play import Outcome, Played, Promises
from muster.core.replay.reclaim import Lent
from muster.model.base import HOUR, Instant

TENANT_ASKS_LEAST = 10
"""A tenant with fewer asks says little about fairness."""
SHORT_LENGTH: Instant = HOUR // 6
"""Below this length a wait is compared with it instead: a minute's job that waits a minute was not wronged."""


def figures(played: Played) -> dict[str, Any]:
    started = [one for one in played.outcomes if one.started is not None]
    waits = sorted(one.wait for one in started)
    work = sum(one.job.work for one in started)
    gangs = [one for one in started if one.job.nodes >= 2]
    busy = played.busy
    return {
        "asks": len(played.outcomes),
        "unstarted": len(played.outcomes) - len(started),
        "utilisation": _ratio(busy.used, played.gpus * busy.span),
        "busy_while_queued": _ratio(busy.used_queued, played.gpus * busy.span_queued, 1.0),
        "mean_wait_h": _hours(waits),
        "p95_wait_h": percentile(waits, 95) / HOUR,
        "weighted_wait_h": _ratio(sum(one.wait * one.job.work for one in started), work) / HOUR,
        "multi_host_wait_h": _hours([one.wait for one in gangs]),
        "one_leaf_share": one_leaf_share(gangs, played.largest_leaf),
        "fairness": fairness(started),
        "lost_share": 0.0,
        "reserved_share": None,
    }


def lent_figures(lent: Lent) -> dict[str, Any]:
    """Of hosts that are lent: a wait is all the time it took beyond its length, work done in vain included."""
    told = figures(lent.played)
    work = sum(one.job.work for one in lent.played.outcomes if one.started is not None)
    return {**told, "busy_while_queued": None, "lost_share": _ratio(lent.lost, work + lent.lost)}


def promise_figures(promises: Promises) -> dict[str, Any]:
    """The same keys; what nobody waits for, or is placed by, is nothing."""
    return {
        "asks": promises.asked,
        "unstarted": promises.asked - promises.accepted,
        "accepted_share": _ratio(promises.accepted, promises.asked),
        "utilisation": _ratio(promises.accepted_host_ms, promises.host_ms),
        "busy_while_queued": None,
        "mean_wait_h": _ratio(promises.slipped, promises.accepted) / HOUR,
        "p95_wait_h": None,
        "weighted_wait_h": None,
        "multi_host_wait_h": None,
        "one_leaf_share": None,
        "fairness": None,
        "lost_share": 0.0,
        "reserved_share": _ratio(promises.accepted_host_ms, promises.asked_host_ms),
    }


def one_leaf_share(gangs: Iterable[Outcome], largest_leaf: int) -> float | None:
    """Of the gangs that a leaf could hold, how many one leaf does hold."""
    could = [one for one in gangs if one.job.nodes <= largest_leaf]
    return _ratio(sum(one.leaves == 1 for one in could), len(could)) if could else None


def fairness(started: Iterable[Outcome]) -> float | None:
    """Jain's index over tenants of how quickly they were served: 1 / mean slowdown; 1 = all alike."""
    slow: dict[str, list[float]] = {}
    for one in started:
        length = max(one.job.length, SHORT_LENGTH)
        slow.setdefault(one.job.tenant, []).append(max(1.0, (one.wait + one.job.length) / length))
    speeds = [len(each) / sum(each) for each in slow.values() if len(each) >= TENANT_ASKS_LEAST]
    if not speeds:
        return None
    return sum(speeds) ** 2 / (len(speeds) * sum(speed * speed for speed in speeds))


def percentile(ordered: Sequence[int], share: float) -> float:
    """Linear between neighbours; 0 of nothing."""
    if not ordered:
        return 0.0
    at = (len(ordered) - 1) * share / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _hours(waits: Sequence[int]) -> float:
    return _ratio(sum(waits), len(waits)) / HOUR


def _ratio(part: float, whole: float, otherwise: float = 0.0) -> float:
    return part / whole if whole else otherwise

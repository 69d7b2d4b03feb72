"""Who gets hosts that nobody else needs now, and who gives them back when somebody does. Pure.

Hosts of one line are counted, as in the calendar. *Laws.* No more is given than is idle, no more than is wished. Of
two tenants the one that holds less is served first, of two that hold the same the one that waits longer. What is
taken back is what loses least; each loss makes a tenant's next one weigh more, so that nobody is the cheapest victim
for ever. Nothing here knows of notice: that is the reconciler's promise.

Leans on nothing. The same functions decide for the service and for `muster replay`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from muster.model.base import MINUTE, Instant

NOTICE: Final = 5 * MINUTE
"""How long work is told before its host is taken back, when the operator says nothing else."""
MARGIN: Final = 2 * MINUTE
"""How much earlier than that the calendar is looked at: for powering off, and for looking now and then only."""
RESTART: Final = 10 * MINUTE
"""What being taken back costs whoever had hardly begun: to be queued, placed and started again."""


class Wish(NamedTuple):
    """Somebody who would use hosts while they are idle."""

    key: str
    tenant: str  # between whom one is fair
    wished: int
    held: int
    since: Instant  # since when it waits for more
    whole: bool = False  # all of it or nothing: a gang

    @property
    def missing(self) -> int:
        return max(0, self.wished - self.held)


class Hold(NamedTuple):
    """Hosts that are given back together, and since when work runs on them; None = they are idle."""

    key: str
    tenant: str
    began_at: Instant | None
    hosts: int = 1


def fill(idle: int, wishes: Sequence[Wish]) -> dict[str, int]:
    """key -> hosts it gets now, of so many that are idle: one at a time to the tenant that holds least."""
    asking = [wish for wish in wishes if wish.missing]
    holds = Counter[str]()
    for wish in wishes:
        holds[wish.tenant] += wish.held
    given = Counter[str]()
    while idle > 0 and asking:
        first = min(asking, key=lambda wish: _turn(wish, holds, given))
        portion = first.missing if first.whole else 1
        if portion > idle:
            asking.remove(first)
            continue
        idle -= portion
        holds[first.tenant] += portion
        given[first.key] += portion
        if given[first.key] >= first.missing:
            asking.remove(first)
    return dict(given)


def _turn(wish: Wish, holds: Mapping[str, int], given: Mapping[str, int]) -> tuple[int, int, Instant, str]:
    return holds[wish.tenant], wish.held + given[wish.key], wish.since, wish.key


def victims(held: Sequence[Hold], needed: int, now: Instant, losses: Mapping[str, int] | None = None) -> list[str]:
    """Keys to take back so that at least `needed` hosts come free (all, when that is not enough), cheapest first.

    `losses` says how often each tenant was taken back from before.
    """
    before = losses or {}
    least = min((before.get(hold.tenant, 0) for hold in held), default=0)
    sizes = Counter[str]()
    for hold in held:
        sizes[hold.tenant] += hold.hosts

    def cost(hold: Hold) -> tuple[float, int, str]:
        times = 1 + before.get(hold.tenant, 0) - least
        return lost_work(hold, now) * times / hold.hosts, -sizes[hold.tenant], hold.key

    chosen: list[Hold] = []
    for hold in sorted(held, key=cost):
        if sum(one.hosts for one in chosen) >= needed:
            break
        chosen.append(hold)
    return [hold.key for hold in _needed_only(chosen, needed, now)]


def lost_work(hold: Hold, now: Instant) -> Instant:
    """Host-milliseconds that would have to be done again."""
    if hold.began_at is None:
        return 0
    return (max(0, now - hold.began_at) + RESTART) * hold.hosts


def _needed_only(chosen: Sequence[Hold], needed: int, now: Instant) -> list[Hold]:
    """Without those that a later, larger one made superfluous, the dearest first."""
    kept = list(chosen)
    spare = sum(hold.hosts for hold in chosen) - needed
    for hold in sorted(chosen, key=lambda hold: -lost_work(hold, now)):
        if hold.hosts <= spare:
            kept.remove(hold)
            spare -= hold.hosts
    return kept

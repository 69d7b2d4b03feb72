"""The waiting list: who starts, who is promised what, which leaf is held for whom, in stories small enough to see."""

from __future__ import annotations

import random

from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import Ask, Grant, Placement
from muster.core.capacity.waiting import Patience, Waiting, starters
from muster.core.replay.play import indexed
from muster.core.replay.trace import GPU_TYPE, REGION, fleet_of_places, regular_fleet
from muster.model.base import HOUR, Instant

WHOLE = 0xFF
NEVER = Patience(ahead=0)


def gang(nodes: int) -> Ask:
    return Ask(REGION, GPU_TYPE, 8, nodes)


def fleet(*leaves: int) -> CapacityIndex:
    """Leaves of so many hosts, all under one pod."""
    return indexed(fleet_of_places([("pod", f"leaf-{n}") for n, hosts in enumerate(leaves) for _ in range(hosts)]))


def hold(index: CapacityIndex, until: Instant, *hosts: int) -> None:
    index.take([Grant(f"host-{n:06d}", WHOLE) for n in hosts], until)


def started(
    index: CapacityIndex, *queue: Waiting, now: Instant = 0, patience: Patience = Patience()
) -> dict[int, set[int]]:
    """key -> the numbers of its hosts."""

    def take(one: Waiting, placement: Placement) -> None:
        index.take(placement.workers, now + one.length)

    found = starters(queue, index, now, take, patience)
    return {one.key: {int(grant.host_id[-6:]) for grant in one.placement.workers} for one in found}


def test_two_that_found_no_room_are_promised_theirs_and_a_third_delays_neither() -> None:
    """Host 0 is free at 1 h, host 1 at 3 h, host 2 now. The pairs are promised 0+2 at 1 h and 1 later."""
    index = fleet(3)
    hold(index, HOUR, 0)
    hold(index, 3 * HOUR, 1)
    pair, short, long = Waiting(0, gang(2), HOUR), Waiting(2, gang(1), HOUR), Waiting(3, gang(1), 2 * HOUR)
    assert started(index, pair, Waiting(1, gang(2), HOUR), long, short, patience=NEVER) == {2: {2}}


def test_behind_the_promised_the_shortest_goes_first() -> None:
    index = fleet(2)
    hold(index, 9 * HOUR, 0)
    refused = [Waiting(n, gang(2), HOUR) for n in range(8)]
    assert started(index, *refused, Waiting(8, gang(1), 5 * HOUR), Waiting(9, gang(1), HOUR)) == {9: {1}}


def test_a_gang_waits_for_a_leaf_that_nobody_behind_it_takes() -> None:
    """One host of each leaf is free; the first leaf is whole in an hour."""
    index = fleet(2, 2)
    hold(index, HOUR, 0)
    hold(index, 90 * HOUR, 2)
    pair = Waiting(0, gang(2), 10 * HOUR)
    found = started(index, pair, Waiting(1, gang(1), 5 * HOUR), Waiting(2, gang(1), 5 * HOUR))
    assert found == {1: {3}}
    assert started(index, Waiting(3, gang(1), HOUR)) == {3: {1}}, "over by then: it may use the leaf meanwhile"


def test_without_patience_or_too_far_ahead_a_gang_is_torn() -> None:
    for until, patience in ((HOUR, NEVER), (5 * HOUR, Patience())):
        index = fleet(2, 2)
        hold(index, until, 0)
        hold(index, 90 * HOUR, 2)
        assert started(index, Waiting(0, gang(2), 10 * HOUR), patience=patience) == {0: {1, 3}}


def test_in_all_it_waits_so_long_and_no_longer() -> None:
    index = fleet(2, 2)
    hold(index, 50 * HOUR, 0)
    hold(index, 90 * HOUR, 2)
    pair = Waiting(0, gang(2), 10 * HOUR, since=0)
    assert started(index, pair, now=49 * HOUR) == {0: {1, 3}}


def test_two_gangs_do_not_wait_for_the_same_leaf() -> None:
    index = fleet(2, 2, 1, 1)
    hold(index, HOUR, 0)
    hold(index, 90 * HOUR, 2)
    first, second = Waiting(0, gang(2), 10 * HOUR), Waiting(1, gang(2), 10 * HOUR)
    found = started(index, first, second)
    assert set(found) == {1}
    assert 1 not in found[1]


def test_what_is_remembered_of_a_leaf_is_what_a_fresh_index_would_work_out() -> None:
    dice = random.Random(7)
    hosts = regular_fleet(24, 4, 3)
    lived = indexed(hosts)
    held: dict[str, tuple[int, Instant | None]] = {}
    for _ in range(400):
        host = dice.choice(hosts)
        if host.id in held:
            lived.free(host.id, held.pop(host.id)[0])
        else:
            slots, ends = dice.choice((WHOLE, 0x0F, 0x03)), dice.choice((None, dice.randrange(1, 99)))
            lived.take([Grant(host.id, slots)], ends)
            held[host.id] = (slots, ends)
        fresh = indexed(hosts)
        for host_id, (slots, ends) in held.items():
            fresh.take([Grant(host_id, slots)], ends)
        ask = gang(dice.randint(1, 4))
        assert lived.releases(ask) == fresh.releases(ask)
        assert lived.leaf_ready(ask, (20, 80)) == fresh.leaf_ready(ask, (20, 80))

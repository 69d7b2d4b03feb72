"""Hosts that nobody needs: who gets them, who gives them back."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from muster.core.capacity.preemption import Hold, Wish, fill, lost_work, victims
from muster.model.base import HOUR, MINUTE

NOW = 100 * HOUR


def wish(key: str, tenant: str, wished: int, held: int = 0, since: int = 0, *, whole: bool = False) -> Wish:
    return Wish(key, tenant, wished, held, since, whole)


def test_nothing_idle_nothing_given() -> None:
    assert fill(0, [wish("a", "t", 4)]) == {}


def test_no_more_than_is_wished() -> None:
    assert fill(10, [wish("a", "t", 3, held=1), wish("b", "u", 2, held=2)]) == {"a": 2}


def test_tenants_share_alike_however_much_they_wish_for() -> None:
    assert fill(6, [wish("a", "greedy", 100), wish("b", "modest", 4)]) == {"a": 3, "b": 3}


def test_whoever_holds_less_comes_first() -> None:
    assert fill(2, [wish("a", "t", 8, held=4), wish("b", "u", 8, held=1)]) == {"b": 2}


def test_what_a_tenant_holds_elsewhere_counts() -> None:
    content = wish("a", "t", 2, held=2)
    assert fill(1, [content, wish("b", "t", 2, since=1), wish("c", "u", 2, held=1, since=9)]) == {"c": 1}


def test_of_equals_the_longest_waiting_comes_first() -> None:
    assert fill(1, [wish("a", "t", 2, since=50), wish("b", "u", 2, since=10)]) == {"b": 1}


def test_many_clusters_of_one_tenant_are_one_tenant() -> None:
    several = [wish(f"a{n}", "t", 4) for n in range(5)]
    given_now = fill(4, [*several, wish("b", "u", 4)])
    assert given_now["b"] == 2


def test_a_gang_is_given_whole_or_not_at_all() -> None:
    assert fill(3, [wish("a", "t", 4, whole=True), wish("b", "u", 2, since=9)]) == {"b": 2}
    assert fill(6, [wish("a", "t", 4, whole=True), wish("b", "u", 2, since=9)]) == {"a": 4, "b": 2}


def test_idle_hosts_go_first_and_of_those_the_largest_holders() -> None:
    held = [Hold("w1", "t", NOW - MINUTE), Hold("w2", "u", None), Hold("w3", "t", None)]
    assert victims(held, 1, NOW) == ["w3"]
    assert victims(held, 2, NOW) == ["w3", "w2"]


def test_the_youngest_work_is_lost_first() -> None:
    held = [Hold("old", "t", NOW - 5 * HOUR), Hold("young", "u", NOW - MINUTE), Hold("mid", "v", NOW - HOUR)]
    assert victims(held, 2, NOW) == ["young", "mid"]


def test_all_when_even_that_is_not_enough() -> None:
    assert sorted(victims([Hold("a", "t", NOW), Hold("b", "t", NOW)], 5, NOW)) == ["a", "b"]


def test_a_large_one_spares_the_small_ones_before_it() -> None:
    held = [Hold("small", "t", NOW - MINUTE), Hold("gang", "u", NOW - 2 * MINUTE, hosts=4)]
    assert victims(held, 4, NOW) == ["gang"]


def test_nobody_is_the_cheapest_victim_for_ever() -> None:
    """One tenant has always just begun when hosts are needed; the others run for days."""
    losses: Counter[str] = Counter()
    for _ in range(200):
        held = [Hold("days", "old", NOW - 24 * HOUR), Hold("new", "newcomer", NOW)]
        losses["old" if victims(held, 1, NOW, losses) == ["days"] else "newcomer"] += 1
    assert losses["old"] > 0


@given(
    idle=st.integers(0, 12),
    wishes=st.lists(st.tuples(st.sampled_from("tuv"), st.integers(0, 5), st.integers(0, 5)), max_size=6),
)
def test_what_is_given_is_idle_and_wished_and_nothing_wished_stays_idle(
    idle: int, wishes: list[tuple[str, int, int]]
) -> None:
    asked = [wish(str(n), tenant, wished, held) for n, (tenant, wished, held) in enumerate(wishes)]
    granted = fill(idle, asked)
    missing = {one.key: one.missing for one in asked}
    assert all(0 < hosts <= missing[key] for key, hosts in granted.items())
    assert sum(granted.values()) == min(idle, sum(missing.values()))


@given(
    ages=st.lists(st.tuples(st.sampled_from("tuv"), st.none() | st.integers(0, 50)), max_size=8),
    needed=st.integers(0, 8),
)
def test_victims_free_enough_and_not_one_more(ages: list[tuple[str, int | None]], needed: int) -> None:
    held = [Hold(str(n), tenant, None if age is None else NOW - age * MINUTE) for n, (tenant, age) in enumerate(ages)]
    chosen = victims(held, needed, NOW)
    assert len(chosen) == len(set(chosen)) == min(needed, len(held))
    worst = max((lost_work(hold, NOW) for hold in held if hold.key in chosen), default=0)
    assert all(lost_work(hold, NOW) >= worst for hold in held if hold.key not in chosen)

"""Placement against a naive reference that looks at every host: same answers, and nothing given twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import Ask, Grant, Placement, Refusal, Why
from muster.core.capacity.pool import pick_slots
from muster.model.hosts import Host, HostHealth, HostRole

REGIONS = ("east", "west")


class Known(NamedTuple):
    """A host as the reference knows it."""

    host: Host
    taken: int

    @property
    def free(self) -> int:
        return self.host.slots - self.taken.bit_count() if self.host.usable else 0


def make_host(n: int, region: str, place: int, slots: int, state: str) -> Host:
    return Host(
        id=f"h{n:03d}",
        name=f"host-{n}",
        region=region,
        pod=f"pod-{place // 3}",
        leaf=f"leaf-{place}",
        role=HostRole.CONTROL if slots == 5 else HostRole.GPU,
        gpu_type="" if slots == 5 else "H100",
        slots=slots,
        cpus=8,
        memory_gib=64,
        substrate="simulated",
        cordoned=state == "cordoned",
        health=HostHealth.DEAD if state == "dead" else HostHealth.OK,
        created_at=0,
    )


a_state = st.sampled_from(["ok"] * 8 + ["cordoned", "dead"])
# Five slots mark a control host; sizes of 4 and 8 in one region make mixed pools.
a_place = st.tuples(
    st.sampled_from(REGIONS), st.integers(0, 8), st.sampled_from([8, 8, 8, 4, 5]), a_state, st.integers(0, 255)
)
a_fleet = st.lists(a_place, min_size=1, max_size=40)
# Mostly free hosts of one kind, unevenly over the leaves: gangs of every size find, or just miss, a leaf or a pod.
a_free_fleet = st.lists(
    st.tuples(st.just("east"), st.integers(0, 8), st.just(8), a_state, st.sampled_from([0, 0, 0, 255])),
    min_size=8,
    max_size=40,
)
an_ask = st.builds(
    Ask,
    region=st.sampled_from(REGIONS),
    gpu_type=st.just("H100"),
    gpus_per_node=st.sampled_from([1, 2, 3, 4, 8]),
    nodes=st.integers(0, 14),
    control=st.integers(0, 6),
    avoid=st.frozensets(st.integers(0, 39).map(lambda n: f"h{n:03d}"), max_size=3),
    pool_nodes=st.just(0),  # nothing is set apart in these fleets
)


def build(fleet: list[tuple[str, int, int, str, int]]) -> tuple[CapacityIndex, dict[str, Known]]:
    """Half of the hosts are free altogether, so that gangs have somewhere to go."""
    index, known = CapacityIndex(), {}
    for n, (region, place, slots, state, taken) in enumerate(fleet):
        host = make_host(n, region, place, slots, state)
        mask = taken & ((1 << slots) - 1) if taken % 2 else 0
        known[host.id] = Known(host, mask)
        index.set_host(host, mask)
    return index, known


def of_shape(known: dict[str, Known], ask: Ask, role: HostRole) -> list[Known]:
    return [
        one
        for one in known.values()
        if one.host.role is role and one.host.region == ask.region and one.host.id not in ask.avoid
    ]


def naive_free(known: dict[str, Known], ask: Ask) -> int:
    return sum(one.free // ask.gpus_per_node for one in of_shape(known, ask, HostRole.GPU))


def naive_control(known: dict[str, Known], ask: Ask) -> int:
    return sum(one.free for one in of_shape(known, ask, HostRole.CONTROL))


def stateful_answers(index: CapacityIndex) -> list[object]:
    """All that can be told of an index from outside."""
    asks = [Ask(region, "H100", gpus, nodes, 1) for region in REGIONS for gpus in (1, 2, 4, 8) for nodes in (1, 3, 9)]
    return [index.summary(), *(index.place(ask) for ask in asks)]


@given(a_fleet, an_ask)
def test_feasible_exactly_when_a_scan_says_so_and_never_double_booked(
    fleet: list[tuple[str, int, int, str, int]], ask: Ask
) -> None:
    index, known = build(fleet)
    answer = index.place(ask)
    feasible = naive_free(known, ask) >= ask.nodes and naive_control(known, ask) >= ask.control
    assert isinstance(answer, Placement) == feasible
    if not isinstance(answer, Placement):
        return
    assert (len(answer.workers), len(answer.control)) == (ask.nodes, ask.control)
    held: dict[str, int] = defaultdict(int)
    for role, gpus, grants in (
        (HostRole.GPU, ask.gpus_per_node, answer.workers),
        (HostRole.CONTROL, 1, answer.control),
    ):
        for host_id, slots, *_ in grants:
            host, taken = known[host_id]
            assert (host.role, host.region, host.usable) == (role, ask.region, True)
            assert host_id not in ask.avoid
            assert slots.bit_count() == gpus
            assert slots < 1 << host.slots
            assert not slots & (taken | held[host_id]), "granted twice"
            held[host_id] |= slots


@given(a_fleet, an_ask)
def test_a_refusal_tells_the_truth(fleet: list[tuple[str, int, int, str, int]], ask: Ask) -> None:
    index, known = build(fleet)
    answer = index.place(ask)
    if not isinstance(answer, Refusal):
        return
    alive = [one.host for one in of_shape(known, ask._replace(avoid=frozenset()), HostRole.GPU)]
    total = sum(host.slots // ask.gpus_per_node for host in alive if host.health is HostHealth.OK)
    control = [one.host for one in of_shape(known, ask._replace(avoid=frozenset()), HostRole.CONTROL)]
    control_total = sum(host.slots for host in control if host.health is HostHealth.OK)
    assert answer.free_nodes == naive_free(known, ask)
    assert answer.total_nodes == total
    assert (answer.why is Why.NOT_NOW) == (total >= ask.nodes and control_total >= ask.control)
    if answer.why is Why.UNKNOWN_SHAPE:
        assert not [host for host in alive if host.slots >= ask.gpus_per_node]
    (other,) = (region for region in REGIONS if region != ask.region)
    there = naive_free(known, ask._replace(region=other))
    assert answer.elsewhere == (((other, there),) if there else ())


@settings(max_examples=200)
@given(a_free_fleet, st.integers(1, 24))
def test_gangs_get_the_smallest_leaf_that_holds_them_then_the_smallest_pod(
    fleet: list[tuple[str, int, int, str, int]], nodes: int
) -> None:
    index, known = build(fleet)
    ask = Ask("east", "H100", 8, nodes)
    answer = index.place(ask)
    if not isinstance(answer, Placement):
        return
    whole = [one.host for one in of_shape(known, ask, HostRole.GPU) if one.free == 8]
    leaves = Counter((host.pod, host.leaf) for host in whole)
    pods = Counter(host.pod for host in whole)
    used = Counter((known[host_id].host.pod, known[host_id].host.leaf) for host_id, _, _ in answer.workers)
    fitting = [(count, leaf) for leaf, count in leaves.items() if count >= nodes]
    fitting_pods = [(count, pod) for pod, count in pods.items() if count >= nodes]
    if fitting:
        assert list(used) == [min(fitting)[1]]
    elif fitting_pods:
        best = min(fitting_pods)[1]
        in_pod = sorted((-count, leaf) for leaf, count in leaves.items() if leaf[0] == best)
        fullest = [leaf for _, leaf in in_pod]
        assert list(used) == fullest[: len(used)]
    else:
        emptiest = [pod for _, pod in sorted((-count, pod) for pod, count in pods.items())]
        in_order = list(dict.fromkeys(pod for pod, _ in used))
        assert in_order == emptiest[: len(in_order)]


@given(a_fleet, st.sampled_from([1, 2, 4]), st.integers(1, 6))
def test_slices_are_packed_never_spread(fleet: list[tuple[str, int, int, str, int]], gpus: int, nodes: int) -> None:
    only_eights = [(region, place, 8, state, taken) for region, place, _, state, taken in fleet]
    index, known = build(only_eights)
    ask = Ask("east", "H100", gpus, nodes)
    answer = index.place(ask)
    if not isinstance(answer, Placement):
        return
    hosts = of_shape(known, ask, HostRole.GPU)
    in_partly_used = sum(one.free // gpus for one in hosts if one.free < 8)
    broken = {host_id for host_id, _, _ in answer.workers if known[host_id].free == 8}
    assert len(broken) == -(-max(0, nodes - in_partly_used) // (8 // gpus)), "broke a whole host without need"
    fitting = [one.free for one in hosts if one.free >= gpus]
    assert known[answer.workers[0].host_id].free == min(fitting), "a fuller host would have fitted"
    if in_partly_used == 0 and len(broken) == 1:
        leaves = Counter((one.host.pod, one.host.leaf) for one in hosts if one.free == 8)
        host = known[next(iter(broken))].host
        assert leaves[host.pod, host.leaf] == min(leaves.values())


class Change(NamedTuple):
    what: str
    host: int
    mask: int
    state: str
    place: int


a_change = st.builds(
    Change,
    what=st.sampled_from(["take", "free", "state", "drop", "move", "place"]),
    host=st.integers(0, 39),
    mask=st.integers(0, 255),
    state=a_state,
    place=st.integers(0, 8),
)


def apply(index: CapacityIndex, known: dict[str, Known], change: Change) -> None:
    if change.what == "place":
        answer = index.place(Ask("east", "H100", 1 << change.host % 4, change.place, 1))
        if isinstance(answer, Placement):
            index.take(answer.workers + answer.control)
            for host_id, slots, _ in answer.workers + answer.control:
                known[host_id] = known[host_id]._replace(taken=known[host_id].taken | slots)
        return
    id = f"h{change.host:03d}"
    if id not in known:
        return
    host, taken = known[id]
    mask = change.mask & ((1 << host.slots) - 1)
    if change.what == "take":
        index.take([Grant(id, mask)])
        known[id] = Known(host, taken | mask)
    elif change.what == "free":
        index.free(id, mask)
        known[id] = Known(host, taken & ~mask)
    elif change.what == "drop":
        index.drop_host(id)
        del known[id]
    else:
        place = change.place if change.what == "move" else int(host.leaf.removeprefix("leaf-"))
        moved = make_host(change.host, host.region, place, host.slots, change.state)
        index.set_host(moved)
        known[id] = Known(moved, taken)


@settings(max_examples=150)
@given(a_fleet, st.lists(a_change, max_size=30), st.randoms(use_true_random=False))
def test_whatever_happened_the_index_equals_one_built_from_scratch(
    fleet: list[tuple[str, int, int, str, int]], changes: list[Change], rng: object
) -> None:
    index, known = build(fleet)
    for change in changes:
        apply(index, known, change)
    anew, order = CapacityIndex(), list(known.values())
    rng.shuffle(order)  # type: ignore[attr-defined]
    for host, taken in order:
        anew.set_host(host, taken)
    assert len(index) == len(known)
    assert {id: index.taken(id) for id in known} == {id: one.taken for id, one in known.items()}
    assert stateful_answers(index) == stateful_answers(anew)


@given(a_fleet, an_ask)
def test_placing_changes_nothing_and_take_then_free_comes_back(
    fleet: list[tuple[str, int, int, str, int]], ask: Ask
) -> None:
    index, _ = build(fleet)
    before = stateful_answers(index)
    answer = index.place(ask)
    assert stateful_answers(index) == before
    if isinstance(answer, Placement):
        index.take(answer.workers + answer.control)
        index.take(answer.workers)  # a repeated line of the log
        for host_id, slots, _ in answer.workers + answer.control:
            index.free(host_id, slots)
        assert stateful_answers(index) == before


@given(st.integers(1, 2**32 - 1), st.integers(1, 8))
def test_slots_come_as_an_aligned_block_when_there_is_one(free: int, count: int) -> None:
    if free.bit_count() < count:
        return
    slots = pick_slots(free, count)
    assert slots.bit_count() == count
    assert slots & free == slots
    block = (1 << count) - 1
    aligned = [block << at for at in range(0, 32, count) if free >> at & block == block]
    if aligned:
        assert slots == aligned[0]

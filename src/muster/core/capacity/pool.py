"""Hosts of one region, GPU type and size that are set apart for the same tenants, indexed by what is free on them.

Everything here is a small integer used as a set: bit i of a leaf's mask is its i-th host, bit r of a bucket is the
leaf (or pod) of rank r. Ranks follow names and positions follow host ids, so the order of choice is total and depends
on the inventory alone, never on the order in which things happened. Masks of hosts are kept up to date with every
change; ranks and buckets only once the set of leaves is settled, so that loading a fleet costs one pass.

Leans on nothing but `Grant`. Keeps the laws of placement: slices are packed; a gang goes to one leaf, else one pod.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice

from muster.core.capacity.holds import Lifetime
from muster.core.capacity.placement import Grant, LineKey
from muster.model.base import Instant

WEIGHED_MAX = 256
"""Hosts of one number of free slots that are weighed by their ends before the rest is left alone."""
LEAVES_WEIGHED_MAX = 512
"""Leaves of which it is worked out when they will be free."""


@lru_cache(maxsize=4096)
def pick_slots(free: int, count: int) -> int:
    """`count` of the free slots: the lowest aligned block if there is one, else simply the lowest."""
    block = (1 << count) - 1
    for at in range(0, free.bit_length(), count):
        if (free >> at) & block == block:
            return block << at
    chosen = 0
    for _ in range(count):
        chosen |= (free ^ chosen) & -(free ^ chosen)
    return chosen


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Buckets:
    """Ranked things by a count: the smallest count that suffices, and the way down from the largest."""

    __slots__ = ("_by_count", "_counts")

    def __init__(self) -> None:
        self._by_count: dict[int, int] = {}  # count -> set of ranks
        self._counts = 0  # the set of counts that have any

    def move(self, rank: int, old: int, new: int) -> None:
        """From the bucket of `old` to that of `new`; a count of 0 is in no bucket."""
        bit = 1 << rank
        if old:
            left = self._by_count[old] ^ bit
            self._by_count[old] = left
            if not left:
                self._counts ^= 1 << old
        if new:
            self._by_count[new] = self._by_count.get(new, 0) | bit
            self._counts |= 1 << new

    def best(self, least: int) -> int | None:
        """The rank with the smallest count that is at least `least`; the lowest of those."""
        enough = self._counts >> least
        if not enough:
            return None
        ranks = self._by_count[least + (enough & -enough).bit_length() - 1]
        return (ranks & -ranks).bit_length() - 1

    def descending(self) -> Iterator[int]:
        """Ranks, largest count first, lowest rank first within a count."""
        left = self._counts
        while left:
            count = left.bit_length() - 1
            yield from bits(self._by_count[count])
            left ^= 1 << count


class Leaf:
    """Hosts under one switch. `by_free[f]` is the set of hosts that may be used and have exactly f slots free."""

    __slots__ = ("alive", "by_free", "ends", "free", "hosts", "name", "names", "pod", "rank", "usable")

    def __init__(self, name: str, pod: Pod, slots: int) -> None:
        self.name = name
        self.pod = pod
        self.rank = 0
        self.hosts: list[str] = []  # ids, ascending
        self.names: list[str] = []  # of those hosts
        self.free: list[int] = []  # slot masks, whether usable or not
        self.usable = 0
        self.alive = 0
        self.by_free = [0] * (slots + 1)
        self.ends: list[tuple[Instant, str]] | None = None  # the index's notes on when its hosts will be free

    def position(self, host_id: str) -> int:
        return bisect_left(self.hosts, host_id)

    def make_room(self, host_id: str) -> int:
        """The place of a new host, in order of id; those after it move up by one."""
        at = bisect_left(self.hosts, host_id)
        self.hosts.insert(at, host_id)
        self.names.insert(at, "")
        self.free.insert(at, 0)
        self._remap(lambda mask: mask & ((1 << at) - 1) | (mask >> at) << (at + 1))
        return at

    def expel(self, at: int) -> None:
        """Forget a host that is neither usable nor alive any more."""
        del self.hosts[at], self.names[at], self.free[at]
        self._remap(lambda mask: mask & ((1 << at) - 1) | (mask >> (at + 1)) << at)

    def _remap(self, moved: Callable[[int], int]) -> None:
        self.ends = None
        self.usable = moved(self.usable)
        self.alive = moved(self.alive)
        self.by_free = [moved(mask) for mask in self.by_free]


class Pod:
    """Leaves under one spine; `whole` counts the hosts that are free altogether."""

    __slots__ = ("leaves", "name", "pool", "rank", "whole")

    def __init__(self, name: str, pool: Pool) -> None:
        self.name = name
        self.pool = pool
        self.rank = 0
        self.whole = 0
        self.leaves: dict[str, Leaf] = {}


class Pool:
    """All hosts of one region, GPU type and number of slots; `apart` is the pool they are in, "" for everybody's."""

    __slots__ = (
        "_by_pod",
        "_by_rank",
        "_pod_whole",
        "_settled",
        "_whole",
        "_with_free",
        "alive",
        "apart",
        "free_hosts",
        "free_slots",
        "gpu_type",
        "key",
        "pods",
        "region",
        "slots",
    )

    def __init__(self, region: str, gpu_type: str, slots: int, apart: str = "") -> None:
        self.apart = apart
        self.region = region
        self.gpu_type = gpu_type
        self.slots = slots
        self.key = LineKey(region, gpu_type, slots, apart)  # the line of the calendar that its hosts are counted in
        self.alive = 0  # hosts not dead: what an empty fleet could give
        self.free_hosts = [0] * (slots + 1)  # usable hosts by number of free slots
        self.free_slots = 0  # of all usable hosts together
        self.pods: dict[str, Pod] = {}
        self._settled = False
        self._by_rank: list[Leaf] = []
        self._by_pod: list[Pod] = []
        self._whole = Buckets()  # leaves by wholly free hosts
        self._pod_whole = Buckets()
        self._with_free: list[int] = []  # free slots -> set of leaves with such a host

    # ---- what there is

    def free_nodes(self, gpus: int) -> int:
        """Nodes of so many GPUs that would fit now."""
        if gpus == self.slots:
            return self.free_hosts[gpus]
        if gpus == 1:
            return self.free_slots
        return sum(hosts * (free // gpus) for free, hosts in enumerate(self.free_hosts) if hosts)

    def total_nodes(self, gpus: int) -> int:
        """Nodes of so many GPUs that would fit if nothing were leased or cordoned."""
        return self.alive * (self.slots // gpus)

    # ---- changes

    def leaf(self, pod: str, name: str) -> Leaf:
        home = self.pods.get(pod)
        if home is None:
            home = self.pods[pod] = Pod(pod, self)
        leaf = home.leaves.get(name)
        if leaf is None:
            leaf = home.leaves[name] = Leaf(name, home, self.slots)
            self._settled = False
        return leaf

    def forget_leaf_if_empty(self, leaf: Leaf) -> None:
        if leaf.hosts:
            return
        del leaf.pod.leaves[leaf.name]
        if not leaf.pod.leaves:
            del self.pods[leaf.pod.name]
        self._settled = False

    def admit(self, leaf: Leaf, host_id: str, name: str, free: int, usable: bool, alive: bool) -> None:
        """A host not known before. A fleet is read in order of id, so it is nearly always the last of its leaf."""
        if leaf.hosts and host_id < leaf.hosts[-1]:
            at = leaf.make_room(host_id)
            leaf.names[at] = name
            leaf.free[at] = free
        else:
            at = len(leaf.hosts)
            leaf.ends = None
            leaf.hosts.append(host_id)
            leaf.names.append(name)
            leaf.free.append(free)
        if alive:
            leaf.alive |= 1 << at
            self.alive += 1
        if usable:
            leaf.usable |= 1 << at
            self._shift(leaf, 1 << at, 0, free.bit_count())

    def set_alive(self, leaf: Leaf, at: int, alive: bool) -> None:
        if bool(leaf.alive >> at & 1) != alive:
            leaf.alive ^= 1 << at
            self.alive += 1 if alive else -1

    def set_usable(self, leaf: Leaf, at: int, usable: bool) -> None:
        if bool(leaf.usable >> at & 1) != usable:
            leaf.usable ^= 1 << at
            leaf.ends = None
            count = leaf.free[at].bit_count()
            self._shift(leaf, 1 << at, 0 if usable else count, count if usable else 0)

    def set_free(self, leaf: Leaf, at: int, free: int) -> None:
        old = leaf.free[at]
        leaf.free[at] = free
        leaf.ends = None
        if leaf.usable >> at & 1:
            self._shift(leaf, 1 << at, old.bit_count(), free.bit_count())

    def _shift(self, leaf: Leaf, bit: int, old: int, new: int) -> None:
        """A usable host goes from `old` free slots to `new`; hosts with none are in no set."""
        if old == new:
            return
        self.free_slots += new - old
        if old:
            leaf.by_free[old] ^= bit
            self.free_hosts[old] -= 1
        if new:
            leaf.by_free[new] ^= bit
            self.free_hosts[new] += 1
        if self.slots in (old, new):
            self._count_whole(leaf, 1 if new == self.slots else -1)
        if self._settled:
            self._note_leaf(leaf, old)
            self._note_leaf(leaf, new)

    def _count_whole(self, leaf: Leaf, change: int) -> None:
        pod = leaf.pod
        pod.whole += change
        if self._settled:
            now = leaf.by_free[self.slots].bit_count()
            self._whole.move(leaf.rank, now - change, now)
            self._pod_whole.move(pod.rank, pod.whole - change, pod.whole)

    def _note_leaf(self, leaf: Leaf, count: int) -> None:
        if 0 < count < self.slots:
            bit = 1 << leaf.rank
            if leaf.by_free[count]:
                self._with_free[count] |= bit
            else:
                self._with_free[count] &= ~bit

    def _settle(self) -> None:
        """Rank the leaves and pods by name and sort them into their buckets."""
        self._by_pod = [self.pods[name] for name in sorted(self.pods)]
        self._by_rank = [pod.leaves[name] for pod in self._by_pod for name in sorted(pod.leaves)]
        self._whole, self._pod_whole = Buckets(), Buckets()
        self._with_free = [0] * (self.slots + 1)
        for rank, pod in enumerate(self._by_pod):
            pod.rank = rank
            self._pod_whole.move(rank, 0, pod.whole)
        for rank, leaf in enumerate(self._by_rank):
            leaf.rank = rank
            self._whole.move(rank, 0, leaf.by_free[self.slots].bit_count())
            for count in range(1, self.slots):
                self._note_leaf(leaf, count)
        self._settled = True

    # ---- decisions: nothing below changes what is free

    def ranked(self) -> list[Leaf]:
        """Its leaves in order."""
        if not self._settled:
            self._settle()
        return self._by_rank

    def likely(self, nodes: int) -> list[Leaf]:
        """The leaves that could hold so many whole hosts; of a large fleet only so many, those with most free."""
        leaves = self.ranked()
        if len(leaves) > LEAVES_WEIGHED_MAX:
            leaves = [leaves[rank] for rank in islice(self._whole.descending(), LEAVES_WEIGHED_MAX)]
        return [leaf for leaf in leaves if len(leaf.hosts) >= nodes]

    def grant(self, gpus: int, nodes: int, life: Lifetime | None = None) -> list[Grant]:
        """So many nodes of so many GPUs; the caller has seen that `free_nodes` suffices."""
        if not self._settled:
            self._settle()
        if gpus == self.slots:
            return self._gang(nodes)
        if life is not None and nodes == 1:
            longest = self._beside_the_longest(gpus, life)
            if longest:
                return longest
        grants = self._from_partly_used(gpus, nodes)
        if len(grants) < nodes:
            grants += self._from_whole(gpus, nodes - len(grants))
        return grants

    def _beside_the_longest(self, gpus: int, life: Lifetime) -> list[Grant]:
        """One slice on the partly used host whose end suits it best, then the fullest: hosts empty together. Of a
        large fleet only so many are weighed."""
        best: tuple[Instant, int, Leaf, int] | None = None
        weighed = 0
        every = (1 << self.slots) - 1
        for count in range(gpus, self.slots):
            for rank in bits(self._with_free[count]):
                leaf = self._by_rank[rank]
                for at in bits(leaf.by_free[count]):
                    misfit = life.misfit(leaf.hosts[at], every & ~leaf.free[at], gpus)
                    if best is None or (misfit, count) < best[:2]:
                        best = (misfit, count, leaf, at)
                    weighed += 1
                if weighed >= WEIGHED_MAX:
                    break
        grants: list[Grant] = []
        if best is not None:
            self._slice(best[2], best[3], gpus, 1, grants)
        return grants

    def _from_partly_used(self, gpus: int, nodes: int) -> list[Grant]:
        """The fullest host that still fits, until it does not, then the next: what is broken is used up first."""
        grants: list[Grant] = []
        for count in range(gpus, self.slots):
            if not self._with_free[count]:
                continue
            for rank in bits(self._with_free[count]):
                leaf = self._by_rank[rank]
                for at in bits(leaf.by_free[count]):
                    self._slice(leaf, at, gpus, nodes, grants)
                    if len(grants) == nodes:
                        return grants
        return grants

    def _from_whole(self, gpus: int, nodes: int) -> list[Grant]:
        """Break as few whole hosts as will do, chosen as a gang would be."""
        grants: list[Grant] = []
        for leaf, at in self._choose_whole(-(-nodes // (self.slots // gpus))):
            self._slice(leaf, at, gpus, nodes, grants)
        return grants

    def _slice(self, leaf: Leaf, at: int, gpus: int, nodes: int, grants: list[Grant]) -> None:
        free = leaf.free[at]
        for _ in range(min(free.bit_count() // gpus, nodes - len(grants))):
            slots = pick_slots(free, gpus)
            free ^= slots
            grants.append(Grant(leaf.hosts[at], slots, leaf.names[at]))

    def _gang(self, nodes: int) -> list[Grant]:
        every = (1 << self.slots) - 1
        return [Grant(leaf.hosts[at], every, leaf.names[at]) for leaf, at in self._choose_whole(nodes)]

    def _choose_whole(self, nodes: int) -> list[tuple[Leaf, int]]:
        """Best-fitting leaf; else best-fitting pod; else the emptiest pods in turn."""
        chosen: list[tuple[Leaf, int]] = []
        rank = self._whole.best(nodes)
        if rank is not None:
            self._fill_from_leaf(self._by_rank[rank], nodes, chosen)
            return chosen
        rank = self._pod_whole.best(nodes)
        for pod_rank in self._pod_whole.descending() if rank is None else (rank,):
            self._fill_from_pod(self._by_pod[pod_rank], nodes, chosen)
            if len(chosen) == nodes:
                break
        return chosen

    def _fill_from_pod(self, pod: Pod, nodes: int, chosen: list[tuple[Leaf, int]]) -> None:
        """The leaves with most free first, so that the gang crosses as few of them as it can."""
        whole = self.slots
        for leaf in sorted(pod.leaves.values(), key=lambda leaf: (-leaf.by_free[whole].bit_count(), leaf.rank)):
            self._fill_from_leaf(leaf, nodes, chosen)
            if len(chosen) == nodes:
                return

    def _fill_from_leaf(self, leaf: Leaf, nodes: int, chosen: list[tuple[Leaf, int]]) -> None:
        for at in bits(leaf.by_free[self.slots]):
            if len(chosen) == nodes:
                return
            chosen.append((leaf, at))

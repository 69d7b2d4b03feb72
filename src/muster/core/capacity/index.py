"""The inventory in memory, arranged so that a placement is found without looking at hosts that do not matter.

One `Pool` per region, GPU type and size of host, and per pool of hosts set apart, which nobody sees who does not ask
for it by its id; control hosts are pools without a GPU type. The index is only a hint
fed from the capacity log: the database refuses a double grant whatever is believed here.

Leans on placement.py (the words) and pool.py (the sets). Keeps the laws of placement: pure, total, packed.
`place` decides and changes nothing; `take` and `free` may be repeated and come to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

from muster.core.capacity.calendar import FOREVER, Line, end_cell
from muster.core.capacity.holds import Holds, Lifetime
from muster.core.capacity.placement import Ask, Grant, LineKey, Placement, Refusal, Why, counted
from muster.core.capacity.pool import Leaf, Pool, bits
from muster.model.base import Instant
from muster.model.hosts import ANY_TIME, Host, HostHealth, HostRole

CONTROL = ""
"""The GPU type of hosts without GPUs."""


class Stock(NamedTuple):
    """How many nodes of one shape a region could give now, and how many when nothing is leased or cordoned."""

    region: str
    gpu_type: str
    gpus_per_node: int
    free_nodes: int
    total_nodes: int


class CapacityIndex:
    def __init__(self) -> None:
        self._pools: dict[tuple[str, str, str], list[Pool]] = {}  # (region, gpu type, apart) -> fewest slots first
        self._leaf_of: dict[str, Leaf] = {}  # host id -> where it is
        self._fitting: dict[tuple[str, str, int, str], list[Pool]] = {}  # what `_pools_for` found
        self._holds = Holds()
        self._watched: dict[LineKey, Line] = {}  # lines of the calendar that count our hosts

    def __len__(self) -> int:
        return len(self._leaf_of)

    def __contains__(self, host_id: str) -> bool:
        return host_id in self._leaf_of

    # ---- the inventory

    def set_host(self, host: Host, taken: int | None = None) -> None:
        """Know this host as it is now. `taken` None keeps what is believed of its slots."""
        leaf = self._leaf_of.get(host.id)
        if leaf is not None and not _stands_at(leaf, host):
            taken = self.taken(host.id) if taken is None else taken
            self.drop_host(host.id)
            leaf = None
        alive = host.health is not HostHealth.DEAD
        if leaf is None:
            pool = self._pool(host.region, _gpu_type(host), host.slots, host.pool_id or "")
            leaf = self._leaf_of[host.id] = pool.leaf(host.pod, host.leaf)
            pool.admit(leaf, host.id, host.name, _every(host.slots) & ~(taken or 0), host.usable, alive)
            self._count(leaf, host.id)
            return
        pool, at = leaf.pod.pool, leaf.position(host.id)
        if taken is not None:
            pool.set_free(leaf, at, _every(host.slots) & ~taken)
        pool.set_usable(leaf, at, host.usable)
        pool.set_alive(leaf, at, alive)
        self._count(leaf, host.id)

    def drop_host(self, host_id: str) -> None:
        leaf = self._leaf_of.pop(host_id, None)
        if leaf is None:
            return
        pool, at = leaf.pod.pool, leaf.position(host_id)
        pool.set_usable(leaf, at, False)
        pool.set_alive(leaf, at, False)
        self._count(leaf, host_id)
        leaf.expel(at)
        pool.forget_leaf_if_empty(leaf)
        if not pool.pods:
            siblings = self._pools[pool.region, pool.gpu_type, pool.apart]
            siblings.remove(pool)
            self._fitting.clear()
            if not siblings:
                del self._pools[pool.region, pool.gpu_type, pool.apart]

    def _pool(self, region: str, gpu_type: str, slots: int, apart: str) -> Pool:
        siblings = self._pools.setdefault((region, gpu_type, apart), [])
        for pool in siblings:
            if pool.slots == slots:
                return pool
        pool = Pool(region, gpu_type, slots, apart)
        siblings.append(pool)
        siblings.sort(key=lambda pool: pool.slots)
        self._fitting.clear()
        return pool

    # ---- what is held

    def take(self, grants: Iterable[Grant], ends_at: Instant | None = None) -> None:
        for grant in grants:
            self._holds.put(grant.host_id, grant.slots, ends_at)
            self._change(grant.host_id, taken=grant.slots, freed=0)

    def knows(self, host_id: str, slots: int, ends_at: Instant | None) -> bool:
        """Whether taking this would change nothing: what we granted ourselves comes back to us by the log."""
        leaf = self._leaf_of.get(host_id)
        if leaf is None or leaf.free[leaf.position(host_id)] & slots:
            return False
        return self._holds.says(host_id, slots, ends_at)

    def free(self, host_id: str, slots: int) -> None:
        self._holds.free(host_id, slots)
        self._change(host_id, taken=0, freed=slots)

    def set_ends(self, host_id: str, held: Iterable[tuple[int, Instant | None]]) -> None:
        """What is known of the ends of all that is taken of a host."""
        self._holds.set_host(host_id, held)
        leaf = self._leaf_of.get(host_id)
        if leaf is not None:
            leaf.ends = None
            self._count(leaf, host_id)

    def _change(self, host_id: str, *, taken: int, freed: int) -> None:
        """Slots of a host we have not heard of change nothing: its own line of the log is on the way."""
        leaf = self._leaf_of.get(host_id)
        if leaf is None:
            return
        at, pool = leaf.position(host_id), leaf.pod.pool
        free = (leaf.free[at] & ~taken | freed) & _every(pool.slots)
        if free != leaf.free[at]:
            pool.set_free(leaf, at, free)
        self._count(leaf, host_id)

    def taken(self, host_id: str) -> int:
        """The slots believed to be held."""
        leaf = self._leaf_of[host_id]
        return _every(leaf.pod.pool.slots) & ~leaf.free[leaf.position(host_id)]

    # ---- the calendar's share of it

    def watch(self, key: LineKey, line: Line) -> None:
        """From now on this line counts the hosts of its pool, as they are and as they change."""
        self._watched[key] = line
        for pool in self._pools.get((key.region, key.gpu_type, key.pool_id), ()):
            if pool.slots == key.slots:
                for leaf in (leaf for pod in pool.pods.values() for leaf in pod.leaves.values()):
                    for host_id in leaf.hosts:
                        self._count(leaf, host_id)

    def watches(self, key: LineKey) -> bool:
        return key in self._watched

    def watch_as(self, other: CapacityIndex) -> None:
        """Take over the lines of an index that this one replaces."""
        for key, line in other._watched.items():
            line.drop_hosts()
            self.watch(key, line)

    def _count(self, leaf: Leaf, host_id: str) -> None:
        if not self._watched:
            return
        line = self._watched.get(leaf.pod.pool.key)
        if line is None:
            return
        at = leaf.position(host_id)
        if not leaf.usable >> at & 1:
            line.drop_host(host_id)
            return
        taken = _every(leaf.pod.pool.slots) & ~leaf.free[at]
        end = self._holds.end_of(host_id, taken) if taken else 0
        line.set_host(host_id, FOREVER if end is None else end_cell(end))

    def keys_for(self, region: str, gpu_type: str, gpus: int) -> list[LineKey]:
        """The lines whose hosts could be nodes of so many GPUs."""
        return [pool.key for pool in self._pools_for(region, gpu_type, gpus)]

    def line_keys(self) -> list[LineKey]:
        keys = (pool.key for pools in self._pools.values() for pool in pools)
        return sorted(key for key in keys if key.gpu_type != CONTROL and not key.pool_id)

    def _lines_of(self, ask: Ask, grants: Iterable[Grant]) -> tuple[tuple[LineKey, int], ...]:
        """Of which lines wholly free hosts would be taken, and how many; nobody counts lines without promises."""
        keys = self.keys_for(ask.region, ask.gpu_type, ask.gpus_per_node)
        if not any(key in self._watched for key in keys):
            return tuple((key, 0) for key in keys)
        whole: dict[LineKey, set[str]] = {}
        for grant in grants:
            leaf = self._leaf_of[grant.host_id]
            pool = leaf.pod.pool
            if leaf.free[leaf.position(grant.host_id)] == _every(pool.slots):
                whole.setdefault(pool.key, set()).add(grant.host_id)
        return tuple((key, len(hosts)) for key, hosts in whole.items())

    # ---- by known ends

    def releases(self, ask: Ask) -> list[tuple[Instant, str]]:
        """(when it could first give such a node, host id), earliest first; 0 = now. Hosts nobody knows the end of
        are left out."""
        found: list[tuple[Instant, str]] = []
        for pool in self._pools_for(ask.region, ask.gpu_type, ask.gpus_per_node):
            for leaf in pool.ranked():
                if pool.slots == ask.gpus_per_node:
                    found += self._whole_ends(leaf)
                    continue
                for at in bits(leaf.usable):
                    when = self._holds.fits_at(leaf.hosts[at], leaf.free[at], ask.gpus_per_node)
                    if when is not None:
                        found.append((when, leaf.hosts[at]))
        found.sort()
        return found

    def free_by(self, ask: Ask, since: Instant) -> Instant | None:
        """When all of it will be free by known ends; 0 = it is. An end before `since` that did not come is as good as
        unknown. None when nobody knows."""
        shape = (ask.gpu_type, ask.gpus_per_node)
        latest = 0
        with self._without(ask.avoid):
            for gpu_type, gpus, nodes, apart in (
                (*shape, ask.nodes, ""),
                (*shape, ask.pool_nodes, ask.pool_id),
                (CONTROL, 1, ask.control, ""),
            ):
                end = self._part_free_by(self._pools_for(ask.region, gpu_type, gpus, apart), gpus, nodes, since)
                if end is None:
                    return None
                latest = max(latest, end)
        return latest

    def _part_free_by(self, pools: Sequence[Pool], gpus: int, nodes: int, since: Instant) -> Instant | None:
        lacking = nodes
        for end, more in sorted(chain.from_iterable(self._gains(pool, gpus) for pool in pools)) if nodes > 0 else ():
            if end == 0 or end > since:
                lacking -= more
                if lacking <= 0:
                    return end
        return None if lacking > 0 else 0

    def _gains(self, pool: Pool, gpus: int) -> list[tuple[Instant, int]]:
        """(when, how many nodes more there will be), host by host; 0 = free, or given back when asked for."""
        found: list[tuple[Instant, int]] = []
        for leaf in (leaf for pod in pool.pods.values() for leaf in pod.leaves.values()):
            if pool.slots == gpus:
                found += [(end, 1) for end, _ in self._whole_ends(leaf)]
                continue
            for at in bits(leaf.usable):
                found += self._holds.gains(leaf.hosts[at], leaf.free[at], gpus)
        return found

    def _whole_ends(self, leaf: Leaf) -> list[tuple[Instant, str]]:
        """When its hosts will be free altogether, earliest first; 0 = they are. Remembered until it changes."""
        if leaf.ends is None:
            every = _every(leaf.pod.pool.slots)
            leaf.ends = []
            for at in bits(leaf.usable):
                taken = every & ~leaf.free[at]
                end = self._holds.end_of(leaf.hosts[at], taken) if taken else 0
                if end is not None:
                    leaf.ends.append((end, leaf.hosts[at]))
            leaf.ends.sort()
        return leaf.ends

    def leaves_of(self, grants: Iterable[Grant]) -> int:
        return len({id(self._leaf_of[grant.host_id]) for grant in grants})

    def any_free(self, host_id: str) -> bool:
        leaf = self._leaf_of[host_id]
        return leaf.free[leaf.position(host_id)] != 0

    def leaf_ready(
        self, ask: Ask, within: tuple[Instant, Instant], avoid: frozenset[str] = frozenset()
    ) -> tuple[Instant, list[str]] | None:
        """The leaf that will first have all these nodes as whole hosts, by ends within these two: from when, and on
        which; the latest of those that will do, for whoever ends sooner may use the others meanwhile."""
        since, by = within
        best: list[tuple[Instant, str]] | None = None
        for pool in self._pools_for(ask.region, ask.gpu_type, ask.gpus_per_node):
            for leaf in pool.likely(ask.nodes) if pool.slots == ask.gpus_per_node else ():
                ends = self._whole_ends(leaf)
                if len(ends) < ask.nodes or ends[ask.nodes - 1][0] > by:
                    continue
                ends = [one for one in ends if (one[0] == 0 or one[0] > since) and one[1] not in avoid]
                if len(ends) >= ask.nodes and ends[ask.nodes - 1][0] <= by:
                    best, by = ends, ends[ask.nodes - 1][0] - 1
        if best is None:
            return None
        when = best[ask.nodes - 1][0]
        return when, [host for end, host in best if end <= when][-ask.nodes :]

    # ---- decisions

    def place(self, ask: Ask) -> Placement | Refusal:
        if ask.avoid:
            with self._without(ask.avoid):
                return self._place(ask)
        return self._place(ask)

    def _place(self, ask: Ask) -> Placement | Refusal:
        ends = None if ask.ends_at is None else Lifetime(ask.at, ask.ends_at, self._holds)
        workers = self._grants(ask.region, ask.gpu_type, ask.gpus_per_node, ask.nodes, ends)
        control = self._grants(ask.region, CONTROL, 1, ask.control)
        pooled = self._grants(ask.region, ask.gpu_type, ask.gpus_per_node, ask.pool_nodes, apart=ask.pool_id)
        if workers is None or control is None or pooled is None:
            return self._refusal(ask)
        return Placement(tuple(workers), tuple(control), self._lines_of(ask, workers), tuple(pooled))

    def _grants(
        self, region: str, gpu_type: str, gpus: int, nodes: int, life: Lifetime | None = None, apart: str = ""
    ) -> list[Grant] | None:
        """From the smallest hosts that can give them all; else from each size in turn."""
        if nodes <= 0:
            return []
        pools = self._pools_for(region, gpu_type, gpus, apart)
        free = [pool.free_nodes(gpus) for pool in pools]
        for pool, nodes_free in zip(pools, free, strict=True):
            if nodes_free >= nodes:
                return pool.grant(gpus, nodes, life)
        if sum(free) < nodes:
            return None
        grants: list[Grant] = []
        for pool, nodes_free in zip(pools, free, strict=True):
            grants += pool.grant(gpus, min(nodes_free, nodes - len(grants)), life)
        return grants

    def _pools_for(self, region: str, gpu_type: str, gpus: int, apart: str = "") -> Sequence[Pool]:
        """Asked several times for every decision, and seldom changed."""
        asked = (region, gpu_type, gpus, apart)
        found = self._fitting.get(asked)
        if found is None:
            found = [pool for pool in self._pools.get((region, gpu_type, apart), ()) if pool.slots >= gpus > 0]
            if found:  # whoever asks for what there is not must not fill our memory
                self._fitting[asked] = found
        return found

    @contextmanager
    def _without(self, avoid: Iterable[str]) -> Iterator[None]:
        """Hosts to avoid are as good as cordoned while we look."""
        hidden = []
        for host_id in avoid:
            leaf = self._leaf_of.get(host_id)
            if leaf is not None and leaf.usable >> (at := leaf.position(host_id)) & 1:
                leaf.pod.pool.set_usable(leaf, at, False)
                hidden.append((leaf, at))
        try:
            yield
        finally:
            for leaf, at in hidden:
                leaf.pod.pool.set_usable(leaf, at, True)

    # ---- what there is

    def never(self, ask: Ask) -> Refusal | None:
        """The refusal that no amount of waiting would change, if there is one."""
        if ask.nodes <= self.total_nodes(ask.region, ask.gpu_type, ask.gpus_per_node) and (
            ask.control <= self.total_nodes(ask.region, CONTROL, 1) and not self._pool_lacks(ask)
        ):
            return None
        refusal = self._refusal(ask)
        return None if refusal.why is Why.NOT_NOW else refusal

    def _pool_lacks(self, ask: Ask) -> bool:
        """Whether the pool it draws from could not give it its nodes even when empty."""
        own = self._pools_for(ask.region, ask.gpu_type, ask.gpus_per_node, ask.pool_id)
        return ask.pool_nodes > sum(pool.total_nodes(ask.gpus_per_node) for pool in own)

    def pool_stock(self, region: str, gpu_type: str, pool_id: str) -> tuple[int, int]:
        """GPUs of a pool that are free, and that there are."""
        own = self._pools_for(region, gpu_type, 1, pool_id)
        return sum(pool.free_nodes(1) for pool in own), sum(pool.total_nodes(1) for pool in own)

    def free_nodes(self, region: str, gpu_type: str, gpus: int) -> int:
        return sum(pool.free_nodes(gpus) for pool in self._pools_for(region, gpu_type, gpus))

    def free_hosts(self, key: LineKey) -> int:
        """Hosts of a line that nobody holds any part of."""
        pools = self._pools_for(key.region, key.gpu_type, key.slots)
        return sum(pool.free_hosts[pool.slots] for pool in pools if pool.key == key)

    def lent_hosts(self, key: LineKey) -> int:
        """Hosts of a line that can be asked back at any time."""
        leaves = ((host_id, self._leaf_of.get(host_id)) for host_id in self._holds.known())
        mine = [host_id for host_id, leaf in leaves if leaf is not None and leaf.pod.pool.key == key]
        return sum(self._holds.end_of(host_id, self.taken(host_id)) == ANY_TIME for host_id in mine)

    def total_nodes(self, region: str, gpu_type: str, gpus: int) -> int:
        return sum(pool.total_nodes(gpus) for pool in self._pools_for(region, gpu_type, gpus))

    def regions_by_free(self, gpu_type: str, gpus: int) -> list[tuple[str, int]]:
        """Every region that has such hosts, with its free nodes of this shape: most first, then by name."""
        regions = [region for region, type_here, apart in self._pools if type_here == gpu_type and not apart]
        found = [(region, self.free_nodes(region, gpu_type, gpus)) for region in regions]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def summary(self) -> list[Stock]:
        """By region and GPU type, for nodes of 1, 2, 4 … GPUs and of whole hosts. Control hosts are not for sale."""
        return [
            Stock(
                region,
                gpu_type,
                gpus,
                self.free_nodes(region, gpu_type, gpus),
                self.total_nodes(region, gpu_type, gpus),
            )
            for (region, gpu_type, apart), pools in sorted(self._pools.items())
            if gpu_type != CONTROL and not apart
            for gpus in _shapes(pools)
        ]

    def _refusal(self, ask: Ask) -> Refusal:
        free = self.free_nodes(ask.region, ask.gpu_type, ask.gpus_per_node)
        total = self.total_nodes(ask.region, ask.gpu_type, ask.gpus_per_node)
        others = self.regions_by_free(ask.gpu_type, ask.gpus_per_node)
        elsewhere = tuple((region, nodes) for region, nodes in others if nodes and region != ask.region)
        why, message = self._reason(ask, free, total)
        return Refusal(why, message, free, total, elsewhere)

    def kept_back(self, ask: Ask, key: LineKey, room: int) -> Refusal:
        """The hosts are there, but others were promised them."""
        plain = self._refusal(ask)
        nodes = max(0, room) * (key.slots // ask.gpus_per_node)
        message = (
            f"{counted(ask.nodes)} of {ask.gpus_per_node} x {ask.gpu_type} asked for; {plain.free_nodes} are free in "
            f"{ask.region}, but all but {nodes} of them are promised to reservations or kept for their repairs"
        )
        return plain._replace(why=Why.NOT_NOW, message=message, free_nodes=nodes)

    def not_its_turn(self, ask: Ask, placement: Placement) -> Refusal:
        """The hosts are there, but kept for those who wait longer; or it had better wait for one leaf."""
        leaves = self.leaves_of(placement.workers)
        kept = "those who wait longer were promised hosts that are free"
        torn = (
            f"its hosts would be spread over {leaves} leaves, and one leaf will soon be free or others were promised"
        )
        plain = self._refusal(ask)
        return plain._replace(why=Why.NOT_NOW, message=torn if leaves > 1 else kept)

    def sold_out(self, ask: Ask) -> Refusal:
        """A region that is said to have nothing left; others may."""
        return self._refusal(ask)._replace(
            why=Why.NOT_NOW, free_nodes=0, message=f"{ask.region} has none left (simulated stock-out)"
        )

    def _reason(self, ask: Ask, free: int, total: int) -> tuple[Why, str]:
        shape = f"{ask.gpus_per_node} x {ask.gpu_type}"
        if ask.nodes and not self._pools_for(ask.region, ask.gpu_type, ask.gpus_per_node):
            return Why.UNKNOWN_SHAPE, f"no host in {ask.region} can be a node of {shape}"
        if ask.nodes > total:
            return Why.NEVER, f"{counted(ask.nodes)} of {shape} asked for; {ask.region} has {total} even when empty"
        if self._pool_lacks(ask):
            return (
                Why.NEVER,
                f"{counted(ask.pool_nodes)} of {shape} is more than pool {ask.pool_id} ever has",
            )
        control = self.total_nodes(ask.region, CONTROL, 1)
        if ask.control > control:
            return Why.NEVER, f"{ask.control} control slices are needed; {ask.region} has {control} even when empty"
        if ask.nodes > free:
            return (
                Why.NOT_NOW,
                f"{counted(ask.nodes)} of {shape} asked for; {free} of {total} are free in {ask.region}",
            )
        free_gpus, _ = self.pool_stock(ask.region, ask.gpu_type, ask.pool_id) if ask.pool_nodes else (0, 0)
        if ask.pool_nodes * ask.gpus_per_node > free_gpus:
            asked = f"{counted(ask.pool_nodes)} of {shape} asked of pool {ask.pool_id}"
            return Why.NOT_NOW, f"{asked}; {free_gpus} GPUs of it are free"
        control = self.free_nodes(ask.region, CONTROL, 1)
        return Why.NOT_NOW, f"{ask.control} control slices are needed; {control} are free in {ask.region}"


def _every(slots: int) -> int:
    """The mask of so many slots."""
    return (1 << slots) - 1


def _gpu_type(host: Host) -> str:
    return CONTROL if host.role is HostRole.CONTROL else host.gpu_type


def _stands_at(leaf: Leaf, host: Host) -> bool:
    pool = leaf.pod.pool
    known = (leaf.name, leaf.pod.name, pool.region, pool.gpu_type, pool.slots, pool.apart)
    return known == (host.leaf, host.pod, host.region, _gpu_type(host), host.slots, host.pool_id or "")


def _shapes(pools: list[Pool]) -> list[int]:
    whole = {pool.slots for pool in pools}
    return sorted(whole | {1 << n for n in range(max(whole).bit_length()) if 1 << n <= max(whole)})

"""Who waits for hosts: clusters whose own workers have none yet, by the line they come from.

Leans on the capacity room. *Law.* Whoever is short says so on its row, in the batch in which it begins to wait; what
it lacks is worked out from its wish and its workers, so that a word too many costs a look and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.contracts.store import Find, Op, Store, Wake
from muster.core.capacity.placement import Ask, LineKey, Placement
from muster.core.capacity.service import Capacity
from muster.core.capacity.waiting import UNKNOWN, Waiting
from muster.core.catalog.snapshot import Catalog
from muster.core.clusters.reseat import whole_ask
from muster.core.clusters.terms import held_until
from muster.model.base import Instant
from muster.model.catalog import InstanceType
from muster.model.clusters import Billing, Cluster, Node, NodeRole, Repair, Share
from muster.model.phases import NodePhase, Phase

_NO_SEAT = (NodePhase.LOST, NodePhase.FAILED, NodePhase.LEAVING, NodePhase.GONE)


def lacking(cluster: Cluster, nodes: Sequence[Node]) -> int:
    """Workers of its own that it has no living seat for. Pure."""
    over = cluster.delete_wished_at is not None or cluster.phase in (Phase.FAILED, Phase.DELETING, Phase.GONE)
    if over or cluster.spec.paused or cluster.spec.unfunded_since is not None:
        return 0
    workers = [node for node in nodes if node.role is NodeRole.WORKER and node.share is Share.OWN]
    return max(0, cluster.spec.wanted(Share.OWN) - sum(node.phase not in _NO_SEAT for node in workers))


def unseated(cluster: Cluster, nodes: Sequence[Node]) -> int:
    """Workers of its own that were accepted to wait for hosts, and have no seat at all. Pure.

    A broken one has a seat: whoever replaces it takes care of that.
    """
    if cluster.short_line is None:
        return 0
    own = [node for node in nodes if node.role is NodeRole.WORKER and node.share is Share.OWN]
    leaving = [node for node in own if node.phase is NodePhase.DRAINING and node.mending.wish is Repair.NONE]
    seated = [node for node in own if node.phase not in (NodePhase.LEAVING, NodePhase.GONE) and node not in leaving]
    return max(0, cluster.spec.wanted(Share.OWN) - len(seated))


def _in_line(cluster: Cluster) -> bool:
    """Whether it waits for all of its hosts, by no promise."""
    spec = cluster.spec
    waits = cluster.phase is Phase.QUEUED and cluster.delete_wished_at is None and not spec.paused
    return waits and spec.billing is Billing.ON_DEMAND


class Shorts:
    def __init__(self, store: Store, capacity: Capacity) -> None:
        self._store = store
        self._capacity = capacity

    def line_of(self, cluster: Cluster, shape: InstanceType | None) -> str | None:
        key = self._capacity.line_for(cluster.region, cluster.spec.gpu_type, shape.gpus if shape else 8)
        return None if key is None else key.id

    async def waiting(self, line_id: str) -> list[Cluster]:
        return await self._store.find(Find(Cluster, equals={"short_line": line_id, "gone_at": None}))

    async def place(self, cluster: Cluster, ask: Ask, catalog: Catalog, now: Instant) -> Placement:
        """Hosts for a whole cluster: what was promised to it at once, else when it is its turn among those who wait
        for hosts of the same line, longest first."""
        shape = catalog.instance_types.get(cluster.spec.instance_type)
        line = self.line_of(cluster, shape)
        if ask.promised or line is None:
            return await self._capacity.place(ask)
        others = [one for one in await self.waiting(line) if _in_line(one) and one.id != cluster.id]
        queue = sorted([*others, cluster], key=lambda one: (one.created_at, one.number))
        asks = [whole_ask(one, catalog.instance_types.get(one.spec.instance_type), now) for one in queue]
        waiting = [
            Waiting(n, asked, UNKNOWN if asked.ends_at is None else asked.ends_at - now, one.created_at)
            for n, (one, asked) in enumerate(zip(queue, asks, strict=True))
        ]
        return await self._capacity.place_in_turn(queue.index(cluster), waiting, now)

    async def freed(self, cluster: Cluster, shape: InstanceType | None, now: Instant) -> list[Op]:
        """Hosts come free: whoever waits for them, and whoever lends them on, looks at once."""
        line = self.line_of(cluster, shape)
        if line is None:
            return []
        waiting = await self.waiting(line)
        return [Wake("preemption", line, now), *(Wake("cluster", one.id, now) for one in waiting)]

    async def hosts_lacking(self, key: LineKey, per_host: dict[str, int], now: Instant) -> int:
        """Hosts of a line that those who wait need, as far as no promise stands against it.

        `per_host`: instance type -> nodes of it that one host holds.
        """
        total = 0
        for cluster in await self.waiting(key.id):
            if cluster.phase in (Phase.SCHEDULED, Phase.QUEUED) and cluster.spec.billing is not Billing.ON_DEMAND:
                continue  # the calendar speaks for it
            nodes = await self._store.find(Find(Node, equals={"cluster_id": cluster.id, "gone_at": None}))
            hosts = -(-lacking(cluster, nodes) // per_host.get(cluster.spec.instance_type, 1))
            spare = cluster.spec.billing is not Billing.ON_DEMAND
            if total + hosts <= self._capacity.room(key, now, held_until(cluster), spare=spare):
                total += hosts
        return total

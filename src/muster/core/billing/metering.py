"""The meter: usage intervals opened and closed in the very batch that changes a phase or takes a lease.

Leans on the store's contract and the listener's (contracts/metering.py). *Laws.* Called by nobody: it looks at what a
batch changes and says what must be written beside it, so that no writer can forget it and no crash can come between.
At most one interval is open per resource and class. A batch that moves nobody in or out of a class costs no reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from muster.contracts.clock import Clock
from muster.contracts.store import Batch, Find, Insert, Op, Replace, Store, Wake
from muster.core.billing.booking import closing_ops, refund_entry
from muster.core.billing.rates import PriceBook
from muster.model.base import SECOND, Instant
from muster.model.billing import METERED, ON_DEMAND, POOL, PREEMPTIBLE, Contract, LedgerEntry, Usage, UsageClass
from muster.model.capacity import Reservation, ReservationState
from muster.model.catalog import Price
from muster.model.clusters import Cluster, Node, NodeRole, Share
from muster.model.phases import PROVISIONING, SERVING, STOPPED, NodePhase, Phase, VolumePhase
from muster.model.volumes import Volume

KIND: Final = "billing"
VOLUME_ITEM: Final = "volume"
RECKON_AFTER: Final = 2 * SECOND
"""How soon after a change an account's end of credit is reckoned anew: many changes become one reckoning."""

Level: TypeAlias = tuple[UsageClass, str]
"""A class, and how it is billed."""
Levels: TypeAlias = Mapping[Level, int]


class Held(NamedTuple):
    """Whose usage it is, and how much there is on each level."""

    owner: Cluster | Volume
    item: str
    levels: Levels
    at: Instant


def cluster_levels(cluster: Cluster, nodes: Iterable[Node]) -> Levels:
    """How many workers of a cluster are in each class. Controllers and logins are never billed."""
    spec = cluster.spec
    if cluster.phase in STOPPED:
        return {(UsageClass.PAUSED, spec.billing): spec.workers}
    own = str(spec.billing)
    levels: dict[Level, int] = {}  # plainly counted: every batch that moves a node passes here
    for node in nodes:
        if node.role is NodeRole.WORKER and node.phase is not NodePhase.GONE:
            its = (_node_class(cluster.phase, node.phase), _BILLED_AS.get(node.share, own))
            levels[its] = levels.get(its, 0) + 1
    serving = levels.get((UsageClass.SERVING, own), 0)
    if spec.reserved_workers is not None and serving > spec.reserved_workers:
        levels[UsageClass.SERVING, own] = spec.reserved_workers
        levels[UsageClass.SERVING, ON_DEMAND] = serving - spec.reserved_workers
    return levels


_BILLED_AS: Final = {Share.PREEMPTIBLE: PREEMPTIBLE, Share.POOL: POOL}
"""How workers of another share than the cluster's own are billed."""


def given_back_because(cluster: Cluster) -> str:
    """Why what was paid in advance for it is to be paid back; "" when it is not."""
    if cluster.spec.billing in METERED:
        return ""
    if cluster.phase is Phase.FAILED:
        return "never became ready"
    before = [Phase(moved.phase) for moved in cluster.status.history[-2:]]
    return "given up before it began" if before == [Phase.SCHEDULED, Phase.DELETING] else ""


def _node_class(phase: Phase, node: NodePhase) -> UsageClass:
    if phase is Phase.FAILED:
        return UsageClass.FAILED
    if phase in PROVISIONING or phase not in SERVING:
        return UsageClass.PROVISIONING
    return _SERVING_CLASS.get(node, UsageClass.PROVISIONING)


_SERVING_CLASS: Final = {
    NodePhase.RUNNING: UsageClass.SERVING,
    NodePhase.DRAINING: UsageClass.SERVING,
    NodePhase.LOST: UsageClass.FAILED,
    NodePhase.FAILED: UsageClass.FAILED,
}


def volume_levels(volume: Volume) -> Levels:
    match volume.phase:
        case VolumePhase.PROVISIONING:
            return {(UsageClass.PROVISIONING, ON_DEMAND): volume.size_gib}
        case VolumePhase.AVAILABLE if volume.unfunded_since is not None:
            return {(UsageClass.PAUSED, ON_DEMAND): volume.actual_gib}
        case VolumePhase.AVAILABLE:
            return {(UsageClass.SERVING, ON_DEMAND): volume.actual_gib}
        case VolumePhase.FAILED:
            return {(UsageClass.FAILED, ON_DEMAND): volume.size_gib}
        case _:
            return {}


@dataclass(slots=True)
class _Seen:
    """What a batch says about whatever may be used: clusters and nodes by cluster, volumes, prices."""

    clusters: dict[str, Cluster] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    nodes: dict[str, dict[str, Node]] = field(default_factory=dict)
    volumes: list[Insert | Replace] = field(default_factory=list)
    priced: set[tuple[str, str]] = field(default_factory=set)
    reservations: list[Reservation] = field(default_factory=list)


def _sorted(ops: Sequence[Op]) -> _Seen | None:
    """None when nothing of it is ours to follow. Every batch passes here, so it asks for exact types only."""
    seen: _Seen | None = None
    for op in ops:
        kind = type(op)
        if kind is not Insert and kind is not Replace:
            continue
        noun = op.noun  # type: ignore[union-attr]
        if type(noun) not in _FOLLOWED:
            continue
        seen = seen or _Seen()
        if isinstance(noun, Node):
            seen.nodes.setdefault(noun.cluster_id, {})[noun.id] = noun
        elif isinstance(noun, Cluster):
            seen.clusters[noun.id] = noun
            if kind is Insert:
                seen.fresh.add(noun.id)
        elif isinstance(noun, Volume):
            seen.volumes.append(op)  # type: ignore[arg-type]
        elif isinstance(noun, Price):
            seen.priced.add((noun.item, noun.region))
        elif isinstance(noun, Reservation):
            seen.reservations.append(noun)
    return seen


_FOLLOWED: Final = frozenset({Cluster, Node, Volume, Price, Reservation})


def _held(cluster: Cluster, nodes: Iterable[Node], at: Instant) -> Held:
    return Held(cluster, cluster.spec.instance_type, cluster_levels(cluster, nodes), at)


def _first(cluster: Cluster, nodes: Iterable[Node]) -> list[Op]:
    """A cluster that is just being accepted has nothing open yet, and nothing that costs: no question is asked."""
    held = _held(cluster, nodes, cluster.created_at)
    return [Insert(_opened(held, "cluster", its, n)) for its, n in held.levels.items() if n > 0]


class Meter:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def beside(self, batch: Batch) -> Sequence[Op]:
        seen = _sorted(batch.ops)
        if seen is None:
            return ()
        ops: list[Op] = []
        for op in seen.volumes:
            ops += await self._volume(op)
        for reservation in seen.reservations:
            ops += await self._reservation(reservation)
        if seen.priced:
            ops += await self._reckon_anew(seen.priced)
        for id in dict.fromkeys((*seen.clusters, *seen.nodes)):
            cluster = seen.clusters.get(id)
            if id in seen.fresh and cluster is not None:
                ops += _first(cluster, seen.nodes.get(id, {}).values())
            else:
                ops += await self._cluster(id, cluster, seen.nodes.get(id, {}))
        return ops

    async def _reckon_anew(self, priced: set[tuple[str, str]]) -> Sequence[Op]:
        """Whoever uses what costs something else from now or then on: their credit ends at another instant."""
        known = await self._store.find(Find(Usage, equals={"closed_at": None}))
        accounts = {usage.account_id for usage in known if usage.charged and (usage.item, usage.region) in priced}
        return [Wake(KIND, account_id, self._clock.now()) for account_id in sorted(accounts)]

    async def _cluster(self, id: str, cluster: Cluster | None, moved: Mapping[str, Node]) -> Sequence[Op]:
        if cluster is not None and not moved and cluster.phase_since != cluster.updated_at:
            return ()
        cluster = cluster or await self._store.get(Cluster, id)
        if cluster is None:
            return ()
        live = {**{node.id: node for node in await self._live_nodes(id)}, **moved}
        at = max(cluster.updated_at, *(node.phase_since for node in moved.values()), 0)
        ops = await self._follow(_held(cluster, live.values(), at), "cluster", fresh=False)
        return [*ops, *await self._paid_back(cluster)]

    async def _paid_back(self, cluster: Cluster) -> Sequence[Op]:
        """What was paid in advance for a cluster that failed on its first way up, or that was given up before it set
        out, goes back in the batch that says so."""
        because = given_back_because(cluster)
        if not because:
            return ()
        drawn = await self._store.find(Find(Reservation, equals={"cluster_id": cluster.id}))
        ids = [cluster.id, *(reservation.id for reservation in drawn)]
        return await self._refunds(cluster.account_id, ids, because)

    async def _reservation(self, reservation: Reservation) -> Sequence[Op]:
        """A window cancelled before its start is paid back in that batch; from its start on it costs, used or not."""
        if reservation.state is not ReservationState.CANCELLED or reservation.updated_at >= reservation.starts_at:
            return ()
        return await self._refunds(reservation.account_id, [reservation.id], "cancelled before its start")

    async def _refunds(self, account_id: str, resource_ids: Sequence[str], because: str) -> Sequence[Op]:
        now = self._clock.now()
        contracts = await self._store.find(Find(Contract, one_of={"resource_id": resource_ids}))
        owed = [
            contract
            for contract in contracts
            if contract.micro > 0 and await self._store.get(LedgerEntry, f"refund:{contract.id}") is None
        ]
        entries: list[Op] = [Insert(refund_entry(contract, because, now)) for contract in owed]
        return [*entries, Wake(KIND, account_id, now)] if entries else ()

    async def _live_nodes(self, cluster_id: str) -> list[Node]:
        return await self._store.find(Find(Node, equals={"cluster_id": cluster_id, "gone_at": None}))

    async def _volume(self, op: Insert | Replace) -> Sequence[Op]:
        volume = op.noun
        assert isinstance(volume, Volume)
        held = Held(volume, VOLUME_ITEM, volume_levels(volume), volume.updated_at)
        return await self._follow(held, "volume", fresh=type(op) is Insert)

    async def _follow(self, held: Held, kind: str, *, fresh: bool) -> Sequence[Op]:
        """Close what is no longer so, open what is so now."""
        known = [] if fresh else await open_usages(self._store, held.owner.id)
        same = [usage for usage in known if _unchanged(usage, held)]
        over = [usage for usage in known if usage not in same]
        kept = {(usage.usage_class, usage.billing) for usage in same}
        begun = [_opened(held, kind, its, n) for its, n in held.levels.items() if n > 0 and its not in kept]
        prices = await self._prices(held) if any(usage.charged for usage in over) else PriceBook(())
        now = self._clock.now()
        ops: list[Op] = [op for usage in over for op in closing_ops(usage, prices, held.at, now)]
        ops += [Insert(usage) for usage in begun]
        if any(usage.charged for usage in (*over, *begun)):
            ops.append(Wake(KIND, held.owner.account_id, now + RECKON_AFTER))
        return ops

    async def _prices(self, held: Held) -> PriceBook:
        """From the tables, not from memory: a price changed a moment ago in another process counts."""
        query = Find(Price, equals={"item": held.item, "region": held.owner.region})
        return PriceBook(await self._store.find(query))


async def open_usages(store: Store, resource_id: str) -> list[Usage]:
    return await store.find(Find(Usage, equals={"resource_id": resource_id, "closed_at": None}, order="opened_at"))


def _unchanged(usage: Usage, held: Held) -> bool:
    return usage.item == held.item and held.levels.get((usage.usage_class, usage.billing)) == usage.quantity


def _opened(held: Held, kind: str, level: Level, quantity: int) -> Usage:
    """The id is the resource's and its version's: the same batch twice cannot open two."""
    owner, (usage_class, billing) = held.owner, level
    return Usage(
        id=f"{owner.id}.{owner.version}.{usage_class}.{billing}",
        account_id=owner.account_id,
        project_id=owner.project_id,
        kind=kind,
        resource_id=owner.id,
        resource_name=owner.name,
        item=held.item,
        region=owner.region,
        billing=billing,
        usage_class=usage_class,
        quantity=quantity,
        opened_at=held.at,
        open_key=f"{owner.id}.{usage_class}.{billing}",
        booked_until=held.at,
    )

"""What must be true of every history: always, and when the dust has settled.

Each invariant is a named function over what an outsider can see (the store's rows, the world's things, what users
were answered) and returns a sentence when it is broken. The mutants in tests/simulation prove that each can be.
"""

from __future__ import annotations

import itertools
from typing import Final

import msgspec

from muster.contracts.store import Find
from muster.core.billing.funds import load_funds
from muster.core.billing.verify import verify
from muster.core.capacity.preemption import NOTICE
from muster.core.capacity.service import Capacity
from muster.core.clusters.reclaim import OVER
from muster.core.clusters.shorts import lacking
from muster.model.accounts import Account
from muster.model.base import MINUTE
from muster.model.billing import Funding
from muster.model.clusters import Cluster, Node, Share
from muster.model.events import Request, RequestState
from muster.model.hosts import ANY_TIME, Host, Lease, Pool
from muster.model.phases import CLUSTER_MOVES, NODE_MOVES, NodePhase, Phase, VolumePhase
from muster.model.volumes import Volume
from muster.testing.simulation.outside import Broken, Invariant, Outside
from muster.testing.simulation.promises import (
    bookings_match_reservations,
    bound_in_time,
    promises_fit,
    ready_by_its_start,
    windows_within_share,
)


async def no_host_given_twice(outside: Outside) -> Broken:
    """No two nodes were ever powered on the same slots of a host."""
    collisions = outside.collisions()
    return collisions[0] if collisions else None


async def leases_match_nodes(outside: Outside) -> Broken:
    """Every live node holds its lease, every lease belongs to a live node, and its slots are within its host."""
    nodes = await outside.store.find(Find(Node))
    leases = {lease.id: lease for lease in await outside.store.find(Find(Lease))}
    live = {node.lease_id: node for node in nodes if node.phase is not NodePhase.GONE}
    for lease_id, node in live.items():
        if lease_id not in leases:
            return f"node {node.name} of {node.cluster_id} is {node.phase} without a lease"
    for lease in leases.values():
        if lease.id not in live:
            return f"lease {lease.id} of host {lease.host_id} is held by no live node"
    return None


async def slots_within_hosts(outside: Outside) -> Broken:
    """Leases + free = inventory: taken slots are exactly the leases', and none lies outside its host."""
    hosts = {host.id: host for host in await outside.store.find(Find(Host))}
    held: dict[str, int] = {}
    for lease in await outside.store.find(Find(Lease)):
        if held.get(lease.host_id, 0) & lease.slots:
            return f"host {lease.host_id}: two leases share slots"
        held[lease.host_id] = held.get(lease.host_id, 0) | lease.slots
        if lease.slots >> hosts[lease.host_id].slots:
            return f"lease {lease.id} holds slots that host {lease.host_id} does not have"
    taken = {host: mask for host, mask in (await outside.store.slots_taken()).items() if mask}
    return None if taken == held else f"slots taken {taken} are not those leased {held}"


async def pools_are_kept(outside: Outside) -> Broken:
    """Hosts set apart are held by those they are set apart for, and whoever draws from a pool is on its hosts."""
    apart = {host.id: host.pool_id for host in await outside.store.find(Find(Host)) if host.pool_id is not None}
    pools = {pool.id: pool for pool in await outside.store.find(Find(Pool))}
    clusters = {cluster.id: cluster for cluster in await outside.store.find(Find(Cluster, equals={"gone_at": None}))}
    for node in await outside.store.find(Find(Node, equals={"gone_at": None})):
        pool, cluster = pools.get(apart.get(node.host_id or "") or ""), clusters[node.cluster_id]
        if pool is None and node.share is not Share.POOL:
            continue
        mine = pool is not None and pool.for_project(cluster.account_id, cluster.project_id)
        if node.share is not Share.POOL or pool is None or cluster.spec.pool_id != pool.id or not mine:
            where = f"pool {pool.name}" if pool else "no pool"
            return f"{node.name} of {cluster.name} ({node.share}) is on a host of {where}"
    return None


async def moves_along_the_table(outside: Outside) -> Broken:
    """Every step of every history is in the table of phases."""
    for cluster in await outside.store.find(Find(Cluster)):
        phases = [Phase(moved.phase) for moved in cluster.status.history]
        for a, b in itertools.pairwise(phases):
            if b not in CLUSTER_MOVES[a]:
                return f"cluster {cluster.name} went from {a} to {b}"
        if phases[-1] is not cluster.phase:
            return f"cluster {cluster.name} is {cluster.phase} but its history ends in {phases[-1]}"
    for node in await outside.store.find(Find(Node)):
        steps = [NodePhase(moved.phase) for moved in node.history]
        for x, y in itertools.pairwise(steps):
            if y not in NODE_MOVES[x]:
                return f"node {node.name} went from {x} to {y}"
    return None


async def intent_before_effect(outside: Outside) -> Broken:
    """Nothing exists in the world that was not written down first."""
    written = {node.id for node in await outside.store.find(Find(Node))}
    written |= {cluster.id for cluster in await outside.store.find(Find(Cluster))}
    written |= {volume.id for volume in await outside.store.find(Find(Volume))}
    for owned in await outside.substrate.owned():
        if owned.key not in written:
            return f"{owned.kind} {owned.key} exists but was never written down"
    return None


async def gone_is_gone(outside: Outside) -> Broken:
    """What the store calls gone is not in the world."""
    nodes = {node.id: node for node in await outside.store.find(Find(Node))}
    clusters = {cluster.id: cluster for cluster in await outside.store.find(Find(Cluster))}
    volumes = {volume.id: volume for volume in await outside.store.find(Find(Volume))}
    for owned in await outside.substrate.owned():
        if owned.kind == "node" and owned.key in nodes and nodes[owned.key].phase is NodePhase.GONE:
            return f"node {owned.key} is gone in the store and there in the world"
        if owned.kind == "fabric" and owned.key in clusters and clusters[owned.key].phase is Phase.GONE:
            return f"cluster {owned.key} is gone in the store and its network is there in the world"
        if owned.kind == "volume" and owned.key in volumes and volumes[owned.key].phase is VolumePhase.GONE:
            return f"volume {owned.key} is gone in the store and there in the world"
    return None


async def answered_is_kept(outside: Outside) -> Broken:
    """A create that was answered is there, until its deletion was asked for."""
    for id in outside.ledger.created:
        if await outside.store.get(Cluster, id) is None:
            return f"cluster {id} was answered and is not there"
    for id in outside.ledger.deleted:
        cluster = await outside.store.get(Cluster, id)
        if cluster is not None and cluster.delete_wished_at is None:
            return f"the deletion of cluster {id} was answered and is not wished"
    return None


async def one_create_one_cluster(outside: Outside) -> Broken:
    """However often a create was repeated, it made one cluster; names are unique among the living."""
    if outside.ledger.broken:
        return outside.ledger.broken[0]
    living: dict[tuple[str, str], str] = {}
    for cluster in await outside.store.find(Find(Cluster)):
        if cluster.delete_wished_at is None and cluster.phase is not Phase.GONE:
            first = living.setdefault((cluster.project_id, cluster.name), cluster.id)
            if first != cluster.id:
                return f"two living clusters are named {cluster.name}"
    return None


async def notice_is_given(outside: Outside) -> Broken:
    """Nobody loses a preemptible worker that was asked back without being told, and for the full notice."""
    for node in await outside.store.find(Find(Node, equals={"share": Share.PREEMPTIBLE})):
        phases = [NodePhase(moved.phase) for moved in node.history]
        if node.reclaim_at is None or NodePhase.LEAVING not in phases:
            continue
        left = node.history[phases.index(NodePhase.LEAVING)]
        before = phases[phases.index(NodePhase.LEAVING) - 1]
        taken_down = left.because.startswith("the cluster is")
        if taken_down or before not in (NodePhase.RUNNING, NodePhase.DRAINING):
            continue
        if node.warned_at is None or left.at < node.warned_at:
            return f"node {node.name} of {node.cluster_id} was taken back and never told"
        if node.reclaim_at - node.warned_at < NOTICE:
            return f"node {node.name} of {node.cluster_id} was told {node.reclaim_at - node.warned_at} ms before"
        if left.because == OVER and left.at < node.reclaim_at:
            return f"node {node.name} of {node.cluster_id} was cut short before its notice was over"
    return None


async def no_secret_in_an_event(outside: Outside) -> Broken:
    for event in await outside.store.events(after=outside.ledger.events_read, limit=100_000):
        outside.ledger.events_read = event.seq
        text = msgspec.json.encode(event).decode()
        if any(secret in text for secret in outside.ledger.secrets):
            return f"event {event.seq} ({event.type}) carries a secret"
    return None


async def views_are_fresh(outside: Outside) -> Broken:
    """A cached document is what a fresh one would be."""
    stale = await outside.stale_views()
    return stale[0] if stale else None


async def nothing_raises(outside: Outside) -> Broken:
    """What a driver or the store refuses becomes a Wait with its reason; anything else that is raised is our bug."""
    failures = outside.failures()
    return f"{failures} reconciles raised what they should not" if failures else None


ON_ITS_WAY: Final = 15 * MINUTE
"""Longer than a cluster takes up or down when nothing more goes wrong."""


async def everything_settles(outside: Outside) -> Broken:
    """Eventually: settled, gone, or honestly stuck: for want of a host, and saying so."""
    rest = (Phase.READY, Phase.DEGRADED, Phase.FAILED, Phase.PAUSED, Phase.UNFUNDED, Phase.GONE)
    for cluster in await outside.store.find(Find(Cluster)):
        wants_host = cluster.status.waiting_for.startswith("a host to replace")
        stuck = wants_host and cluster.stuck_since(outside.now)
        if cluster.phase is Phase.QUEUED and "promised to reservations" in cluster.status.waiting_for:
            continue
        if cluster.phase is Phase.SCHEDULED and (cluster.spec.begins_at or 0) > outside.now:
            continue
        if await _set_out_lately(outside, cluster):
            continue
        if cluster.phase not in rest and not stuck and not await _waits_in_vain(outside, cluster):
            return f"cluster {cluster.name} is still {cluster.phase}, waiting for {cluster.status.waiting_for!r}"
        if cluster.delete_wished_at is not None and cluster.phase is not Phase.GONE:
            return f"cluster {cluster.name} was to be deleted and is {cluster.phase}"
    for volume in await outside.store.find(Find(Volume)):
        if volume.phase in (VolumePhase.PROVISIONING, VolumePhase.DELETING):
            return f"volume {volume.name} is still {volume.phase}: {volume.because}"
    return None


async def _set_out_lately(outside: Outside, cluster: Cluster) -> bool:
    """Who waited for a window or for hosts, even for a broken one's, or whose term ended, may be on its way yet."""
    nodes = await outside.store.find(Find(Node, equals={"cluster_id": cluster.id, "gone_at": None}))
    set_out = [move.at for move in cluster.status.history if move.phase in (Phase.NETWORK, Phase.DELETING)]
    return outside.now - max(set_out + [node.created_at for node in nodes], default=0) < ON_ITS_WAY


async def _waits_in_vain(outside: Outside, cluster: Cluster) -> bool:
    """Whether it is short of more hosts than are free and lent together, and says so."""
    if cluster.short_line is None or not cluster.status.waiting_for.startswith("hosts:"):
        return False
    nodes = await outside.store.find(Find(Node, equals={"cluster_id": cluster.id, "gone_at": None}))
    hosts = {host.id: host for host in await outside.store.find(Find(Host)) if host.usable and host.gpu_type}
    leases = await outside.store.find(Find(Lease, one_of={"host_id": sorted(hosts)}))
    held = sum(lease.slots.bit_count() for lease in leases if lease.ends_at != ANY_TIME)
    gpus = int(cluster.spec.instance_type.split("x")[0])
    return lacking(cluster, nodes) * gpus + held > sum(host.slots for host in hosts.values()) - 8


async def healthy_is_ready(outside: Outside) -> Broken:
    """Eventually, with no fault left: what is wanted serves with all its nodes, and no node is left over."""
    for cluster in await outside.store.find(Find(Cluster)):
        nodes = await outside.store.find(Find(Node, equals={"cluster_id": cluster.id}))
        up = [node for node in nodes if node.phase is NodePhase.RUNNING and node.role == "worker"]
        running = [node for node in up if node.share is not Share.PREEMPTIBLE]
        if cluster.phase is Phase.READY and len(up) - len(running) > cluster.spec.preemptible_workers:
            return f"cluster {cluster.name} was lent more than the {cluster.spec.preemptible_workers} it wishes for"
        wanted = cluster.spec.own_workers
        if cluster.phase in (Phase.READY, Phase.DEGRADED) and len(running) > wanted:
            return f"cluster {cluster.name} has {len(running)} workers and wants {wanted}"
        whole = len(running) == wanted or await _waits_in_vain(outside, cluster)
        if cluster.phase is Phase.READY and not whole:
            return f"cluster {cluster.name} is ready with {len(running)} of {wanted} workers"
        if cluster.phase is Phase.READY and cluster.spec.autoscaled_workers:
            return f"cluster {cluster.name} kept {cluster.spec.autoscaled_workers} workers that nobody needs any more"
    return None


async def requests_end(outside: Outside) -> Broken:
    """Eventually: no request stays open on a cluster that has come to rest."""
    open_states = (RequestState.PENDING, RequestState.PROCESSING)
    for request in await outside.store.find(Find(Request, one_of={"state": [str(s) for s in open_states]})):
        noun: type[Cluster] | type[Volume] = Cluster if request.kind == "cluster" else Volume
        resource = await outside.store.get(noun, request.resource_id)
        if isinstance(resource, Cluster) and await _waits_in_vain(outside, resource):
            continue
        if resource is None or resource.gone_at is not None or resource.phase in (Phase.READY, Phase.FAILED):
            return f"request {request.operation} of {request.kind} {request.resource_id} is still {request.state}"
    return None


async def no_orphan(outside: Outside) -> Broken:
    """Eventually: nothing is kept for a cluster that was stopped or has failed. (For one that is gone, or that never
    was, nothing is kept at any time: gone_is_gone, intent_before_effect.)"""
    stopped = {
        cluster.id: cluster
        for cluster in await outside.store.find(Find(Cluster))
        if cluster.phase in (Phase.PAUSED, Phase.UNFUNDED, Phase.FAILED)
    }
    for owned in await outside.substrate.owned():
        if owned.owner in stopped:
            cluster = stopped[owned.owner]
            return f"{owned.kind} {owned.key} is kept for cluster {cluster.name}, which is {cluster.phase}"
    return None


async def index_agrees(outside: Outside) -> Broken:
    """Eventually: what each process believes to be free is what the database would let it take."""
    fresh = Capacity(outside.store)
    await fresh.sync()
    for believed in await outside.summaries():
        if believed != fresh.summary():
            wrong = sorted(set(believed) ^ set(fresh.summary()))
            return f"a process believes otherwise than the database: {wrong[0]}"
    usable = [host for host in await outside.store.find(Find(Host)) if host.usable and host.gpu_type]
    hosts = {host.id: host for host in usable if host.pool_id is None}
    leases = await outside.store.find(Find(Lease, one_of={"host_id": sorted(hosts)}))
    held = sum(lease.slots.bit_count() for lease in leases)
    free = sum(stock.free_nodes for stock in fresh.summary() if stock.gpus_per_node == 1)
    inventory = sum(host.slots for host in hosts.values())
    return None if held + free == inventory else f"{held} leased + {free} free are not {inventory} in all"


async def charges_are_proven(outside: Outside) -> Broken:
    """The books add up, and every charge is serving time times price: reckoned anew from phases and prices."""
    verdict = await verify(outside.store)
    return None if verdict.holds else verdict.problems[0]


async def credit_holds(outside: Outside) -> Broken:
    """Eventually: no account owes more than a minute's spend, and what cannot be paid for does not serve."""
    for account in await outside.store.find(Find(Account, equals={"postpaid": False})):
        funds = await load_funds(outside.store, account.id, outside.now)
        known = await outside.store.get(Funding, account.id)
        minute = max(funds.minute, known.minute_micro if known is not None else 0)
        if funds.available < -minute:
            return f"account {account.name} owes {-funds.available}, and spends {minute} a minute"
        if funds.available <= 0 and funds.burn:
            return f"account {account.name} has no credit and still spends {funds.hourly} an hour"
    return None


ALWAYS: Final[dict[str, Invariant]] = {
    check.__name__: check
    for check in (
        no_host_given_twice,
        leases_match_nodes,
        slots_within_hosts,
        pools_are_kept,
        moves_along_the_table,
        intent_before_effect,
        gone_is_gone,
        answered_is_kept,
        one_create_one_cluster,
        notice_is_given,
        no_secret_in_an_event,
        views_are_fresh,
        nothing_raises,
        promises_fit,
        windows_within_share,
        bound_in_time,
        bookings_match_reservations,
        ready_by_its_start,
    )
}
EVENTUALLY: Final[dict[str, Invariant]] = {
    check.__name__: check
    for check in (
        everything_settles,
        healthy_is_ready,
        requests_end,
        no_orphan,
        index_agrees,
        charges_are_proven,
        credit_holds,
    )
}

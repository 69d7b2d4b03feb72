"""Carry out the one step that the plan named: intent, effect, observation, record.

*Laws.* The input is an id and nothing else. Every batch and every driver call carries the claim as its
fence. No loops, retries or sleeps: a driver that says "later" becomes a Wait with its reason, which `explain` shows.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Sequence
from dataclasses import replace

import msgspec.structs

from muster.contracts.clock import Clock, Entropy
from muster.contracts.metering import FREE, Purse
from muster.contracts.orchestrator import Orchestrator
from muster.contracts.reconciler import Advance, Gone, Outcome, Settled, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Claim, Find, Op, Remove, Store, Wake
from muster.contracts.substrate import Fence, Seen, Substrate, Wish
from muster.core.capacity.placement import Placement
from muster.core.capacity.preemption import NOTICE
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import CatalogService
from muster.core.clusters import deeds
from muster.core.clusters.access import unbind_addresses
from muster.core.clusters.autoscale import Scaling
from muster.core.clusters.boots import booted
from muster.core.clusters.conditions import with_status
from muster.core.clusters.cordon import cordon_dead
from muster.core.clusters.deeds import NodeMove, Sight
from muster.core.clusters.growth import REFUSALS, Growth, shrunk, ungrown, waits_because
from muster.core.clusters.moves import at_rest, booting, moved, moved_event, passing, was_drained
from muster.core.clusters.nodes import Seat, seat_ops
from muster.core.clusters.plan import LOOK_AGAIN, plan
from muster.core.clusters.reclaim import notice_event, warned
from muster.core.clusters.records import Records, Turn
from muster.core.clusters.reseat import substitute_ask, substitute_seats, whole_ask, whole_seats
from muster.core.clusters.shorts import Shorts
from muster.core.clusters.snapshot import Snapshot, load_snapshot
from muster.core.clusters.terms import look_again_at
from muster.core.clusters.windows import Windows
from muster.core.clusters.wishes import MEMBER_PHASES, fabric_wish, node_wish, target_of
from muster.core.volumes.wishes import Wished, ended_volume
from muster.errors import DriverError, Never, NeverFits, NoneLeft, OutOfStock, UniqueViolation
from muster.model.accounts import SYSTEM
from muster.model.base import SECOND, Instant, changed
from muster.model.clusters import Cluster, Node
from muster.model.events import Event
from muster.model.hosts import Lease
from muster.model.phases import PROVISIONING, SERVING, STOPPED, NodePhase, Phase
from muster.model.volumes import Attachment, Volume

STOCK_RETRY = 15 * SECOND
DRIVER_RETRY = 2 * SECOND
LOOK_AGAIN_TERM = 20 * SECOND


class ClusterReconciler(Records):
    kind = "cluster"

    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        catalog: CatalogService,
        capacity: Capacity,
        substrate: Substrate,
        orchestrator: Orchestrator,
        purse: Purse = FREE,
        scaling: Scaling = Scaling(),
        notice_ms: Instant = NOTICE,
    ) -> None:
        super().__init__(store)
        self._notice_ms = notice_ms
        self._clock = clock
        self._entropy = entropy
        self._catalog = catalog
        self._capacity = capacity
        self._substrate = substrate
        self._orchestrator = orchestrator
        self._scaling = scaling
        self._growth = Growth(store, entropy, capacity, purse)
        self._windows = Windows(store, clock, entropy, catalog, capacity)
        self._shorts = Shorts(store, capacity)

    async def everything(self) -> list[str]:
        """The living, and whoever the substrate still keeps something for: orphans are swept by the same road."""
        live = [head.key for head in await self._store.heads(Find(Cluster, equals={"gone_at": None}))]
        try:
            kept = [owned.owner for owned in await self._substrate.owned() if owned.kind != "volume"]
        except DriverError:
            kept = []  # a full pass must not fail for a substrate that is away
        return list(dict.fromkeys([*live, *kept]))

    async def reconcile(self, id: str, claim: Claim) -> Outcome:
        cluster = await self._store.get(Cluster, id)
        if cluster is None or cluster.phase is Phase.GONE:
            return await self._sweep_away(id, claim)
        snapshot = await load_snapshot(self._store, await self._catalog.current(), cluster)
        turn = Turn(snapshot, claim, self._clock.now())
        try:
            step = plan(snapshot, await self._look(snapshot), turn.now, self._scaling)
            return await self._perform(step, turn)
        except NoneLeft as error:
            return await self._wait(turn, error.because, turn.now + STOCK_RETRY)
        except Never as error:
            return await self._give_up(turn, error.because)
        except DriverError as error:
            return await self._wait(turn, error.because, turn.now + DRIVER_RETRY)

    async def _look(self, snapshot: Snapshot) -> Sight:
        keys = [snapshot.cluster.id, *(node.id for node in snapshot.nodes)]
        seen = await self._substrate.observe(keys)
        if snapshot.cluster.phase not in SERVING:
            return Sight(seen)
        target = target_of(snapshot.view)
        standing = await self._orchestrator.observe(target)
        grows = snapshot.cluster.spec.autoscale is not None
        return Sight(seen, standing, await self._orchestrator.queue(target) if grows else None)

    @functools.singledispatchmethod
    async def _perform(self, step: object, turn: Turn) -> Outcome:
        raise AssertionError(f"no way to perform {step}")

    # --- only records ---------------------------------------------------------------------------------------------

    @_perform.register
    async def _(self, step: deeds.Move, turn: Turn) -> Outcome:
        cluster, events = passing(turn.cluster, (*step.via, step), turn.now)
        if step.phase is Phase.DELETING and cluster.delete_wished_at is None:
            cluster = msgspec.structs.replace(cluster, delete_wished_at=turn.now, live_name=None)
        if step.phase is Phase.READY and cluster.status.first_ready_at is None:
            cluster = with_status(cluster, first_ready_at=turn.now)
        if step.phase in STOPPED:
            cluster = ungrown(cluster)
        if step.phase in SERVING:
            access = await self._orchestrator.access(target_of(turn.snapshot.view))
            cluster = with_status(cluster, access=access, observed_generation=cluster.status.converged_generation)
        wakes = [Wake("preemption", line, turn.now) for line in (cluster.preemptible_line,) if line]
        await self._record(Step.CLUSTER_MOVE, turn, cluster, ops=wakes, events=events)
        return Advance(step.because)

    @_perform.register
    async def _(self, step: deeds.Note, turn: Turn) -> Outcome:
        after = [booting(moved(move, turn.now), move.node, turn.cluster) for move in step.moves]
        onward = (*step.onward.via, step.onward) if step.onward else ()
        cluster, events = passing(turn.cluster, onward, turn.now)
        cluster = msgspec.structs.replace(cluster, updated_at=turn.now)
        extra = await cordon_dead(self._store, step.moves, turn.now)
        await self._record_nodes(turn, after, cluster=cluster, extra=extra, events=events)
        return Advance(step.moves[0].because)

    @_perform.register
    async def _(self, step: deeds.WaitFor, turn: Turn) -> Outcome:
        return await self._wait(turn, step.because, self._look_by(turn, step.until) or step.until)

    @_perform.register
    async def _(self, step: deeds.Rest, turn: Turn) -> Outcome:
        await self._observed(turn, at_rest(turn.cluster))
        term = look_again_at(turn.cluster, turn.now)
        due = self._look_by(turn, None if term is None else min(term, turn.now + LOOK_AGAIN_TERM))
        return Settled() if due is None else Wait("its term, or its queue", due)

    def _look_by(self, turn: Turn, until: Instant | None) -> Instant | None:
        """Who may grow by itself has its queue looked at, whatever else it waits for."""
        if turn.cluster.spec.autoscale is None or turn.cluster.phase not in SERVING:
            return until
        by = turn.now + self._scaling.look_ms
        return by if until is None else min(until, by)

    @_perform.register
    async def _(self, step: deeds.Grow, turn: Turn) -> Outcome:
        """The wish for more and the seats are one batch; who cannot have them waits and says why."""
        try:
            grown = await self._growth.seated(turn.snapshot.view, step, turn.now)
        except REFUSALS as refusal:
            return await self._hold_back(turn, waits_because(refusal))
        try:
            await self._record(Step.CLUSTER_SCALE, turn, grown.cluster, ops=grown.ops, events=[grown.event])
        except UniqueViolation:
            await self._growth.refused(grown)
        except BaseException:
            self._growth.give_back(grown)
            raise
        return Advance(step.because)

    async def _hold_back(self, turn: Turn, because: str) -> Outcome:
        """It serves as well as before: whatever else is at rest is told to be."""
        quiet = all(node.phase in (NodePhase.RUNNING, NodePhase.LOST) for node in turn.snapshot.nodes)
        cluster = at_rest(turn.cluster) if quiet else turn.cluster
        await self._observed(turn, with_status(cluster, growth_waits=because))
        return Wait(because, turn.now + self._scaling.look_ms)

    @_perform.register
    async def _(self, step: deeds.Shrink, turn: Turn) -> Outcome:
        living = [node.id for node in turn.snapshot.nodes]
        cluster, event = shrunk(turn.cluster, living, step, turn.now)
        await self._record(Step.CLUSTER_SCALE, turn, cluster, events=[event])
        return Advance(step.because)

    # --- effects, each behind an intent that is already written ----------------------------------------------------

    @_perform.register
    async def _(self, step: deeds.EnsureFabric, turn: Turn) -> Outcome:
        await self._ask(step.nodes, turn)
        return Advance("network asked for")

    @_perform.register
    async def _(self, step: deeds.EnsureNodes, turn: Turn) -> Outcome:
        await self._ask(step.nodes, turn)
        return Advance(f"{len(step.nodes)} nodes asked to boot")

    async def _ask(self, nodes: Sequence[Node], turn: Turn) -> None:
        """The rows with their keys and leases are the intent; asking twice is asking once. The fabric is always asked
        for too: a node whose fabric was lost would wait for it in vain."""
        wishes: list[Wish] = [fabric_wish(turn.snapshot), *(node_wish(turn.snapshot.view, node) for node in nodes)]
        await self._substrate.ensure(wishes, turn.fence)
        asked = [NodeMove(node, NodePhase.BOOTING, "asked to boot") for node in nodes]
        pending = [move for move in asked if move.node.phase is NodePhase.PENDING]
        if pending:
            await self._record_nodes(turn, [booted(moved(move, turn.now), turn.cluster.spec) for move in pending])

    @_perform.register
    async def _(self, step: deeds.PowerOff, turn: Turn) -> Outcome:
        view = turn.snapshot.view
        if step.nodes and turn.cluster.phase in (*SERVING, Phase.DRIVERS, Phase.TESTING):
            staying = [node for node in view.nodes if node.phase in MEMBER_PHASES]
            await self._orchestrator.expel(target_of(view, staying), [n.id for n in step.nodes], turn.fence)
        await self._substrate.ensure_absent(step.keys, turn.fence)
        return Advance(f"{len(step.keys)} asked to power off")

    @_perform.register
    async def _(self, step: deeds.Free, turn: Turn) -> Outcome:
        """Only what is off under this very claim is freed: a zombie's late `ensure` is refused from now on."""
        still = await self._still_there([node.id for node in step.nodes], turn)
        off = [node for node in step.nodes if node.id not in still]
        if not off:
            return Advance("not off after all")
        gone = [moved(NodeMove(node, NodePhase.GONE, "powered off"), turn.now) for node in off]
        leases: list[Op] = [Remove(Lease, node.lease_id) for node in off if node.lease_id]
        leases += await self._shorts.freed(turn.cluster, turn.snapshot.view.instance_type, turn.now)
        await self._record_nodes(turn, gone, extra=leases, step=Step.NODES_FREE)
        return Advance(f"{len(gone)} nodes gone")

    @_perform.register
    async def _(self, step: deeds.Drain, turn: Turn) -> Outcome:
        nodes = [node.id for node in step.nodes]
        await self._orchestrator.drain(target_of(turn.snapshot.view), nodes, step.because, turn.fence)
        return Wait(f"{step.nodes[0].name} to finish its work", turn.now + LOOK_AGAIN)

    @_perform.register
    async def _(self, step: deeds.Warn, turn: Turn) -> Outcome:
        """Told before it is written down: a crash in between tells them twice, never not at all."""
        because = "others need its host"
        ids = [node.id for node in step.nodes]
        await self._orchestrator.warn(target_of(turn.snapshot.view), ids, because, turn.fence)
        told = [warned(node, turn.now, self._notice_ms) for node in step.nodes]
        await self._record_nodes(turn, told, events=[notice_event(node, turn.now) for node in told])
        return Advance(because)

    @_perform.register
    async def _(self, step: deeds.Evict, turn: Turn) -> Outcome:
        ids = [node.id for node in step.nodes]
        await self._orchestrator.evict(target_of(turn.snapshot.view), ids, turn.fence)
        return Wait(f"{step.nodes[0].name}'s work to end: its notice is over", turn.now + LOOK_AGAIN)

    @_perform.register
    async def _(self, step: deeds.Converge, turn: Turn) -> Outcome:
        """The fabric and the nodes are asked again too: rules and mounts change in place."""
        view = turn.snapshot.view
        members = [node for node in view.nodes if node.phase in MEMBER_PHASES and node.phase is not NodePhase.LOST]
        wishes: list[Wish] = [fabric_wish(turn.snapshot), *(node_wish(view, node) for node in members)]
        await self._substrate.ensure(wishes, turn.fence)
        progress = await self._orchestrator.converge(target_of(view), turn.fence)
        # a lost node is known to be lost: that it cannot join holds up nobody
        failed = [
            NodeMove(node, NodePhase.FAILED, progress.failed[node.id])
            for node in members
            if node.id in progress.failed
        ]
        if failed:
            await self._record_nodes(turn, [moved(move, turn.now) for move in failed])
            return Advance("a node could not join")
        if not progress.done:
            until = progress.look_again_at or turn.now + LOOK_AGAIN
            return await self._wait(turn, progress.because or step.because, until)
        return await self._converged(turn, members)

    async def _converged(self, turn: Turn, members: Sequence[Node]) -> Outcome:
        back = [node.id for node in members if node.phase is NodePhase.JOINING and was_drained(node)]
        if back:  # a drain outlives the boot that it made room for
            await self._orchestrator.admit(target_of(turn.snapshot.view), back, turn.fence)
        joined = [
            moved(NodeMove(node, NodePhase.RUNNING, "it joined"), turn.now)
            for node in members
            if node.phase is NodePhase.JOINING
        ]
        cluster = with_status(
            turn.cluster, converged_generation=turn.cluster.generation, rules_digest=turn.snapshot.rules_digest
        )
        if cluster.phase is Phase.DRIVERS:
            cluster, events = passing(cluster, [deeds.Move(Phase.TESTING, "drivers and daemons are up")], turn.now)
            await self._record_nodes(turn, joined, cluster=cluster, events=events)
            return Advance("converged")
        if cluster.phase in SERVING:
            access = await self._orchestrator.access(target_of(turn.snapshot.view))
            cluster = with_status(cluster, access=access)
        await self._record_nodes(turn, joined, cluster=changed(cluster, updated_at=turn.now))
        return Advance("converged")

    @_perform.register
    async def _(self, step: deeds.RunTests, turn: Turn) -> Outcome:
        tested = await self._orchestrator.test(target_of(turn.snapshot.view), step.run, turn.fence)
        if not tested.done:
            until = tested.look_again_at or turn.now + LOOK_AGAIN
            return await self._wait(turn, tested.because or "acceptance tests", until)
        cluster = with_status(turn.cluster, tests=tuple(tested.results))
        failing = {result.node_id: result for result in tested.results if not result.passed}
        if failing:
            failed = [
                moved(NodeMove(n, NodePhase.FAILED, f"{failing[n.id].test}: {failing[n.id].detail}"), turn.now)
                for n in turn.snapshot.nodes
                if n.id in failing
            ]
            await self._record_nodes(turn, failed, cluster=changed(cluster, updated_at=turn.now))
            return Advance(f"{len(failed)} nodes failed their tests")
        passed = replace(turn, snapshot=replace(turn.snapshot, view=replace(turn.snapshot.view, cluster=cluster)))
        return await self._perform(deeds.Move(Phase.READY, f"{len(turn.snapshot.nodes)} nodes passed muster"), passed)

    @_perform.register
    async def _(self, step: deeds.Substitute, turn: Turn) -> Outcome:
        """New seats are taken in the same batch in which the broken nodes begin to leave."""
        try:
            placement = await self._capacity.place(substitute_ask(turn.snapshot.view, step.nodes, turn.now))
        except (OutOfStock, NeverFits) as error:
            return await self._short(turn, f"a host to replace {step.nodes[0].name}: {error.message}")
        seats = substitute_seats(self._entropy, turn.snapshot.view, step.nodes, placement, turn.now)
        leaving = [moved(NodeMove(node, NodePhase.LEAVING, node.because), turn.now) for node in step.nodes]
        cluster = with_status(turn.cluster, replacements=turn.cluster.status.replacements + len(seats))
        extra = [*seat_ops(seats), *self._capacity.guard(placement)]
        cluster = changed(cluster, updated_at=turn.now, short_line=None)
        written = self._record_nodes(turn, leaving, cluster=cluster, extra=extra, step=Step.NODES_INTEND)
        await self._take(placement, written)
        return Advance(f"{len(seats)} nodes replaced")

    @_perform.register
    async def _(self, step: deeds.TakeSeats, turn: Turn) -> Outcome:
        """The seats are taken in the same batch in which the cluster sets out again."""
        try:
            ask = whole_ask(turn.cluster, turn.snapshot.view.instance_type, turn.now)
            placement = await self._shorts.place(turn.cluster, ask, await self._catalog.current(), turn.now)
        except (OutOfStock, NeverFits) as error:
            words = f"hosts: {error.message}{await self._windows.estimate(turn.cluster, ask)}"
            return await self._short(turn, words)
        seats = whole_seats(self._entropy, turn.cluster, turn.snapshot.nodes, placement, step.because, turn.now)
        cluster = ungrown(turn.cluster).advance(Phase.NETWORK, because=step.because, at=turn.now)
        cluster = msgspec.structs.replace(cluster, short_line=None)
        events = [moved_event(cluster, turn.now)]
        await self._take(placement, self._record_seats(turn, placement, seats, cluster, events))
        return Advance(step.because)

    @_perform.register
    async def _(self, step: deeds.SeatMore, turn: Turn) -> Outcome:
        cluster, shape = turn.cluster, turn.snapshot.view.instance_type
        ask = whole_ask(cluster, shape, turn.now)._replace(nodes=step.workers, control=0, pool_nodes=0, promised=0)
        try:
            placement = await self._capacity.place(ask)
        except (OutOfStock, NeverFits) as error:
            return await self._short(turn, f"hosts: {error.message}")
        because = "its turn came"
        seats = whole_seats(self._entropy, cluster, turn.snapshot.nodes, placement, because, turn.now)
        cluster = changed(cluster, short_line=None, updated_at=turn.now)
        await self._take(placement, self._record_seats(turn, placement, seats, cluster))
        return Advance(because)

    async def _record_seats(
        self, turn: Turn, placement: Placement, seats: Sequence[Seat], cluster: Cluster, events: Sequence[Event] = ()
    ) -> None:
        ops = [*seat_ops(seats), *self._capacity.guard(placement), *await self._windows.bind_ops(cluster, True)]
        await self._record(Step.NODES_INTEND, turn, cluster, ops=ops, events=events)

    async def _take(self, placement: Placement, written: Awaitable[None]) -> None:
        """Seats, and what they are for, are one batch; refused there, the hosts are read again."""
        try:
            await written
        except UniqueViolation:
            await self._capacity.refused(placement)
        except BaseException:
            self._capacity.give_back(placement)
            raise

    @_perform.register
    async def _(self, step: deeds.Finish, turn: Turn) -> Outcome:
        if await self._still_there([turn.cluster.id], turn):
            return Advance("its network is still there")
        cluster = turn.cluster.advance(Phase.GONE, because="nothing of it is left", at=turn.now)
        cluster = msgspec.structs.replace(cluster, gone_at=turn.now, live_name=None)
        ops = await unbind_addresses(self._store, cluster.id)
        events = [moved_event(cluster, turn.now)]
        for attachment, volume in turn.snapshot.view.mounts:
            ops.append(Remove(Attachment, attachment.id))
            if volume.delete_wished_at is not None:
                ops.append(Wake("volume", volume.id, turn.now))  # it waits for this mount to go
            elif attachment.dies_with_cluster:
                ended = self._end_volume(volume, turn)
                ops += ended.ops()
                events += ended.events
        await self._record(Step.CLUSTER_GONE, turn, cluster, ops=ops, events=events)
        return Gone()

    async def _still_there(self, keys: Sequence[str], turn: Turn) -> dict[str, Seen]:
        await self._substrate.ensure_absent(keys, turn.fence)
        return await self._substrate.observe(keys)

    def _end_volume(self, volume: Volume, turn: Turn) -> Wished:
        """A volume made with its cluster and not meant to outlive it gets the delete wish in the same batch."""
        cause = f"cluster {turn.cluster.id}"
        return ended_volume(volume, request_id=self._entropy.uuid(), actor=SYSTEM, at=turn.now, cause=cause)

    # --- the small print ------------------------------------------------------------------------------------------

    async def _sweep_away(self, id: str, claim: Claim) -> Outcome:
        """The cluster is gone (or was never known): nothing may be left of it on the fleet."""
        keys = [owned.key for owned in await self._substrate.owned() if owned.owner == id and owned.kind != "volume"]
        if not keys:
            return Gone()
        await self._substrate.ensure_absent(keys, Fence(id, claim.token))
        return Wait(f"{len(keys)} orphans to power off", self._clock.now() + LOOK_AGAIN)

    async def _give_up(self, turn: Turn, because: str) -> Outcome:
        if turn.cluster.phase in PROVISIONING:
            return await self._perform(deeds.Move(Phase.FAILED, because), turn)
        return await self._wait(turn, because, turn.now + STOCK_RETRY)

    async def _short(self, turn: Turn, because: str) -> Outcome:
        """No host for its own workers: told once, so that those who have hosts on loan are asked for them."""
        line, until = self._shorts.line_of(turn.cluster, turn.snapshot.view.instance_type), turn.now + STOCK_RETRY
        if line is None or turn.cluster.short_line == line:
            return await self._wait(turn, because, until)
        cluster = with_status(turn.cluster, waiting_for=because, waiting_until=until)
        wake = Wake("preemption", line, turn.now)
        await self._record(Step.CLUSTER_RECORD, turn, changed(cluster, short_line=line), ops=[wake])
        return Wait(because, until)

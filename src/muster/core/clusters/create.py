"""Accepting a new cluster: admission in one order for every dialect, then everything in one batch.

shape of the request -> right -> name -> could it *ever* fit -> quota -> balance -> is it free *now*. The same create
again is the first answer again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec.structs

from muster.contracts.clock import Clock, Entropy
from muster.contracts.issuers import IssuerCheck
from muster.contracts.metering import FREE, Agreement, Purse, Want
from muster.contracts.orchestrator import Orchestrator
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Op, Store, Wake
from muster.core.accounts.audit import audit
from muster.core.accounts.rights import own_project, require_write
from muster.core.capacity.placement import Ask, Placement
from muster.core.capacity.preemption import NOTICE
from muster.core.capacity.refusals import when_free
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import CatalogService
from muster.core.catalog.snapshot import Catalog
from muster.core.clusters import admission
from muster.core.clusters.access import address_region, bind_address, group_ops, public_keys
from muster.core.clusters.commands import CreateCluster
from muster.core.clusters.drawing import More, drawn_by, wants_of
from muster.core.clusters.loans import lending_line
from muster.core.clusters.mounts import mount_ops, mounted_region
from muster.core.clusters.nodes import seat_ops
from muster.core.clusters.requests import new_request
from muster.core.clusters.reseat import whole_ask
from muster.core.clusters.seating import PLACE_TRIES_MAX, Seating
from muster.core.clusters.terms import check_term, duration_ms, reserved_workers, window_end
from muster.core.clusters.windows import NOTHING, Windows, unbound
from muster.core.guarded import guarded, submit
from muster.core.idempotency import REPEAT_WINDOW, Once, digest_of
from muster.core.moments import said_at
from muster.errors import (
    InsufficientBalance,
    Invalid,
    NameTaken,
    NeverFits,
    OutOfStock,
    QuotaExceeded,
    UniqueViolation,
    VersionMismatch,
)
from muster.model.accounts import Actor, Project
from muster.model.base import Instant
from muster.model.billing import PREEMPTIBLE
from muster.model.capacity import Reservation, ReservationKind
from muster.model.catalog import InstanceType
from muster.model.clusters import Billing, Cluster, ClusterSpec, ClusterStatus, Moved, Node, Share
from muster.model.hosts import Lease
from muster.model.phases import Phase

Note: TypeAlias = dict[str, Any]
"""What else the audit log should say of a call: never a secret."""


class Creates:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        catalog: CatalogService,
        capacity: Capacity,
        orchestrator: Orchestrator,
        made: Callable[[Cluster, list[Node], list[Lease]], None],
        issuers: IssuerCheck | None = None,
        purse: Purse = FREE,
        notice_ms: Instant = NOTICE,
    ) -> None:
        self._notice_ms = notice_ms
        self._made = made
        self._purse = purse
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._catalog = catalog
        self._capacity = capacity
        self._orchestrator = orchestrator
        self._issuers = issuers
        self._seating = Seating(store, entropy)
        self._windows = Windows(store, clock, entropy, catalog, capacity)
        self._under_way: dict[tuple[str, str], asyncio.Event | None] = {}  # an event once somebody waits

    async def create(
        self, actor: Actor, command: CreateCluster, once: Once | None = None, note: Note | None = None
    ) -> Cluster:
        """The cluster, accepted; or the first answer again, or a refusal that says why and what would help."""
        return await guarded(lambda: self._create(actor, command, once, note))

    async def _create(self, actor: Actor, command: CreateCluster, once: Once | None, note: Note | None) -> Cluster:
        catalog = await self._catalog.current()
        name = admission.check_name(command.name)
        shape, workers = admission.choose_shape(command, catalog)
        admission.check_preemptible(command.preemptible_gpus, command.type, shape, self._orchestrator)
        self._check_create(command, catalog)
        require_write(actor)
        project = await self._seating.project(own_project(actor, command.project_id))
        if (project.id, name) in self._under_way:
            return await self._after_the_other(project, name, command, once)
        self._under_way[project.id, name] = None
        try:
            return await self._admit(actor, project, name, command, shape, workers, once, note)
        except (NeverFits, QuotaExceeded, InsufficientBalance, OutOfStock, UniqueViolation):
            # The name comes before all of these. Asking only now spares every create that succeeds the question:
            # the unique rules of the store are the last word on names and keys anyway.
            first = await self._first_answer(project, name, command, once)
            if first is None:
                raise
            return first
        except VersionMismatch:
            self._seating.forget(project.id)
            raise
        finally:
            awaited = self._under_way.pop((project.id, name))
            if awaited is not None:
                awaited.set()

    async def _after_the_other(
        self, project: Project, name: str, command: CreateCluster, once: Once | None
    ) -> Cluster:
        """A create of this name is under way in this process: a client that is told nothing yet repeats itself."""
        over = self._under_way[project.id, name] or asyncio.Event()
        self._under_way[project.id, name] = over
        await over.wait()
        first = await self._first_answer(project, name, command, once)
        if first is None:
            raise VersionMismatch("cluster", name)  # the other was refused: decide anew
        return first

    async def _admit(
        self,
        actor: Actor,
        project: Project,
        name: str,
        command: CreateCluster,
        shape: InstanceType,
        workers: int,
        once: Once | None,
        note: Note | None,
    ) -> Cluster:
        catalog = await self._catalog.current()
        wish, drawn = command, None
        if command.quote_id:
            first = await self._first_answer(project, name, command, once)
            if first is not None:
                return first
            drawn, wish = await self._windows.accepted(project, command)
        await admission.check_image(command.type, command.config.slurm_image, self._orchestrator)
        if command.config.oidc is not None and self._issuers is not None:
            await self._issuers.check(command.config.oidc)
        draw = await drawn_by(self._store, project, wish, shape, workers)
        region = draw.region or await self._choose_region(project, wish, shape, catalog)
        ask = Ask(
            region,
            command.gpu_type,
            shape.gpus,
            workers - draw.workers,
            control=0 if command.single_node else 2,
            pool_id=draw.pool_id or "",
            pool_nodes=draw.workers,
        )
        await self._capacity.fits_ever(ask)
        guard = await self._seating.quota_guard(project, workers * shape.gpus)
        spec = await self._spec(project, wish, region, shape, workers, catalog, drawn)
        if draw.pool_id:
            spec = msgspec.structs.replace(spec, pool_id=draw.pool_id, pool_workers=draw.workers)
        await self._purse.require(project, _wants(wish, spec))
        for _ in range(PLACE_TRIES_MAX):
            cluster = await self._try_create(actor, project, name, command, spec, shape, once, guard, note, drawn)
            if cluster is not None:
                return cluster
        raise OutOfStock("others were faster, again and again", hint="ask once more")

    def _check_create(self, command: CreateCluster, catalog: Catalog) -> None:
        if command.region:
            admission.check_region(command.region, catalog)
        admission.check_config(command.config)
        admission.check_mounts(command.mounts)
        check_term(command, self._clock.now())
        admission.check_features(command.type, command.config, self._orchestrator)
        if command.single_node and command.autoscale is not None and command.autoscale.max_gpus:
            raise Invalid("a single node does not grow", field="autoscale")
        if command.single_node and command.preemptible_gpus:
            raise Invalid("a single node has no preemptible workers", field="preemptible_gpus")
        if command.single_node and command.gpus_per_node not in (0, command.gpus):
            raise Invalid("a single node holds all its GPUs itself", field="gpus_per_node")

    async def _first_answer(
        self, project: Project, name: str, command: CreateCluster, once: Once | None
    ) -> Cluster | None:
        """The cluster that this very create made before, if it did; a name taken by another wish is refused."""
        if once is not None:
            known = await once.first_answer(self._store, project.id)
            if known is not None:
                return await self._store.get(Cluster, known)
        live = await self._store.find(Find(Cluster, equals={"project_id": project.id, "live_name": name}))
        if not live:
            return None
        fresh = self._clock.now() - live[0].created_at <= REPEAT_WINDOW
        if fresh and live[0].digest == digest_of(command):
            return live[0]
        raise NameTaken(
            f"there is a cluster named {name}", field="name", hint="choose another name, or delete that one"
        )

    async def _choose_region(
        self, project: Project, command: CreateCluster, shape: InstanceType, catalog: Catalog
    ) -> str:
        """Where the image is, if one was named, or its volumes or its address; else where most of this is free."""
        if command.region:
            return command.region
        if command.image_id:
            return admission.known_image(command.image_id, catalog).region
        tied = await mounted_region(self._store, project, command.mounts)
        tied = tied or await address_region(self._store, project.id, command.reserved_ip_id)
        if tied:
            return tied
        await self._capacity.sync()
        free = self._capacity.regions_by_free(shape.gpu_type, shape.gpus)
        if not free:
            raise Invalid(f"no region has {shape.id}", field="gpu_type", hint="muster capacity")
        return free[0][0]

    async def _spec(
        self,
        project: Project,
        command: CreateCluster,
        region: str,
        shape: InstanceType,
        workers: int,
        catalog: Catalog,
        drawn: Reservation | None,
    ) -> ClusterSpec:
        return ClusterSpec(
            type=command.type,
            region=region,
            gpu_type=command.gpu_type,
            instance_type=shape.id,
            workers=workers,
            preemptible_workers=command.preemptible_gpus // shape.gpus,
            image_id=admission.choose_image(command, region, catalog).id,
            autoscale=admission.check_autoscale(command.autoscale, shape, workers, command.type, self._orchestrator),
            single_node=command.single_node,
            billing=command.billing,
            reserved_workers=reserved_workers(command, shape, workers),
            starts_at=command.starts_at,
            begins_at=await self._windows.begins_at(command.starts_at, drawn),
            ends_at=self._ends_at(command),
            duration_ms=_duration(command),
            failover=command.failover,
            deletion_protection=command.deletion_protection,
            ssh_keys=public_keys(
                await self._seating.saved_keys(project),
                texts=command.ssh_keys,
                ids=command.ssh_key_ids,
                saved=command.use_saved_keys,
            ),
            security_group_ids=command.security_group_ids,
            reserved_ip_id=command.reserved_ip_id,
            acceptance=command.acceptance,
            config=command.config,
        )

    def _ends_at(self, command: CreateCluster) -> Instant | None:
        return window_end(command) if command.lasts_ms is None else self._clock.now() + command.lasts_ms

    async def _try_create(
        self,
        actor: Actor,
        project: Project,
        name: str,
        command: CreateCluster,
        spec: ClusterSpec,
        shape: InstanceType,
        once: Once | None,
        guard: Sequence[Op],
        note: Note | None,
        drawn: Reservation | None,
    ) -> Cluster | None:
        """One attempt; None when another took the same hosts first and it is worth placing anew."""
        now = self._clock.now()
        cluster = self._new_cluster(actor, project, name, command, spec, now)
        if spec.preemptible_workers:
            line = lending_line(self._capacity, spec, shape.gpus)
            cluster = msgspec.structs.replace(cluster, preemptible_line=line)
        window = await self._windows.of_new(actor, project, cluster, shape.gpus, drawn)
        try:
            cluster, placement = await self._placed(cluster, shape, command.queue)
        except BaseException:
            self._windows.lost(window)
            raise
        try:
            ops: list[Op] = [Insert(cluster)]
            seats = self._seating.first_seats(cluster, placement, now)
            ops += seat_ops(seats)
            window = unbound(window) if cluster.phase is Phase.QUEUED else window
            ops += (*self._windows.accepting(window), *self._capacity.guard(placement))
            ops += await self._paid(actor, project, cluster, drawn)
            more, events = await mount_ops(self._store, self._entropy, actor, cluster, command.mounts, now)
            ops += await group_ops(self._store, project.id, spec.security_group_ids)
            ops += (*more, *await bind_address(self._store, project.id, cluster.id, spec.reserved_ip_id, spec.region))
            request = new_request(
                self._entropy.uuid(), "cluster", cluster, "create", generation=1, actor=actor, at=now
            )
            ops += (Insert(request), Wake("cluster", cluster.id, now), *guard)
            ops += [Wake("preemption", line, now) for line in (cluster.short_line,) if line]
            if once is not None:
                ops.append(Insert(once.record(project.id, "cluster", cluster.id, now)))
            message = f"{name}: {spec.workers} x {spec.instance_type} in {spec.region}"
            event = audit(actor, "cluster", "created", cluster, at=now, message=message, data=note)
            numbers = await submit(self._store, Batch(Step.CLUSTER_ACCEPT, ops, [event, *events]))
            if not command.mounts and cluster.id in numbers:
                cluster = msgspec.structs.replace(cluster, number=numbers[cluster.id])
                self._made(cluster, [new.node for new in seats], [new.lease for new in seats])
            return cluster
        except UniqueViolation as refused:
            self._windows.lost(window)
            await self._capacity.refused(placement)
            if refused.rule in ("lease_slot", "calendar_cell"):
                return None
            if refused.rule == "volume_live_name":
                raise NameTaken(
                    "there is a volume of this name", field="mounts", hint="choose another name"
                ) from refused
            raise
        except BaseException:
            self._windows.lost(window)
            self._capacity.give_back(placement)
            raise

    async def _paid(
        self, actor: Actor, project: Project, cluster: Cluster, drawn: Reservation | None
    ) -> Sequence[Op]:
        """A reserved or scheduled cluster is paid for as a whole, at a quote's price if it was drawn from one."""
        spec, now = cluster.spec, cluster.created_at
        paid_for = drawn is not None and drawn.kind is ReservationKind.WINDOW
        if spec.billing is Billing.ON_DEMAND or paid_for:
            return ()
        starts_at = spec.starts_at or now
        agreement = Agreement(
            id=cluster.id,
            resource_id=cluster.id,
            want=Want(spec.instance_type, spec.region, spec.reserved_workers or spec.workers, spec.billing),
            starts_at=starts_at,
            ends_at=spec.ends_at or starts_at + (spec.duration_ms or 0),
            micro=drawn.price_micro if drawn is not None else None,
            memo=f"{spec.billing} {spec.reserved_workers} x {spec.instance_type}: {cluster.name}",
        )
        return await self._purse.agree(project, agreement, actor.name)

    async def _placed(self, cluster: Cluster, shape: InstanceType, queue: bool) -> tuple[Cluster, Placement]:
        """Its hosts; none yet for one whose window is ahead, or that would rather wait than be refused."""
        if cluster.phase is Phase.SCHEDULED:
            return cluster, NOTHING
        ask = whole_ask(cluster, shape, cluster.created_at)
        try:
            self._capacity.require_stock(ask)
            return cluster, await self._capacity.place(ask)
        except OutOfStock as refusal:
            asked_back = self._capacity.reclaimable(ask)
            if not asked_back and (not queue or cluster.spec.billing is not Billing.ON_DEMAND):
                raise
            words = f"{refusal.message}; {when_free(self._capacity.later(ask), ask.at)}"
            if asked_back:
                by = said_at(cluster.created_at + self._notice_ms)
                words = f"{asked_back * shape.gpus} preemptible GPUs are being given back by {by}"
            cluster = in_phase(cluster, Phase.QUEUED, words)
            short = self._capacity.line_for(ask.region, ask.gpu_type, ask.gpus_per_node)
            return msgspec.structs.replace(cluster, short_line=short.id if short else None), NOTHING

    def _new_cluster(
        self, actor: Actor, project: Project, name: str, command: CreateCluster, spec: ClusterSpec, now: Instant
    ) -> Cluster:
        phase = Phase.SCHEDULED if spec.billing is Billing.SCHEDULED else Phase.NETWORK
        because = "accepted"
        return Cluster(
            id=self._entropy.uuid(),
            account_id=project.account_id,
            project_id=project.id,
            name=name,
            live_name=name,
            region=spec.region,
            phase=phase,
            phase_since=now,
            because=because,
            spec=spec,
            status=ClusterStatus(history=(Moved(phase=phase, at=now, because=because),)),
            digest=digest_of(command),
            created_by=actor.member_id or actor.key_id or actor.name,
            created_at=now,
            updated_at=now,
        )


def in_phase(cluster: Cluster, phase: Phase, because: str) -> Cluster:
    """A new cluster that begins in another phase."""
    status = ClusterStatus(history=(Moved(phase=phase, at=cluster.created_at, because=because),))
    return msgspec.structs.replace(cluster, phase=phase, because=because, status=status)


def _duration(command: CreateCluster) -> Instant | None:
    """Of a reserved cluster; a scheduled one has an end instead."""
    if command.billing is not Billing.RESERVED or command.duration_days is None:
        return None
    return duration_ms(command.duration_days)


def _wants(command: CreateCluster, spec: ClusterSpec) -> list[Want]:
    """What is to be paid for: the workers, and the volumes made along with them."""
    volumes = [
        Want("volume", mount.new.region or spec.region, mount.new.size_gib) for mount in command.mounts if mount.new
    ]
    lent = [Want(spec.instance_type, spec.region, spec.preemptible_workers, PREEMPTIBLE)]
    above = max(0, spec.wanted(Share.OWN) - (spec.reserved_workers or 0))
    own = wants_of(spec, More(above, spec.pool_workers), Billing.ON_DEMAND)
    return [*own, *(lent if spec.preemptible_workers else ()), *volumes]

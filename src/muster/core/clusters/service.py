"""The use cases of a cluster: accept a wish, change it, end it. Never meets a driver, except to ask what it can do.

*Laws.* Services write the wish; only the reconciler writes status and phase. A create is one batch: the cluster, its
nodes and leases, its mounts, its request, its event. The same create again is the first answer again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec.structs

from muster.contracts.clock import Clock, Entropy
from muster.contracts.issuers import IssuerCheck
from muster.contracts.metering import FREE, Agreement, Purse, Want
from muster.contracts.orchestrator import Feature, Orchestrator, Target
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Insert, Op, Replace, Store, Wake
from muster.core.accounts.audit import audit
from muster.core.accounts.rights import require_sees, require_write, sees
from muster.core.capacity.placement import Ask
from muster.core.capacity.preemption import NOTICE
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import CatalogService
from muster.core.catalog.snapshot import Catalog
from muster.core.clusters import admission
from muster.core.clusters.access import bind_address, group_ops, public_keys, unbind_address
from muster.core.clusters.boots import restarted, with_boots
from muster.core.clusters.commands import CreateCluster, MountWish, UpdateCluster
from muster.core.clusters.create import Creates, Note
from muster.core.clusters.drawing import More, more_of, wants_of
from muster.core.clusters.explain import Explanation, explain
from muster.core.clusters.loans import loan_fields, loan_wakes, waits_for_lent
from muster.core.clusters.mounts import attach_ops, detach_ops
from muster.core.clusters.nodes import seat_ops
from muster.core.clusters.requests import new_request
from muster.core.clusters.reseat import check_not_below_promise, promised_workers, whole_ask
from muster.core.clusters.seating import PLACE_TRIES_MAX, Seating
from muster.core.clusters.sizes import autoscaled, drawn, lent
from muster.core.clusters.snapshot import ClusterView, load_mounts, load_view
from muster.core.clusters.terms import checked_end, held_until
from muster.core.clusters.views import Views
from muster.core.clusters.windows import Windows
from muster.core.clusters.wishes import target_of
from muster.core.guarded import guarded, require_version, submit
from muster.core.idempotency import Once
from muster.errors import (
    Invalid,
    NameTaken,
    NotFound,
    OutOfStock,
    Protected,
    UniqueViolation,
    WrongPhase,
)
from muster.model.accounts import Actor
from muster.model.base import Instant, changed
from muster.model.clusters import AccessFacts, Billing, Cluster, ClusterSpec, Node, NodeRole, Share
from muster.model.phases import SERVING, NodePhase, Phase

TARGETS_MAX = 1_000
EMPTY: Final[Mapping[str, str]] = MappingProxyType({})

Decide: TypeAlias = Callable[[ClusterView], UpdateCluster]


class ClusterService(Views):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        catalog: CatalogService,
        capacity: Capacity,
        orchestrator: Orchestrator,
        issuers: IssuerCheck | None = None,
        purse: Purse = FREE,
        notice_ms: Instant = NOTICE,
    ) -> None:
        super().__init__(store, catalog)
        self._clock = clock
        self._entropy = entropy
        self._capacity = capacity
        self._purse = purse
        self._creates = Creates(
            store, clock, entropy, catalog, capacity, orchestrator, self.just_made, issuers, purse, notice_ms
        )
        self._seating = Seating(store, entropy)
        self._windows = Windows(store, clock, entropy, catalog, capacity)
        self._orchestrator = orchestrator
        self._targets: dict[str, tuple[int, Target | None]] = {}

    async def create(
        self, actor: Actor, command: CreateCluster, once: Once | None = None, note: Note | None = None
    ) -> Cluster:
        return await self._creates.create(actor, command, once, note)

    # --- change ---------------------------------------------------------------------------------------------------

    async def update(
        self,
        actor: Actor,
        id: str,
        command: UpdateCluster,
        *,
        if_version: int | None = None,
        note: Note | None = None,
    ) -> Cluster:
        return await self.change(actor, id, lambda _: command, if_version=if_version, note=note)

    async def change(
        self, actor: Actor, id: str, decide: Decide, *, if_version: int | None = None, note: Note | None = None
    ) -> Cluster:
        """An update that depends on how the cluster is ("two more"); decided anew when somebody was quicker."""
        return await guarded(lambda: self._update(actor, id, decide, if_version, note))

    async def _update(
        self, actor: Actor, id: str, decide: Decide, if_version: int | None, note: Note | None
    ) -> Cluster:
        cluster = await self._mine(actor, id, if_version)
        view = await load_view(self._store, await self._catalog.current(), cluster)
        command = decide(view)
        spec, workers = await self._next_spec(view, command)
        loan = await loan_fields(self._capacity, self._purse, self._seating, view, spec)
        renamed = _renamed(cluster, command.name) | loan
        if spec == cluster.spec and not renamed:
            return cluster
        more = more_of(cluster.spec, spec)
        operation = "update" if workers == cluster.spec.workers else "resize"
        if more.any:
            return await self._grow(actor, view, spec, more, note, renamed)
        groups = await group_ops(self._store, cluster.project_id, command.security_group_ids or ())
        try:
            ops = [*groups, *await self._windows.moved_ops(cluster, spec)]
            ops += await self._extension(actor, cluster, spec)
            return await self._wish(actor, cluster, operation, spec=spec, ops=ops, note=note, **renamed)
        except UniqueViolation as taken:
            if taken.rule == "calendar_cell":
                raise OutOfStock("others were faster", hint="ask once more") from taken
            raise NameTaken(f"there is a cluster named {command.name}", field="name") from taken

    async def _extension(self, actor: Actor, cluster: Cluster, spec: ClusterSpec) -> Sequence[Op]:
        """A longer term is another contract, from the old end to the new one; a shorter one gives nothing back."""
        until, paid = spec.ends_at, cluster.ends_at
        if spec.billing is Billing.ON_DEMAND or until is None or paid is None or until <= paid:
            return ()
        agreement = Agreement(
            id=f"{cluster.id}.{cluster.generation + 1}",
            resource_id=cluster.id,
            want=Want(spec.instance_type, spec.region, spec.reserved_workers or spec.workers, spec.billing),
            starts_at=paid,
            ends_at=until,
            memo=f"{cluster.name}, extended",
        )
        return await self._purse.agree(await self._seating.project(cluster.project_id), agreement, actor.name)

    async def _next_spec(self, view: ClusterView, command: UpdateCluster) -> tuple[ClusterSpec, int]:
        cluster, workers = view.cluster, view.cluster.spec.workers
        if command.gpus is not None and view.instance_type is not None:
            workers = admission.check_gpus(command.gpus, view.instance_type)
        if workers != cluster.spec.workers and command.name not in (None, cluster.name):
            raise Invalid(
                "a new name and a new size are two wishes", field="name", hint="ask for one, then the other"
            )
        if workers > cluster.spec.workers and command.ends_at not in (None, cluster.ends_at):
            raise Invalid(
                "another end and more nodes are two wishes", field="ends_at", hint="ask for one, then the other"
            )
        check_not_below_promise(cluster.spec, workers)
        if workers != cluster.spec.workers and cluster.phase not in SERVING:
            raise WrongPhase(f"a cluster that is {cluster.phase} cannot be resized", hint="wait until it is ready")
        if command.config is not None:
            admission.check_config(command.config)
            admission.check_features(cluster.spec.type, command.config, self._orchestrator)
            if command.config.slurm_image != cluster.spec.config.slurm_image:
                await admission.check_image(cluster.spec.type, command.config.slurm_image, self._orchestrator)
        changes: dict[str, Any] = {
            "workers": workers,
            "pool_workers": drawn(view, command, workers),
            "leave_first": command.leave_first,
            "config": command.config,
            "failover": command.failover,
            "deletion_protection": command.deletion_protection,
            "security_group_ids": command.security_group_ids,
            "ends_at": checked_end(command.ends_at, self._clock.now()),
        }
        if command.preemptible_gpus is not None and view.instance_type is not None:
            changes |= lent(cluster.spec, command.preemptible_gpus, view.instance_type, self._orchestrator)
        if command.force:
            changes["force"] = True
        if command.ssh_keys is not None:
            changes["ssh_keys"] = public_keys((), texts=command.ssh_keys, ids=(), saved=False)
        if command.image_id is not None:
            changes["image_id"] = self._image_in(cluster.region, command.image_id, await self._catalog.current())
        spec = msgspec.structs.replace(cluster.spec, **{k: v for k, v in changes.items() if v is not None})
        return with_boots(cluster.spec, autoscaled(view, command, spec, self._orchestrator)), workers

    def _image_in(self, region: str, image_id: str, catalog: Catalog) -> str:
        image = catalog.images.get(image_id)
        if image is None or image.region != region:
            raise Invalid(f"there is no image {image_id} in {region}", field="image_id")
        return image.id

    async def _grow(
        self,
        actor: Actor,
        view: ClusterView,
        spec: ClusterSpec,
        more: More,
        note: Note | None,
        fields: dict[str, str],
    ) -> Cluster:
        gpus = view.instance_type.gpus if view.instance_type else admission.WHOLE_HOST_GPUS
        ask = Ask(
            spec.region,
            spec.gpu_type,
            gpus,
            more.own,
            at=self._clock.now(),
            ends_at=held_until(view.cluster),
            pool_id=spec.pool_id or "",
            pool_nodes=more.pooled,
        )
        await self._capacity.fits_ever(ask)
        guard = await self._admitted(view.cluster, spec, more, gpus)
        return await self._seat_and_wish(actor, view, ask, "resize", spec=spec, guard=guard, note=note, fields=fields)

    async def _admitted(self, cluster: Cluster, spec: ClusterSpec, more: More, gpus: int) -> list[Op]:
        """Quota, then balance, for so many more workers; what guards them in the batch."""
        project = await self._seating.project(cluster.project_id)
        guard = await self._seating.quota_guard(project, (more.own + more.pooled) * gpus)
        above = max(0, spec.wanted(Share.OWN) - promised_workers(spec))
        await self._purse.require(project, wants_of(spec, More(min(more.own, above), more.pooled), Billing.ON_DEMAND))
        return guard

    async def _seat_and_wish(
        self,
        actor: Actor,
        view: ClusterView,
        ask: Ask,
        operation: str,
        *,
        spec: ClusterSpec,
        guard: Sequence[Op] = (),
        note: Note | None = None,
        fields: Mapping[str, str] = EMPTY,
    ) -> Cluster:
        """Change the wish and take the seats it needs, in one batch."""
        for _ in range(PLACE_TRIES_MAX):
            try:
                self._capacity.require_stock(ask)
                placement = await self._capacity.place(ask)
            except OutOfStock:
                waits = waits_for_lent(self._capacity, ask)
                if waits is None:
                    raise
                told = {**fields, "short_line": waits}
                return await self._wish(actor, view.cluster, operation, spec=spec, ops=guard, note=note, **told)
            now = self._clock.now()
            seats = self._seating.more_seats(view.cluster, view.nodes, placement, now)
            ops = seat_ops(seats)
            try:
                ops += [*self._capacity.guard(placement), *guard]
                if ask.promised:
                    ops += await self._windows.bind_ops(view.cluster, True)
                return await self._wish(actor, view.cluster, operation, spec=spec, ops=ops, note=note, **fields)
            except UniqueViolation:
                await self._capacity.refused(placement)
            except BaseException:
                self._capacity.give_back(placement)
                self._seating.forget(view.cluster.project_id)
                raise
        raise OutOfStock("others were faster, again and again", hint="ask once more")

    async def pause(self, actor: Actor, id: str, *, if_version: int | None = None) -> Cluster:
        return await guarded(lambda: self._pause(actor, id, if_version))

    async def _pause(self, actor: Actor, id: str, if_version: int | None) -> Cluster:
        cluster = await self._mine(actor, id, if_version)
        if cluster.spec.paused:
            return cluster
        if cluster.phase not in SERVING:
            raise WrongPhase(f"a cluster that is {cluster.phase} cannot be paused", hint="wait until it is ready")
        features = self._orchestrator.features(cluster.spec.type) or frozenset()
        if Feature.PAUSE not in features:
            raise WrongPhase("this fleet cannot pause clusters", hint="delete it; its volumes stay")
        ops = await self._windows.bind_ops(cluster, False)
        spec = msgspec.structs.replace(cluster.spec, paused=True)
        return await self._wish(actor, cluster, "pause", spec=spec, ops=ops)

    async def resume(self, actor: Actor, id: str, *, if_version: int | None = None) -> Cluster:
        return await guarded(lambda: self._resume(actor, id, if_version))

    async def _resume(self, actor: Actor, id: str, if_version: int | None) -> Cluster:
        """The compute was released, so resuming is admitted like a create: it may be out of stock."""
        cluster = await self._mine(actor, id, if_version)
        if not cluster.spec.paused:
            return cluster
        view = await load_view(self._store, await self._catalog.current(), cluster)
        if cluster.phase is not Phase.PAUSED or view.nodes:
            raise WrongPhase("it is still being paused", hint="wait until its nodes are off")
        spec = msgspec.structs.replace(cluster.spec, paused=False)
        gpus = view.instance_type.gpus if view.instance_type else admission.WHOLE_HOST_GPUS
        guard = await self._admitted(cluster, spec, More(spec.workers - spec.pool_workers, spec.pool_workers), gpus)
        ask = whole_ask(cluster, view.instance_type, self._clock.now())
        try:
            return await self._seat_and_wish(actor, view, ask, "resume", spec=spec, guard=guard)
        except OutOfStock:
            if not 0 < ask.promised < ask.nodes:
                raise
        # What is above its reservation is not free now; that holds up nothing of what was promised.
        spec = msgspec.structs.replace(spec, workers=ask.promised)
        ask = ask._replace(nodes=ask.promised)
        return await self._seat_and_wish(actor, view, ask, "resume", spec=spec, guard=guard)

    async def restart(
        self, actor: Actor, id: str, roles: Collection[NodeRole], *, if_version: int | None = None
    ) -> Cluster:
        """Boot these nodes anew in place; what runs on them is cut short."""
        return await guarded(lambda: self._restart(actor, id, roles, if_version))

    async def _restart(self, actor: Actor, id: str, roles: Collection[NodeRole], if_version: int | None) -> Cluster:
        cluster = await self._mine(actor, id, if_version)
        if cluster.phase not in SERVING:
            raise WrongPhase(f"a cluster that is {cluster.phase} cannot be restarted", hint="wait until it is ready")
        return await self._wish(actor, cluster, "restart", spec=restarted(cluster.spec, roles))

    async def attach_ip(self, actor: Actor, id: str, ip_id: str) -> Cluster:
        """The reserved address leads to this cluster's login node from now on."""
        return await guarded(lambda: self._attach_ip(actor, id, ip_id))

    async def _attach_ip(self, actor: Actor, id: str, ip_id: str) -> Cluster:
        cluster = await self._mine(actor, id, None)
        if cluster.spec.reserved_ip_id == ip_id:
            return cluster
        ops = await bind_address(self._store, cluster.project_id, cluster.id, ip_id, cluster.region)
        if cluster.spec.reserved_ip_id is not None:
            raise Protected(
                f"cluster {cluster.name} has a reserved address already",
                field="reserved_ip_id",
                hint="take that one off first",
            )
        spec = msgspec.structs.replace(cluster.spec, reserved_ip_id=ip_id)
        return await self._wish(actor, cluster, "attach_ip", spec=spec, ops=ops)

    async def detach_ip(self, actor: Actor, id: str, ip_id: str) -> Cluster:
        return await guarded(lambda: self._detach_ip(actor, id, ip_id))

    async def _detach_ip(self, actor: Actor, id: str, ip_id: str) -> Cluster:
        cluster = await self._mine(actor, id, None)
        ops = await unbind_address(self._store, cluster, ip_id)
        spec = msgspec.structs.replace(cluster.spec, reserved_ip_id=None)
        return await self._wish(actor, cluster, "detach_ip", spec=spec, ops=ops)

    async def attach(self, actor: Actor, id: str, mount: MountWish) -> Cluster:
        return await guarded(lambda: self._attach(actor, id, mount))

    async def _attach(self, actor: Actor, id: str, mount: MountWish) -> Cluster:
        cluster = await self._mine(actor, id, None)
        admission.check_mounts([mount])
        if cluster.phase is Phase.FAILED:
            raise WrongPhase("a failed cluster mounts nothing", hint="delete it")
        if mount.volume_id and mount.volume_id in {
            m.volume_id for m, _ in await load_mounts(self._store, cluster.id)
        }:
            return cluster
        ops, _ = await attach_ops(self._store, self._entropy, actor, cluster, mount, self._clock.now())
        try:
            return await self._wish(actor, cluster, "attach", spec=cluster.spec, ops=ops)
        except UniqueViolation as taken:
            raise NameTaken("something is mounted there, or has that name", field="path") from taken

    async def detach(self, actor: Actor, id: str, volume_id: str) -> Cluster:
        return await guarded(lambda: self._detach(actor, id, volume_id))

    async def _detach(self, actor: Actor, id: str, volume_id: str) -> Cluster:
        cluster = await self._mine(actor, id, None)
        ops = await detach_ops(self._store, cluster, volume_id)
        return await self._wish(actor, cluster, "detach", spec=cluster.spec, ops=ops)

    async def delete(self, actor: Actor, id: str, *, if_version: int | None = None, force: bool = False) -> Cluster:
        return await guarded(lambda: self._delete(actor, id, if_version, force))

    async def _delete(self, actor: Actor, id: str, if_version: int | None, force: bool) -> Cluster:
        cluster = await self._visible(actor, id)
        require_write(actor)
        if cluster.delete_wished_at is not None:
            return cluster
        require_version(cluster, if_version)
        if cluster.spec.deletion_protection:
            raise Protected(
                f"cluster {cluster.name} is protected from deletion", hint="set deletion_protection to false first"
            )
        now = self._clock.now()
        spec = msgspec.structs.replace(cluster.spec, force=force or cluster.spec.force)
        ops = await self._windows.end_ops(cluster)
        return await self._wish(actor, cluster, "delete", spec=spec, ops=ops, delete_wished_at=now, live_name=None)

    async def _wish(
        self,
        actor: Actor,
        cluster: Cluster,
        operation: str,
        *,
        spec: ClusterSpec,
        ops: Sequence[Op] = (),
        note: Note | None = None,
        **fields: Any,
    ) -> Cluster:
        """Write the changed wish: generation raised, a request to poll, the engine woken, the audit line."""
        now = self._clock.now()
        wished = changed(cluster, spec=spec, generation=cluster.generation + 1, updated_at=now, **fields)
        request = new_request(
            self._entropy.uuid(), "cluster", wished, operation, generation=wished.generation, actor=actor, at=now
        )
        message = f"{operation} {cluster.name}"
        event = audit(actor, "cluster", f"{operation}_wished", wished, at=now, message=message, data=note)
        wakes = [Wake("cluster", cluster.id, now), *loan_wakes(wished, cluster, now)]
        batch = [Replace(wished), *ops, Insert(request), *wakes]
        try:
            await submit(self._store, Batch(Step.CLUSTER_WISH, batch, [event]))
        except BaseException:
            self._windows.doubt(cluster)
            raise
        return wished

    # --- read -----------------------------------------------------------------------------------------------------

    async def cluster(self, actor: Actor, id: str) -> Cluster:
        return await self._visible(actor, id)

    async def view(self, actor: Actor, id: str) -> ClusterView:
        cluster = await self._visible(actor, id)
        return await load_view(self._store, await self._catalog.current(), cluster)

    async def view_of_node(self, actor: Actor, node_id: str) -> ClusterView:
        """The cluster that this live node belongs to."""
        node = await self._store.get(Node, node_id)
        if node is None or node.phase is NodePhase.GONE or not sees(actor, node.project_id):
            raise NotFound(f"there is no instance {node_id}")
        return await self.view(actor, node.cluster_id)

    async def explain(self, actor: Actor, id: str) -> Explanation:
        view = await self.view(actor, id)
        steps = await self._store.events(after=0, limit=20, resource_id=id, newest_first=True)
        return explain(view, steps, self._clock.now())

    async def access(self, actor: Actor, id: str) -> AccessFacts:
        return (await self._visible(actor, id)).status.access

    async def kubeconfig(self, actor: Actor, id: str) -> str:
        """Made anew each time: a secret is kept nowhere. What it is made from is no secret, and kept by version."""
        head = await self._store.head(Cluster, id)
        if head is None:
            raise NotFound(f"there is no cluster {id}")
        require_sees(actor, head.project_id, "cluster", id)
        kept = self._targets.get(id)
        if kept is None or kept[0] != head.version:
            kept = await self._keep_target(id)
        return "" if kept[1] is None else await self._orchestrator.kubeconfig(kept[1])

    async def _keep_target(self, id: str) -> tuple[int, Target | None]:
        view = await load_view(self._store, await self._catalog.current(), await self._load(id))
        target = target_of(view) if view.cluster.phase in SERVING else None
        self._targets.pop(id, None)
        self._targets[id] = (view.cluster.version, target)
        if len(self._targets) > TARGETS_MAX:
            self._targets.pop(next(iter(self._targets)))
        return self._targets[id]

    async def _load(self, id: str) -> Cluster:
        cluster = await self._store.get(Cluster, id)
        if cluster is None or cluster.phase is Phase.GONE:
            raise NotFound(f"there is no cluster {id}")
        return cluster

    async def _visible(self, actor: Actor, id: str) -> Cluster:
        cluster = await self._load(id)
        require_sees(actor, cluster.project_id, "cluster", id)
        return cluster

    async def _mine(self, actor: Actor, id: str, if_version: int | None) -> Cluster:
        """A cluster that this actor may change, and that is not on its way out."""
        cluster = await self._visible(actor, id)
        require_write(actor)
        require_version(cluster, if_version)
        if cluster.delete_wished_at is not None:
            raise WrongPhase(f"cluster {cluster.name} is being deleted")
        return cluster


def _renamed(cluster: Cluster, name: str | None) -> dict[str, str]:
    """The fields behind a new name; none when it stays as it is."""
    if name is None or admission.check_name(name) == cluster.name:
        return {}
    checked = admission.check_name(name)
    return {"name": checked, "live_name": checked}

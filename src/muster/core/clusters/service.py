"""The use cases of a cluster: accept a wish, change it, end it. Never meets a driver, except to ask what it can do.

*Laws.* Services write the wish; only the reconciler writes status and phase. A create is one batch: the cluster, its
nodes and leases, its mounts, its request, its event. The same create again is the first answer again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec.structs

from muster.contracts.clock import Clock, Entropy
from muster.contracts.orchestrator import Feature, Orchestrator
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Op, Replace, Store, Wake
from muster.core.accounts.audit import audit
from muster.core.accounts.rights import own_project, require_sees, require_write
from muster.core.capacity.placement import Ask, Grant, Placement
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import Catalog, CatalogService
from muster.core.clusters import admission
from muster.core.clusters.access import bind_address, check_groups, public_keys
from muster.core.clusters.commands import CreateCluster, MountWish, UpdateCluster
from muster.core.clusters.explain import Explanation, explain
from muster.core.clusters.mounts import attach_ops, detach_ops, mount_ops
from muster.core.clusters.nodes import Seat, free_ordinals, seat
from muster.core.clusters.requests import new_request
from muster.core.clusters.snapshot import ClusterView, load_view
from muster.core.clusters.views import Views
from muster.core.clusters.wishes import target_of
from muster.core.guarded import guarded, require_version, submit
from muster.core.idempotency import REPEAT_WINDOW, Once, digest_of
from muster.errors import (
    Invalid,
    NameTaken,
    NotFound,
    OutOfStock,
    Protected,
    QuotaExceeded,
    UniqueViolation,
    WrongPhase,
)
from muster.model.accounts import Actor, Project
from muster.model.base import Instant, changed
from muster.model.catalog import InstanceType
from muster.model.clusters import AccessFacts, Cluster, ClusterSpec, ClusterStatus, Moved, Node, NodeRole
from muster.model.hosts import Lease
from muster.model.phases import SERVING, Phase

PLACE_TRIES_MAX = 8
"""How often a refused grant is placed anew before the caller is told that others were faster."""


class ClusterService(Views):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        catalog: CatalogService,
        capacity: Capacity,
        orchestrator: Orchestrator,
    ) -> None:
        super().__init__(store, catalog)
        self._clock = clock
        self._entropy = entropy
        self._capacity = capacity
        self._orchestrator = orchestrator

    # --- create ---------------------------------------------------------------------------------------------------

    async def create(self, actor: Actor, command: CreateCluster, once: Once | None = None) -> Cluster:
        return await guarded(lambda: self._create(actor, command, once))

    async def _create(self, actor: Actor, command: CreateCluster, once: Once | None) -> Cluster:
        catalog = await self._catalog.current()
        name = admission.check_name(command.name)
        shape, workers = admission.choose_shape(command, catalog)
        self._check_create(command, catalog)
        require_write(actor)
        project = await self._project(own_project(actor, command.project_id))
        first = await self._first_answer(project, name, command, once)
        if first is not None:
            return first
        region = self._choose_region(command, shape, workers, catalog)
        ask = Ask(region, command.gpu_type, shape.gpus, workers, control=0 if command.single_node else 2)
        self._capacity.fits_ever(ask)
        guard = await self._check_quota(project, workers * shape.gpus)
        spec = await self._spec(project, command, region, shape, workers, catalog)
        for _ in range(PLACE_TRIES_MAX):
            cluster = await self._try_create(actor, project, name, command, spec, ask, once, guard)
            if cluster is not None:
                return cluster
        raise OutOfStock("others were faster, again and again", hint="ask once more")

    def _check_create(self, command: CreateCluster, catalog: Catalog) -> None:
        if command.region:
            admission.check_region(command.region, catalog)
        admission.check_config(command.config)
        admission.check_mounts(command.mounts)
        admission.check_term(command.billing, command.ends_at, self._clock.now())
        admission.check_features(command.type, command.config, self._orchestrator)
        if command.single_node and command.gpus_per_node not in (0, command.gpus):
            raise Invalid("a single node holds all its GPUs itself", field="gpus_per_node")

    async def _first_answer(
        self, project: Project, name: str, command: CreateCluster, once: Once | None
    ) -> Cluster | None:
        """The cluster that this very create made before, if it did; a name taken by another wish is refused."""
        if once is not None:
            known = await once.first_answer(self._store, project.id)
            if known is not None:
                return await self._load(known)
        live = await self._store.find(Find(Cluster, equals={"project_id": project.id, "live_name": name}))
        if not live:
            return None
        fresh = self._clock.now() - live[0].created_at <= REPEAT_WINDOW
        if fresh and live[0].digest == digest_of(command):
            return live[0]
        raise NameTaken(
            f"there is a cluster named {name}", field="name", hint="choose another name, or delete that one"
        )

    def _choose_region(self, command: CreateCluster, shape: InstanceType, workers: int, catalog: Catalog) -> str:
        """Where the image is, if one was named; else where most of this shape is free."""
        if command.region:
            return command.region
        if command.image_id:
            return admission.choose_image(
                command,
                catalog.images[command.image_id].region if command.image_id in catalog.images else "",
                catalog,
            ).region
        free = [
            (row.free_nodes, row.region)
            for row in self._capacity.summary()
            if row.gpu_type == shape.gpu_type and row.gpus_per_node == shape.gpus
        ]
        if not free:
            raise Invalid(f"no region has {shape.id}", field="gpu_type", hint="muster capacity")
        return max(free, key=lambda row: (row[0], row[1]))[1]

    async def _check_quota(self, project: Project, gpus: int) -> list[Op]:
        """The guard that makes the quota true under concurrent creates: only projects with a quota pay for it."""
        if project.gpu_quota is None:
            return []
        leases = await self._store.find(Find(Lease, equals={"project_id": project.id}))
        controls = await self._control_lease_ids(project.id)
        held = sum(lease.slots.bit_count() for lease in leases if lease.id not in controls)
        if held + gpus > project.gpu_quota:
            raise QuotaExceeded(
                f"project {project.name} may hold {project.gpu_quota} GPUs: {held} are held, {gpus} more were asked",
                field="gpus",
                hint="ask for fewer, delete a cluster, or have the operator raise the quota",
                details={"quota": project.gpu_quota, "held": held, "asked": gpus, "left": project.gpu_quota - held},
            )
        return [Replace(changed(project))]

    async def _control_lease_ids(self, project_id: str) -> set[str]:
        nodes = await self._store.find(Find(Node, equals={"project_id": project_id, "gone_at": None}))
        return {node.lease_id for node in nodes if node.lease_id and node.role is not NodeRole.WORKER}

    async def _spec(
        self,
        project: Project,
        command: CreateCluster,
        region: str,
        shape: InstanceType,
        workers: int,
        catalog: Catalog,
    ) -> ClusterSpec:
        await check_groups(self._store, project.id, command.security_group_ids)
        return ClusterSpec(
            type=command.type,
            region=region,
            gpu_type=command.gpu_type,
            instance_type=shape.id,
            workers=workers,
            image_id=admission.choose_image(command, region, catalog).id,
            single_node=command.single_node,
            billing=command.billing,
            ends_at=command.ends_at,
            failover=command.failover,
            deletion_protection=command.deletion_protection,
            ssh_keys=await public_keys(
                self._store, project.id, texts=command.ssh_keys, ids=command.ssh_key_ids, saved=command.use_saved_keys
            ),
            security_group_ids=command.security_group_ids,
            reserved_ip_id=command.reserved_ip_id,
            acceptance=command.acceptance,
            config=command.config,
        )

    async def _try_create(
        self,
        actor: Actor,
        project: Project,
        name: str,
        command: CreateCluster,
        spec: ClusterSpec,
        ask: Ask,
        once: Once | None,
        guard: Sequence[Op],
    ) -> Cluster | None:
        """One attempt; None when another took the same hosts first and it is worth placing anew."""
        placement = await self._capacity.place(ask)
        now = self._clock.now()
        cluster = self._new_cluster(actor, project, name, command, spec, now)
        try:
            ops: list[Op] = [Insert(cluster)]
            for new in self._first_seats(cluster, placement, now):
                ops += (Insert(new.node), Insert(new.lease))
            more, events = await mount_ops(self._store, self._entropy, actor, cluster, command.mounts, now)
            ops += (*more, *await bind_address(self._store, project.id, cluster.id, spec.reserved_ip_id))
            request = new_request(
                self._entropy.uuid(), "cluster", cluster, "create", generation=1, actor=actor, at=now
            )
            ops += (Insert(request), Wake("cluster", cluster.id, now), *guard)
            if once is not None:
                ops.append(Insert(once.record(project.id, "cluster", cluster.id, now)))
            message = f"{name}: {ask.nodes} x {spec.instance_type} in {spec.region}"
            event = audit(actor, "cluster", "created", cluster, at=now, message=message)
            await submit(self._store, Batch(Step.CLUSTER_ACCEPT, ops, [event, *events]))
            return cluster
        except UniqueViolation as refused:
            await self._capacity.refused(placement)
            if refused.rule == "lease_slot":
                return None
            return await self._lost_race(refused, project, name, command, once)
        except BaseException:
            self._capacity.give_back(placement)
            raise

    async def _lost_race(
        self, refused: UniqueViolation, project: Project, name: str, command: CreateCluster, once: Once | None
    ) -> Cluster | None:
        if refused.rule == "volume_live_name":
            raise NameTaken("there is a volume of this name", field="mounts", hint="choose another name") from refused
        return await self._first_answer(project, name, command, once)

    def _new_cluster(
        self, actor: Actor, project: Project, name: str, command: CreateCluster, spec: ClusterSpec, now: Instant
    ) -> Cluster:
        because = "accepted"
        return Cluster(
            id=self._entropy.uuid(),
            account_id=project.account_id,
            project_id=project.id,
            name=name,
            live_name=name,
            region=spec.region,
            phase=Phase.NETWORK,
            phase_since=now,
            because=because,
            spec=spec,
            status=ClusterStatus(history=(Moved(phase=Phase.NETWORK, at=now, because=because),)),
            digest=digest_of(command),
            created_by=actor.member_id or actor.key_id or actor.name,
            created_at=now,
            updated_at=now,
        )

    def _first_seats(self, cluster: Cluster, placement: Placement, now: Instant) -> list[Seat]:
        control = (NodeRole.CONTROLLER, NodeRole.LOGIN)
        seats = [
            self._seat(cluster, role, 0, grant, now) for role, grant in zip(control, placement.control, strict=False)
        ]
        seats += [self._seat(cluster, NodeRole.WORKER, i, grant, now) for i, grant in enumerate(placement.workers)]
        return seats

    def _seat(self, cluster: Cluster, role: NodeRole, ordinal: int, grant: Grant, now: Instant) -> Seat:
        return seat(
            self._entropy,
            cluster_id=cluster.id,
            project_id=cluster.project_id,
            role=role,
            ordinal=ordinal,
            grant=grant,
            because="accepted",
            at=now,
        )

    # --- change ---------------------------------------------------------------------------------------------------

    async def update(
        self, actor: Actor, id: str, command: UpdateCluster, *, if_version: int | None = None
    ) -> Cluster:
        cluster = await self._mine(actor, id, if_version)
        view = await load_view(self._store, await self._catalog.current(), cluster)
        spec, workers = await self._next_spec(view, command)
        if spec == cluster.spec:
            return cluster
        growth = max(0, workers - cluster.spec.workers)
        operation = "update" if workers == cluster.spec.workers else "resize"
        if growth:
            return await self._grow(actor, view, spec, growth)
        return await self._wish(actor, cluster, operation, spec=spec)

    async def _next_spec(self, view: ClusterView, command: UpdateCluster) -> tuple[ClusterSpec, int]:
        cluster, workers = view.cluster, view.cluster.spec.workers
        if command.gpus is not None and view.instance_type is not None:
            workers = admission.check_gpus(command.gpus, view.instance_type)
        if workers != cluster.spec.workers and cluster.phase not in SERVING:
            raise WrongPhase(f"a cluster that is {cluster.phase} cannot be resized", hint="wait until it is ready")
        if command.config is not None:
            admission.check_config(command.config)
            admission.check_features(cluster.spec.type, command.config, self._orchestrator)
        if command.security_group_ids is not None:
            await check_groups(self._store, cluster.project_id, command.security_group_ids)
        changes: dict[str, Any] = {
            "workers": workers,
            "leave_first": command.leave_first,
            "config": command.config,
            "failover": command.failover,
            "deletion_protection": command.deletion_protection,
            "security_group_ids": command.security_group_ids,
            "ends_at": command.ends_at,
        }
        if command.force:
            changes["force"] = True
        if command.ssh_keys is not None:
            changes["ssh_keys"] = await public_keys(
                self._store, cluster.project_id, texts=command.ssh_keys, ids=(), saved=False
            )
        if command.image_id is not None:
            changes["image_id"] = self._image_in(cluster.region, command.image_id, await self._catalog.current())
        return msgspec.structs.replace(cluster.spec, **{k: v for k, v in changes.items() if v is not None}), workers

    def _image_in(self, region: str, image_id: str, catalog: Catalog) -> str:
        image = catalog.images.get(image_id)
        if image is None or image.region != region:
            raise Invalid(f"there is no image {image_id} in {region}", field="image_id")
        return image.id

    async def _grow(self, actor: Actor, view: ClusterView, spec: ClusterSpec, growth: int) -> Cluster:
        gpus = view.instance_type.gpus if view.instance_type else admission.WHOLE_HOST_GPUS
        ask = Ask(spec.region, spec.gpu_type, gpus, growth)
        self._capacity.fits_ever(ask)
        guard = await self._check_quota(await self._project(view.cluster.project_id), growth * gpus)
        return await self._seat_and_wish(actor, view, ask, "resize", spec=spec, guard=guard)

    async def _seat_and_wish(
        self,
        actor: Actor,
        view: ClusterView,
        ask: Ask,
        operation: str,
        *,
        spec: ClusterSpec,
        guard: Sequence[Op] = (),
    ) -> Cluster:
        """Change the wish and take the seats it needs, in one batch."""
        for _ in range(PLACE_TRIES_MAX):
            placement = await self._capacity.place(ask)
            now = self._clock.now()
            ordinals = free_ordinals(view.nodes, len(placement.workers))
            seats = self._first_seats(view.cluster, Placement((), placement.control), now)
            seats += [
                self._seat(view.cluster, NodeRole.WORKER, ordinal, grant, now)
                for ordinal, grant in zip(ordinals, placement.workers, strict=True)
            ]
            ops: list[Op] = [Insert(noun) for new in seats for noun in (new.node, new.lease)]
            try:
                return await self._wish(actor, view.cluster, operation, spec=spec, ops=[*ops, *guard])
            except UniqueViolation:
                await self._capacity.refused(placement)
            except BaseException:
                self._capacity.give_back(placement)
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
        return await self._wish(actor, cluster, "pause", spec=msgspec.structs.replace(cluster.spec, paused=True))

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
        control = 0 if spec.single_node else 2
        guard = await self._check_quota(await self._project(cluster.project_id), spec.workers * gpus)
        ask = Ask(spec.region, spec.gpu_type, gpus, spec.workers, control)
        return await self._seat_and_wish(actor, view, ask, "resume", spec=spec, guard=guard)

    async def attach(self, actor: Actor, id: str, mount: MountWish) -> Cluster:
        return await guarded(lambda: self._attach(actor, id, mount))

    async def _attach(self, actor: Actor, id: str, mount: MountWish) -> Cluster:
        cluster = await self._mine(actor, id, None)
        admission.check_mounts([mount])
        if cluster.phase is Phase.FAILED:
            raise WrongPhase("a failed cluster mounts nothing", hint="delete it")
        ops, _ = await attach_ops(self._store, self._entropy, actor, cluster, mount, self._clock.now())
        return await self._wish(actor, cluster, "attach", spec=cluster.spec, ops=ops)

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
        return await self._wish(actor, cluster, "delete", spec=spec, delete_wished_at=now, live_name=None)

    async def _wish(
        self,
        actor: Actor,
        cluster: Cluster,
        operation: str,
        *,
        spec: ClusterSpec,
        ops: Sequence[Op] = (),
        **fields: Any,
    ) -> Cluster:
        """Write the changed wish: generation raised, a request to poll, the engine woken, the audit line."""
        now = self._clock.now()
        wished = changed(cluster, spec=spec, generation=cluster.generation + 1, updated_at=now, **fields)
        request = new_request(
            self._entropy.uuid(), "cluster", wished, operation, generation=wished.generation, actor=actor, at=now
        )
        event = audit(actor, "cluster", f"{operation}_wished", wished, at=now, message=f"{operation} {cluster.name}")
        batch = [Replace(wished), *ops, Insert(request), Wake("cluster", cluster.id, now)]
        await submit(self._store, Batch(Step.CLUSTER_WISH, batch, [event]))
        return wished

    # --- read -----------------------------------------------------------------------------------------------------

    async def cluster(self, actor: Actor, id: str) -> Cluster:
        return await self._visible(actor, id)

    async def view(self, actor: Actor, id: str) -> ClusterView:
        cluster = await self._visible(actor, id)
        return await load_view(self._store, await self._catalog.current(), cluster)

    async def explain(self, actor: Actor, id: str) -> Explanation:
        view = await self.view(actor, id)
        steps = await self._store.events(after=0, limit=20, resource_id=id, newest_first=True)
        return explain(view, steps, self._clock.now())

    async def access(self, actor: Actor, id: str) -> AccessFacts:
        return (await self._visible(actor, id)).status.access

    async def kubeconfig(self, actor: Actor, id: str) -> str:
        view = await self.view(actor, id)
        return await self._orchestrator.kubeconfig(target_of(view)) if view.cluster.phase in SERVING else ""

    async def _project(self, id: str) -> Project:
        project = await self._store.get(Project, id)
        if project is None:
            raise NotFound(f"there is no project {id}")
        return project

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

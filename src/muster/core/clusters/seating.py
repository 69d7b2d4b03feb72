"""Seats for nodes: the quota that guards them, and the rows that hold them; for every wish that needs capacity."""

from __future__ import annotations

from muster.contracts.clock import Entropy
from muster.contracts.store import Expect, Find, Op, Replace, Store
from muster.core.capacity.placement import Grant, Placement
from muster.core.clusters.access import saved_keys
from muster.core.clusters.nodes import Seat, free_ordinals, seat
from muster.core.clusters.reseat import worker_grants
from muster.core.clusters.terms import held_until
from muster.errors import NotFound, QuotaExceeded
from muster.model.access import SshKey
from muster.model.accounts import Project
from muster.model.base import Instant, changed
from muster.model.catalog import InstanceType
from muster.model.clusters import Cluster, Node, NodeRole, Share

PLACE_TRIES_MAX = 8
"""How often a refused grant is placed anew before the caller is told that others were faster."""


class Seating:
    def __init__(self, store: Store, entropy: Entropy) -> None:
        self._store = store
        self._entropy = entropy
        self._unlimited: dict[str, Project] = {}
        self._keys: dict[str, tuple[int, list[SshKey]]] = {}

    async def project(self, id: str) -> Project:
        """The project; one without a quota is remembered, and the guard makes sure that it still has none."""
        if id in self._unlimited:
            return self._unlimited[id]
        project = await self._store.get(Project, id)
        if project is None:
            raise NotFound(f"there is no project {id}")
        if project.gpu_quota is None:
            self._unlimited[id] = project
        return project

    async def saved_keys(self, project: Project) -> list[SshKey]:
        """The project's SSH keys, remembered for this version of it: a change of keys is a change of the project."""
        version, keys = self._keys.get(project.id, (0, []))
        if version != project.version:
            keys = await saved_keys(self._store, project.id)
            self._keys[project.id] = (project.version, keys)
        return keys

    def forget(self, id: str) -> None:
        """A guard refused: what is remembered of this project may be wrong."""
        self._unlimited.pop(id, None)
        self._keys.pop(id, None)

    async def quota_guard(self, project: Project, gpus: int) -> list[Op]:
        """What makes the quota true under concurrent creates; only projects that have one pay by contention."""
        if project.gpu_quota is None:
            return [Expect(Project, project.id, project.version)]
        held = await self._gpus_wished(project.id)
        if held + gpus > project.gpu_quota:
            raise QuotaExceeded(
                f"project {project.name} may hold {project.gpu_quota} GPUs: {held} are held, {gpus} more were asked",
                field="gpus",
                hint="ask for fewer, delete a cluster, or have the operator raise the quota",
                details={"quota": project.gpu_quota, "held": held, "asked": gpus, "left": project.gpu_quota - held},
            )
        return [Replace(changed(project))]

    async def _gpus_wished(self, project_id: str) -> int:
        """GPUs of the project's living clusters: a paused one holds none, a shrinking one what it shrinks to."""
        living = await self._store.find(Find(Cluster, equals={"project_id": project_id, "gone_at": None}))
        wanted = [cluster.spec for cluster in living if cluster.delete_wished_at is None and not cluster.spec.paused]
        shapes = {spec.instance_type for spec in wanted}
        rows = await self._store.find(Find(InstanceType, one_of={"id": sorted(shapes)})) if shapes else []
        gpus = {shape.id: shape.gpus for shape in rows}
        return sum(spec.own_workers * gpus.get(spec.instance_type, 0) for spec in wanted)

    def first_seats(self, cluster: Cluster, placement: Placement, now: Instant) -> list[Seat]:
        control = (NodeRole.CONTROLLER, NodeRole.LOGIN)
        seats = [
            self._seat(cluster, role, 0, grant, now) for role, grant in zip(control, placement.control, strict=False)
        ]
        workers = enumerate(worker_grants(placement))
        return seats + [self._seat(cluster, NodeRole.WORKER, i, grant, now, share) for i, (grant, share) in workers]

    def more_seats(self, cluster: Cluster, nodes: list[Node], placement: Placement, now: Instant) -> list[Seat]:
        """Seats beside those that are taken: workers get ordinals that no living one has."""
        workers = worker_grants(placement)
        ordinals = free_ordinals(nodes, len(workers))
        seats = self.first_seats(cluster, Placement((), placement.control), now)
        return seats + [
            self._seat(cluster, NodeRole.WORKER, ordinal, grant, now, share)
            for ordinal, (grant, share) in zip(ordinals, workers, strict=True)
        ]

    def _seat(
        self,
        cluster: Cluster,
        role: NodeRole,
        ordinal: int,
        grant: Grant,
        now: Instant,
        share: Share = Share.OWN,
    ) -> Seat:
        return seat(
            self._entropy,
            cluster_id=cluster.id,
            project_id=cluster.project_id,
            role=role,
            ordinal=ordinal,
            grant=grant,
            because="accepted",
            at=now,
            ends_at=held_until(cluster),
            share=share,
        )

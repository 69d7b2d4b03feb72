"""Drawing workers from a pool: what a wish may say of it, and what it costs. Pure, but for finding the pool."""

from __future__ import annotations

from typing import NamedTuple

from muster.contracts.metering import Want
from muster.contracts.store import Store
from muster.core.capacity.pools import pool_for
from muster.core.clusters.commands import CreateCluster
from muster.errors import Invalid
from muster.model.accounts import Project
from muster.model.billing import POOL
from muster.model.catalog import InstanceType
from muster.model.clusters import Billing, ClusterSpec, Share


class Draw(NamedTuple):
    """So many workers from this pool, which is there."""

    pool_id: str | None = None
    region: str = ""
    workers: int = 0


async def drawn_by(store: Store, project: Project, command: CreateCluster, shape: InstanceType, workers: int) -> Draw:
    """What a new cluster draws, if its project may and the pool has such hosts."""
    if not command.pool_id:
        if command.pool_gpus:
            raise Invalid("pool_gpus goes with pool_id", field="pool_gpus")
        return Draw()
    pool = await pool_for(store, project, command.pool_id)
    if command.billing is not Billing.ON_DEMAND or command.quote_id:
        raise Invalid("who draws from a pool holds it on demand", field="billing", hint="make it on demand")
    if command.gpu_type != pool.gpu_type or command.region not in ("", pool.region):
        words = f"pool {pool.name} has {pool.gpu_type} hosts in {pool.region}"
        raise Invalid(words, field="pool_id", hint="ask for those")
    gpus = workers * shape.gpus if command.pool_gpus is None else command.pool_gpus
    return Draw(pool.id, pool.region, drawn_workers(gpus, shape, workers))


def drawn_workers(gpus: int, shape: InstanceType, workers: int) -> int:
    drawn, rest = divmod(gpus, shape.gpus)
    if rest or not 0 <= drawn <= workers:
        words = f"pool_gpus must be a multiple of {shape.gpus}, and no more than gpus"
        raise Invalid(words, field="pool_gpus")
    return drawn


def redrawn(spec: ClusterSpec, gpus: int | None, shape: InstanceType, workers: int) -> int:
    """How many workers come from the pool once there are so many in all; as before unless said, or fewer."""
    if gpus and spec.pool_id is None:
        raise Invalid("this cluster was made without a pool", field="pool_gpus", hint="make one with pool_id")
    return min(spec.pool_workers, workers) if gpus is None else drawn_workers(gpus, shape, workers)


class More(NamedTuple):
    """Workers that a new wish needs beside those that are there, by share."""

    own: int
    pooled: int

    @property
    def any(self) -> bool:
        return bool(self.own or self.pooled)


def more_of(before: ClusterSpec, after: ClusterSpec) -> More:
    def more(share: Share) -> int:
        return max(0, after.wanted(share) - before.wanted(share))

    return More(more(Share.OWN), more(Share.POOL))


def wants_of(spec: ClusterSpec, more: More, billing: str) -> list[Want]:
    """What is to be paid for: its own by its term, a pool's by the price that the operator has set for pools."""
    wants = [Want(spec.instance_type, spec.region, more.own, billing)]
    return wants + ([Want(spec.instance_type, spec.region, more.pooled, POOL)] if more.pooled else [])

"""The durable steps of the house: every commit and every driver call has a name here.

*Law.* A step is a failpoint: the exhaustive test crashes before and after each, and runs each twice. A batch or a
driver call cannot be made without naming its step, and a step that no test reaches fails the suite.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Step(StrEnum):
    # accounts, catalogue, hosts
    ACCOUNT_WRITE = "account.write"
    KEY_WRITE = "key.write"
    CATALOG_WRITE = "catalog.write"
    HOST_WRITE = "host.write"
    POOL_WRITE = "pool.write"
    # access
    ACCESS_WRITE = "access.write"
    # volumes
    VOLUME_ACCEPT = "volume.accept"
    VOLUME_WISH = "volume.wish"
    VOLUME_RECORD = "volume.record"
    # clusters: the service's side
    CLUSTER_ACCEPT = "cluster.accept"
    CLUSTER_WISH = "cluster.wish"
    # clusters: the reconciler's side
    CLUSTER_MOVE = "cluster.move"
    CLUSTER_RECORD = "cluster.record"
    NODES_INTEND = "nodes.intend"
    NODES_RECORD = "nodes.record"
    NODES_FREE = "nodes.free"
    CLUSTER_SCALE = "cluster.scale"
    CLUSTER_GONE = "cluster.gone"
    # capacity in time
    CALENDAR_WRITE = "calendar.write"
    RESERVATION_ACCEPT = "reservation.accept"
    RESERVATION_RECORD = "reservation.record"
    # preemptible hosts
    PREEMPTION_GRANT = "preemption.grant"
    PREEMPTION_RECLAIM = "preemption.reclaim"
    # health
    REMEDIATION_WISH = "remediation.wish"
    REMEDIATION_RECORD = "remediation.record"
    # billing
    BILLING_WRITE = "billing.write"
    BILLING_BOOK = "billing.book"
    BILLING_WISH = "billing.wish"
    # object storage
    OBJECTS_WRITE = "objects.write"
    # jobs
    JOB_WISH = "job.wish"
    JOB_RECORD = "job.record"
    # the engine's own
    ENGINE_ROUND = "engine.round"
    # drivers
    SUBSTRATE_ENSURE = "substrate.ensure"
    SUBSTRATE_ABSENT = "substrate.ensure_absent"
    ORCHESTRATOR_CONVERGE = "orchestrator.converge"
    ORCHESTRATOR_DRAIN = "orchestrator.drain"
    ORCHESTRATOR_WARN = "orchestrator.warn"
    ORCHESTRATOR_EVICT = "orchestrator.evict"
    ORCHESTRATOR_EXPEL = "orchestrator.expel"
    ORCHESTRATOR_ADMIT = "orchestrator.admit"
    ORCHESTRATOR_TEST = "orchestrator.test"


class Failpoints(Protocol):
    """Called around every durable step; the production one does nothing."""

    async def before(self, step: Step) -> None: ...

    async def after(self, step: Step) -> None: ...

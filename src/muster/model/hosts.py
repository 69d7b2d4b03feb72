"""Hosts: machines we may use, which outlive clusters. Pools: hosts set apart. Leases: the only way to hold them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from muster.model.base import Instant, Noun

ANY_TIME: Final = 0
"""The end of a preemptible lease: whenever somebody asks. To the calendar such a host is free."""


class HostRole(StrEnum):
    GPU = "gpu"
    CONTROL = "control"  # no GPUs: controllers and logins are unbilled slices of it


class HostHealth(StrEnum):
    OK = "ok"
    DEAD = "dead"


class Host(Noun, frozen=True, kw_only=True):
    """`slots` is the number of GPUs (of control slices on a control host); topology is region > pod > leaf."""

    name: str
    region: str
    pod: str = "pod-0"
    leaf: str = "leaf-0"
    role: HostRole = HostRole.GPU
    gpu_type: str = ""
    slots: int
    cpus: int
    memory_gib: int
    substrate: str
    cordoned: bool = False
    cordon_reason: str = ""
    health: HostHealth = HostHealth.OK
    created_at: Instant
    pool_id: str | None = None  # the pool it is set apart in: only who draws from that gets it

    @property
    def usable(self) -> bool:
        return not self.cordoned and self.health is HostHealth.OK


class Pool(Noun, frozen=True, kw_only=True):
    """Hosts of one region and GPU type, set apart by the operator for an account, or for one project of it.

    Nobody else sees them, in no count and no placement; who may draw from them names the pool by its id.
    """

    name: str
    account_id: str
    project_id: str | None = None  # None = every project of the account
    region: str
    gpu_type: str
    created_at: Instant
    updated_at: Instant

    def for_project(self, account_id: str, project_id: str) -> bool:
        return self.account_id == account_id and self.project_id in (None, project_id)


class Lease(Noun, frozen=True, kw_only=True):
    """A host, or some slots of it, held for one node.

    `slots` is a bit mask. The store adds it to the host's row of `host_slots` unless a slot of it is taken there
    (rule `lease_slot`): the database itself refuses a double grant. It also appends to the capacity log that feeds
    every placement index.
    """

    host_id: str
    slots: int
    node_id: str
    cluster_id: str
    project_id: str
    generation: int = 1
    taken_at: Instant
    ends_at: Instant | None = None  # when it will be given back, if that is known

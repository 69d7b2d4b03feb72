"""What we answer: the bodies of native replies.

Leans on wire for the parts that callers say and hear alike. *Laws.* snake_case; instants are RFC 3339 with
milliseconds and Z; every field is always there (null when there is nothing to say); no secret but a new key's, once.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from muster.contracts.faults import FaultKind
from muster.dialects.native import wire
from muster.model.accounts import Role
from muster.model.clusters import Billing, ClusterType, NodeRole, Share
from muster.model.events import RequestState
from muster.model.hosts import HostHealth, HostRole
from muster.model.phases import NodePhase, Phase, VolumePhase

Stamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
T = TypeVar("T")


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Something we answer."""


class Listing(View, Generic[T], frozen=True, kw_only=True):
    """A page; `next_cursor` null means there is no more."""

    items: list[T]
    next_cursor: str | None


class Problem(View, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457, with a stable code, the offending field and a way out."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    field: str | None = None
    hint: str | None = None
    details: dict[str, Any] | None = None


class Whoami(View, frozen=True, kw_only=True):
    role: Role
    name: str
    account: str | None
    project: str | None
    member_id: str | None
    key_id: str | None


class Account(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    name: str
    postpaid: bool
    created_at: Stamp


class Project(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    account_id: str
    name: str
    slug: str
    gpu_quota: int | None
    created_at: Stamp


class Member(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    account_id: str
    project_id: str
    name: str
    email: str
    role: Role
    created_at: Stamp


class Key(View, frozen=True, kw_only=True):
    id: str
    version: int
    name: str
    prefix: str
    role: Role
    account_id: str | None
    project_id: str | None
    member_id: str | None
    created_at: Stamp
    last_used_at: Stamp | None
    revoked_at: Stamp | None


class KeyMade(Key, frozen=True, kw_only=True):
    """The secret is told this once; null when this was a repeated call and nobody has it any more."""

    secret: str | None


class Region(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    title: str


class GpuType(View, frozen=True, kw_only=True):
    id: str
    version: int
    title: str
    memory_gib: int
    nvswitch_count: int
    nvswitch_type: str
    ib_hca_count: int
    ib_hca_type: str


class InstanceType(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    gpu_type: str
    gpus: int
    cpus: int
    memory_gib: int
    scratch_gib: int


class Image(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    region: str
    os: str
    cuda_version: str
    driver_version: str
    flavour: str
    title: str


class Price(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    item: str
    region: str
    billing: str
    committed_days: int
    unit: str
    micro: int
    currency: str
    valid_from: Stamp


class Host(View, frozen=True, kw_only=True):
    id: str
    version: int
    name: str
    region: str
    pod: str
    leaf: str
    role: HostRole
    gpu_type: str
    slots: int
    cpus: int
    memory_gib: int
    substrate: str
    cordoned: bool
    cordon_reason: str
    health: HostHealth
    pool_id: str | None
    created_at: Stamp


class Room(View, frozen=True, kw_only=True):
    """Nodes of one shape in one region: how many are free now, and how many there are."""

    region: str
    gpu_type: str
    gpus_per_node: int
    free_nodes: int
    total_nodes: int


class Condition(View, frozen=True, kw_only=True):
    type: str
    since: Stamp
    message: str


class Moved(View, frozen=True, kw_only=True):
    phase: str
    at: Stamp
    because: str


class Waiting(View, frozen=True, kw_only=True, rename={"for_": "for"}):
    for_: str
    until: Stamp | None


class Node(View, frozen=True, kw_only=True):
    """`slots` are the indices of the GPUs (or control slices) it holds on its host. `reclaim_at`: a preemptible one
    that is asked back is gone by then."""

    id: str
    name: str
    role: NodeRole
    phase: NodePhase
    phase_since: Stamp
    because: str
    host_id: str | None
    host_name: str | None
    address: str
    gpus: int
    slots: tuple[int, ...]
    share: Share
    reclaim_at: Stamp | None
    created_at: Stamp


class Mounted(View, frozen=True, kw_only=True):
    volume_id: str
    name: str
    mount_path: str
    read_only: bool
    size_gib: int
    phase: VolumePhase


class Tested(View, frozen=True, kw_only=True):
    test: str
    node_id: str
    passed: bool
    simulated: bool
    detail: str


class Access(View, frozen=True, kw_only=True):
    ssh_user: str
    ssh_host: str
    ssh_port: int
    login_name: str
    kube_api: str
    simulated: bool


class Autoscaled(View, frozen=True, kw_only=True):
    """How far a cluster may grow by itself, and how many GPUs it is to have now."""

    max_gpus: int
    gpus: int


class Preemptible(View, frozen=True, kw_only=True):
    """GPUs beside the cluster's own: how many it would use, and how many it has now."""

    wished: int
    allocated: int


class Cluster(View, frozen=True, kw_only=True):
    """`stuck`: the present phase has lasted longer than it may. `simulated`: nothing of it is real."""

    stuck: bool
    id: str
    number: int
    name: str
    project_id: str
    account_id: str
    type: ClusterType
    phase: Phase
    phase_since: Stamp
    because: str
    region: str
    gpu_type: str
    instance_type: str
    workers: int
    gpus: int
    autoscale: Autoscaled | None
    preemptible: Preemptible
    pool_id: str | None
    pool_gpus: int
    image_id: str
    billing: Billing
    reserved_workers: int | None
    starts_at: Stamp | None
    ends_at: Stamp | None
    failover: bool
    paused: bool
    deletion_protection: bool
    ssh_keys: list[str]
    security_group_ids: list[str]
    reserved_ip_id: str | None
    config: wire.Config
    acceptance: wire.Acceptance
    generation: int
    observed_generation: int
    version: int
    conditions: list[Condition]
    history: list[Moved]
    waiting: Waiting | None
    nodes: list[Node]
    volumes: list[Mounted]
    tests: list[Tested]
    access: Access
    simulated: bool
    first_ready_at: Stamp | None
    created_at: Stamp
    updated_at: Stamp
    delete_wished_at: Stamp | None


class Event(View, frozen=True, kw_only=True):
    seq: int
    at: Stamp
    kind: str
    resource_id: str
    type: str
    account_id: str | None
    project_id: str | None
    actor: str
    cause: str
    message: str
    data: dict[str, Any]


class Explained(View, frozen=True, kw_only=True):
    """Why it is as it is. `nodes` counts them by phase; `troubled` are those late, lost or failed, in words."""

    id: str
    name: str
    phase: Phase
    because: str
    since: Stamp
    stuck_since: Stamp | None
    waiting: Waiting | None
    conditions: list[Condition]
    nodes: dict[str, int]
    troubled: list[str]
    steps: list[Event]


class Attached(View, frozen=True, kw_only=True):
    cluster_id: str
    mount_path: str
    read_only: bool


class Volume(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    name: str
    project_id: str
    account_id: str
    region: str
    size_gib: int
    actual_gib: int
    flavour: str
    deletion_protection: bool
    phase: VolumePhase
    phase_since: Stamp
    because: str
    stuck: bool
    generation: int
    created_at: Stamp
    updated_at: Stamp
    delete_wished_at: Stamp | None
    unfunded_since: Stamp | None


class VolumeWithMounts(Volume, frozen=True, kw_only=True):
    attachments: list[Attached]


class SshKey(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    project_id: str
    member_id: str | None
    name: str
    public_key: str
    fingerprint: str
    created_at: Stamp


class SecurityGroup(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    project_id: str
    name: str
    rules: list[wire.Rule]
    created_at: Stamp
    updated_at: Stamp


class ReservedIp(View, frozen=True, kw_only=True):
    id: str
    version: int
    number: int
    project_id: str
    region: str
    address: str
    cluster_id: str | None
    created_at: Stamp


class Request(View, frozen=True, kw_only=True):
    id: str
    version: int
    project_id: str
    kind: str
    resource_id: str
    operation: str
    generation: int
    state: RequestState
    message: str
    created_by: str
    created_at: Stamp
    updated_at: Stamp
    finished_at: Stamp | None


class Fault(View, frozen=True, kw_only=True):
    id: str
    kind: FaultKind
    target: str
    seconds: float | None
    count: int | None
    delay_seconds: float
    host_id: str
    left: int | None
    made_at: Stamp
    until: Stamp | None


class Fleet(View, frozen=True, kw_only=True):
    """`engine`: how much work is due now, and how much there is in all."""

    substrate: str
    simulated: bool
    hosts: int
    engine: dict[str, int]

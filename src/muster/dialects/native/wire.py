"""What callers say: the bodies of native requests, with their bounds.

Leans on model for words (enums) only. *Laws.* Unknown fields are refused, never ignored; `null` means absent; every
number and text has a bound. The OpenAPI page is generated from these structs, so it cannot disagree with them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from muster.contracts.faults import FaultKind
from muster.model.accounts import Role
from muster.model.clusters import Billing, ClusterType
from muster.model.hosts import HostRole

Name = Annotated[str, Meta(min_length=1, max_length=63)]
Id = Annotated[str, Meta(max_length=128)]
Word = Annotated[str, Meta(max_length=255)]
Text = Annotated[str, Meta(max_length=65_536)]
Count = Annotated[int, Meta(ge=0, le=10_000_000)]
Gpus = Annotated[int, Meta(ge=1, le=1_000_000)]
Lent = Annotated[int, Meta(ge=0, le=1_000_000)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Seconds = Annotated[float, Meta(ge=0, le=315_360_000)]
Moment = Annotated[datetime, Meta(tz=True)]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something a caller says."""


class NewAccount(Body, frozen=True, kw_only=True):
    name: Name
    postpaid: bool = False


class NewProject(Body, frozen=True, kw_only=True):
    name: Name
    account_id: Id | None = None
    gpu_quota: Count | None = None


class ProjectChange(Body, frozen=True, kw_only=True):
    """`gpu_quota` null lifts the limit; left out, it stays."""

    name: Name | None = None
    gpu_quota: Count | UnsetType | None = UNSET


class NewMember(Body, frozen=True, kw_only=True):
    name: Name
    role: Role
    email: Word = ""
    project_id: Id | None = None


class NewKey(Body, frozen=True, kw_only=True):
    """`role` left out is the member's own, else admin."""

    name: Name
    role: Role | None = None
    project_id: Id | None = None
    member_id: Id | None = None


class RegionBody(Body, frozen=True, kw_only=True):
    title: Word = ""


class GpuTypeBody(Body, frozen=True, kw_only=True):
    title: Word
    memory_gib: Count
    nvswitch_count: Count = 0
    nvswitch_type: Word = ""
    ib_hca_count: Count = 0
    ib_hca_type: Word = ""


class InstanceTypeBody(Body, frozen=True, kw_only=True):
    gpu_type: Word
    gpus: Annotated[int, Meta(ge=1, le=64)]
    cpus: Count
    memory_gib: Count
    scratch_gib: Count


class ImageBody(Body, frozen=True, kw_only=True):
    region: Word
    os: Word
    cuda_version: Word
    driver_version: Word
    flavour: Annotated[str, Meta(pattern="^(base|slurm|nemo)$")] = "base"
    title: Word = ""


class PriceBody(Body, frozen=True, kw_only=True):
    """`micro` is millionths of the currency per unit; `valid_from` left out is ten seconds from now."""

    item: Word
    region: Word
    billing: Word = "on_demand"
    committed_days: Count = 0
    unit: Annotated[str, Meta(pattern="^(node_hour|gib_month|term)$")] = "node_hour"
    micro: Annotated[int, Meta(ge=0, le=1_000_000_000_000)]
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$")] = "USD"
    valid_from: Moment | None = None


class NewHost(Body, frozen=True, kw_only=True):
    """`slots` is the number of GPUs; of control slices on a control host."""

    name: Name
    region: Word
    pod: Word = "pod-0"
    leaf: Word = "leaf-0"
    role: HostRole = HostRole.GPU
    gpu_type: Word = ""
    slots: Annotated[int, Meta(ge=1, le=64)]
    cpus: Count
    memory_gib: Count


class HostImport(Body, frozen=True, kw_only=True):
    """A host whose name is known is updated."""

    hosts: Annotated[list[NewHost], Meta(min_length=1, max_length=10_000)]


class Cordon(Body, frozen=True, kw_only=True):
    reason: Word = ""


class Scripts(Body, frozen=True, kw_only=True):
    worker_prolog: Text = ""
    worker_epilog: Text = ""
    controller_prolog: Text = ""
    controller_epilog: Text = ""
    login_init: Text = ""
    nodeset_init: Text = ""
    lifecycle: Text = ""
    extra_slurm_conf: Text = ""


class Oidc(Body, frozen=True, kw_only=True):
    issuer_url: Word
    client_id: Word
    username_claim: Word
    username_prefix: Word
    group_claim: Word
    group_prefix: Word
    ca_cert: Text = ""


class Acceptance(Body, frozen=True, kw_only=True):
    """Which acceptance tests run before ready."""

    enabled: bool = True
    skip: tuple[Word, ...] = ()
    dcgm_level: Word = "medium"
    gpu_burn_seconds: Count = 0


class AddOn(Body, frozen=True, kw_only=True):
    type: Word
    name: Word
    enabled: bool = True


class Config(Body, frozen=True, kw_only=True):
    """How the cluster is set up inside. In a PATCH what is left out stays as it is."""

    shm_gib: Annotated[int, Meta(ge=0, le=16_384)] = 16
    slurm_image: Word = ""
    accounting: bool = False
    scripts: Scripts = Scripts()
    oidc: Oidc | None = None
    load_balancer: Word = "none"
    gpu_operator_version: Word = ""
    network_operator_version: Word = ""
    ingress: bool = False
    observability: bool = False
    jumphost: bool = False
    ssh_ca: bool = False
    add_ons: tuple[AddOn, ...] = ()


class VolumeForCluster(Body, frozen=True, kw_only=True):
    """A volume made together with its cluster."""

    name: Name
    size_gib: Gpus
    region: Word = ""
    dies_with_cluster: bool = False


class NewMount(Body, frozen=True, kw_only=True):
    """An existing volume by `volume_id`, or a `new` one; `path` left out is the default."""

    volume_id: Id = ""
    new: VolumeForCluster | None = None
    path: Word = ""
    read_only: bool = False


class MountBody(Body, frozen=True, kw_only=True):
    volume_id: Id
    path: Word = ""
    read_only: bool = False


class RestartBody(Body, frozen=True, kw_only=True):
    """The workers, and with `control` the controller and the login too."""

    control: bool = False


class AddressBody(Body, frozen=True, kw_only=True):
    reserved_ip_id: Id


class Autoscale(Body, frozen=True, kw_only=True):
    """The GPUs it may come to have by itself, while jobs wait for them and others are idle; 0 = none but its own."""

    max_gpus: Annotated[int, Meta(ge=0, le=1_000_000)]


class NewCluster(Body, frozen=True, kw_only=True):
    """`gpus` is the total. `region` left out is the one with most room; `image_id` left out is its newest.
    `preemptible_gpus` come beside `gpus` while hosts are idle, and are given back after notice."""

    name: Name
    type: ClusterType
    gpu_type: Word
    gpus: Gpus
    gpus_per_node: Annotated[int, Meta(ge=0, le=64)] = 0
    preemptible_gpus: Lent = 0
    region: Word = ""
    single_node: bool = False
    autoscale: Autoscale | None = None
    image_id: Id = ""
    project_id: Id | None = None
    billing: Billing = Billing.ON_DEMAND
    starts_at: Moment | None = None
    ends_at: Moment | None = None
    duration_days: Annotated[float, Meta(gt=0, le=365)] | None = None
    pool_id: Id = ""
    pool_gpus: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    reserved_gpus: Gpus | None = None
    quote_id: Id = ""
    queue: bool = False
    failover: bool = False
    deletion_protection: bool = False
    ssh_keys: tuple[Text, ...] = ()
    ssh_key_ids: tuple[Id, ...] = ()
    use_saved_keys: bool = True
    security_group_ids: tuple[Id, ...] = ()
    reserved_ip_id: Id | None = None
    mounts: tuple[NewMount, ...] = ()
    acceptance: Acceptance = Acceptance()
    config: Config = Config()


class ClusterChange(Body, frozen=True, kw_only=True):
    """What is left out stays. `gpus` resizes; `leave_first` are nodes to go first; `force` does not wait for jobs."""

    name: Name | None = None
    gpus: Gpus | None = None
    autoscale: Autoscale | None = None
    preemptible_gpus: Lent | None = None
    pool_gpus: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    leave_first: tuple[Id, ...] | None = None
    force: bool = False
    config: Config | None = None
    failover: bool | None = None
    deletion_protection: bool | None = None
    ssh_keys: tuple[Text, ...] | None = None
    security_group_ids: tuple[Id, ...] | None = None
    image_id: Id | None = None
    ends_at: Moment | None = None


class NewVolume(Body, frozen=True, kw_only=True):
    name: Name
    region: Word
    size_gib: Gpus
    flavour: Annotated[str, Meta(pattern="^(shared|sfs|pfs|dataset)$")] = "shared"
    deletion_protection: bool = False
    project_id: Id | None = None


class VolumeChange(Body, frozen=True, kw_only=True):
    """A volume only grows. What is left out stays."""

    size_gib: Gpus | None = None
    name: Name | None = None
    deletion_protection: bool | None = None


class NewSshKey(Body, frozen=True, kw_only=True):
    name: Name
    public_key: Text
    project_id: Id | None = None


class Rule(Body, frozen=True, kw_only=True):
    """One permission. Everything not permitted is refused."""

    direction: Annotated[str, Meta(pattern="^(inbound|outbound)$")]
    protocol: Annotated[str, Meta(pattern="^(tcp|udp|icmp|any)$")]
    port_min: Port = 0
    port_max: Port = 65_535
    cidr: Word = "0.0.0.0/0"
    description: Word = ""


class NewSecurityGroup(Body, frozen=True, kw_only=True):
    name: Name
    rules: Annotated[tuple[Rule, ...], Meta(max_length=200)] = ()
    project_id: Id | None = None


class RulesBody(Body, frozen=True, kw_only=True):
    name: Name | None = None
    rules: Annotated[tuple[Rule, ...], Meta(max_length=200)]


class NewReservedIp(Body, frozen=True, kw_only=True):
    region: Word
    project_id: Id | None = None


class NewFault(Body, frozen=True, kw_only=True):
    """`target` is a host's name or id, or a region. Without `seconds` and `count` it lasts until cleared."""

    kind: FaultKind
    target: Word = ""
    seconds: Seconds | None = None
    count: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    delay_seconds: Annotated[float, Meta(ge=0, le=600)] = 2.0

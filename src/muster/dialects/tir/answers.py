"""What TIR's callers are told, field for field, always in the one envelope."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.contracts.http import Reply


class Out(msgspec.Struct, frozen=True, kw_only=True):
    """Everything is said; what is not known is null."""


class Envelope(Out, frozen=True, kw_only=True):
    code: int
    data: Any
    errors: dict[str, Any]
    message: str


def reply(data: Any, *, code: int = 200, message: str = "Success") -> Reply:
    return Reply(code, msgspec.json.encode(Envelope(code=code, data=data, errors={}, message=message)))


class Who(Out, frozen=True, kw_only=True):
    id: int
    name: str


class Mount(Out, frozen=True, kw_only=True):
    id: int
    name: str
    mount_path: str
    read_only: bool


class ClusterNode(Out, frozen=True, kw_only=True):
    id: str
    name: str
    role: str
    status: str
    ip_address: str


class Login(Out, frozen=True, kw_only=True):
    """How to get in: `ssh -p PORT USER@HOST`."""

    host: str
    port: int
    user: str


class ReservedIp(Out, frozen=True, kw_only=True):
    id: int
    ip_address: str
    status: str
    location: str
    cluster_id: int | None
    created_at: str


class Sku(Out, frozen=True, kw_only=True):
    id: int
    name: str
    cpu: int
    gpu: int
    memory: int


class Cluster(Out, frozen=True, kw_only=True):
    id: int
    uuid: str
    name: str
    status: str
    status_reason: str
    cluster_type: str
    location: str
    project_id: int
    created_by: Who
    created_at: str
    updated_at: str
    sku_id: int
    sku: Sku | None
    sku_item_price_id: int | None
    committed_days: int
    ends_at: str | None
    no_of_nodes: int
    image_version_id: int
    image_name: str
    ssh_key_ids: list[int]
    security_group_ids: list[int]
    reserved_ip: ReservedIp | None
    login: Login | None
    nodes: list[ClusterNode]
    sfs_mount_list: list[Mount]
    pfs_mount_list: list[Mount]
    dataset_mount_list: list[Mount]
    script_added: bool
    lifecycle_script: str


class Plan(Out, frozen=True, kw_only=True):
    """`unit_price` is of a node and an hour, or of the whole commitment."""

    sku_item_price_id: int
    sku_type: str
    committed_days: int
    unit_price: float
    currency: str
    location: str


class PricedSku(Out, frozen=True, kw_only=True):
    """As the SDK reads it: a plan's short name is {series}-{sku_type}-{cpu}-{memory}-{gpu}."""

    sku_id: int
    name: str
    series: str
    sku_type: str
    cpu: int
    gpu: int
    memory: int
    is_free: bool
    is_inventory_available: bool
    plans: list[Plan]


class ImageVersion(Out, frozen=True, kw_only=True):
    image_version_id: int
    version: str
    os: str
    cuda_version: str
    driver_version: str


class Image(Out, frozen=True, kw_only=True):
    image_id: int
    name: str
    framework: str
    versions: list[ImageVersion]


class SshKey(Out, frozen=True, kw_only=True):
    id: int
    pk: int
    label: str
    ssh_key: str
    created_at: str


class SecurityRule(Out, frozen=True, kw_only=True):
    id: int
    rule_type: str
    protocol: str
    protocol_type: str
    network_type: str
    ports: list[str]
    cidr_ip: str
    cidr_subnet: int
    description: str


class SecurityGroup(Out, frozen=True, kw_only=True):
    id: int
    name: str
    rules: list[SecurityRule]
    created_at: str


class Volume(Out, frozen=True, kw_only=True):
    id: int
    name: str
    disk_size: int
    status: str
    location: str
    project_id: int
    created_at: str


class Attached(Out, frozen=True, kw_only=True):
    """A cluster that has a volume mounted."""

    id: int
    name: str
    resource_type: str
    status: str
    mount_path: str


class Job(Out, frozen=True, kw_only=True):
    id: int
    uuid: str
    name: str
    job_type: str
    status: str
    status_reason: str
    cluster_id: int
    cluster_name: str
    master_replica: int
    worker_replica: int
    exit_code: int | None
    created_at: str


class Pod(Out, frozen=True, kw_only=True):
    """A replica: one task of the job under Slurm."""

    pod_name: str
    role: str
    status: str


class JobEvent(Out, frozen=True, kw_only=True):
    at: str
    type: str
    message: str


class JobLogs(Out, frozen=True, kw_only=True):
    logs: str


class Team(Out, frozen=True, kw_only=True):
    team_id: int
    team_name: str
    id: int
    name: str


class Project(Out, frozen=True, kw_only=True):
    project_id: int
    project_name: str
    id: int
    name: str
    team_id: int
    created_at: str


class Token(Out, frozen=True, kw_only=True):
    """`auth_token` and `api_key` are the same secret, told once: at its making."""

    id: int
    token_name: str
    auth_token: str
    api_key: str
    project_id: int
    created_at: str


class IamAccount(Out, frozen=True, kw_only=True):
    id: int
    name: str
    role: str
    is_active: bool

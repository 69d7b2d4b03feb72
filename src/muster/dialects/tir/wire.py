"""What TIR's callers say, field for field. A field that may be missing says so; null is as good as missing."""

from __future__ import annotations

import msgspec


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """Unknown fields are ignored, as theirs does."""


class MountItem(Body, frozen=True, kw_only=True):
    """An item of sfs_mount_list, pfs_mount_list or dataset_mount_list."""

    id: int
    name: str = ""
    mount_path: str


class NewCluster(Body, frozen=True, kw_only=True):
    name: str
    image_version_id: int
    ssh_key_ids: tuple[int, ...]
    security_group_id: int
    sku_id: int
    sku_item_price_id: int
    no_of_nodes: int
    script_added: bool = False
    lifecycle_script: str = ""
    sfs_mount_list: tuple[MountItem, ...] = ()
    pfs_mount_list: tuple[MountItem, ...] = ()
    dataset_mount_list: tuple[MountItem, ...] = ()


class Action(Body, frozen=True, kw_only=True):
    action: str


class UpdateSshKeys(Body, frozen=True, kw_only=True):
    ssh_key_ids: tuple[int, ...]


class UpdateImage(Body, frozen=True, kw_only=True):
    image_version_id: int


class ScaleCluster(Body, frozen=True, kw_only=True):
    additional_nodes: int


class AttachIp(Body, frozen=True, kw_only=True):
    reserved_ip_id: int


class DetachIp(Body, frozen=True, kw_only=True):
    reserved_ip_id: int
    ip_type: str = ""


class AddSecurityGroup(Body, frozen=True, kw_only=True):
    security_groups_ids: tuple[int, ...]


class RemoveSecurityGroup(Body, frozen=True, kw_only=True):
    security_group_id: int


class Variable(Body, frozen=True, kw_only=True):
    key: str
    value: str


class NewSshKey(Body, frozen=True, kw_only=True):
    label: str
    ssh_key: str


class RuleItem(Body, frozen=True, kw_only=True):
    rule_type: str
    protocol: str = ""
    protocol_type: str = ""
    network_type: str = "any"
    ports: tuple[int | str, ...] = ()
    cidr_ip: str = ""
    cidr_subnet: int | None = None
    description: str = ""


class NewSecurityGroup(Body, frozen=True, kw_only=True):
    name: str
    description: str = ""
    rules: tuple[RuleItem, ...] = ()


class NewVolume(Body, frozen=True, kw_only=True):
    name: str
    disk_size: int


class VolumeSize(Body, frozen=True, kw_only=True):
    disk_size: int


class NewJob(Body, frozen=True, kw_only=True):
    """As the SDK's submit_pytorch_job sends it; commands are base64 of a Python list written out."""

    name: str
    job_type: str = "PytorchJob"
    job_cpu: int | None = None
    job_gpu: int | None = None
    job_memory: int | None = None
    cluster_id: int
    sfs_id: int | None = None
    sfs_mount_path: str = ""
    master_replica: int = 1
    master_commands: str
    worker_replica: int = 0
    worker_commands: str = ""
    image_url: str = ""
    image_type: str = ""
    image_pull_policy: str = ""
    environment: tuple[Variable, ...] = msgspec.field(default=(), name="environmentVariable")


class NewToken(Body, frozen=True, kw_only=True):
    token_name: str


class NewTeam(Body, frozen=True, kw_only=True):
    team_name: str


class NewProject(Body, frozen=True, kw_only=True):
    project_name: str

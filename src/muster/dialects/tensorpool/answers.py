"""What we answer: the bodies of TensorPool's replies. Every one has a `message`, for that is what `tp` prints."""

from __future__ import annotations

from typing import Any

import msgspec


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Something we say."""


class Said(Answer, frozen=True, kw_only=True):
    message: str


class Health(Said, frozen=True, kw_only=True):
    status: str = "ok"


class ClusterCreateRestResponse(Said, frozen=True, kw_only=True):
    cluster_id: str
    instance_ids: list[str]
    request_id: str | None


class Accepted(Said, frozen=True, kw_only=True):
    request_id: str | None


class Instance(Answer, frozen=True, kw_only=True):
    instance_id: str
    name: str
    role: str
    status: str
    ip_address: str
    created_at: str


class Mounted(Answer, frozen=True, kw_only=True):
    storage_id: str
    name: str
    mount_path: str
    size_gb: int
    status: str


class Cluster(Answer, frozen=True, kw_only=True):
    cluster_id: str
    tp_cluster_name: str
    status: str
    status_message: str
    instance_type: str
    num_nodes: int
    region: str
    container: str
    deletion_protection: bool
    organization_id: str
    created_by: str
    created_at: str
    instances: list[Instance]
    storage: list[Mounted]
    simulated: bool


class ClusterList(Said, frozen=True, kw_only=True):
    clusters: list[Cluster]


class ClusterInfo(Said, frozen=True, kw_only=True):
    cluster: Cluster


class Request(Answer, frozen=True, kw_only=True):
    """`message` and `external_message` say the same: the one is what `tp` prints, the other is documented."""

    request_id: str
    request_type: str
    status: str
    created_at: str
    object_id: str | None
    external_message: str | None
    message: str


class Operations(Said, frozen=True, kw_only=True):
    operations: list[Request]


class StorageCreated(Said, frozen=True, kw_only=True):
    storage_id: str
    request_id: str | None


class Attaching(Said, frozen=True, kw_only=True):
    request_ids: list[str]


class Storage(Answer, frozen=True, kw_only=True):
    storage_id: str
    tp_storage_name: str
    status: str
    status_message: str
    size_gb: int
    region: str
    deletion_protection: bool
    organization_id: str
    created_by: str
    created_at: str
    cluster_ids: list[str]
    mount_path: str


class StorageList(Said, frozen=True, kw_only=True):
    storage: list[Storage]


class StorageInfo(Said, frozen=True, kw_only=True):
    storage: Storage


class Quote(Said, frozen=True, kw_only=True):
    size_gb: int
    hourly_rate: float
    monthly_rate: float
    currency: str


class Ssh(Said, frozen=True, kw_only=True):
    command: str


class Key(Answer, frozen=True, kw_only=True):
    key_id: str
    name: str
    fingerprint: str
    public_key: str
    created_at: str


class KeyAdded(Said, frozen=True, kw_only=True):
    key_id: str
    name: str
    fingerprint: str


class KeyList(Said, frozen=True, kw_only=True):
    ssh_keys: list[Key]


class Person(Answer, frozen=True, kw_only=True):
    user_id: str
    name: str
    email: str
    role: str


class UserInfo(Said, frozen=True, kw_only=True):
    user: Person
    organization_id: str | None
    organization_name: str | None
    project_id: str | None
    project_name: str | None
    balance: Balance | None


class Balance(Answer, frozen=True, kw_only=True):
    """What is left, and how fast it goes. In whole units of the currency."""

    available: float
    hourly_cost: float
    runs_out_at: str | None
    state: str


class OrganizationInfo(Said, frozen=True, kw_only=True):
    organization_id: str
    name: str
    members: list[Person]
    balance: Balance


class Preferences(Said, frozen=True, kw_only=True):
    notify_email_cluster_create: bool = False
    notify_email_cluster_destroy: bool = False
    autopay_enabled: bool = False
    balance_warning_threshold: float | None = None
    autopay_reload_threshold: float | None = None


class Problem(Answer, frozen=True, kw_only=True):
    """One entry of a 422's `detail`, as FastAPI writes it."""

    loc: list[str | int]
    msg: str
    type: str


class Refusal(Said, frozen=True, kw_only=True):
    """`message` is what `tp` shows; `detail` is where FastAPI's clients look."""

    detail: str | list[Problem]
    code: str
    details: dict[str, Any]


class JobTemplate(Said, frozen=True, kw_only=True):
    empty_tp_config: str


class Job(Answer, frozen=True, kw_only=True):
    """`status` is what `tp job cancel --wait` looks at."""

    job_id: str
    status: str
    status_message: str
    exit_code: int | None
    public_message: str
    cluster_id: str
    cluster_name: str
    instance_type: str
    teardown_cluster: bool
    created_by: str
    created_at: str
    started_at: str | None
    ended_at: str | None


class JobList(Said, frozen=True, kw_only=True):
    jobs: list[Job]


class JobInfo(Said, frozen=True, kw_only=True):
    job_info: Job


class Pull(Said, frozen=True, kw_only=True):
    """`download_map` is never null: the command line would take that for a failure."""

    download_map: dict[str, str]
    command: str | None
    command_show_stdout: bool


class ObjectCredentials(Said, frozen=True, kw_only=True):
    access_key_id: str
    secret_access_key: str
    endpoint: str
    region: str


class RcloneConfig(Said, frozen=True, kw_only=True):
    rclone_config: str
    remote_name: str


class AwsConfig(Said, frozen=True, kw_only=True):
    profile_name: str
    credentials_file: str
    config_file: str
    endpoint: str


class BucketList(Said, frozen=True, kw_only=True):
    buckets: list[str]

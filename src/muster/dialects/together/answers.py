"""What we answer: the bodies of Together's replies. Unset fields are left out; the others are always there.

Leans on nothing but msgspec. Field by field in fields.py.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Something we say."""


class Transition(Answer, frozen=True, kw_only=True):
    phase: str
    transition_time: str


class Switch(Answer, frozen=True, kw_only=True):
    enabled: bool


class AddOn(Answer, frozen=True, kw_only=True):
    add_on_type: str
    name: str
    config: dict[str, Switch]
    state: dict[str, dict[str, Any]]


class Remediation(Answer, frozen=True, kw_only=True):
    id: str
    cluster_id: str
    instance_id: str
    instance_name: str
    mode: str
    state: str
    trigger: str
    requested_by: str
    create_time: str
    update_time: str
    evidence: tuple[str, ...]
    linked_alerts: tuple[Any, ...] = ()
    reason: str | UnsetType = UNSET
    reviewed_by: str | UnsetType = UNSET
    review_comment: str | UnsetType = UNSET
    review_time: str | UnsetType = UNSET
    start_time: str | UnsetType = UNSET
    end_time: str | UnsetType = UNSET
    error_message: str | UnsetType = UNSET


class RemediationList(Answer, frozen=True, kw_only=True):
    remediations: list[Remediation]
    has_next: bool
    next_page_token: str


class ControlNode(Answer, frozen=True, kw_only=True):
    node_id: str
    node_name: str
    host_name: str
    status: str
    num_cpu_cores: int
    memory_gib: float
    network: str
    phase_transitions: list[Transition]
    public_ipv4: str | UnsetType = UNSET


class WorkerNode(Answer, frozen=True, kw_only=True):
    node_id: str
    node_name: str
    instance_id: str
    host_name: str
    status: str
    num_cpu_cores: int
    num_gpus: int
    memory_gib: float
    networks: list[str]
    phase_transitions: list[Transition]
    auto_remediation_enabled: bool
    marked_for_deletion: bool
    ephemeral_storage: str
    ib_hca_count: int
    ib_hca_type: str
    nvswitch_count: int
    nvswitch_type: str
    slurm_worker_hostname: str | UnsetType = UNSET
    public_ipv4: str | UnsetType = UNSET
    latest_remediation: Remediation | UnsetType = UNSET
    deleted_at: str | UnsetType = UNSET


class LifecycleEvent(Answer, frozen=True, kw_only=True):
    node_id: str
    reason: str
    message: str
    timestamp: str


class Volume(Answer, frozen=True, kw_only=True):
    volume_id: str
    volume_name: str
    size_tib: int
    status: str


class VolumeList(Answer, frozen=True, kw_only=True):
    volumes: list[Volume]


class Deleted(Answer, frozen=True, kw_only=True):
    success: bool


class StartupScripts(Answer, frozen=True, kw_only=True, omit_defaults=True):
    worker_prolog: str = ""
    worker_epilog: str = ""
    controller_prolog: str = ""
    controller_epilog: str = ""
    login_init_script: str = ""
    nodeset_init_script: str = ""
    extra_slurm_conf: str = ""


class Config(Answer, frozen=True, kw_only=True):
    load_balancer: str
    ingress: Switch | UnsetType = UNSET
    observability: Switch | UnsetType = UNSET
    jumphost_enabled: bool | UnsetType = UNSET
    kubernetes_dashboard_enabled: bool | UnsetType = UNSET
    ssh_ca_enabled: bool | UnsetType = UNSET
    gpu_operator_version: str | UnsetType = UNSET
    network_operator_version: str | UnsetType = UNSET
    slurm_startup_scripts: StartupScripts | UnsetType = UNSET


class Oidc(Answer, frozen=True, kw_only=True):
    issuer_url: str
    client_id: str
    username_claim: str
    username_prefix: str
    group_claim: str
    group_prefix: str
    ca_cert: str | UnsetType = UNSET


class Condition(Answer, frozen=True, kw_only=True):
    type: str
    message: str
    since: str


class Cluster(Answer, frozen=True, kw_only=True):
    """`kube_config` stands last: it is a secret, never kept, and put in as the document goes out."""

    cluster_id: str
    cluster_name: str
    cluster_type: str
    status: str
    status_message: str
    region: str
    gpu_type: str
    num_gpus: int
    num_cpu_workers: int
    num_reserved_gpus: int
    num_capacity_pool_gpus: int
    desired_preemptible_gpus: int
    allocated_preemptible_gpus: int
    billing_type: str
    cuda_version: str
    nvidia_driver_version: str
    nvidia_driver_version_id: str
    driver_version: str
    os_image: str
    project_id: str
    ums_project_id: str
    ums_org_id: str
    control_plane_nodes: list[ControlNode]
    control_plane_ready: bool
    gpu_worker_nodes: list[WorkerNode]
    deleted_gpu_worker_nodes: list[WorkerNode]
    node_lifecycle_events: list[LifecycleEvent]
    volumes: list[Volume]
    phase_transitions: list[Transition]
    conditions: list[Condition]
    add_ons: list[AddOn] | UnsetType
    cluster_config: Config | UnsetType
    install_traefik: bool
    gpu_node_failover_enabled: bool
    is_in_substrate: bool
    duration_hours: int
    created_at: str
    simulated: bool
    first_ready_at: str | UnsetType = UNSET
    reservation_start_time: str | UnsetType = UNSET
    reservation_end_time: str | UnsetType = UNSET
    slurm_shm_size_gib: int | UnsetType = UNSET
    slurm_image: str | UnsetType = UNSET
    capacity_pool_id: str | UnsetType = UNSET
    oidc_config: Oidc | UnsetType = UNSET
    kube_config: str = ""


class ClusterList(Answer, frozen=True, kw_only=True):
    """Put together from kept documents; here to be declared."""

    clusters: list[Cluster]


class ClusterId(Answer, frozen=True, kw_only=True):
    cluster_id: str


class DriverVersion(Answer, frozen=True, kw_only=True):
    id: str
    cuda_version: str
    nvidia_driver_version: str
    os: str


class Region(Answer, frozen=True, kw_only=True):
    name: str
    supported_instance_types: list[str]
    driver_versions: list[DriverVersion]


class RegionList(Answer, frozen=True, kw_only=True):
    regions: list[Region]


class OldRegion(Answer, frozen=True, kw_only=True):
    """As SDK 2.0-2.6 type it: driver versions are the words that its create takes."""

    id: str
    name: str
    availability_zones: list[str]
    supported_instance_types: list[str]
    driver_versions: list[str]


class OldRegionList(Answer, frozen=True, kw_only=True):
    regions: list[OldRegion]


class KeyFacts(Answer, frozen=True, kw_only=True):
    id: str


class Organization(Answer, frozen=True, kw_only=True):
    id: str
    name: str


class Project(Answer, frozen=True, kw_only=True):
    id: str
    name: str
    slug: str


class Whoami(Answer, frozen=True, kw_only=True):
    """/v3/whoami: a key of a project, or, without one, of the whole house."""

    type: str
    api_key: KeyFacts
    organization: Organization
    project: Project | UnsetType = UNSET


class OldWhoami(Answer, frozen=True, kw_only=True):
    """/v1/whoami."""

    api_key_id: str
    organization_id: str
    organization_name: str
    project_id: str
    project_name: str
    project_slug: str
    user_id: str | UnsetType = UNSET


class LegacyNode(Answer, frozen=True, kw_only=True):
    node_id: str
    node_name: str
    status: str
    host_name: str
    num_cpu_cores: int
    memory_gib: float
    networks: list[str]
    num_gpus: int | UnsetType = UNSET


class LegacyCluster(Answer, frozen=True, kw_only=True):
    cluster_id: str
    cluster_type: str
    region: str
    gpu_type: str
    cluster_name: str
    duration_hours: int
    driver_version: str
    volumes: list[Volume]
    status: str
    control_plane_nodes: list[LegacyNode]
    gpu_worker_nodes: list[LegacyNode]
    num_gpus: int
    kube_config: str = ""


class LegacyClusterList(Answer, frozen=True, kw_only=True):
    """Put together from kept documents; here to be declared."""

    clusters: list[LegacyCluster]


class LegacyAccepted(Answer, frozen=True, kw_only=True):
    cluster_id: str
    status: str


class LegacyVolume(Answer, frozen=True, kw_only=True):
    volume_id: str
    volume_name: str
    size_tib: int


class LegacyVolumeList(Answer, frozen=True, kw_only=True):
    volumes: list[LegacyVolume]


class LegacyVolumeId(Answer, frozen=True, kw_only=True):
    volume_id: str

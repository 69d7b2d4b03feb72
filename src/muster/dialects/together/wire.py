"""What callers say: the bodies of Together's requests, every field of every SDK version since 2.0.

Null means absent, so every default is None; `needs` names what a body cannot do without. Enums are read as text and
refused in our own sentences (asking.py).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Uint32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """A request body; unknown fields are told back, never refused."""

    needs: ClassVar[tuple[str, ...]] = ()


class Switch(Body, frozen=True, kw_only=True):
    enabled: bool | None = None


class AddOnConfig(Body, frozen=True, kw_only=True):
    dashboard: Switch | None = None
    headlamp: Switch | None = None
    ingress: Switch | None = None
    slurm_web: Switch | None = None
    torchpass: Switch | None = None


class NewAddOn(Body, frozen=True, kw_only=True):
    needs: ClassVar[tuple[str, ...]] = ("add_on_type", "name")
    add_on_type: str | None = None
    name: str | None = None
    config: AddOnConfig | None = None


class AddOnChange(Body, frozen=True, kw_only=True):
    needs: ClassVar[tuple[str, ...]] = ("name",)
    name: str | None = None
    config: AddOnConfig | None = None


class StartupScripts(Body, frozen=True, kw_only=True):
    worker_prolog: str | None = None
    worker_epilog: str | None = None
    controller_prolog: str | None = None
    controller_epilog: str | None = None
    login_init_script: str | None = None
    nodeset_init_script: str | None = None
    extra_slurm_conf: str | None = None


class Config(Body, frozen=True, kw_only=True):
    needs: ClassVar[tuple[str, ...]] = ("load_balancer",)
    load_balancer: str | None = None
    gpu_operator_version: str | None = None
    network_operator_version: str | None = None
    ingress: Switch | None = None
    observability: Switch | None = None
    jumphost_enabled: bool | None = None
    kubernetes_dashboard_enabled: bool | None = None
    ssh_ca_enabled: bool | None = None
    slurm_startup_scripts: StartupScripts | None = None


class OidcConfig(Body, frozen=True, kw_only=True):
    needs: ClassVar[tuple[str, ...]] = (
        "issuer_url",
        "client_id",
        "username_claim",
        "username_prefix",
        "group_claim",
        "group_prefix",
    )
    issuer_url: str | None = None
    client_id: str | None = None
    username_claim: str | None = None
    username_prefix: str | None = None
    group_claim: str | None = None
    group_prefix: str | None = None
    ca_cert: str | None = None


class AcceptanceTests(Body, frozen=True, kw_only=True):
    enabled: bool | None = None
    dcgm_diag_level: str | None = None
    dcgm_diag_skipped: bool | None = None
    gpu_burn_duration: Int32 | None = None
    gpu_burn_skipped: bool | None = None
    nccl_single_node_skipped: bool | None = None
    nccl_multi_node_skipped: bool | None = None
    storage_skipped: bool | None = None


class InlineVolume(Body, frozen=True, kw_only=True):
    needs: ClassVar[tuple[str, ...]] = ("volume_name", "size_tib")
    volume_name: str | None = None
    size_tib: Uint32 | None = None
    region: str | None = None
    instance_cluster_id: str | None = None
    is_lifecycle_independent: bool | None = None
    project_id: str | None = None


class NewVolume(InlineVolume, frozen=True, kw_only=True):
    """The same fields, for a volume of its own."""

    needs: ClassVar[tuple[str, ...]] = ("region", "size_tib", "volume_name")


class VolumeChange(Body, frozen=True, kw_only=True):
    needs: ClassVar[tuple[str, ...]] = ("volume_id",)
    volume_id: str | None = None
    size_tib: Uint32 | None = None


class NewCluster(Body, frozen=True, kw_only=True):
    needs: ClassVar[tuple[str, ...]] = ("cluster_name", "region", "gpu_type", "num_gpus", "billing_type")
    billing_type: str | None = None
    cluster_name: str | None = None
    gpu_type: str | None = None
    num_gpus: Int32 | None = None
    region: str | None = None
    nvidia_version_id: str | None = None
    cuda_version: str | None = None
    nvidia_driver_version: str | None = None
    driver_version: str | None = None
    cluster_type: str | None = None
    duration_days: Int32 | None = None
    reservation_start_time: datetime | None = None
    reservation_end_time: datetime | None = None
    num_reserved_gpus: Int32 | None = None
    shared_volume: InlineVolume | None = None
    volume_id: str | None = None
    auto_scale: bool | None = None
    auto_scaled: bool | None = None
    auto_scale_max_gpus: Int32 | None = None
    gpu_node_failover_enabled: bool | None = None
    capacity_pool_id: str | None = None
    num_capacity_pool_gpus: Int32 | None = None
    num_preemptible_gpus: Int32 | None = None
    install_traefik: bool | None = None
    slurm_shm_size_gib: Int32 | None = None
    slurm_image: str | None = None
    project_id: str | None = None
    oidc_config: OidcConfig | None = None
    acceptance_tests_params: AcceptanceTests | None = None
    add_ons: tuple[NewAddOn, ...] | None = None
    cluster_config: Config | None = None


class ClusterChange(Body, frozen=True, kw_only=True):
    cluster_type: str | None = None
    num_gpus: Int32 | None = None
    num_reserved_gpus: Int32 | None = None
    num_preemptible_gpus: Int32 | None = None
    num_capacity_pool_gpus: Int32 | None = None
    reservation_end_time: datetime | None = None
    add_ons: tuple[AddOnChange, ...] | None = None
    cluster_config: Config | None = None


class NewRemediation(Body, frozen=True, kw_only=True):
    needs: ClassVar[tuple[str, ...]] = ("mode",)
    mode: str | None = None
    reason: str | None = None


class Approval(Body, frozen=True, kw_only=True):
    comment: str | None = None
    mode: str | None = None


class Rejection(Body, frozen=True, kw_only=True):
    comment: str | None = None


class LegacyVolume(Body, frozen=True, kw_only=True):
    volume_name: str | None = None
    size_tib: Uint32 | None = None
    region: str | None = None


class LegacyNewVolume(LegacyVolume, frozen=True, kw_only=True):
    """The same fields, for a volume of its own."""

    needs: ClassVar[tuple[str, ...]] = ("volume_name", "size_tib", "region")


class LegacyNewCluster(Body, frozen=True, kw_only=True):
    needs: ClassVar[tuple[str, ...]] = (
        "region",
        "gpu_type",
        "num_gpus",
        "cluster_name",
        "duration_days",
        "driver_version",
        "billing_type",
    )
    cluster_type: str | None = None
    region: str | None = None
    gpu_type: str | None = None
    num_gpus: Int32 | None = None
    cluster_name: str | None = None
    duration_days: Uint32 | None = None
    driver_version: str | None = None
    shared_volume: LegacyVolume | None = None
    volume_id: str | None = None
    billing_type: str | None = None


class LegacyClusterChange(Body, frozen=True, kw_only=True):
    needs: ClassVar[tuple[str, ...]] = ("cluster_id",)
    cluster_id: str | None = None
    cluster_type: str | None = None
    num_gpus: Int32 | None = None

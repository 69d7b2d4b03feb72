"""What becomes of every field of Together's wire: spoken, derived, constant or refused. docs/dialects/together.md is
made from this table, and tests hold it against the structs here and the types of the SDK.

| spoken | carried both ways: what was said is kept and acted on, what is kept is told |
| derived | computed from what the house knows |
| constant | always the same here, or never sent |
| refused | understood, and refused in a sentence when it asks for something this house does not have yet |
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from muster.dialects.together import answers, wire


class Kind(StrEnum):
    SPOKEN = "spoken"
    DERIVED = "derived"
    CONSTANT = "constant"
    REFUSED = "refused"


class Field(NamedTuple):
    name: str
    kind: Kind
    sentence: str


class Section(NamedTuple):
    """One body; `struct` is what we read or write it with."""

    title: str
    struct: type[msgspec.Struct]
    fields: tuple[Field, ...]


NEVER_SENT: Final = "never sent"


def _fields(text: str) -> tuple[Field, ...]:
    """Lines of `kind name: sentence`."""
    rows = (line.strip().partition(": ") for line in text.strip().splitlines())
    return tuple(Field(head.split()[1], Kind(head.split()[0]), tail) for head, _, tail in rows)


REQUESTS: Final[tuple[Section, ...]] = (
    Section(
        "Create a cluster",
        wire.NewCluster,
        _fields("""
            spoken cluster_name: 1 to 63 printable characters, unique among the project's living clusters
            spoken region: one of the catalogue's
            spoken gpu_type: one of the catalogue's, in whole nodes of 8
            spoken num_gpus: a multiple of 8, at least 8
            spoken billing_type: ON_DEMAND, RESERVED or SCHEDULED_CAPACITY; the last two are booked at once
            spoken nvidia_version_id: an image of the region; must agree with the versions if they are said too
            spoken cuda_version: with nvidia_driver_version; a bare version means ubuntu-22.04 where there is one
            spoken nvidia_driver_version: with cuda_version
            spoken driver_version: the older word for both, CUDA_12_6_560
            spoken cluster_type: KUBERNETES (the default) or SLURM
            spoken duration_days: RESERVED: 1 to 90, from its first Ready on; ON_DEMAND: it ends by itself after these
            spoken reservation_start_time: SCHEDULED_CAPACITY only: when it is to be Ready; at once unless said
            spoken reservation_end_time: SCHEDULED_CAPACITY only, and required there
            spoken num_reserved_gpus: RESERVED only: so many are paid for in advance, the rest on demand; 0 = all
            spoken shared_volume: made in the same step as the cluster and mounted (/home on SLURM)
            spoken volume_id: an existing volume of the project and region, mounted
            spoken auto_scale: jobs that wait for GPUs grow it, idle workers leave; num_gpus stays what it was
            spoken auto_scaled: the older name of auto_scale
            spoken auto_scale_max_gpus: required with auto_scale, and only there; at least num_gpus
            spoken gpu_node_failover_enabled: a dead worker is replaced without asking
            spoken capacity_pool_id: hosts set apart by the operator for the project or its account; ON_DEMAND only
            spoken num_capacity_pool_gpus: only with capacity_pool_id, which gives them all unless said
            spoken num_preemptible_gpus: a multiple of 8, with a project_id; here for SLURM, and not for KUBERNETES
            spoken install_traefik: the same as load_balancer TRAEFIK; KUBERNETES only
            spoken slurm_shm_size_gib: required for SLURM, and only there
            spoken slurm_image: SLURM only
            spoken project_id: the key's own project unless said
            spoken oidc_config: KUBERNETES only; the issuer is looked up before the cluster is accepted
            spoken acceptance_tests_params: which tests a cluster passes before it is Ready
            spoken add_ons: what to install in it
            spoken cluster_config: how it is set up inside
        """),
    ),
    Section(
        "Update a cluster",
        wire.ClusterChange,
        _fields("""
            spoken num_gpus: grows or shrinks it; drained nodes leave first
            refused cluster_type: the present type passes; a cluster does not change its type
            refused num_reserved_gpus: as many as are reserved, and 0, pass; num_gpus above them is on demand
            spoken num_preemptible_gpus: a multiple of 8; SLURM only
            spoken num_capacity_pool_gpus: only for clusters made from a pool
            spoken reservation_end_time: not for ON_DEMAND; a later end must be free; not along with more GPUs
            spoken add_ons: by name; switches add-ons that the cluster has on or off
            spoken cluster_config: what is left out stays as it is
        """),
    ),
    Section(
        "shared_volume, and create a volume",
        wire.InlineVolume,
        _fields("""
            spoken volume_name: unique among the project's living volumes
            spoken size_tib: whole TiB, 1 to 1024
            spoken region: the cluster's
            derived instance_cluster_id: a region is one place here: the cluster named must be in the volume's region
            spoken is_lifecycle_independent: false has an inline volume go with its cluster; else refused
            spoken project_id: for a volume of its own; inline it is the cluster's
        """),
    ),
    Section(
        "Update a volume",
        wire.VolumeChange,
        _fields("""
            spoken volume_id: which one
            spoken size_tib: volumes grow and never shrink
        """),
    ),
    Section(
        "add_ons[]",
        wire.NewAddOn,
        _fields("""
            spoken add_on_type: dashboard, headlamp, ingress, slurm_web or torchpass, if the fleet can
            spoken name: unique within the cluster
            spoken config: under its own type, enabled; named without a word about it, it is on
        """),
    ),
    Section(
        "cluster_config",
        wire.Config,
        _fields("""
            spoken load_balancer: NONE, TRAEFIK, NGINX or ISTIO; required
            spoken gpu_operator_version: if the fleet can
            spoken network_operator_version: if the fleet can
            spoken ingress: enabled
            spoken observability: enabled
            spoken jumphost_enabled: if the fleet can
            spoken kubernetes_dashboard_enabled: the same switch as the dashboard add-on
            spoken ssh_ca_enabled: if the fleet can
            spoken slurm_startup_scripts: SLURM only; each begins with a shebang, extra_slurm_conf apart
        """),
    ),
    Section(
        "cluster_config.slurm_startup_scripts",
        wire.StartupScripts,
        _fields("""
            spoken worker_prolog: before a job, on its nodes
            spoken worker_epilog: after a job, on its nodes
            spoken controller_prolog: before a job, on the controller
            spoken controller_epilog: after a job, on the controller
            spoken login_init_script: when the login node starts
            spoken nodeset_init_script: when a worker starts
            spoken extra_slurm_conf: lines for slurm.conf
        """),
    ),
    Section(
        "oidc_config",
        wire.OidcConfig,
        _fields("""
            spoken issuer_url: https, reachable, and not inside this network unless the operator allows it
            spoken client_id: as registered with the issuer
            spoken username_claim: email, preferred_username or sub
            spoken username_prefix: put before every user name
            spoken group_claim: which claim holds the groups
            spoken group_prefix: put before every group
            spoken ca_cert: PEM, for issuers with an authority of their own
        """),
    ),
    Section(
        "acceptance_tests_params",
        wire.AcceptanceTests,
        _fields("""
            spoken enabled: false: the cluster is Ready without tests
            spoken dcgm_diag_level: MEDIUM unless said
            spoken dcgm_diag_skipped: leave it out
            spoken gpu_burn_duration: seconds; 0 = the default
            spoken gpu_burn_skipped: leave it out
            spoken nccl_single_node_skipped: leave it out
            spoken nccl_multi_node_skipped: leave it out
            spoken storage_skipped: leave it out
        """),
    ),
    Section(
        "Create a remediation",
        wire.NewRemediation,
        _fields("""
            spoken mode: VM_ONLY, HOST_AWARE, EVICT_WITHOUT_REPLACEMENT, REBOOT_VM or HOST_POWER_CYCLE
            spoken reason: in your own words
        """),
    ),
    Section(
        "Approve a remediation",
        wire.Approval,
        _fields("""
            spoken comment: kept as review_comment
            spoken mode: instead of the proposed one; not HOST_POWER_CYCLE
        """),
    ),
    Section("Reject a remediation", wire.Rejection, _fields("spoken comment: kept as review_comment")),
    Section(
        "Legacy: create a cluster",
        wire.LegacyNewCluster,
        _fields("""
            spoken region: as above
            spoken gpu_type: UNKNOWN_GPU_TYPE is refused
            spoken num_gpus: a multiple of 8
            spoken cluster_name: as above
            spoken duration_days: as above, but always required: ON_DEMAND clusters end by themselves too
            spoken driver_version: one of the listed words
            spoken billing_type: ON_DEMAND or RESERVED; UNSPECIFIED is refused
            spoken cluster_type: UNKNOWN_TYPE means absent
            spoken shared_volume: its region is the cluster's unless said
            spoken volume_id: as above
        """),
    ),
    Section(
        "Legacy: update a cluster",
        wire.LegacyClusterChange,
        _fields("""
            spoken cluster_id: which one
            refused cluster_type: as above
            spoken num_gpus: as above
        """),
    ),
    Section(
        "Legacy: shared volume",
        wire.LegacyVolume,
        _fields("""
            spoken volume_name: as above
            spoken size_tib: as above
            spoken region: as above
        """),
    ),
)

ANSWERS: Final[tuple[Section, ...]] = (
    Section(
        "Cluster",
        answers.Cluster,
        _fields("""
            derived cluster_id: a UUIDv4
            spoken cluster_name: as created
            spoken cluster_type: as created
            derived status: by the table of phases below
            derived status_message: why, in a sentence (ours)
            spoken region: as created
            spoken gpu_type: as created
            spoken num_gpus: as wished
            constant num_cpu_workers: 0: there are no CPU-only workers
            derived num_reserved_gpus: how many its reservation pays for; 0 for ON_DEMAND
            spoken num_capacity_pool_gpus: as wished
            spoken desired_preemptible_gpus: as wished with num_preemptible_gpus
            derived allocated_preemptible_gpus: what it has of them now
            spoken billing_type: as created
            derived cuda_version: of the image
            derived nvidia_driver_version: of the image
            derived nvidia_driver_version_id: the image's id
            derived driver_version: the older word for both (2.0-2.6)
            derived os_image: of the image
            spoken project_id: as created
            derived ums_project_id: the project's id
            derived ums_org_id: the account's id
            derived control_plane_nodes: controller and login
            derived control_plane_ready: whether all of those are up
            derived gpu_worker_nodes: the living workers
            derived deleted_gpu_worker_nodes: workers that are gone, with deleted_at
            derived node_lifecycle_events: workers that came, were told to go and went, for 72 hours
            derived volumes: those that are mounted
            derived phase_transitions: the cluster's history
            derived conditions: Updating, Ending, NodesMissing, GrowthWaits, Stuck (ours)
            spoken add_ons: those that are enabled; to Go clients (Terraform) absent when there are none
            spoken cluster_config: as set; to Go clients without what is off, and absent when nothing is on
            spoken install_traefik: whether the load balancer is TRAEFIK
            spoken gpu_node_failover_enabled: as created
            constant is_in_substrate: true
            derived duration_hours: how long it was asked for; 0 = until it is deleted
            derived created_at: when it was accepted
            derived simulated: whether its nodes are (ours)
            derived first_ready_at: once it was
            derived reservation_start_time: SCHEDULED_CAPACITY: as created; RESERVED: its first Ready, once it was
            derived reservation_end_time: when it ends by itself, if it does and that is known
            spoken slurm_shm_size_gib: SLURM only
            spoken slurm_image: if one was said
            spoken oidc_config: as created
            derived kube_config: base64 YAML for one cluster that serves, else empty; empty in lists
            spoken capacity_pool_id: if it draws from one
            constant machine_cluster_id: never sent: it names something inside Together
        """),
    ),
    Section(
        "Cluster.control_plane_nodes[]",
        answers.ControlNode,
        _fields("""
            derived node_id: a UUIDv4
            derived node_name: its name within the cluster (2.x)
            derived host_name: its name within the cluster
            derived status: by the table of node phases below
            derived num_cpu_cores: of its slice
            derived memory_gib: of its slice
            derived network: its address, once it has one
            derived phase_transitions: its history
            constant public_ipv4: never sent: nodes have no public address
        """),
    ),
    Section(
        "Cluster.gpu_worker_nodes[] and deleted_gpu_worker_nodes[]",
        answers.WorkerNode,
        _fields("""
            derived node_id: a UUIDv4
            derived node_name: its name within the cluster (2.x)
            derived instance_id: the same id: what remediations are about
            derived host_name: its name within the cluster
            derived status: by the table of node phases below
            derived num_cpu_cores: of the instance type
            derived num_gpus: of the instance type
            derived memory_gib: of the instance type
            derived networks: its address, once it has one
            derived phase_transitions: its history
            derived auto_remediation_enabled: whether failover is on
            derived marked_for_deletion: whether it is leaving
            derived ephemeral_storage: of the instance type
            derived ib_hca_count: of the GPU type
            derived ib_hca_type: of the GPU type
            derived nvswitch_count: of the GPU type
            derived nvswitch_type: of the GPU type
            derived slurm_worker_hostname: SLURM only
            constant public_ipv4: never sent: nodes have no public address
            derived latest_remediation: if there was one
            derived deleted_at: once it is gone
        """),
    ),
    Section(
        "Volume",
        answers.Volume,
        _fields("""
            derived volume_id: a UUIDv4
            spoken volume_name: as created
            spoken size_tib: as wished, rounded up to whole TiB
            derived status: provisioning, available, bound, deleting or failed
        """),
    ),
    Section(
        "Remediation",
        answers.Remediation,
        _fields("""
            derived id: a UUIDv4; the client's own where 2.x gave one
            spoken cluster_id: which cluster
            spoken instance_id: which node
            derived instance_name: its name, kept when it is gone
            spoken mode: as asked, or as approved
            derived state: by the table below
            derived trigger: MANUAL for people, AUTOMATED for the house
            derived requested_by: who asked
            derived create_time: when it was asked for
            derived update_time: when it last moved
            derived evidence: what was seen and done, in order (ours)
            constant linked_alerts: empty: there are no passive health checks yet
            spoken reason: as asked
            derived reviewed_by: who approved or rejected it
            spoken review_comment: what they said
            derived review_time: when
            derived start_time: when it began
            derived end_time: when it ended
            derived error_message: why it failed
            constant active_health_check_run_id: never sent: there are no health check runs yet
            constant passive_health_check_event_id: never sent: there are no passive health checks yet
        """),
    ),
    Section(
        "Region",
        answers.Region,
        _fields("""
            derived name: of the catalogue
            derived supported_instance_types: GPU types that the region has in whole nodes
            derived driver_versions: its images; words instead of objects for SDK 2.0-2.6
        """),
    ),
)

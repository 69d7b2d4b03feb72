"""The house's words in Together's, one table each. Tests hold every table against its enum.

Leans on model and errors only.
"""

from __future__ import annotations

from typing import Final

from muster.model.clusters import Billing, Cluster, ClusterType
from muster.model.health import RemediationMode, RemediationState, RemediationTrigger
from muster.model.phases import NodePhase, Phase, VolumePhase

STATUS: Final[dict[Phase, str]] = {
    Phase.QUEUED: "Scheduled",
    Phase.SCHEDULED: "Scheduled",
    Phase.NETWORK: "WaitingForSubnet",
    Phase.STORAGE: "WaitingForSharedVolume",
    Phase.CONTROL: "WaitingForControlPlaneNodes",
    Phase.WORKERS: "WaitingForDataPlaneNodes",
    Phase.DRIVERS: "InstallingDrivers",
    Phase.TESTING: "RunningAcceptanceTests",
    Phase.FAILED: "Degraded",
    Phase.READY: "Ready",
    Phase.DEGRADED: "Degraded",
    Phase.PAUSED: "Paused",
    Phase.UNFUNDED: "OnDemandComputePaused",
    Phase.DELETING: "Deleting",
    Phase.GONE: "Deleting",  # only ever told as a 404
}
PHASE: Final[dict[Phase, str]] = {
    Phase.QUEUED: "CLUSTER_PHASE_QUEUED",
    Phase.SCHEDULED: "CLUSTER_PHASE_SCHEDULED",
    Phase.NETWORK: "CLUSTER_PHASE_WAITING_FOR_SUBNET",
    Phase.STORAGE: "CLUSTER_PHASE_WAITING_FOR_SHARED_VOLUME",
    Phase.CONTROL: "CLUSTER_PHASE_WAITING_FOR_CONTROL_PLANE_NODES",
    Phase.WORKERS: "CLUSTER_PHASE_WAITING_FOR_DATA_PLANE_NODES",
    Phase.DRIVERS: "CLUSTER_PHASE_INSTALLING_DRIVERS",
    Phase.TESTING: "CLUSTER_PHASE_RUNNING_ACCEPTANCE_TESTS",
    Phase.FAILED: "CLUSTER_PHASE_ACCEPTANCE_TESTS_FAILED",  # when it failed its tests; else the phase it failed in
    Phase.READY: "CLUSTER_PHASE_READY",
    Phase.DEGRADED: "CLUSTER_PHASE_DEGRADED",
    Phase.PAUSED: "CLUSTER_PHASE_PAUSED",
    Phase.UNFUNDED: "CLUSTER_PHASE_ON_DEMAND_COMPUTE_PAUSED",
    Phase.DELETING: "CLUSTER_PHASE_DELETING",
    Phase.GONE: "CLUSTER_PHASE_DELETING",
}
NCCL_FAILED: Final = "CLUSTER_PHASE_NCCL_TESTS_FAILED"
LEGACY_STATUS: Final[dict[Phase, str]] = {
    Phase.QUEUED: "QUEUED",
    Phase.SCHEDULED: "QUEUED",
    Phase.NETWORK: "WAITING_CONTROL_PLANE",
    Phase.STORAGE: "WAITING_CONTROL_PLANE",
    Phase.CONTROL: "WAITING_CONTROL_PLANE",
    Phase.WORKERS: "WAITING_DATA_PLANE",
    Phase.DRIVERS: "WAITING_DATA_PLANE",
    Phase.TESTING: "WAITING_DATA_PLANE",
    Phase.FAILED: "FAILED",
    Phase.READY: "READY",
    Phase.DEGRADED: "READY",
    Phase.PAUSED: "PENDING",
    Phase.UNFUNDED: "PENDING",
    Phase.DELETING: "DELETING",
    Phase.GONE: "DELETING",
}
NODE_STATUS: Final[dict[NodePhase, str]] = {
    NodePhase.PENDING: "Pending",
    NodePhase.BOOTING: "Booting",
    NodePhase.JOINING: "Joining",
    NodePhase.RUNNING: "Running",
    NodePhase.DRAINING: "Draining",
    NodePhase.LOST: "Unreachable",
    NodePhase.FAILED: "Failed",
    NodePhase.LEAVING: "Terminating",
    NodePhase.GONE: "Deleted",
}
NODE_PHASE: Final[dict[NodePhase, str]] = {
    NodePhase.PENDING: "NODE_PHASE_SCHEDULING",
    NodePhase.BOOTING: "NODE_PHASE_BOOTING",
    NodePhase.JOINING: "NODE_PHASE_BOOTSTRAPPING",
    NodePhase.RUNNING: "NODE_PHASE_RUNNING",
    NodePhase.DRAINING: "NODE_PHASE_RUNNING",
    NodePhase.LOST: "NODE_PHASE_FAILED",
    NodePhase.FAILED: "NODE_PHASE_FAILED",
    NodePhase.LEAVING: "NODE_PHASE_SUCCEEDED",
    NodePhase.GONE: "NODE_PHASE_SUCCEEDED",
}
VOLUME_STATUS: Final[dict[VolumePhase, str]] = {
    VolumePhase.PROVISIONING: "provisioning",
    VolumePhase.AVAILABLE: "available",
    VolumePhase.FAILED: "failed",
    VolumePhase.DELETING: "deleting",
    VolumePhase.GONE: "deleting",  # only ever told as a 404
}
BOUND: Final = "bound"

TYPE: Final[dict[ClusterType, str]] = {ClusterType.KUBERNETES: "KUBERNETES", ClusterType.SLURM: "SLURM"}
BILLING: Final[dict[Billing, str]] = {
    Billing.ON_DEMAND: "ON_DEMAND",
    Billing.RESERVED: "RESERVED",
    Billing.SCHEDULED: "SCHEDULED_CAPACITY",
}
MODE: Final[dict[RemediationMode, str]] = {
    RemediationMode.VM_ONLY: "REMEDIATION_MODE_VM_ONLY",
    RemediationMode.HOST_AWARE: "REMEDIATION_MODE_HOST_AWARE",
    RemediationMode.EVICT: "REMEDIATION_MODE_EVICT_WITHOUT_REPLACEMENT",
    RemediationMode.REBOOT: "REMEDIATION_MODE_REBOOT_VM",
    RemediationMode.POWER_CYCLE: "REMEDIATION_MODE_HOST_POWER_CYCLE",
}
STATE: Final[dict[RemediationState, str]] = {state: state.value.upper() for state in RemediationState}
UNSPOKEN_STATES: Final = ("QUARANTINING", "QUARANTINED")
"""States of theirs that ours pass through within one batch: asked for in a filter, they match nothing."""

TRIGGER: Final[dict[RemediationTrigger, str]] = {
    RemediationTrigger.MANUAL: "REMEDIATION_TRIGGER_MANUAL",
    RemediationTrigger.AUTOMATED: "REMEDIATION_TRIGGER_AUTOMATED",
}
CONDITION: Final[dict[str, str]] = {
    "Updating": "Updating",
    "Ending": "Ending",
    "NodesMissing": "NodesMissing",
    "GrowthWaits": "GrowthWaits",
    "Stuck": "Stuck",
}
"""Conditions have no field of their own on this wire; they are told in `conditions`, by these words."""

LOAD_BALANCER: Final[dict[str, str]] = {"none": "NONE", "traefik": "TRAEFIK", "nginx": "NGINX", "istio": "ISTIO"}
DCGM_LEVEL: Final[dict[str, str]] = {
    "short": "DCGM_DIAG_LEVEL_SHORT",
    "medium": "DCGM_DIAG_LEVEL_MEDIUM",
    "long": "DCGM_DIAG_LEVEL_LONG",
    "extended": "DCGM_DIAG_LEVEL_EXTENDED",
}


def status_of(cluster: Cluster) -> str:
    """A create that nobody has worked on yet is told as Together tells it: waiting for its control plane."""
    if cluster.phase is Phase.NETWORK and cluster.version == 1:
        return STATUS[Phase.CONTROL]
    return STATUS[cluster.phase]

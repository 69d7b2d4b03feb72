"""The house's words in TIR's, one table each. Tests hold every table against its enum.

Leans on model only.
"""

from __future__ import annotations

from typing import Final

from muster.model.jobs import JobState
from muster.model.phases import NodePhase, Phase, VolumePhase

STATUS: Final[dict[Phase, str]] = {
    Phase.QUEUED: "Creating",
    Phase.SCHEDULED: "Creating",
    Phase.NETWORK: "Creating",
    Phase.STORAGE: "Creating",
    Phase.CONTROL: "Creating",
    Phase.WORKERS: "Creating",
    Phase.DRIVERS: "Creating",
    Phase.TESTING: "Creating",
    Phase.FAILED: "Failed",
    Phase.READY: "Running",
    Phase.DEGRADED: "Running",
    Phase.PAUSED: "Stopped",
    Phase.UNFUNDED: "Stopped",
    Phase.DELETING: "Deleting",
    Phase.GONE: "Deleting",  # only ever told as a 404
}
NODE_STATUS: Final[dict[NodePhase, str]] = {
    NodePhase.PENDING: "Creating",
    NodePhase.BOOTING: "Creating",
    NodePhase.JOINING: "Creating",
    NodePhase.RUNNING: "Running",
    NodePhase.DRAINING: "Draining",
    NodePhase.LOST: "Unreachable",
    NodePhase.FAILED: "Failed",
    NodePhase.LEAVING: "Deleting",
    NodePhase.GONE: "Deleted",
}
VOLUME_STATUS: Final[dict[VolumePhase, str]] = {
    VolumePhase.PROVISIONING: "Creating",
    VolumePhase.AVAILABLE: "Active",
    VolumePhase.FAILED: "Failed",
    VolumePhase.DELETING: "Deleting",
    VolumePhase.GONE: "Deleting",  # only ever told as a 404
}
BASE: Final = "/myaccount/api/v1/gpu"

JOB_STATUS: Final[dict[JobState, str]] = {
    JobState.PENDING: "Pending",
    JobState.RUNNING: "Running",
    JobState.COMPLETED: "Succeeded",
    JobState.ERROR: "Failed",
    JobState.FAILED: "Failed",
    JobState.CANCELING: "Terminating",
    JobState.CANCELED: "Terminated",
}
FRAMEWORKS: Final = ("slurm", "nemo")
"""What a training cluster's image may be, and what `variant`, `job_type` and the path of deployment_images say."""

PROTOCOL: Final[dict[str, str]] = {"tcp": "TCP", "udp": "UDP", "icmp": "ICMP", "any": "All"}
PROTOCOL_TYPE: Final[dict[str, str]] = {
    "tcp": "CustomTCP",
    "udp": "CustomUDP",
    "icmp": "ICMP",
    "any": "AllTraffic",
}

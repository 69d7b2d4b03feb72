"""What hosts become: the orchestrator turns nodes that are up into a Slurm or Kubernetes cluster.

*Laws.*
| rule | mandatory |
|---|---|
| `render` is pure: same input, same bytes | yes |
| every verb may be cut anywhere and repeated | yes |
| nodes refuse a plan with an older generation | yes |
| no call waits: `converge` and `test` start or continue the work and say how far it is | yes |
| drain precedes expel unless forced, and force leaves an event (the caller writes it) | yes |
| whoever is warned takes no new work, and old work gets a signal it can catch; only evict ends it | yes |
| unreachable is *unknown*, never *gone* | yes |
| a call with an older token than one already seen for that cluster raises `FencedOff` | yes |
| a job is in the `queue` only while it waits for machines and asks GPUs: not held, delayed or dependent ones | yes |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from muster.contracts.substrate import Fence
from muster.model.base import Instant, Part
from muster.model.clusters import AccessFacts, CheckResult, ClusterSpec, ClusterType


class Feature(StrEnum):
    """What an orchestrator can honour; a wish for anything else is refused at admission."""

    PAUSE = "pause"
    RESIZE = "resize"
    AUTOSCALE = "autoscale"
    SLURM_SCRIPTS = "slurm_scripts"
    SLURM_ACCOUNTING = "slurm_accounting"
    SLURM_IMAGE = "slurm_image"
    OIDC = "oidc"
    LOAD_BALANCER = "load_balancer"
    INGRESS = "ingress"
    OBSERVABILITY = "observability"
    JUMPHOST = "jumphost"
    SSH_CA = "ssh_ca"
    ADD_ON_DASHBOARD = "add_on_dashboard"
    ADD_ON_HEADLAMP = "add_on_headlamp"
    ADD_ON_INGRESS = "add_on_ingress"
    ADD_ON_SLURM_WEB = "add_on_slurm_web"
    ADD_ON_TORCHPASS = "add_on_torchpass"
    OPERATOR_VERSIONS = "operator_versions"
    SECURITY_GROUPS = "security_groups"
    RESERVED_IP = "reserved_ip"
    PREEMPTIBLE = "preemptible"


class Member(Part, frozen=True, kw_only=True):
    """A node as the orchestrator is told of it."""

    node_id: str
    name: str
    role: str
    address: str
    generation: int = 1
    gpu_type: str = ""
    gpus: int = 0
    cpus: int = 0
    memory_gib: int = 0


class Target(Part, frozen=True, kw_only=True):
    """A cluster as it should be."""

    cluster_id: str
    name: str
    project_id: str
    generation: int
    spec: ClusterSpec
    members: tuple[Member, ...]
    authorized_keys: tuple[str, ...] = ()
    address: str = ""  # a reserved address that leads to its login node


class Rendered(Part, frozen=True, kw_only=True):
    """Files by role and path, and the digest that tells whether a node already has them."""

    digest: str
    files: Mapping[str, str]


class Progress(NamedTuple):
    """How far a verb is. `failed` maps node ids to sentences."""

    done: bool
    because: str = ""
    failed: Mapping[str, str] = {}
    look_again_at: Instant | None = None


class Tested(NamedTuple):
    done: bool
    because: str = ""
    results: Sequence[CheckResult] = ()
    look_again_at: Instant | None = None


class Standing(StrEnum):
    """A node in the orchestrator's own terms."""

    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"  # no new work; old work still runs
    DRAINED = "drained"
    DOWN = "down"
    UNKNOWN = "unknown"
    ABSENT = "absent"


class Pending(NamedTuple):
    """A job that waits for machines: the GPUs it asks for, and on how many nodes at the least."""

    gpus: int
    nodes: int = 1


class Queue(NamedTuple):
    """The work of a cluster, as its own scheduler tells it. Who is not in `idle_since` (by node id) has work, or is
    not known to have none."""

    pending: Sequence[Pending] = ()
    idle_since: Mapping[str, Instant] = {}


class Orchestrator(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def simulated(self) -> bool: ...

    def features(self, type: ClusterType) -> frozenset[Feature] | None:
        """What it can honour for this type of cluster; None when it cannot make one at all."""

    async def images(self, type: ClusterType) -> frozenset[str] | None:
        """The root file systems that a cluster of this type may have by name, beside the fleet's own; None when any
        name will do, or when it cannot be said now."""

    def render(self, target: Target) -> Rendered: ...

    async def converge(self, target: Target, fence: Fence) -> Progress:
        """Make the cluster so: daemons, files, membership. Members that left the target are forgotten."""

    async def observe(self, target: Target) -> dict[str, Standing]:
        """node id -> standing, for every member."""

    async def queue(self, target: Target) -> Queue | None:
        """What waits and who is idle; None when it cannot be asked now."""

    async def test(self, target: Target, run: str, fence: Fence) -> Tested:
        """Run (or look at) the acceptance tests of this `run`; the same run twice is one run."""

    async def drain(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None: ...

    async def warn(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        """Drain these nodes, and let what runs there know that it will be cut short: a signal it can catch. What has
        ended by then, or ends of the signal itself, is not lost but queued again."""

    async def evict(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        """The notice is over: what still runs on these nodes ends and is queued again; soon nothing runs there."""

    async def admit(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        """Take drained nodes back into service."""

    async def expel(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        """Remove nodes from membership; `target` is the cluster without them."""

    async def access(self, target: Target) -> AccessFacts: ...

    async def kubeconfig(self, target: Target) -> str:
        """YAML, or "" for clusters without one. A secret: never stored, never logged, never cached."""

    async def close(self) -> None: ...

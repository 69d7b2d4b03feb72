"""The tenant's wish (spec) and what we observe of it (status), and the nodes it is made of."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from muster.model.base import Instant, Noun, Part
from muster.model.phases import (
    CLUSTER_LIMITS,
    CLUSTER_MOVES,
    NODE_LIMITS,
    NODE_MOVES,
    IllegalMove,
    NodePhase,
    Phase,
    stuck_since,
)


class ClusterType(StrEnum):
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


class Billing(StrEnum):
    ON_DEMAND = "on_demand"
    RESERVED = "reserved"
    SCHEDULED = "scheduled"


class Share(StrEnum):
    """What a worker is held for, which says who may take it back and what it costs."""

    OWN = "own"  # by the cluster's own term
    POOL = "pool"  # on hosts that the operator set apart
    PREEMPTIBLE = "preemptible"  # on hosts nobody else needs now; given back after notice


class Autoscale(Part, frozen=True, kw_only=True):
    """How far a cluster may grow by itself above its `workers`."""

    max_workers: int


class Scripts(Part, frozen=True, kw_only=True):
    """The tenant's own scripts. They run inside the tenant's nodes and never in a shell of ours."""

    worker_prolog: str = ""
    worker_epilog: str = ""
    controller_prolog: str = ""
    controller_epilog: str = ""
    login_init: str = ""
    nodeset_init: str = ""
    lifecycle: str = ""
    extra_slurm_conf: str = ""


class Oidc(Part, frozen=True, kw_only=True):
    issuer_url: str
    client_id: str
    username_claim: str
    username_prefix: str
    group_claim: str
    group_prefix: str
    ca_cert: str = ""


class Acceptance(Part, frozen=True, kw_only=True):
    """Which acceptance tests run before Ready."""

    enabled: bool = True
    skip: tuple[str, ...] = ()
    dcgm_level: str = "medium"
    gpu_burn_seconds: int = 0


class AddOn(Part, frozen=True, kw_only=True):
    type: str
    name: str
    enabled: bool = True


class Mount(Part, frozen=True, kw_only=True):
    volume_id: str
    path: str
    read_only: bool = False


class ClusterConfig(Part, frozen=True, kw_only=True):
    """How the cluster is set up inside; every change raises the generation and is converged live."""

    shm_gib: int = 16
    slurm_image: str = ""
    accounting: bool = False
    scripts: Scripts = Scripts()
    oidc: Oidc | None = None
    load_balancer: str = "none"
    gpu_operator_version: str = ""
    network_operator_version: str = ""
    ingress: bool = False
    observability: bool = False
    jumphost: bool = False
    ssh_ca: bool = False
    add_ons: tuple[AddOn, ...] = ()
    # What one dialect must echo and the core has no use for, under the dialect's name.
    said: dict[str, Any] = {}


class Boots(Part, frozen=True, kw_only=True):
    """How often each kind of node was to be booted anew in place; a node keeps the count it was last booted for."""

    control: int = 0
    workers: int = 0


class ClusterSpec(Part, frozen=True, kw_only=True):
    """The wish. Services write it; each change raises the cluster's generation."""

    type: ClusterType
    region: str
    gpu_type: str
    instance_type: str
    workers: int
    image_id: str
    pool_id: str | None = None
    pool_workers: int = 0  # so many of `workers` are drawn from its pool
    preemptible_workers: int = 0  # beside `workers`, as many as can be had, up to this
    preemptible_granted: int = 0  # of those, how many it is to hold now: the reconciler's wish, not the owner's
    autoscale: Autoscale | None = None
    autoscaled_workers: int = 0  # beside `workers`, what its queue asks for now: the reconciler's wish as well
    single_node: bool = False  # one instance whose controller is the node itself
    billing: Billing = Billing.ON_DEMAND
    reserved_workers: int | None = None  # so many are paid for by its contract, the rest on demand; None = all
    starts_at: Instant | None = None  # of a scheduled one: when it is to be ready
    begins_at: Instant | None = None  # when its provisioning begins, ahead of its start
    ends_at: Instant | None = None
    duration_ms: Instant | None = None  # of a reserved one: so long from its first being ready
    failover: bool = False  # replace a dead worker without asking
    paused: bool = False
    unfunded_since: Instant | None = None  # its account or project cannot pay for it: billing's wish, not the owner's
    deletion_protection: bool = False
    ssh_keys: tuple[str, ...] = ()  # public keys, as accepted; rotated by replacing the tuple
    security_group_ids: tuple[str, ...] = ()
    reserved_ip_id: str | None = None
    leave_first: tuple[str, ...] = ()  # node ids to go first when it shrinks
    force: bool = False  # shrink or delete without waiting for running jobs
    boots: Boots = Boots()
    acceptance: Acceptance = Acceptance()
    config: ClusterConfig = ClusterConfig()

    @property
    def own_workers(self) -> int:
        """Workers that nobody may take back: the owner's wish and what the queue asked for."""
        return self.workers + self.autoscaled_workers

    def wanted(self, share: Share) -> int:
        """How many workers of this share it is to have now."""
        if share is Share.PREEMPTIBLE:
            return self.preemptible_granted
        return self.pool_workers if share is Share.POOL else self.own_workers - self.pool_workers


class Condition(Part, frozen=True, kw_only=True):
    """A state beside the phase that may heal: Updating, NodesMissing, GrowthWaits, Stuck."""

    type: str
    since: Instant
    message: str


class Moved(Part, frozen=True, kw_only=True):
    phase: str
    at: Instant
    because: str = ""


class CheckResult(Part, frozen=True, kw_only=True):
    test: str
    node_id: str
    passed: bool
    simulated: bool = False
    detail: str = ""


class AccessFacts(Part, frozen=True, kw_only=True):
    """How to get in; written by the reconciler."""

    ssh_user: str = ""
    ssh_host: str = ""
    ssh_port: int = 0
    login_name: str = ""
    kube_api: str = ""
    simulated: bool = False


class Loans(Part, frozen=True, kw_only=True):
    """What became of a cluster's preemptible workers so far: who is fair to whom is weighed by it."""

    reclaimed: int = 0  # how many were asked back
    last_at: Instant = 0  # when it last got some


class ClusterStatus(Part, frozen=True, kw_only=True):
    """What we observe. Only the reconciler writes it."""

    observed_generation: int = 0  # the wish that is wholly true: nodes, daemons, files
    converged_generation: int = 0  # the wish the orchestrator has last taken in
    history: tuple[Moved, ...] = ()
    conditions: tuple[Condition, ...] = ()
    waiting_for: str = ""
    waiting_until: Instant | None = None
    first_ready_at: Instant | None = None
    replacements: int = 0
    rules_digest: str = ""  # of the packet rules last applied
    loans: Loans = Loans()
    tests: tuple[CheckResult, ...] = ()
    access: AccessFacts = AccessFacts()
    scaled_at: Instant | None = None  # when it last grew or shrank by its queue
    growth_waits: str = ""  # why it does not grow, although its queue asks for it


class Cluster(Noun, frozen=True, kw_only=True):
    number: int = 0
    account_id: str
    project_id: str
    name: str
    live_name: str | None  # the name while it is taken; None from the delete wish on
    region: str
    phase: Phase
    phase_since: Instant
    because: str = ""
    spec: ClusterSpec
    status: ClusterStatus = ClusterStatus()
    generation: int = 1
    digest: str  # of the accepted create, so that a repeated one finds its first answer
    delete_wished_at: Instant | None = None
    gone_at: Instant | None = None
    created_by: str = ""
    created_at: Instant
    updated_at: Instant
    preemptible_line: str | None = None  # the line whose idle hosts it wishes for, or still holds some of
    short_line: str | None = None  # the line whose hosts its own workers wait for

    @property
    def ends_at(self) -> Instant | None:
        """When its term ends by itself, as far as that is known: a duration counts from its first being ready."""
        ready_at = self.status.first_ready_at
        if self.spec.ends_at is not None or self.spec.duration_ms is None or ready_at is None:
            return self.spec.ends_at
        return ready_at + self.spec.duration_ms

    def advance(self, phase: Phase, *, because: str, at: Instant) -> Cluster:
        """The cluster in its next phase, the move written into its history; an illegal move is our bug."""
        if phase not in CLUSTER_MOVES[self.phase]:
            raise IllegalMove(f"cluster {self.id}: {self.phase} -> {phase}")
        moved = Moved(phase=phase, at=at, because=because)
        status = replace(self.status, history=(*self.status.history, moved), waiting_for="", waiting_until=None)
        return replace(
            self,
            version=self.version + 1,
            phase=phase,
            phase_since=at,
            because=because,
            status=status,
            updated_at=at,
        )

    def stuck_since(self, now: Instant) -> Instant | None:
        return stuck_since(self.phase_since, CLUSTER_LIMITS[self.phase], now)


class Repair(StrEnum):
    """What is to become of a node once its work is done; the wish of a remediation."""

    NONE = ""
    ANYWHERE = "anywhere"  # another in its place, on any host
    ELSEWHERE = "elsewhere"  # another in its place, on another host
    REBOOT = "reboot"  # the same, booted anew in place


class Mending(Part, frozen=True, kw_only=True):
    """A node's part in repairs: what is wished for it, in whose place it came, and for which of `Boots` it booted."""

    wish: Repair = Repair.NONE
    replaces: str = ""
    boot: int = 0


class NodeRole(StrEnum):
    CONTROLLER = "controller"
    LOGIN = "login"
    WORKER = "worker"


class Node(Noun, frozen=True, kw_only=True):
    """A member of a cluster on a leased host or slice. A row with an id from the accepting batch on."""

    cluster_id: str
    project_id: str
    role: NodeRole
    name: str  # its host name inside the cluster: w-0, controller, login
    ordinal: int
    generation: int = 1  # raised when it is booted anew in place
    host_id: str | None = None
    host_name: str = ""
    lease_id: str | None = None
    phase: NodePhase = NodePhase.PENDING
    phase_since: Instant
    because: str = ""
    address: str = ""
    history: tuple[Moved, ...] = ()
    mending: Mending = Mending()
    created_at: Instant
    gone_at: Instant | None = None
    share: Share = Share.OWN
    reclaim_at: Instant | None = None  # of a preemptible one that is asked back: when it must be gone
    warned_at: Instant | None = None  # when its work was told so: the notice runs from here

    def advance(self, phase: NodePhase, *, because: str, at: Instant) -> Node:
        if phase not in NODE_MOVES[self.phase]:
            raise IllegalMove(f"node {self.id}: {self.phase} -> {phase}")
        moved = Moved(phase=phase, at=at, because=because)
        return replace(
            self,
            version=self.version + 1,
            phase=phase,
            phase_since=at,
            because=because,
            history=(*self.history, moved),
            gone_at=at if phase is NodePhase.GONE else self.gone_at,
        )

    def stuck_since(self, now: Instant) -> Instant | None:
        return stuck_since(self.phase_since, NODE_LIMITS[self.phase], now)

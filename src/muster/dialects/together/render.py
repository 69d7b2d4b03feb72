"""From the house's views to Together's documents. Pure.

Leans on answers, words and core's view of a cluster. *Laws.* Every key that the current Cluster type requires is
there with a real value; what only older clients know is there too. A rendered cluster is kept by its version, so
nothing in it may depend on who asks; the one part that depends on when (lifecycle events are told for 72 hours) is
stamped with the instant from which the document is old, and the one secret (kube_config) is put in on the way out.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict, replace

from muster.core.clusters.snapshot import ClusterView
from muster.core.clusters.wishes import CONTROL_CPUS, CONTROL_MEMORY_GIB
from muster.dialects.together import answers
from muster.dialects.together.config import DASHBOARD, SCRIPTS
from muster.dialects.together.terms import lasting, reserved_from, reserved_gpus
from muster.dialects.together.translate import GIB_PER_TIB, driver_word
from muster.dialects.together.words import (
    BILLING,
    BOUND,
    CONDITION,
    LOAD_BALANCER,
    MODE,
    NCCL_FAILED,
    NODE_PHASE,
    NODE_STATUS,
    PHASE,
    STATE,
    TRIGGER,
    TYPE,
    VOLUME_STATUS,
    status_of,
)
from muster.model.base import HOUR, Instant
from muster.model.clusters import Cluster, ClusterConfig, ClusterType, Moved, Node, NodeRole, Scripts
from muster.model.health import Remediation
from muster.model.phases import SERVING, NodePhase, Phase, VolumePhase
from muster.model.volumes import Volume

LIFECYCLE_TOLD: Final = 72 * HOUR
HEAD_BYTES: Final = 17
"""Before a kept document: the instant (16 digits) from which it is old, and whether a kubeconfig goes in."""

_NEVER: Final = 10**15
_UP: Final = (NodePhase.JOINING, NodePhase.RUNNING, NodePhase.DRAINING)


@lru_cache(maxsize=1024)
def stamp(at: Instant) -> str:
    """RFC 3339 with milliseconds and Z. A document says the same few instants often: each is worded once."""
    return datetime.fromtimestamp(at / 1_000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _stamp(at: Instant | None) -> str | msgspec.UnsetType:
    return UNSET if at is None else stamp(at)


def _said(text: str) -> str | msgspec.UnsetType:
    return text or UNSET


# --- documents: what is kept, and what goes out ---------------------------------------------------------------------


def render_cluster(view: ClusterView, now: Instant, simulated: bool, *, terse: bool = False) -> bytes:
    """The document as it is kept: its head, then the cluster with an empty kube_config."""
    events = _lifecycle(view, now)
    cluster = _cluster(view, [event for _, event in events], simulated)
    if terse:
        cluster = _terse(cluster)
    old_at = min((at + LIFECYCLE_TOLD for at, _ in events), default=_NEVER)
    has_kubeconfig = view.cluster.phase in SERVING
    return b"%016d%c" % (old_at, b"k" if has_kubeconfig else b"-") + msgspec.json.encode(cluster)


def is_old(document: bytes, now: Instant) -> bool:
    return int(document[:16]) <= now


def may_have_kubeconfig(document: bytes) -> bool:
    return document[16] == ord("k")


def told(document: bytes, kubeconfig: str = "") -> bytes:
    """The document as it goes out; the kubeconfig takes the place of the empty one at its end."""
    if not kubeconfig:
        return document[HEAD_BYTES:]
    return document[HEAD_BYTES:-2] + base64.b64encode(kubeconfig.encode()) + b'"}'


def told_list(documents: Iterable[bytes]) -> bytes:
    return b'{"clusters":[' + b",".join([document[HEAD_BYTES:] for document in documents]) + b"]}"


# --- a cluster ------------------------------------------------------------------------------------------------------


def _cluster(view: ClusterView, events: list[answers.LifecycleEvent], simulated: bool) -> answers.Cluster:
    cluster, spec, image = view.cluster, view.cluster.spec, view.image
    control = [node for node in view.nodes if node.role is not NodeRole.WORKER]
    latest = _latest(view.remediations)
    return answers.Cluster(
        cluster_id=cluster.id,
        cluster_name=cluster.name,
        cluster_type=TYPE[spec.type],
        status=status_of(cluster),
        status_message=cluster.status.waiting_for or cluster.because,
        region=cluster.region,
        gpu_type=spec.gpu_type,
        num_gpus=view.gpus,
        num_cpu_workers=0,
        num_reserved_gpus=reserved_gpus(view),
        num_capacity_pool_gpus=view.pool_gpus,
        desired_preemptible_gpus=view.lent_wished,
        allocated_preemptible_gpus=view.lent_gpus,
        billing_type=BILLING[spec.billing],
        cuda_version=image.cuda_version if image else "",
        nvidia_driver_version=image.driver_version if image else "",
        nvidia_driver_version_id=spec.image_id,
        driver_version=driver_word(image) if image else "",
        os_image=image.os if image else "",
        project_id=cluster.project_id,
        ums_project_id=cluster.project_id,
        ums_org_id=cluster.account_id,
        control_plane_nodes=[_control_node(node) for node in control],
        control_plane_ready=bool(control) and all(node.phase in _UP for node in control),
        gpu_worker_nodes=[_worker(view, node, latest.get(node.id)) for node in view.workers()],
        deleted_gpu_worker_nodes=[
            _worker(view, node, latest.get(node.id)) for node in view.gone_nodes if node.role is NodeRole.WORKER
        ],
        node_lifecycle_events=events,
        volumes=[volume_of(volume, mounted=True) for _, volume in view.mounts],
        phase_transitions=_cluster_transitions(cluster),
        conditions=[
            answers.Condition(type=CONDITION.get(c.type, c.type), message=c.message, since=stamp(c.since))
            for c in cluster.status.conditions
        ],
        add_ons=_add_ons(spec.config),
        cluster_config=_config(spec.config),
        install_traefik=spec.config.load_balancer == "traefik",
        gpu_node_failover_enabled=spec.failover,
        is_in_substrate=True,
        duration_hours=lasting(cluster) // HOUR,
        created_at=stamp(cluster.created_at),
        simulated=simulated,
        first_ready_at=_stamp(cluster.status.first_ready_at),
        reservation_start_time=_stamp(reserved_from(cluster)),
        reservation_end_time=_stamp(cluster.ends_at),
        slurm_shm_size_gib=spec.config.shm_gib if spec.type is ClusterType.SLURM else UNSET,
        slurm_image=_said(spec.config.slurm_image),
        capacity_pool_id=_said(spec.pool_id or ""),
        oidc_config=_oidc(spec.config),
    )


def _cluster_transitions(cluster: Cluster) -> list[answers.Transition]:
    """A failure is told as failed tests when it was those, else as the phase it failed in."""
    told: list[answers.Transition] = []
    for moved in cluster.status.history:
        phase = Phase(moved.phase)
        word = PHASE[phase]
        if phase is Phase.FAILED:
            word = _failure(cluster, told)
        told.append(answers.Transition(phase=word, transition_time=stamp(moved.at)))
    return told


def _failure(cluster: Cluster, told: Sequence[answers.Transition]) -> str:
    failing = [result.test for result in cluster.status.tests if not result.passed]
    if failing:
        return NCCL_FAILED if all(test.startswith("nccl") for test in failing) else PHASE[Phase.FAILED]
    return told[-1].phase if told else PHASE[Phase.FAILED]


def _add_ons(config: ClusterConfig) -> list[answers.AddOn]:
    return [
        answers.AddOn(
            add_on_type=add_on.type,
            name=add_on.name,
            config={add_on.type: answers.Switch(enabled=True)},
            state={add_on.type: {}},
        )
        for add_on in config.add_ons
        if add_on.enabled
    ]


def _config(config: ClusterConfig) -> answers.Config:
    return answers.Config(
        load_balancer=LOAD_BALANCER[config.load_balancer],
        ingress=answers.Switch(enabled=config.ingress),
        observability=answers.Switch(enabled=config.observability),
        jumphost_enabled=config.jumphost,
        kubernetes_dashboard_enabled=any(a.type == DASHBOARD and a.enabled for a in config.add_ons),
        ssh_ca_enabled=config.ssh_ca,
        gpu_operator_version=_said(config.gpu_operator_version),
        network_operator_version=_said(config.network_operator_version),
        slurm_startup_scripts=_scripts(config.scripts) if config.scripts != Scripts() else UNSET,
    )


def _scripts(scripts: Scripts) -> answers.StartupScripts:
    return answers.StartupScripts(**{theirs: getattr(scripts, ours) for theirs, ours in SCRIPTS.items()})


def _oidc(config: ClusterConfig) -> answers.Oidc | msgspec.UnsetType:
    if config.oidc is None:
        return UNSET
    told = msgspec.convert(config.oidc, answers.Oidc, from_attributes=True)
    return replace(told, ca_cert=_said(config.oidc.ca_cert))


def _terse(cluster: answers.Cluster) -> answers.Cluster:
    """The same without what is off or empty in how it is set up. Terraform compares these with what a person wrote,
    and takes "off" for a change from nothing at all; to other Go programs absent and off are one."""
    config = cluster.cluster_config
    on = UNSET if config is UNSET else _what_is_on(config)
    return replace(cluster, add_ons=cluster.add_ons or UNSET, cluster_config=on)


def _what_is_on(config: answers.Config) -> answers.Config | msgspec.UnsetType:
    off = (False, answers.Switch(enabled=False))
    fields: dict[str, Any] = {name: UNSET if value in off else value for name, value in asdict(config).items()}
    told = answers.Config(**fields)
    return UNSET if told == answers.Config(load_balancer=LOAD_BALANCER["none"]) else told


# --- nodes ----------------------------------------------------------------------------------------------------------


def _control_node(node: Node) -> answers.ControlNode:
    return answers.ControlNode(
        node_id=node.id,
        node_name=node.name,
        host_name=node.name,
        status=NODE_STATUS[node.phase],
        num_cpu_cores=CONTROL_CPUS,
        memory_gib=CONTROL_MEMORY_GIB,
        network=node.address,
        phase_transitions=_node_transitions(node.history),
    )


def _worker(view: ClusterView, node: Node, latest: Remediation | None) -> answers.WorkerNode:
    shape, gpu = view.instance_type, view.gpu_type
    slurm = view.cluster.spec.type is ClusterType.SLURM
    return answers.WorkerNode(
        node_id=node.id,
        node_name=node.name,
        instance_id=node.id,
        host_name=node.name,
        status=NODE_STATUS[node.phase],
        num_cpu_cores=shape.cpus if shape else 0,
        num_gpus=shape.gpus if shape else 0,
        memory_gib=shape.memory_gib if shape else 0,
        networks=[node.address] if node.address else [],
        phase_transitions=_node_transitions(node.history),
        auto_remediation_enabled=view.cluster.spec.failover,
        marked_for_deletion=node.phase in (NodePhase.LEAVING, NodePhase.GONE),
        ephemeral_storage=f"{shape.scratch_gib if shape else 0}Gi",
        ib_hca_count=gpu.ib_hca_count if gpu else 0,
        ib_hca_type=gpu.ib_hca_type if gpu else "",
        nvswitch_count=gpu.nvswitch_count if gpu else 0,
        nvswitch_type=gpu.nvswitch_type if gpu else "",
        slurm_worker_hostname=f"{node.name}.slurm-compute.slurm" if slurm else UNSET,
        latest_remediation=UNSET if latest is None else remediation_of(latest),
        deleted_at=_stamp(node.gone_at),
    )


def _node_transitions(history: Iterable[Moved]) -> list[answers.Transition]:
    """Several of our phases are one of theirs: a phase is told when it begins."""
    told: list[answers.Transition] = []
    for moved in history:
        word = NODE_PHASE[NodePhase(moved.phase)]
        if not told or told[-1].phase != word:
            told.append(answers.Transition(phase=word, transition_time=stamp(moved.at)))
    return told


def _lifecycle(view: ClusterView, now: Instant) -> list[tuple[Instant, answers.LifecycleEvent]]:
    """Workers that came after the first start, and workers that went, in the last 72 hours."""
    started = view.cluster.created_at
    events = [
        (node.created_at, _event(node, "TogetherScaledUp", node.history[0].because, node.created_at))
        for node in (*view.workers(), *view.gone_nodes)
        if node.role is NodeRole.WORKER and node.created_at > started and node.history
    ]
    events += [
        (node.gone_at, _event(node, _way_out(node), _why_gone(node), node.gone_at))
        for node in view.gone_nodes
        if node.role is NodeRole.WORKER and node.gone_at is not None
    ]
    events += [
        (node.warned_at, _event(node, "TogetherPreemptionNotified", "others need its host", node.warned_at))
        for node in (*view.workers(), *view.gone_nodes)
        if node.warned_at is not None
    ]
    return sorted((e for e in events if e[0] + LIFECYCLE_TOLD > now), key=lambda e: (e[0], e[1].node_id))


def _way_out(node: Node) -> str:
    return "TogetherScaledDown" if node.reclaim_at is None else "TogetherPreempted"


def _why_gone(node: Node) -> str:
    """The reason it began to leave says more than that it is off."""
    leaving = [moved.because for moved in node.history if moved.phase == NodePhase.LEAVING]
    return leaving[-1] if leaving else node.because


def _event(node: Node, reason: str, message: str, at: Instant) -> answers.LifecycleEvent:
    return answers.LifecycleEvent(
        node_id=node.id, reason=reason, message=f"{node.name}: {message}", timestamp=stamp(at)
    )


# --- volumes and remediations ---------------------------------------------------------------------------------------


def size_tib(volume: Volume) -> int:
    """In whole TiB: a smaller volume, made through another door, counts as one."""
    return -(-volume.size_gib // GIB_PER_TIB)


def volume_of(volume: Volume, *, mounted: bool) -> answers.Volume:
    phase = volume.phase if volume.delete_wished_at is None else VolumePhase.DELETING
    bound = mounted and phase is VolumePhase.AVAILABLE
    return answers.Volume(
        volume_id=volume.id,
        volume_name=volume.name,
        size_tib=size_tib(volume),
        status=BOUND if bound else VOLUME_STATUS[phase],
    )


def _latest(remediations: Iterable[Remediation]) -> dict[str, Remediation]:
    """By node; they come oldest first."""
    return {remediation.node_id: remediation for remediation in remediations}


def remediation_of(remediation: Remediation) -> answers.Remediation:
    return answers.Remediation(
        id=remediation.id,
        cluster_id=remediation.cluster_id,
        instance_id=remediation.node_id,
        instance_name=remediation.node_name,
        mode=MODE[remediation.mode],
        state=STATE[remediation.state],
        trigger=TRIGGER[remediation.trigger],
        requested_by=remediation.requested_by,
        create_time=stamp(remediation.created_at),
        update_time=stamp(remediation.updated_at),
        evidence=remediation.evidence,
        reason=_said(remediation.reason),
        reviewed_by=_said(remediation.reviewed_by),
        review_comment=_said(remediation.review_comment),
        review_time=_stamp(remediation.reviewed_at),
        start_time=_stamp(remediation.started_at),
        end_time=_stamp(remediation.ended_at),
        error_message=_said(remediation.error),
    )

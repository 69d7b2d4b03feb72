"""Documents: what is kept, what is spliced in, and what a cluster's rows become on the wire."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from muster.core.clusters.snapshot import ClusterView
from muster.dialects.together import legacy
from muster.dialects.together.render import (
    LIFECYCLE_TOLD,
    is_old,
    may_have_kubeconfig,
    render_cluster,
    stamp,
    told,
    told_list,
    volume_of,
)
from muster.model.base import DAY, HOUR
from muster.model.catalog import GpuType, Image, InstanceType
from muster.model.clusters import (
    AddOn,
    Billing,
    CheckResult,
    Cluster,
    ClusterConfig,
    ClusterSpec,
    ClusterStatus,
    ClusterType,
    Condition,
    Moved,
    Node,
    NodeRole,
    Oidc,
)
from muster.model.health import Remediation, RemediationMode, RemediationState, RemediationTrigger
from muster.model.phases import NodePhase, Phase, VolumePhase
from muster.model.volumes import Volume

NOW = 1_700_000_000_000


def cluster(phase: Phase = Phase.READY, **more: Any) -> Cluster:
    spec = ClusterSpec(
        type=more.pop("type", ClusterType.SLURM),
        region="r",
        gpu_type="H100_SXM",
        instance_type="8xH100_SXM",
        image_id="image",
        config=more.pop("config", ClusterConfig()),
        ends_at=more.pop("ends_at", None),
        **({"workers": 1} | more.pop("term", {})),
    )
    fields: dict[str, Any] = {
        "version": 7,
        "phase_since": NOW,
        "because": "so",
        "digest": "",
        "status": ClusterStatus(),
    }
    return Cluster(
        id="c",
        account_id="a",
        project_id="p",
        name="n",
        live_name="n",
        region="r",
        phase=phase,
        spec=spec,
        created_at=NOW - 10 * HOUR,
        updated_at=NOW,
        **(fields | more),
    )


def worker(id: str, phase: NodePhase = NodePhase.RUNNING, **more: Any) -> Node:
    fields: dict[str, Any] = {"role": NodeRole.WORKER, "created_at": NOW - 10 * HOUR, "history": ()}
    return Node(
        id=id,
        cluster_id="c",
        project_id="p",
        name=f"worker-{id}",
        ordinal=0,
        phase=phase,
        phase_since=NOW,
        **(fields | more),
    )


def view(of: Cluster, nodes: list[Node] | None = None, **more: Any) -> ClusterView:
    return ClusterView(
        cluster=of,
        nodes=[worker("w")] if nodes is None else nodes,
        instance_type=InstanceType(
            id="8xH100_SXM", gpu_type="H100_SXM", gpus=8, cpus=192, memory_gib=2048, scratch_gib=100
        ),
        image=Image(id="image", region="r", os="ubuntu-22.04", cuda_version="12.6", driver_version="560"),
        gpu_type=GpuType(id="H100_SXM", title="H100", memory_gib=80, nvswitch_count=4, ib_hca_count=8),
        **more,
    )


def shown(of: ClusterView, now: int = NOW) -> dict[str, Any]:
    return dict(msgspec.json.decode(told(render_cluster(of, now, True))))


# --- kept and spliced -------------------------------------------------------------------------------------------


def test_the_secret_goes_in_on_the_way_out_and_is_never_kept() -> None:
    kept = render_cluster(view(cluster()), NOW, True)
    assert may_have_kubeconfig(kept)
    assert msgspec.json.decode(told(kept))["kube_config"] == ""
    with_secret = msgspec.json.decode(told(kept, 'apiVersion: v1\n"quoted"'))
    assert base64.b64decode(with_secret["kube_config"]).decode() == 'apiVersion: v1\n"quoted"'
    assert {**with_secret, "kube_config": ""} == msgspec.json.decode(told(kept))
    assert b"apiVersion" not in kept
    listed = msgspec.json.decode(told_list([kept, kept]))["clusters"]
    assert listed == [msgspec.json.decode(told(kept))] * 2
    assert msgspec.json.decode(told_list([])) == {"clusters": []}


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.GONE])
def test_every_phase_renders_and_only_serving_ones_have_a_kubeconfig(phase: Phase) -> None:
    kept = render_cluster(view(cluster(phase)), NOW, False)
    assert may_have_kubeconfig(kept) == (phase in (Phase.READY, Phase.DEGRADED))
    assert msgspec.json.decode(told(kept))["status"]


def test_lifecycle_events_are_told_for_72_hours_and_the_document_knows_when_it_is_old() -> None:
    gone_at = NOW - 71 * HOUR
    gone = worker(
        "g",
        NodePhase.GONE,
        gone_at=gone_at,
        created_at=NOW - 100 * HOUR,
        history=(Moved(phase=NodePhase.LEAVING, at=gone_at, because="the cluster shrinks"),),
    )
    old = replace(cluster(), created_at=NOW - 200 * HOUR)
    of = view(old, [], gone_nodes=[gone])
    kept = render_cluster(of, NOW, True)
    [event] = msgspec.json.decode(told(kept))["node_lifecycle_events"]
    assert event == {
        "node_id": "g",
        "reason": "TogetherScaledDown",
        "message": "worker-g: the cluster shrinks",
        "timestamp": stamp(gone_at),
    }
    assert not is_old(kept, NOW)
    assert is_old(kept, gone_at + LIFECYCLE_TOLD)
    later = render_cluster(of, gone_at + LIFECYCLE_TOLD, True)
    assert msgspec.json.decode(told(later))["node_lifecycle_events"] == []
    assert not is_old(later, gone_at + 100 * LIFECYCLE_TOLD)
    [deleted] = msgspec.json.decode(told(later))["deleted_gpu_worker_nodes"]
    assert deleted["deleted_at"] == stamp(gone_at)


def test_workers_of_the_first_start_are_no_events_and_later_ones_are() -> None:
    history = (Moved(phase=NodePhase.PENDING, at=NOW, because="in place of worker-w: it died"),)
    late = worker("x", created_at=NOW, history=history)
    events = shown(view(cluster(), [worker("w"), late]))["node_lifecycle_events"]
    assert [(e["node_id"], e["reason"]) for e in events] == [("x", "TogetherScaledUp")]


# --- words ------------------------------------------------------------------------------------------------------


def moved(*phases: Phase) -> tuple[Moved, ...]:
    return tuple(Moved(phase=phase, at=NOW + i) for i, phase in enumerate(phases))


def transitions(of: Cluster) -> list[str]:
    return [t["phase"].removeprefix("CLUSTER_PHASE_") for t in shown(view(of))["phase_transitions"]]


def test_a_failure_is_told_by_what_failed() -> None:
    way = moved(Phase.NETWORK, Phase.STORAGE, Phase.FAILED)
    failed = cluster(Phase.FAILED, status=ClusterStatus(history=way))
    assert transitions(failed) == ["WAITING_FOR_SUBNET", "WAITING_FOR_SHARED_VOLUME", "WAITING_FOR_SHARED_VOLUME"]
    assert shown(view(failed))["status"] == "Degraded"
    for tests, word in (("nccl_multi_node", "NCCL_TESTS_FAILED"), ("gpu_burn", "ACCEPTANCE_TESTS_FAILED")):
        result = (CheckResult(test=tests, node_id="w", passed=False),)
        status = ClusterStatus(history=moved(Phase.TESTING, Phase.FAILED), tests=result)
        assert transitions(cluster(Phase.FAILED, status=status))[-1] == word


def test_a_nodes_phases_are_told_when_they_begin() -> None:
    phases = (NodePhase.PENDING, NodePhase.BOOTING, NodePhase.JOINING, NodePhase.RUNNING, NodePhase.DRAINING)
    history = tuple(Moved(phase=phase, at=NOW) for phase in phases)
    [node] = shown(view(cluster(), [worker("w", NodePhase.DRAINING, history=history)]))["gpu_worker_nodes"]
    told_phases = [t["phase"].removeprefix("NODE_PHASE_") for t in node["phase_transitions"]]
    assert told_phases == ["SCHEDULING", "BOOTING", "BOOTSTRAPPING", "RUNNING"]
    assert node["status"] == "Draining"


def test_conditions_and_reasons_are_told() -> None:
    status = ClusterStatus(
        conditions=(Condition(type="Stuck", since=NOW, message="too long"),), waiting_for="its network"
    )
    seen = shown(view(cluster(Phase.NETWORK, status=status)))
    assert seen["conditions"] == [{"type": "Stuck", "message": "too long", "since": stamp(NOW)}]
    assert (seen["status"], seen["status_message"]) == ("WaitingForSubnet", "its network")


def test_a_terse_document_differs_only_in_what_is_off() -> None:
    def both(config: ClusterConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        of = view(cluster(config=config))
        return shown(of), dict(msgspec.json.decode(told(render_cluster(of, NOW, True, terse=True))))

    whole, terse = both(ClusterConfig())
    assert (whole.pop("add_ons"), whole.pop("cluster_config")["load_balancer"]) == ([], "NONE")
    assert terse == whole
    whole, terse = both(
        ClusterConfig(load_balancer="nginx", jumphost=True, add_ons=(AddOn(type="ingress", name="i"),))
    )
    assert terse["cluster_config"] == {"load_balancer": "NGINX", "jumphost_enabled": True}
    assert terse["add_ons"] == whole["add_ons"] != []


def test_an_authority_that_was_not_named_is_not_told() -> None:
    names = "issuer_url client_id username_claim username_prefix group_claim group_prefix"
    said = dict.fromkeys(names.split(), "x")
    seen = shown(view(cluster(config=ClusterConfig(oidc=Oidc(**said)))))
    assert seen["oidc_config"] == said
    seen = shown(view(cluster(config=ClusterConfig(oidc=Oidc(**said, ca_cert="PEM")))))
    assert seen["oidc_config"] == {**said, "ca_cert": "PEM"}


def test_only_add_ons_that_are_on_are_told_and_the_dashboard_is_one_switch() -> None:
    add_ons = (AddOn(type="dashboard", name="d"), AddOn(type="torchpass", name="t", enabled=False))
    seen = shown(view(cluster(config=ClusterConfig(add_ons=add_ons))))
    assert [(a["add_on_type"], a["name"], a["state"]) for a in seen["add_ons"]] == [
        ("dashboard", "d", {"dashboard": {}})
    ]
    assert seen["cluster_config"]["kubernetes_dashboard_enabled"] is True


def test_what_belongs_to_slurm_is_told_of_slurm_only() -> None:
    slurm, kube = shown(view(cluster())), shown(view(cluster(type=ClusterType.KUBERNETES)))
    assert slurm["slurm_shm_size_gib"] == 16
    assert slurm["gpu_worker_nodes"][0]["slurm_worker_hostname"] == "worker-w.slurm-compute.slurm"
    assert "slurm_shm_size_gib" not in kube
    assert "slurm_worker_hostname" not in kube["gpu_worker_nodes"][0]


def test_the_last_repair_of_a_node_is_told_with_it() -> None:
    one = Remediation(
        id="r1",
        account_id="a",
        project_id="p",
        cluster_id="c",
        node_id="w",
        node_name="worker-w",
        open_node_id=None,
        mode=RemediationMode.EVICT,
        state=RemediationState.FAILED,
        trigger=RemediationTrigger.AUTOMATED,
        requested_by="x",
        error="no",
        evidence=("seen",),
        created_at=NOW,
        updated_at=NOW,
    )
    [node] = shown(view(cluster(), remediations=[one, replace(one, id="r2")]))["gpu_worker_nodes"]
    latest = node["latest_remediation"]
    assert (latest["id"], latest["mode"], latest["error_message"]) == (
        "r2",
        "REMEDIATION_MODE_EVICT_WITHOUT_REPLACEMENT",
        "no",
    )


def test_a_cluster_whose_catalogue_lines_are_missing_renders_all_the_same() -> None:
    bare = ClusterView(cluster=cluster(), nodes=[worker("w")])
    assert shown(bare)["num_gpus"] == 0
    assert msgspec.json.decode(legacy.render_cluster(bare))["driver_version"] == ""


@pytest.mark.parametrize(("gib", "tib"), [(1, 1), (1024, 1), (1025, 2), (4096, 4)])
def test_volumes_are_told_in_whole_tib(gib: int, tib: int) -> None:
    volume = Volume(
        id="v",
        account_id="a",
        project_id="p",
        name="v",
        live_name="v",
        region="r",
        size_gib=gib,
        phase=VolumePhase.AVAILABLE,
        phase_since=NOW,
        created_at=NOW,
        updated_at=NOW,
    )
    assert (volume_of(volume, mounted=False).size_tib, volume_of(volume, mounted=False).status) == (tib, "available")
    assert volume_of(volume, mounted=True).status == "bound"
    assert volume_of(replace(volume, phase=VolumePhase.DELETING), mounted=True).status == "deleting"
    assert volume_of(replace(volume, delete_wished_at=NOW), mounted=True).status == "deleting"


def test_a_term_is_told_in_hours() -> None:
    ending = cluster(ends_at=NOW + 14 * HOUR)
    seen = shown(view(ending))
    assert (seen["duration_hours"], seen["reservation_end_time"]) == (24, stamp(NOW + 14 * HOUR))
    assert legacy.cluster_of(view(ending)).duration_hours == 24
    hasty = replace(
        ending, created_at=ending.created_at + 7
    )  # the row was written a moment after its end was reckoned
    assert shown(view(hasty))["duration_hours"] == 24
    assert (seen["num_reserved_gpus"], "reservation_start_time" in seen) == (0, False)


def test_a_reserved_term_counts_from_the_first_ready() -> None:
    term = {"billing": Billing.RESERVED, "duration_ms": 2 * DAY, "reserved_workers": 1, "workers": 2}
    waiting = shown(view(cluster(Phase.WORKERS, term=term)))
    assert (waiting["billing_type"], waiting["duration_hours"]) == ("RESERVED", 48)
    assert (waiting["num_gpus"], waiting["num_reserved_gpus"]) == (16, 8)
    assert not {"reservation_start_time", "reservation_end_time"} & set(waiting)
    ready = cluster(term=term, status=ClusterStatus(first_ready_at=NOW))
    seen = shown(view(ready))
    assert (seen["reservation_start_time"], seen["reservation_end_time"]) == (stamp(NOW), stamp(NOW + 2 * DAY))
    longer = shown(view(cluster(term=term, status=ready.status, ends_at=NOW + 3 * DAY)))
    assert (longer["reservation_end_time"], longer["duration_hours"]) == (stamp(NOW + 3 * DAY), 72)


def test_a_scheduled_window_is_told_as_it_was_asked() -> None:
    term: dict[str, Any] = {"billing": Billing.SCHEDULED}
    ahead = cluster(Phase.SCHEDULED, term=term | {"starts_at": NOW + HOUR}, ends_at=NOW + 5 * HOUR)
    seen = shown(view(ahead, []))
    assert (seen["status"], seen["billing_type"], seen["num_reserved_gpus"]) == ("Scheduled", "SCHEDULED_CAPACITY", 8)
    assert (seen["reservation_start_time"], seen["duration_hours"]) == (stamp(NOW + HOUR), 4)
    at_once = shown(view(cluster(Phase.SCHEDULED, term=term, ends_at=NOW), []))
    assert (at_once["reservation_start_time"], at_once["duration_hours"]) == (stamp(NOW - 10 * HOUR), 10)
    assert legacy.cluster_of(view(ahead, [])).status == "QUEUED"

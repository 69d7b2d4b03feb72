"""Between the house's words and the native wire's, both ways. Pure.

Leans on model, core's commands and views, and this dialect's structs. *Law.* Total: every field of a noun that may be
told has its place; instants become stamps by the one rule below.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import asdict

from muster.core.clusters.commands import CreateCluster, MountWish, UpdateCluster
from muster.core.clusters.explain import Explanation
from muster.core.clusters.snapshot import ClusterView
from muster.dialects.native import views, wire
from muster.model.base import Instant
from muster.model.clusters import Acceptance, AccessFacts, Cluster, ClusterConfig, Condition, Node, NodeRole
from muster.model.phases import CLUSTER_LIMITS
from muster.model.volumes import Volume

V = TypeVar("V", bound=views.View)

_STAMP_ENDS: Final = ("_at", "_since", "_from")
_STAMP_NAMES: Final = frozenset({"at", "since", "until"})
_NEVER: Final = 10**15
"""An instant beyond all others: a phase without a limit is never late."""

HEAD_BYTES: Final = 32
"""Before a rendered cluster: when it becomes stuck, and its version, 16 digits each. Neither is sent."""

_FRESH, _STUCK = b'{"stuck":false', b'{"stuck":true'


@functools.lru_cache(maxsize=256)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()[:19]


@functools.lru_cache(maxsize=1024)
def stamp(at: Instant) -> str:
    """RFC 3339 with milliseconds and Z. A document says the same few instants often: each is worded once."""
    return f"{_second(at // 1_000)}.{at % 1_000:03d}Z"


def instant(at: datetime | None) -> Instant | None:
    return None if at is None else int(at.timestamp() * 1_000)


def shown(noun: Any, view: type[V], **instead: Any) -> V:
    """A noun as this view: fields of the same name, instants stamped, `instead` taking precedence."""
    names, values_of, instants = _plan_of(view, tuple(instead))
    fields = dict(zip(names, values_of(noun), strict=True))
    for name in instants:
        if fields[name] is not None:
            fields[name] = stamp(fields[name])
    return view(**fields, **instead)


class _Plan(NamedTuple):
    """The fields that are read off a noun, how, and which of them are instants."""

    names: tuple[str, ...]
    values_of: Callable[[Any], tuple[Any, ...]]
    instants: tuple[str, ...]


@functools.cache
def _plan_of(view: type[views.View], instead: tuple[str, ...]) -> _Plan:
    names = tuple(name for name in view.__struct_fields__ if name not in instead)
    instants = tuple(name for name in names if name in _STAMP_NAMES or name.endswith(_STAMP_ENDS))
    # With one name alone an attrgetter answers with the bare value.
    return _Plan(names, attrgetter(*names) if len(names) > 1 else _single(names), instants)


def _single(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda noun: tuple(getattr(noun, name) for name in names)


# --- clusters


def render_cluster(view: ClusterView, simulated: bool) -> bytes:
    """The document that is kept: `stuck` is always false in it and set right by `told` at the moment of telling."""
    cluster = view.cluster
    limit = CLUSTER_LIMITS[cluster.phase]
    late_at = _NEVER if limit is None else cluster.phase_since + limit
    return b"%016d%016d" % (late_at, cluster.version) + msgspec.json.encode(cluster_view(view, simulated))


def told(document: bytes, now: Instant) -> bytes:
    """A kept document as it is true now."""
    if document[:16] >= b"%016d" % now:
        return document[HEAD_BYTES:]
    return _STUCK + document[HEAD_BYTES + len(_FRESH) :]


def told_page(documents: Sequence[bytes], next_cursor: str | None, now: Instant) -> bytes:
    tail = msgspec.json.encode(next_cursor)
    return b'{"items":[' + b",".join(told(each, now) for each in documents) + b'],"next_cursor":' + tail + b"}"


def tag_of(document: bytes) -> str:
    return f'"{int(document[16:HEAD_BYTES])}"'


def cluster_view(view: ClusterView, simulated: bool) -> views.Cluster:
    cluster, spec, status = view.cluster, view.cluster.spec, view.cluster.status
    # By hand, field for field: every create and every change of a cluster passes here.
    return views.Cluster(
        stuck=False,
        id=cluster.id,
        number=cluster.number,
        name=cluster.name,
        project_id=cluster.project_id,
        account_id=cluster.account_id,
        type=spec.type,
        phase=cluster.phase,
        phase_since=stamp(cluster.phase_since),
        because=cluster.because,
        region=cluster.region,
        gpu_type=spec.gpu_type,
        instance_type=spec.instance_type,
        workers=spec.workers,
        gpus=view.gpus,
        autoscale=autoscaled(view),
        preemptible=views.Preemptible(wished=view.lent_wished, allocated=view.lent_gpus),
        pool_id=spec.pool_id,
        pool_gpus=view.pool_gpus,
        image_id=spec.image_id,
        billing=spec.billing,
        reserved_workers=spec.reserved_workers,
        starts_at=_stamp(spec.starts_at),
        ends_at=_stamp(cluster.ends_at),
        failover=spec.failover,
        paused=spec.paused,
        deletion_protection=spec.deletion_protection,
        ssh_keys=list(spec.ssh_keys),
        security_group_ids=list(spec.security_group_ids),
        reserved_ip_id=spec.reserved_ip_id,
        config=_config(spec.config),
        acceptance=_acceptance(spec.acceptance),
        generation=cluster.generation,
        observed_generation=status.observed_generation,
        version=cluster.version,
        conditions=conditions(status.conditions),
        history=[
            views.Moved(phase=moved.phase, at=stamp(moved.at), because=moved.because) for moved in status.history
        ],
        waiting=waiting(status.waiting_for, status.waiting_until),
        nodes=nodes(view),
        volumes=mounts(view),
        tests=[shown(result, views.Tested) for result in status.tests],
        access=_access(status.access),
        simulated=simulated,
        first_ready_at=_stamp(status.first_ready_at),
        created_at=stamp(cluster.created_at),
        updated_at=stamp(cluster.updated_at),
        delete_wished_at=_stamp(cluster.delete_wished_at),
    )


def _stamp(at: Instant | None) -> str | None:
    return None if at is None else stamp(at)


def autoscaled(view: ClusterView) -> views.Autoscaled | None:
    spec, shape = view.cluster.spec, view.instance_type
    if spec.autoscale is None or shape is None:
        return None
    return views.Autoscaled(max_gpus=spec.autoscale.max_workers * shape.gpus, gpus=spec.own_workers * shape.gpus)


def _config(config: ClusterConfig) -> wire.Config:
    return _PLAIN_CONFIG if config == _NO_CONFIG else msgspec.convert(config, wire.Config, from_attributes=True)


def _acceptance(acceptance: Acceptance) -> wire.Acceptance:
    if acceptance == _NO_ACCEPTANCE:
        return _PLAIN_ACCEPTANCE
    return msgspec.convert(acceptance, wire.Acceptance, from_attributes=True)


def _access(facts: AccessFacts) -> views.Access:
    return _PLAIN_ACCESS if facts == _NO_ACCESS else shown(facts, views.Access)


# What most clusters have is worded once.
_NO_CONFIG, _NO_ACCEPTANCE, _NO_ACCESS = ClusterConfig(), Acceptance(), AccessFacts()
_PLAIN_CONFIG: Final = msgspec.convert(_NO_CONFIG, wire.Config, from_attributes=True)
_PLAIN_ACCEPTANCE: Final = msgspec.convert(_NO_ACCEPTANCE, wire.Acceptance, from_attributes=True)
_PLAIN_ACCESS: Final = shown(_NO_ACCESS, views.Access)


def conditions(said: Sequence[Condition]) -> list[views.Condition]:
    return [shown(condition, views.Condition) for condition in said]


def waiting(reason: str, until: Instant | None) -> views.Waiting | None:
    return views.Waiting(for_=reason, until=None if until is None else stamp(until)) if reason else None


def nodes(view: ClusterView) -> list[views.Node]:
    return [_node(view, node) for node in view.nodes]


@functools.lru_cache(maxsize=4096)
def _slots_of(mask: int) -> tuple[int, ...]:
    return tuple(slot for slot in range(mask.bit_length()) if mask >> slot & 1)


def _node(view: ClusterView, node: Node) -> views.Node:
    lease = view.leases.get(node.lease_id or "")
    mask = lease.slots if lease else 0
    slots = _slots_of(mask)
    works = node.role is NodeRole.WORKER or view.cluster.spec.single_node
    # By hand: there are three in the smallest cluster, and each is worded anew whenever one of them moves.
    return views.Node(
        id=node.id,
        name=node.name,
        role=node.role,
        phase=node.phase,
        phase_since=stamp(node.phase_since),
        because=node.because,
        host_id=node.host_id,
        host_name=node.host_name,
        address=node.address,
        gpus=len(slots) if works else 0,
        slots=slots,
        share=node.share,
        reclaim_at=None if node.reclaim_at is None else stamp(node.reclaim_at),
        created_at=stamp(node.created_at),
    )


def mounts(view: ClusterView) -> list[views.Mounted]:
    return [
        views.Mounted(
            volume_id=volume.id,
            name=volume.name,
            mount_path=attachment.mount_path,
            read_only=attachment.read_only,
            size_gib=volume.size_gib,
            phase=volume.phase,
        )
        for attachment, volume in view.mounts
    ]


def explained(cluster: Cluster, why: Explanation) -> views.Explained:
    return shown(
        why,
        views.Explained,
        id=cluster.id,
        name=cluster.name,
        waiting=waiting(why.waiting_for, why.waiting_until),
        conditions=conditions(why.conditions),
        troubled=list(why.troubled),
        steps=[shown(event, views.Event) for event in why.steps],
    )


def create_cluster(said: wire.NewCluster) -> CreateCluster:
    if _ADORNMENTS(said) == _UNADORNED:
        return CreateCluster(**dict(zip(_PLAIN, _plain(said), strict=True)))
    return _command(said, CreateCluster)


# What most wishes leave out has a form of its own in the core; without it the fields are the same.
_ADORNMENTS: Final = attrgetter("starts_at", "ends_at", "autoscale", "mounts", "acceptance", "config")
_UNADORNED: Final = (None, None, None, (), wire.Acceptance(), wire.Config())
_PLAIN: Final = tuple(
    name
    for name in wire.NewCluster.__struct_fields__
    if name not in ("starts_at", "ends_at", "autoscale", "mounts", "acceptance", "config")
)
_plain: Final = attrgetter(*_PLAIN)


def update_cluster(said: wire.ClusterChange, config: ClusterConfig | None) -> UpdateCluster:
    return msgspec.structs.replace(_command(said, UpdateCluster, leave_out=("config",)), config=config)


def mount_wish(said: wire.MountBody) -> MountWish:
    return MountWish(volume_id=said.volume_id, path=said.path, read_only=said.read_only)


C = TypeVar("C", CreateCluster, UpdateCluster)


def _command(said: wire.NewCluster | wire.ClusterChange, command: type[C], leave_out: tuple[str, ...] = ()) -> C:
    fields = asdict(said)
    fields |= {name: instant(fields[name]) for name in ("starts_at", "ends_at") if name in fields}
    return msgspec.convert({k: v for k, v in fields.items() if k not in leave_out}, command, from_attributes=True)


def changed_config(now: ClusterConfig, said: dict[str, Any]) -> ClusterConfig:
    """The present configuration with what a caller said laid over it; what was not said stays."""
    current = cast(dict[str, Any], msgspec.to_builtins(now))
    scripts = {**current.get("scripts", {}), **said.get("scripts", {})}
    return msgspec.convert({**current, **said, "scripts": scripts}, ClusterConfig)


# --- volumes


def volume_view(volume: Volume, now: Instant) -> views.Volume:
    return shown(volume, views.Volume, stuck=volume.stuck_since(now) is not None)

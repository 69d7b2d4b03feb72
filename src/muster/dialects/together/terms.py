"""How long a cluster is wished for and who pays how, in Together's words: create and update. Pure.

ON_DEMAND: until deleted, or for duration_days. RESERVED: duration_days from its first being ready.
SCHEDULED_CAPACITY: from reservation_start_time (at once, unless said) to reservation_end_time.

Leans on wire, words and core's view of a cluster. *Law.* What was not said stays unsaid in the command, so that the
same create again is the same wish: "from now on" is no instant here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from muster.core.clusters.snapshot import ClusterView
from muster.dialects.together import wire
from muster.dialects.together.asking import word
from muster.dialects.together.words import BILLING
from muster.errors import Invalid, Unsupported, WrongPhase
from muster.model.base import DAY, SECOND, Instant
from muster.model.clusters import Billing, Cluster

NODE_GPUS: Final = 8
RESERVED_DAYS_MAX: Final = 90
ON_DEMAND_DAYS_MAX: Final = 3650


class Term(NamedTuple):
    """These fields of the house's create."""

    billing: Billing = Billing.ON_DEMAND
    lasts_ms: Instant | None = None
    duration_days: float | None = None
    reserved_gpus: int | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None


def whole_nodes(gpus: int, field: str, *, least: int = 0) -> int:
    if gpus % NODE_GPUS or gpus < least:
        raise Invalid(f"{field} must be a multiple of {NODE_GPUS} and at least {least}, not {gpus}", field=field)
    return gpus


# --- create ---------------------------------------------------------------------------------------------------------


def new_term(said: wire.NewCluster, gpus: int) -> Term:
    billing = word(said.billing_type or "", BILLING, "billing_type")
    if billing is Billing.ON_DEMAND:
        return Term(lasts_ms=_on_demand(said))
    share = _share(said.num_reserved_gpus, gpus)
    if billing is Billing.RESERVED:
        return _reserved(said)._replace(reserved_gpus=share)
    if share is not None:
        raise Invalid("SCHEDULED_CAPACITY is reserved as a whole", field="num_reserved_gpus")
    return _scheduled(said)


def _on_demand(said: wire.NewCluster) -> Instant | None:
    """How long it is to last; None = until it is deleted."""
    if said.num_reserved_gpus:
        raise Invalid("num_reserved_gpus is only for RESERVED clusters", field="num_reserved_gpus")
    _check_no_window(said)
    if said.duration_days is None:
        return None
    if not 1 <= said.duration_days <= ON_DEMAND_DAYS_MAX:
        raise Invalid(f"duration_days must be between 1 and {ON_DEMAND_DAYS_MAX}", field="duration_days")
    return said.duration_days * DAY


def _reserved(said: wire.NewCluster) -> Term:
    _check_no_window(said)
    if said.duration_days is None or not 1 <= said.duration_days <= RESERVED_DAYS_MAX:
        raise Invalid(
            f"RESERVED needs duration_days between 1 and {RESERVED_DAYS_MAX}",
            field="duration_days",
            hint="Or use ON_DEMAND",
        )
    return Term(billing=Billing.RESERVED, duration_days=said.duration_days)


def _scheduled(said: wire.NewCluster) -> Term:
    if said.reservation_end_time is None:
        raise Invalid("SCHEDULED_CAPACITY needs reservation_end_time", field="reservation_end_time")
    if said.duration_days:
        raise Invalid(
            "SCHEDULED_CAPACITY ends at reservation_end_time, not after duration_days", field="duration_days"
        )
    starts_at = None if said.reservation_start_time is None else instant(said.reservation_start_time)
    ends_at = instant(said.reservation_end_time)
    if starts_at is not None and starts_at >= ends_at:
        raise Invalid("the reservation would end before it begins", field="reservation_end_time")
    return Term(billing=Billing.SCHEDULED, starts_at=starts_at, ends_at=ends_at)


def _check_no_window(said: wire.NewCluster) -> None:
    for field in ("reservation_start_time", "reservation_end_time"):
        if getattr(said, field) is not None:
            raise Invalid(f"{field} is only for SCHEDULED_CAPACITY clusters", field=field)


def _share(reserved: int | None, gpus: int) -> int | None:
    """How many are reserved, when that is not all of them; absent or 0 means all."""
    if reserved and whole_nodes(reserved, "num_reserved_gpus") > gpus:
        raise Invalid("num_reserved_gpus cannot be more than num_gpus", field="num_reserved_gpus")
    return reserved if reserved and reserved < gpus else None


# --- update ---------------------------------------------------------------------------------------------------------


def new_end(said: wire.ClusterChange, view: ClusterView) -> Instant | None:
    """Another end for a cluster that is paid for up to one; None = the same."""
    cluster = view.cluster
    _check_same_share(said.num_reserved_gpus, view)
    if said.reservation_end_time is None:
        return None
    if cluster.spec.billing is Billing.ON_DEMAND:
        raise Invalid("reservation_end_time is only for prepaid clusters", field="reservation_end_time")
    if cluster.ends_at is None:
        raise WrongPhase(
            "its reservation begins when it is first Ready",
            field="reservation_end_time",
            hint="Wait until it is; its end can be moved then",
        )
    if said.num_gpus is not None and said.num_gpus > view.gpus:
        raise Invalid(
            "more GPUs and another end are two wishes",
            field="reservation_end_time",
            hint="Ask for one, then the other",
        )
    ends_at = instant(said.reservation_end_time)
    if ends_at <= (reserved_from(cluster) or cluster.created_at):
        raise Invalid("the reservation would end before it begins", field="reservation_end_time")
    return ends_at


def _check_same_share(reserved: int | None, view: ClusterView) -> None:
    if not reserved:
        return
    if view.cluster.spec.billing is Billing.ON_DEMAND:
        raise Invalid("num_reserved_gpus is only for RESERVED clusters", field="num_reserved_gpus")
    held = reserved_gpus(view)
    if whole_nodes(reserved, "num_reserved_gpus") != held:
        raise Unsupported(
            f"{held} GPUs were reserved and stay so",
            field="num_reserved_gpus",
            hint="Update num_gpus: what is above is on demand",
        )


# --- what is told ---------------------------------------------------------------------------------------------------


def reserved_gpus(view: ClusterView) -> int:
    """GPUs that are paid for by a contract; those above are on demand."""
    spec = view.cluster.spec
    if spec.billing is Billing.ON_DEMAND or view.instance_type is None:
        return 0
    workers = spec.workers if spec.reserved_workers is None else spec.reserved_workers
    return workers * view.instance_type.gpus


def reserved_from(cluster: Cluster) -> Instant | None:
    """When its reservation begins, once that is known."""
    if cluster.spec.billing is Billing.SCHEDULED:
        return cluster.spec.starts_at or cluster.created_at
    return cluster.status.first_ready_at if cluster.spec.billing is Billing.RESERVED else None


def lasting(cluster: Cluster) -> Instant:
    """How long it was asked for; 0 = until it is deleted. An end is reckoned a moment before the row is written."""
    spec = cluster.spec
    if spec.ends_at is None:
        return spec.duration_ms or 0
    asked = spec.ends_at - (reserved_from(cluster) or cluster.created_at)
    return -(-asked // SECOND) * SECOND


def instant(at: datetime) -> Instant:
    """A time without a zone is in UTC."""
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)

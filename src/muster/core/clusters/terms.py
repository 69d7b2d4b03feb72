"""How long a cluster is wished for, and what that asks of the calendar. Pure.

ON_DEMAND: until deleted, or an end if given. RESERVED: a duration from its first being ready. SCHEDULED: from a
start, at which it is to be ready (at once, unless said), to an end.
"""

from __future__ import annotations

from typing import Final

from muster.core.clusters.commands import CreateCluster
from muster.core.moments import said_at
from muster.errors import Invalid
from muster.model.base import DAY, HOUR, MINUTE, Instant
from muster.model.catalog import InstanceType
from muster.model.clusters import Billing, Cluster, ClusterSpec

PROVISION_LIMIT: Final = 4 * HOUR
"""What a reserved cluster books beyond its duration, for becoming ready; the rest is given back when it is."""
NOTICE: Final = 1 * DAY
"""How long before its end a cluster is told about it; of a short term its last tenth."""
DURATION_DAYS_MAX: Final = 365
ENDS_DAYS_MAX: Final = 3 * 366
"""How far ahead an end may lie: the calendar counts every hour until then."""


def check_term(command: CreateCluster, now: Instant) -> None:
    """Whether the words about time make sense together."""
    if command.ends_at is not None and command.ends_at <= now:
        raise Invalid("the cluster would end before it began", field="ends_at")
    checked_end(command.ends_at, now)
    if command.duration_days is not None and not 0 < command.duration_days <= DURATION_DAYS_MAX:
        raise Invalid(f"duration_days must be between 1 and {DURATION_DAYS_MAX}", field="duration_days")
    if command.reserved_gpus and (command.quote_id or command.billing is not Billing.RESERVED):
        raise Invalid("only a reserved cluster may be reserved in part", field="reserved_gpus")
    if command.quote_id:
        return
    if command.billing is Billing.RESERVED and command.duration_days is None:
        raise Invalid("a reserved cluster says for how many days", field="duration_days", hint="for example 7")
    if command.billing is Billing.SCHEDULED:
        _check_window(command, now)
    elif command.starts_at is not None:
        raise Invalid("only scheduled capacity has a start", field="starts_at", hint="say billing: scheduled")


def checked_end(ends_at: Instant | None, now: Instant) -> Instant | None:
    if ends_at is not None and ends_at > now + ENDS_DAYS_MAX * DAY:
        raise Invalid(
            f"an end lies at most {ENDS_DAYS_MAX} days ahead",
            field="ends_at",
            hint="without an end it stays until it is deleted",
        )
    return ends_at


def reserved_workers(command: CreateCluster, shape: InstanceType, workers: int) -> int | None:
    """How many of its workers its contract pays for; None when none does."""
    if command.billing is Billing.ON_DEMAND:
        return None
    if not command.reserved_gpus:
        return workers
    reserved, rest = divmod(command.reserved_gpus, shape.gpus)
    if rest or not 0 < reserved <= workers:
        raise Invalid(
            f"reserved_gpus must be a multiple of {shape.gpus} and at most {workers * shape.gpus}",
            field="reserved_gpus",
        )
    return reserved


def _check_window(command: CreateCluster, now: Instant) -> None:
    starts_at = now if command.starts_at is None else command.starts_at
    if starts_at < now - MINUTE:
        raise Invalid("its start is over already", field="starts_at", hint="ask for reserved or on_demand")
    ends_at = window_end(command)
    if ends_at is None or ends_at <= starts_at:
        raise Invalid("a scheduled cluster says when it ends, after its start", field="ends_at")


def window_end(command: CreateCluster) -> Instant | None:
    if command.ends_at is None and command.starts_at is not None and command.duration_days is not None:
        return command.starts_at + duration_ms(command.duration_days)
    return command.ends_at


def duration_ms(days: float) -> Instant:
    return round(days * DAY)


def held_until(cluster: Cluster) -> Instant | None:
    """When its hosts will be given back, as far as anybody knows."""
    ends_at = cluster.ends_at
    if ends_at is not None or cluster.spec.duration_ms is None:
        return ends_at
    return cluster.created_at + PROVISION_LIMIT + cluster.spec.duration_ms


def notice_at(cluster: Cluster) -> Instant | None:
    """When its end is to be announced."""
    ends_at = cluster.ends_at
    if ends_at is None:
        return None
    return ends_at - min(NOTICE, (ends_at - cluster.created_at) // 10)


def look_again_at(cluster: Cluster, now: Instant) -> Instant | None:
    """The next instant at which its term asks for something."""
    times = [at for at in (notice_at(cluster), cluster.ends_at) if at is not None and at > now]
    return min(times, default=None)


def ending(cluster: Cluster, now: Instant) -> str:
    """The notice, while it holds."""
    at, ends_at = notice_at(cluster), cluster.ends_at
    if at is None or ends_at is None or now < at:
        return ""
    return f"its term ends {said_at(ends_at)}; set ends_at to extend it"


def waits_because(spec: ClusterSpec) -> str:
    return "its window begins" if spec.billing is Billing.SCHEDULED else "it was its turn"

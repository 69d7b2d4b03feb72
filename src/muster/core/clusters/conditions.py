"""What is observed of a cluster beside its phase: conditions that may heal, told since when each holds. Pure."""

from __future__ import annotations

import msgspec.structs

from muster.core.clusters.telling import cluster_event
from muster.core.clusters.terms import ending
from muster.model.base import Instant
from muster.model.clusters import Cluster, Condition
from muster.model.events import Event
from muster.model.phases import SERVING, Phase


def with_status(cluster: Cluster, **fields: object) -> Cluster:
    return msgspec.structs.replace(cluster, status=msgspec.structs.replace(cluster.status, **fields))


def announced(before: Cluster, after: Cluster, now: Instant) -> list[Event]:
    """The notice of its end, once: tenants listen to events, not to conditions."""
    ending_now = [one for one in after.status.conditions if one.type == "Ending" and one.since == now]
    if not ending_now or before.status.conditions == after.status.conditions:
        return []
    return [cluster_event(after, "ending", ending_now[0].message, now, ends_at=after.ends_at)]


def with_conditions(cluster: Cluster, now: Instant) -> Cluster:
    """Conditions are computed anew with every record, keeping the instant since when each holds."""
    since = {condition.type: condition.since for condition in cluster.status.conditions}
    holds: dict[str, str] = {}
    if cluster.phase in SERVING and cluster.status.observed_generation < cluster.generation:
        holds["Updating"] = "the last change is being made"
    if cluster.phase in SERVING and (notice := ending(cluster, now)):
        holds["Ending"] = notice
    if cluster.phase in SERVING and cluster.status.growth_waits:
        holds["GrowthWaits"] = cluster.status.growth_waits
    if cluster.phase is Phase.DEGRADED:
        holds["NodesMissing"] = cluster.because
    if cluster.stuck_since(now) is not None:
        holds["Stuck"] = f"{cluster.phase} has lasted longer than it may"
    conditions = tuple(Condition(type=t, since=since.get(t, now), message=m) for t, m in holds.items())
    return cluster if conditions == cluster.status.conditions else with_status(cluster, conditions=conditions)

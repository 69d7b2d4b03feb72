"""Capacity in time: a reserved cluster, one that is scheduled for later, one that is scheduled from now on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import together
from client import Story, create_args, tell, whole

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


async def refused(s: Story, id: str, **said: Any) -> str:
    try:
        await s.call(s.clusters.update, id, **said)
    except together.APIStatusError as error:
        return f"{error.status_code} {error}"
    raise AssertionError(f"{said} was not refused")


def waiting(cluster: Any) -> Any:
    """Scheduled is a status that the command line knows and the SDK's own list of them leaves out: all but it is held
    against the type."""
    assert cluster.status == "Scheduled"
    whole(cluster.model_copy(update={"status": "Ready"}))
    return cluster


async def reserved(s: Story) -> None:
    args = create_args("reserved", num_gpus=16, billing_type="RESERVED", duration_days=3, num_reserved_gpus=16)
    made = whole(await s.call(s.clusters.create, **args))
    assert (made.billing_type, made.num_reserved_gpus, made.duration_hours) == ("RESERVED", 16, 72)
    assert made.status == "WaitingForControlPlaneNodes"
    assert (made.reservation_start_time, made.reservation_end_time) == (None, None)
    seen = whole(await s.ready(made.cluster_id))
    assert seen.reservation_start_time == seen.first_ready_at
    assert seen.reservation_end_time == seen.first_ready_at + 3 * DAY

    end = seen.reservation_end_time + 2 * DAY
    longer = whole(await s.call(s.clusters.update, made.cluster_id, reservation_end_time=end))
    assert (longer.reservation_end_time, longer.duration_hours) == (end, 120)
    more = whole(await s.call(s.clusters.update, made.cluster_id, num_gpus=24))
    assert (more.num_gpus, more.num_reserved_gpus) == (24, 16)
    assert "422" in await refused(s, made.cluster_id, num_reserved_gpus=8)
    await s.call(s.clusters.delete, made.cluster_id)
    await s.gone(s.clusters.retrieve, made.cluster_id)


async def reserved_in_part(s: Story) -> None:
    args = create_args("part", num_gpus=24, billing_type="RESERVED", duration_days=1, num_reserved_gpus=16)
    made = whole(await s.call(s.clusters.create, **args))
    assert (made.num_gpus, made.num_reserved_gpus) == (24, 16)
    seen = whole(await s.ready(made.cluster_id))
    assert len(seen.gpu_worker_nodes) == 3
    assert "reserved" in await refused(s, made.cluster_id, num_gpus=8)
    less = whole(await s.call(s.clusters.update, made.cluster_id, num_gpus=16))
    assert (less.num_gpus, less.num_reserved_gpus) == (16, 16)
    await s.call(s.clusters.delete, made.cluster_id)
    await s.gone(s.clusters.retrieve, made.cluster_id)


async def scheduled(s: Story) -> None:
    start = datetime.now(UTC).replace(microsecond=0) + 5 * DAY
    window = {"reservation_start_time": start, "reservation_end_time": start + DAY}
    args = create_args("scheduled", num_gpus=16, billing_type="SCHEDULED_CAPACITY", **window)
    made = waiting(await s.call(s.clusters.create, **args))
    assert (made.billing_type, made.num_reserved_gpus) == ("SCHEDULED_CAPACITY", 16)
    assert (made.reservation_start_time, made.reservation_end_time) == (start, start + DAY)
    assert (made.duration_hours, made.gpu_worker_nodes) == (24, [])
    again = await s.call(s.clusters.create, **args)
    assert again.cluster_id == made.cluster_id

    end = start + 2 * DAY
    longer = waiting(await s.call(s.clusters.update, made.cluster_id, reservation_end_time=end))
    assert (longer.reservation_end_time, longer.duration_hours) == (end, 48)
    assert (await s.call(s.clusters.retrieve, made.cluster_id)).reservation_end_time == end
    assert "before it begins" in await refused(s, made.cluster_id, reservation_end_time=start - HOUR)
    await s.call(s.clusters.delete, made.cluster_id)
    await s.gone(s.clusters.retrieve, made.cluster_id)


async def from_now_on(s: Story) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + DAY
    args = create_args("now", billing_type="SCHEDULED_CAPACITY", reservation_end_time=end)
    made = await s.call(s.clusters.create, **args)
    assert made.reservation_start_time == made.created_at
    again = await s.call(s.clusters.create, **args)
    assert again.cluster_id == made.cluster_id
    seen = whole(await s.ready(made.cluster_id))
    assert (seen.reservation_start_time, seen.reservation_end_time) == (made.created_at, end)


async def on_demand(s: Story) -> None:
    made = await s.call(s.clusters.create, **create_args("plain"))
    assert (made.num_reserved_gpus, made.reservation_start_time) == (0, None)
    end = datetime.now(UTC) + DAY
    assert "only for prepaid" in await refused(s, made.cluster_id, reservation_end_time=end)


async def story(s: Story) -> None:
    await reserved(s)
    await reserved_in_part(s)
    await scheduled(s)
    await from_now_on(s)
    await on_demand(s)


tell(story)

"""Approve what the house proposed; HOST_POWER_CYCLE is no answer to that."""

from __future__ import annotations

import sys

import together
from client import Story, tell, whole


async def story(s: Story) -> None:
    _, _, cluster_id, instance_id, id = sys.argv
    where = {"cluster_id": cluster_id, "instance_id": instance_id}
    told = ""
    try:
        await s.call(s.clusters.remediations.approve, id, **where, mode="REMEDIATION_MODE_HOST_POWER_CYCLE")
    except together.BadRequestError as refused:
        told = str(refused)
    assert "HOST_POWER_CYCLE" in told
    done = whole(await s.call(s.clusters.remediations.approve, id, **where, comment="go ahead"))
    assert (done.state, done.review_comment) == ("PENDING", "go ahead")


tell(story)

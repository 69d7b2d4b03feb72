"""A create whose answers are lost: the SDK asks three times, there is one cluster."""

from __future__ import annotations

import sys

from client import Story, create_args, tell


async def story(s: Story) -> None:
    hasty = {"timeout": 1.0} if "hasty" in sys.argv else {}
    made = await s.call(s.clusters.create, **create_args("thrice"), **hasty)
    listed = (await s.call(s.clusters.list)).clusters
    assert [cluster.cluster_id for cluster in listed] == [made.cluster_id]


tell(story)

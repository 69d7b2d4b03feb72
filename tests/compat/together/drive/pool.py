"""A cluster that draws from a pool, whose id is the argument; moved to and from it."""

from __future__ import annotations

import sys

from client import Story, create_args, tell, whole


async def story(s: Story) -> None:
    drawn = {"capacity_pool_id": sys.argv[2], "num_capacity_pool_gpus": 8}
    made = whole(await s.call(s.clusters.create, **create_args("drawn", num_gpus=16), **drawn))
    assert (made.capacity_pool_id, made.num_capacity_pool_gpus, made.num_gpus) == (sys.argv[2], 8, 16)
    await s.ready(made.cluster_id)
    more = await s.call(s.clusters.update, made.cluster_id, num_capacity_pool_gpus=16)
    assert (more.num_capacity_pool_gpus, more.num_gpus) == (16, 16)
    none = await s.call(s.clusters.update, made.cluster_id, num_capacity_pool_gpus=0)
    assert (none.num_capacity_pool_gpus, none.capacity_pool_id) == (0, sys.argv[2])


tell(story)

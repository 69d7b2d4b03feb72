"""A cluster that may grow by itself; its id is printed once it is ready."""

from __future__ import annotations

from client import VERSION, Story, create_args, tell


async def story(s: Story) -> None:
    word = "auto_scale" if VERSION >= (3, 0) else "auto_scaled"
    made = await s.call(
        s.clusters.create,
        **create_args("elastic"),
        cluster_type="SLURM",
        extra_body={word: True, "auto_scale_max_gpus": 24, "slurm_shm_size_gib": 8},
    )
    ready = await s.ready(made.cluster_id)
    assert (ready.num_gpus, len(ready.gpu_worker_nodes)) == (8, 1)
    print(made.cluster_id)


tell(story)

"""A Slurm cluster with preemptible GPUs beside its own, wished for, had, changed; its id is printed."""

from __future__ import annotations

import sys

import together
from client import Story, create_args, tell, whole

ARGS = {"cluster_type": "SLURM", "slurm_shm_size_gib": 8, "num_preemptible_gpus": 16}


async def lent(s: Story, id: str, gpus: int) -> None:
    await s.until(
        lambda: s.call(s.clusters.retrieve, id), lambda c: c.allocated_preemptible_gpus == gpus, f"lent {gpus}"
    )


async def story(s: Story) -> None:
    project_id = sys.argv[2]
    told = ""
    try:
        await s.call(s.clusters.create, **create_args("kube", num_preemptible_gpus=8, project_id=project_id))
    except together.APIStatusError as refused:
        told = str(refused)
    assert "cannot be had on a kubernetes cluster" in told, told
    made = whole(await s.call(s.clusters.create, **create_args("spot", **ARGS, project_id=project_id)))
    assert (made.desired_preemptible_gpus, made.allocated_preemptible_gpus) == (16, 0)
    await s.ready(made.cluster_id)
    await lent(s, made.cluster_id, 16)
    fewer = whole(await s.call(s.clusters.update, made.cluster_id, num_preemptible_gpus=8))
    assert (fewer.num_gpus, fewer.desired_preemptible_gpus) == (8, 8)
    await lent(s, made.cluster_id, 8)
    print(made.cluster_id)


tell(story)

"""The house in a few figures: for the metrics page and for whoever asks how the fleet is.

Leans on the store's contract and the capacity index. Reads only; costs a handful of indexed counts.
"""

from __future__ import annotations

from typing import NamedTuple

from muster.contracts.store import Find
from muster.core.house import House
from muster.model.clusters import Cluster
from muster.model.hosts import Host
from muster.model.phases import Phase


class Figures(NamedTuple):
    hosts: int
    due: int  # pieces of work due now
    work: int  # pieces of work in all
    clusters: dict[str, int]  # live ones by phase
    free_gpus: dict[tuple[str, str], int]  # by (region, gpu type)


async def backlog(house: House) -> tuple[int, int]:
    return await house.store.work_backlog(house.clock.now())


async def hosts(house: House) -> int:
    return await house.store.count(Find(Host))


async def figures(house: House) -> Figures:
    due, work = await backlog(house)
    live = [phase for phase in Phase if phase is not Phase.GONE]
    return Figures(
        hosts=await hosts(house),
        due=due,
        work=work,
        clusters={p: await house.store.count(Find(Cluster, equals={"phase": p, "gone_at": None})) for p in live},
        free_gpus=await free_gpus(house),
    )


async def free_gpus(house: House) -> dict[tuple[str, str], int]:
    """The finest shape counts every free GPU; coarser ones miss what is left over on shared hosts."""
    await house.capacity.sync()
    finest: dict[tuple[str, str], tuple[int, int]] = {}
    for row in house.capacity.summary():
        key = (row.region, row.gpu_type)
        if key not in finest or row.gpus_per_node < finest[key][0]:
            finest[key] = (row.gpus_per_node, row.free_nodes)
    return {key: per_node * nodes for key, (per_node, nodes) in finest.items()}

"""Together's handlers over a whole house with a simulated fleet: what a kept document may not get wrong."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from muster import app, settings
from muster.contracts.http import Call
from muster.core.house import House
from muster.dialects.together.clusters import Clusters
from muster.model.accounts import Actor
from muster.model.base import HOUR
from muster.testing.clock import ManualClock

PATIENCE_SECONDS = 60.0
BODY = {
    "cluster_name": "demo",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 8,
    "billing_type": "ON_DEMAND",
    "driver_version": "CUDA_12_6_560",
}


def call(actor: Actor, body: Any = None, **params: str) -> Call:
    made = Call(
        id="r", method="GET", path="/v1/compute/clusters", params=params, body=json.dumps(body or {}).encode()
    )
    made.actor = actor
    return made


async def seen(clusters: Clusters, actor: Actor, id: str) -> dict[str, Any]:
    return dict(json.loads((await clusters.retrieve(call(actor, cluster_id=id))).body))


async def ready(clusters: Clusters, actor: Actor, id: str, workers: int) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            cluster = await seen(clusters, actor, id)
            running = [node for node in cluster["gpu_worker_nodes"] if node["status"] == "Running"]
            if cluster["status"] == "Ready" and len(running) == workers:
                return cluster
            await asyncio.sleep(0.01)


async def story(house: House, actor: Actor) -> None:
    clusters = Clusters(house)
    id = json.loads((await clusters.create(call(actor, BODY))).body)["cluster_id"]
    before = await ready(clusters, actor, id, 1)
    grown = json.loads((await clusters.update(call(actor, {"num_gpus": 16}, cluster_id=id))).body)
    assert grown["kube_config"] == before["kube_config"] != "", "an update tells the whole cluster"

    await ready(clusters, actor, id, 2)
    [listed] = json.loads((await clusters.list(call(actor))).body)["clusters"]
    assert [event["reason"] for event in listed["node_lifecycle_events"]] == ["TogetherScaledUp"]
    later = ManualClock(house.clock.now() + 73 * HOUR)
    [listed] = json.loads((await Clusters(dataclasses.replace(house, clock=later)).list(call(actor))).body)[
        "clusters"
    ]
    assert listed["node_lifecycle_events"] == [], "told for 72 hours, in lists too"


def test_an_update_tells_the_whole_cluster_and_lists_forget_what_is_long_ago(tmp_path: Path) -> None:
    async def run() -> None:
        flags = {"home": str(tmp_path), "fleet": "simulated", "hosts": "64", "port": "0", "time_scale": "1000"}
        async with AsyncExitStack() as closing:
            running = await app.assemble(settings.read({**flags, "role": "all"}, {}), closing)
            actor = await running.house.accounts.authenticate((tmp_path / "tenant.key").read_text().strip())
            assert running.engine is not None
            stop = asyncio.Event()
            turning = asyncio.create_task(running.engine.run(stop))
            try:
                await story(running.house, actor)
            finally:
                stop.set()
                await turning

    asyncio.run(run())

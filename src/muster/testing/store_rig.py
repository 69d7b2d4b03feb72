"""What the suites of a store share: nouns to write, batches to write them with, stores on one and the same memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from itertools import count
from typing import Any, TypeAlias, TypeVar

import pytest

from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Op, Store
from muster.errors import StoreError
from muster.model.clusters import (
    Cluster,
    ClusterConfig,
    ClusterSpec,
    ClusterType,
)
from muster.model.events import Event
from muster.model.hosts import Host, Lease
from muster.model.phases import Phase

T = TypeVar("T")
Open: TypeAlias = Callable[[], Awaitable[Store]]
Story: TypeAlias = Callable[[Store], Coroutine[Any, Any, T]]

_names = count()


def cluster(id: str, *, name: str = "", project: str = "p1", at: int = 1_000, **fields: Any) -> Cluster:
    name = name or f"c-{next(_names)}"
    spec = ClusterSpec(
        type=ClusterType.SLURM,
        region="here",
        gpu_type="H100_SXM",
        instance_type="8xH100_SXM",
        workers=2,
        image_id="img",
        config=ClusterConfig(said={"wire": {"n": 1, "f": 1.5, "s": ["ü", None, True]}}),
    )
    told: dict[str, Any] = {
        "account_id": "a1",
        "project_id": project,
        "name": name,
        "live_name": name,
        "region": "here",
        "phase": Phase.CONTROL,
        "phase_since": at,
        "spec": spec,
        "digest": "d",
        "created_at": at,
        "updated_at": at,
    }
    return Cluster(id=id, **(told | fields))


def host(id: str, **fields: Any) -> Host:
    told: dict[str, Any] = {
        "name": id,
        "region": "here",
        "slots": 8,
        "cpus": 96,
        "memory_gib": 1024,
        "substrate": "test",
    }
    return Host(id=id, created_at=1, **(told | fields))


def lease(id: str, host_id: str, slots: int, *, cluster_id: str = "c") -> Lease:
    return Lease(
        id=id, host_id=host_id, slots=slots, node_id=f"n-{id}", cluster_id=cluster_id, project_id="p1", taken_at=1
    )


def event(type: str = "cluster.made", *, at: int = 1, kind: str = "cluster", id: str = "c", **fields: Any) -> Event:
    return Event(at=at, kind=kind, resource_id=id, type=type, actor="tester", **fields)


def batch(*ops: Op, events: tuple[Event, ...] = (), fence: Claim | None = None) -> Batch:
    return Batch(Step.CLUSTER_WISH, ops, events, fence)


async def refused(store: Store, error: type[StoreError], *ops: Op, **rest: Any) -> Any:
    with pytest.raises(error) as caught:
        await store.apply(batch(*ops, **rest))
    return caught.value


class StoreRig:
    """Every test gets `opened`: an async function that opens one more store on the same memory."""

    def tell(self, opened: Open, story: Story[T], *, stores: int = 1) -> T:
        """Run a story with its store (or, as `self.others`, several on the same memory) and close them."""

        async def told() -> T:
            async with AsyncExitStack() as stack:
                all_ = [await opened() for _ in range(stores)]
                for store in all_:
                    stack.push_async_callback(store.close)
                self.others = all_[1:]
                return await story(all_[0])

        return asyncio.run(told())

"""What the stories share: a client of whatever version this Python has, sync or async by the first argument."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time
from typing import Any

import pydantic
from together import AsyncTogether, Together

VERSION = tuple(map(int, os.environ["SDK_VERSION"].split(".")))
HAS_REMEDIATIONS = VERSION >= (2, 18)
REGION = "us-central-8"


def create_args(name: str, **more: Any) -> dict[str, Any]:
    """The arguments that this version's create() takes."""
    version = (
        {"driver_version": "CUDA_12_6_560"}
        if VERSION < (2, 10)
        else {"cuda_version": "12.6", "nvidia_driver_version": "560"}
    )
    plain = {
        "cluster_name": name,
        "region": REGION,
        "gpu_type": "H100_SXM",
        "num_gpus": 8,
        "billing_type": "ON_DEMAND",
    }
    return plain | version | more


class Story:
    """Calls a method and waits for it if it must be waited for, so that one story serves both clients."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.clusters = client.clusters if VERSION >= (2, 40) else client.beta.clusters

    async def call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        answer = method(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer

    async def until(self, look: Any, good: Any, what: str, seconds: float = 60) -> Any:
        ends = time.monotonic() + seconds
        while True:
            seen = await look()
            if good(seen):
                return seen
            assert time.monotonic() < ends, f"{what}: still {seen!r}"
            await asyncio.sleep(0.1)

    async def ready(self, cluster_id: str) -> Any:
        return await self.until(
            lambda: self.call(self.clusters.retrieve, cluster_id), lambda c: c.status == "Ready", "ready"
        )

    async def gone(self, method: Any, *args: Any, **kwargs: Any) -> None:
        import together

        async def look() -> bool:
            try:
                await self.call(method, *args, **kwargs)
            except together.NotFoundError:
                return True
            return False

        await self.until(look, bool, "gone")


def whole(model: Any) -> Any:
    """Every required field is there and every value is of its declared type, enums included, all the way down."""
    pydantic.TypeAdapter(type(model)).validate_python(model.model_dump(mode="json", by_alias=True))
    for name, field in type(model).model_fields.items():
        value = getattr(model, name, None)
        assert value is not None or not field.is_required(), f"{type(model).__name__}.{name} is missing"
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, pydantic.BaseModel):
                whole(item)
    return model


def tell(story: Any) -> None:
    async def run() -> None:
        client = AsyncTogether() if sys.argv[1] == "async" else Together()
        await story(Story(client))
        closing = client.close()
        if inspect.isawaitable(closing):
            await closing

    asyncio.run(run())

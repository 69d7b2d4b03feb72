"""People whose clusters follow their queue, or draw from a pool that was set apart for them; and their work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from muster.contracts.faults import Fault, FaultKind
from muster.errors import CallError
from muster.testing.simulation.chaos import Crash
from muster.testing.simulation.users import GPU_TYPE, REGION, User


class Elastic(User):
    async def live(self, until: int) -> None:
        verbs: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (0.22, self._create_elastic),
            (0.12, self._draw),
            (0.20, self._work_comes),
            (0.14, self._work_ends),
            (0.10, self._redraw),
            (0.06, self._resize),
            (0.04, self._pause),
            (0.06, self._resume),
            (0.06, self._delete),
        ]
        while self._clock.now() < until:
            await self.think(70)
            await self.do_one_of(verbs)

    async def _new(self, **fields: Any) -> None:
        self._count += 1
        body = {
            "name": f"{self.name}-{self._count}",
            "type": "slurm",
            "region": REGION,
            "gpu_type": GPU_TYPE,
            "gpus": self.pick((8, 16)),
            "failover": True,
            **fields,
        }
        key = f"{self.name}-create-{self._count}"
        status, cluster = await self.say("POST", "/clusters", body, key)
        if status == 201:
            self._note_created(key, cluster["id"])

    async def _create_elastic(self) -> None:
        await self._new(autoscale={"max_gpus": self.pick((16, 32))})

    async def _draw(self) -> None:
        """Of all pools that are there, for some are nobody else's business: those are not found."""
        pool = await self.some("pools")
        await self._new(pool_id=pool["id"] if pool else "nobodys", pool_gpus=self.pick((8, 8, 16)))

    async def _redraw(self) -> None:
        cluster = await self.some("clusters")
        if cluster:
            await self.say("PATCH", f"/clusters/{cluster['id']}", {"pool_gpus": self.pick((0, 8, 16))})

    async def _work_comes(self) -> None:
        cluster, image = await self.some("clusters"), self._image()
        if cluster is None or image is None:
            return
        gpus = self.pick((8, 16, 24, 40))
        self._tell(f"{self.name}: work for {gpus} GPUs on {cluster['name']}")
        try:
            await image.desk.inject(Fault(kind=FaultKind.LOAD, target=cluster["id"], count=gpus, seconds=900))
        except (CallError, Crash):
            return  # it is gone, or the process died: the work is lost with it

    async def _work_ends(self) -> None:
        image = self._image()
        for fault in await image.desk.faults() if image is not None else ():
            if fault.kind is FaultKind.LOAD and image is not None:
                await image.desk.clear(fault.id)

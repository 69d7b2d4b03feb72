"""People who plan ahead: they ask when, take quotes, reserve, schedule, wait in line, extend and cancel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from muster.core.moments import iso
from muster.model.base import MINUTE
from muster.testing.simulation.users import GPU_TYPE, REGION, Tenant

SOON_MINUTES = 12
LATER_MINUTES = 25


class Planner(Tenant):
    async def live(self, until: int) -> None:
        verbs: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (0.20, self._schedule),
            (0.12, self._reserve_cluster),
            (0.14, self._quote),
            (0.12, self._reserve),
            (0.10, self._draw),
            (0.08, self._wait_in_line),
            (0.08, self._extend_cluster),
            (0.05, self._extend),
            (0.05, self._cancel),
            (0.06, self._delete),
        ]
        while self._clock.now() < until:
            await self.think(100)
            await self.do_one_of(verbs)

    def _soon(self) -> int:
        return self._clock.now() + round((SOON_MINUTES + self._entropy.chance() * LATER_MINUTES) * MINUTE)

    async def _new(self, **fields: Any) -> None:
        self._count += 1
        body = {
            "name": f"{self.name}-{self._count}",
            "type": "slurm" if self._entropy.chance() < 0.6 else "kubernetes",
            "region": REGION,
            "gpu_type": GPU_TYPE,
            "gpus": self.pick((8, 8, 16)),
            "failover": True,
            **fields,
        }
        await self.create(body, f"{self.name}-create-{self._count}")

    async def _schedule(self) -> None:
        starts_at = self._soon()
        lasts = round((5 + self._entropy.chance() * 20) * MINUTE)
        await self._new(billing="scheduled", starts_at=iso(starts_at), ends_at=iso(starts_at + lasts))

    async def _reserve_cluster(self) -> None:
        """For some minutes after it is ready, or for days; sometimes only half of it."""
        await self._new(
            billing="reserved",
            duration_days=self.pick((0.007, 0.01, 3)),
            gpus=16,
            reserved_gpus=self.pick((8, 16, 16)),
        )

    async def _wait_in_line(self) -> None:
        await self._new(queue=True, ends_at=iso(self._soon()))

    async def _quote(self) -> None:
        self._count += 1
        body = {"gpu_type": GPU_TYPE, "gpus": 8, "hours": 0.3, "region": REGION}
        _, quote = await self.say("POST", "/quotes", body, f"{self.name}-quote-{self._count}")
        if quote and "id" in quote and self._entropy.chance() < 0.6:
            await self._new(gpus=8, quote_id=quote["id"])

    async def _reserve(self) -> None:
        self._count += 1
        body = {
            "gpu_type": GPU_TYPE,
            "gpus": self.pick((8, 16)),
            "hours": self.pick((0.2, 0.4, 30)),
            "region": REGION,
            "starts_at": iso(self._soon()),
        }
        await self.say("POST", "/reservations", body, f"{self.name}-reserve-{self._count}")

    async def _draw(self) -> None:
        reservation = await self.some("reservations")
        if reservation:
            await self._new(gpus=reservation["gpus"], quote_id=reservation["id"])

    async def _extend_cluster(self) -> None:
        cluster = await self.some("clusters")
        if cluster:
            await self.say("PATCH", f"/clusters/{cluster['id']}", {"ends_at": iso(self._soon())})

    async def _extend(self) -> None:
        reservation = await self.some("reservations")
        if reservation:
            path = f"/reservations/{reservation['id']}"
            await self.say("PATCH", path, {"ends_at": iso(self._soon() + LATER_MINUTES * MINUTE)})

    async def _cancel(self) -> None:
        reservation = await self.some("reservations")
        if reservation:
            await self.say("DELETE", f"/reservations/{reservation['id']}")

"""Tenants inside a history: they use the real door, do sensible and silly things, and repeat themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from muster.contracts.clock import Clock, Entropy
from muster.testing.simulation.chaos import Crash
from muster.testing.simulation.image import Image, Lost
from muster.testing.simulation.invariants import Ledger


class User:
    """One tenant. `image` gives the process that serves now, or None while there is none."""

    def __init__(
        self,
        name: str,
        key: str,
        clock: Clock,
        entropy: Entropy,
        image: Callable[[], Image | None],
        ledger: Ledger,
        tell: Callable[[str], None],
    ) -> None:
        self.name = name
        self._key = key
        self._clock = clock
        self._entropy = entropy
        self._image = image
        self._ledger = ledger
        self._tell = tell
        self._count = 0
        self._volumes: list[str] = []

    async def live(self, until: int) -> None:
        """Do something, think, do something else, until the history calms down."""
        verbs: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (0.34, self._create),
            (0.14, self._resize),
            (0.06, self._pause),
            (0.06, self._resume),
            (0.08, self._make_volume),
            (0.08, self._mount),
            (0.04, self._unmount),
            (0.20, self._delete),
        ]
        while self._clock.now() < until:
            await self._clock.sleep(1 + self._entropy.chance() * 120)
            dice = self._entropy.chance()
            for share, verb in verbs:
                dice -= share
                if dice < 0:
                    await verb()
                    break

    # --- what a tenant does ---------------------------------------------------------------------------------------

    async def _create(self) -> None:
        self._count += 1
        gpus = (1, 2, 4, 8, 8, 16, 24)[int(self._entropy.chance() * 7)]
        body: dict[str, Any] = {
            "name": f"{self.name}-{self._count}",
            "type": "slurm" if self._entropy.chance() < 0.6 else "kubernetes",
            "region": "us-central-8",
            "gpu_type": "H100_SXM",
            "gpus": gpus,
            "failover": self._entropy.chance() < 0.5,
        }
        if self._entropy.chance() < 0.2:
            body["mounts"] = [
                {"new": {"name": f"{body['name']}-home", "size_gib": 100, "dies_with_cluster": True}, "path": "/home"}
            ]
        key = f"{self.name}-create-{self._count}"
        for _ in range(2 if self._entropy.chance() < 0.15 else 1):  # some clients say everything twice
            status, cluster = await self._stubborn("POST", "/clusters", body, key)
            if status == 201:
                self._note_created(key, cluster["id"])

    def _note_created(self, key: str, id: str) -> None:
        first = self._ledger.by_key.setdefault(key, id)
        if first != id:
            self._ledger.broken.append(f"create {key} was answered with {first} and then with {id}")
        self._ledger.created[id] = key

    async def _resize(self) -> None:
        cluster = await self._some_cluster()
        if cluster and cluster["gpus"] >= 8:
            gpus = max(8, cluster["gpus"] + (8 if self._entropy.chance() < 0.5 else -8))
            await self._stubborn("PATCH", f"/clusters/{cluster['id']}", {"gpus": gpus})

    async def _pause(self) -> None:
        cluster = await self._some_cluster()
        if cluster:
            await self._stubborn("POST", f"/clusters/{cluster['id']}/pause", {})

    async def _resume(self) -> None:
        cluster = await self._some_cluster()
        if cluster:
            await self._stubborn("POST", f"/clusters/{cluster['id']}/resume", {})

    async def _delete(self) -> None:
        cluster = await self._some_cluster()
        if cluster:
            status, _ = await self._stubborn("DELETE", f"/clusters/{cluster['id']}")
            if status == 202:
                self._ledger.deleted.add(cluster["id"])

    async def _make_volume(self) -> None:
        self._count += 1
        body = {"name": f"{self.name}-v{self._count}", "region": "us-central-8", "size_gib": 100}
        status, volume = await self._stubborn("POST", "/volumes", body, f"{self.name}-volume-{self._count}")
        if status == 201:
            self._volumes.append(volume["id"])

    async def _mount(self) -> None:
        cluster = await self._some_cluster()
        if cluster and self._volumes:
            volume = self._volumes[int(self._entropy.chance() * len(self._volumes))]
            await self._stubborn("POST", f"/clusters/{cluster['id']}/mounts", {"volume_id": volume})

    async def _unmount(self) -> None:
        cluster = await self._some_cluster()
        if cluster and cluster["volumes"]:
            volume = cluster["volumes"][0]["volume_id"]
            await self._stubborn("DELETE", f"/clusters/{cluster['id']}/mounts/{volume}")

    async def _some_cluster(self) -> dict[str, Any] | None:
        status, page = await self._stubborn("GET", "/clusters?limit=50")
        if status != 200 or not page["items"]:
            return None
        cluster: dict[str, Any] = page["items"][int(self._entropy.chance() * len(page["items"]))]
        return cluster

    # --- how a tenant's client behaves ------------------------------------------------------------------------------

    async def _stubborn(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """Repeat until answered: a lost connection tells nothing, a 5xx or 429 asks for patience."""
        headers = {"idempotency-key": key} if key else {}
        while True:
            try:
                status, answer = await self._once(method, path, body, headers)
            except (Lost, Crash):
                await self._clock.sleep(1 + self._entropy.chance() * 5)
                continue
            if status in (429, 503):
                await self._clock.sleep(2)
                continue
            if method != "GET":
                why = f" ({answer.get('detail')})" if status >= 400 and answer else ""
                self._tell(f"{self.name}: {method} {path} -> {status}{why}")
            if status >= 500:
                self._ledger.broken.append(f"{method} {path} was answered {status}: {answer}")
            return status, answer

    async def _once(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        image = self._image()
        if image is None:
            raise Lost("nobody answers")
        answering = asyncio.ensure_future(image.call(method, f"/muster/v1{path}", self._key, body, headers))
        status, answer = await answering
        if self._image() is not image:
            raise Lost("the process died before the answer came through")
        return status, answer

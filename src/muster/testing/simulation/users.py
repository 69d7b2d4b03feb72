"""People inside a history: tenants and an operator at the real door, sensible and silly, repeating themselves."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from muster.contracts.clock import Clock, Entropy
from muster.core.hosts.rules import HostSpec
from muster.model.hosts import HostRole
from muster.testing.simulation.chaos import Crash
from muster.testing.simulation.image import Image, Lost
from muster.testing.simulation.outside import Ledger

T = TypeVar("T")

REGION = "us-central-8"
GPU_TYPE = "H100_SXM"


class Client:
    """Whoever holds a key. `image` gives the process that serves now, or None while there is none."""

    def __init__(
        self,
        name: str,
        key: str,
        clock: Clock,
        entropy: Entropy,
        image: Callable[[], Image[Any] | None],
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

    async def think(self, seconds: float) -> None:
        await self._clock.sleep(1 + self._entropy.chance() * seconds)

    async def do_one_of(self, verbs: Sequence[tuple[float, Callable[[], Awaitable[None]]]]) -> None:
        """One of these by its share; the shares add up to 1."""
        dice = self._entropy.chance()
        for share, verb in verbs:
            dice -= share
            if dice < 0:
                return await verb()

    def pick(self, things: Sequence[T]) -> T:
        return things[int(self._entropy.chance() * len(things))]

    async def some(self, path: str) -> dict[str, Any] | None:
        """One of what the house lists under this path."""
        status, page = await self.say("GET", f"/{path}?limit=50")
        return self.pick(page["items"]) if status == 200 and page["items"] else None

    async def say(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """Repeat until answered: a lost connection tells nothing, a 5xx or 429 asks for patience."""
        headers = {"idempotency-key": key} if key else {}
        while True:
            try:
                status, answer = await self._once(method, path, body, headers)
            except (Lost, Crash):
                await self.think(5)
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


class Tenant(Client):
    """Whoever has clusters."""

    async def live(self, until: int) -> None:
        """Do something, think, do something else, until the history calms down."""
        raise NotImplementedError

    async def create(self, body: dict[str, Any], key: str) -> None:
        for _ in range(2 if self._entropy.chance() < 0.15 else 1):  # some clients say everything twice
            status, cluster = await self.say("POST", "/clusters", body, key)
            if status == 201:
                self._note_created(key, cluster["id"])

    def _note_created(self, key: str, id: str) -> None:
        first = self._ledger.by_key.setdefault(key, id)
        if first != id:
            self._ledger.broken.append(f"create {key} was answered with {first} and then with {id}")
        self._ledger.created[id] = key

    async def _delete(self) -> None:
        cluster = await self.some("clusters")
        if cluster:
            status, _ = await self.say("DELETE", f"/clusters/{cluster['id']}")
            if status == 202:
                self._ledger.deleted.add(cluster["id"])


class User(Tenant):
    """One tenant who lives from hand to mouth."""

    async def live(self, until: int) -> None:
        verbs: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (0.26, self._create),
            (0.04, self._borrow),
            (0.12, self._resize),
            (0.05, self._reconfigure),
            (0.05, self._pause),
            (0.05, self._resume),
            (0.06, self._make_volume),
            (0.07, self._mount),
            (0.04, self._unmount),
            (0.03, self._grow_volume),
            (0.02, self._delete_volume),
            (0.03, self._set_rules),
            (0.02, self._save_ssh_key),
            (0.16, self._delete),
        ]
        while self._clock.now() < until:
            await self.think(80)
            await self.do_one_of(verbs)

    # --- what a tenant does ---------------------------------------------------------------------------------------

    async def _create(self) -> None:
        self._count += 1
        gpus = self.pick((1, 2, 4, 8, 8, 16, 24))
        group = await self.some("security-groups") if self._entropy.chance() < 0.4 else None
        body: dict[str, Any] = {
            "name": f"{self.name}-{self._count}",
            "type": "slurm" if self._entropy.chance() < 0.6 else "kubernetes",
            "region": REGION,
            "gpu_type": GPU_TYPE,
            "gpus": gpus,
            "failover": self._entropy.chance() < 0.5,
            "security_group_ids": [group["id"]] if group else [],
        }
        if self._entropy.chance() < 0.2:
            body["mounts"] = [
                {"new": {"name": f"{body['name']}-home", "size_gib": 100, "dies_with_cluster": True}, "path": "/home"}
            ]
        await self.create(body, f"{self.name}-create-{self._count}")

    async def _resize(self) -> None:
        cluster = await self.some("clusters")
        if cluster and cluster["gpus"] >= 8:
            gpus = max(8, cluster["gpus"] + (8 if self._entropy.chance() < 0.5 else -8))
            body = {"gpus": gpus, "force": self._entropy.chance() < 0.3}
            await self.say("PATCH", f"/clusters/{cluster['id']}", body)

    async def _borrow(self) -> None:
        cluster = await self.some("clusters")
        if cluster:
            body = {"preemptible_gpus": self.pick((0, 8, 16, 24))}
            await self.say("PATCH", f"/clusters/{cluster['id']}", body)

    async def _reconfigure(self) -> None:
        cluster = await self.some("clusters")
        if cluster:
            config = {"scripts": {"nodeset_init": f"#!/bin/bash\necho {self._entropy.chance()}"}}
            await self.say("PATCH", f"/clusters/{cluster['id']}", {"config": config})

    async def _pause(self) -> None:
        cluster = await self.some("clusters")
        if cluster:
            await self.say("POST", f"/clusters/{cluster['id']}/pause", {})

    async def _resume(self) -> None:
        cluster = await self.some("clusters")
        if cluster:
            await self.say("POST", f"/clusters/{cluster['id']}/resume", {})

    async def _make_volume(self) -> None:
        self._count += 1
        body = {"name": f"{self.name}-v{self._count}", "region": REGION, "size_gib": 100}
        await self.say("POST", "/volumes", body, f"{self.name}-volume-{self._count}")

    async def _mount(self) -> None:
        cluster, volume = await self.some("clusters"), await self.some("volumes")
        if cluster and volume:
            await self.say("POST", f"/clusters/{cluster['id']}/mounts", {"volume_id": volume["id"]})

    async def _unmount(self) -> None:
        cluster = await self.some("clusters")
        if cluster and cluster["volumes"]:
            volume = cluster["volumes"][0]["volume_id"]
            await self.say("DELETE", f"/clusters/{cluster['id']}/mounts/{volume}")

    async def _grow_volume(self) -> None:
        volume = await self.some("volumes")
        if volume:
            await self.say("PATCH", f"/volumes/{volume['id']}", {"size_gib": volume["size_gib"] + 50})

    async def _delete_volume(self) -> None:
        volume = await self.some("volumes")
        if volume:
            await self.say("DELETE", f"/volumes/{volume['id']}")

    async def _set_rules(self) -> None:
        rule = {"direction": "inbound", "protocol": "tcp", "port_min": 1 + int(self._entropy.chance() * 60_000)}
        group = await self.some("security-groups")
        if group and self._entropy.chance() < 0.7:
            await self.say("PUT", f"/security-groups/{group['id']}", {"rules": [rule]})
            return
        self._count += 1
        body = {"name": f"{self.name}-g{self._count}", "rules": [rule]}
        await self.say("POST", "/security-groups", body, f"{self.name}-group-{self._count}")

    async def _save_ssh_key(self) -> None:
        key = await self.some("ssh-keys")
        if key and self._entropy.chance() < 0.4:
            await self.say("DELETE", f"/ssh-keys/{key['id']}")
            return
        self._count += 1
        body = {"name": f"{self.name}-k{self._count}", "public_key": public_key(bytes.fromhex(self._entropy.token()))}
        await self.say("POST", "/ssh-keys", body, f"{self.name}-key-{self._count}")


class Operator(Client):
    """Enrols hosts, takes some out of use for a while, and puts up the price."""

    async def live(self, until: int) -> None:
        verbs: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (0.35, self._cordon),
            (0.30, self._enrol),
            (0.15, self._reprice),
            (0.20, self._top_up),
        ]
        while self._clock.now() < until:
            await self.think(600)
            await self.do_one_of(verbs)

    async def _cordon(self) -> None:
        host = await self.some("hosts")
        if host:
            self._ledger.hurt.append(self._clock.now())
            await self.say("POST", f"/hosts/{host['id']}/cordon", {"reason": "a look at its fans"})
            await self.think(200)
            await self.say("POST", f"/hosts/{host['id']}/uncordon", {})

    async def _enrol(self) -> None:
        self._count += 1
        host = gpu_host(f"late-{self._count}", "leaf-9")
        await self.say("POST", "/hosts", {"hosts": [msgspec.to_builtins(host)]})

    async def _reprice(self) -> None:
        price = await self.some("prices")
        if price:
            self._count += 1
            kept = {key: price[key] for key in ("item", "region", "billing", "committed_days", "unit", "currency")}
            await self.say("PUT", f"/prices/p{self._count}", {**kept, "micro": price["micro"] + 1})

    async def _top_up(self) -> None:
        account = await self.some("accounts")
        if account:
            self._count += 1
            body = {"account_id": account["id"], "micro": 5_000_000_000}
            await self.say("POST", "/billing/top-ups", body, f"{self.name}-top-up-{self._count}")


def gpu_host(name: str, leaf: str) -> HostSpec:
    return HostSpec(
        name=name,
        region=REGION,
        pod="pod-0",
        leaf=leaf,
        role=HostRole.GPU,
        gpu_type=GPU_TYPE,
        slots=8,
        cpus=192,
        memory_gib=2048,
    )


def control_host(name: str) -> HostSpec:
    return HostSpec(
        name=name,
        region=REGION,
        pod="pod-0",
        leaf="control",
        role=HostRole.CONTROL,
        gpu_type="",
        slots=32,
        cpus=64,
        memory_gib=256,
    )


def public_key(seed: bytes) -> str:
    """An ed25519 public key as OpenSSH writes it; to the house it is only text of the right shape."""
    kind = b"ssh-ed25519"
    blob = len(kind).to_bytes(4, "big") + kind + len(seed).to_bytes(4, "big") + seed
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} someone@somewhere"

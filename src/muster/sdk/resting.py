"""Clusters, volumes and requests: the nouns that take their time, and how to wait for them.

*Laws.* Waiting is a long poll on the version, so every change is seen once and nothing is asked in a loop; it ends
at rest, at the deadline (`TimedOut`, with how it looked last), or when the thing is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from muster.clock import RealClock
from muster.contracts.clock import Clock
from muster.sdk.errors import ApiError, TimedOut
from muster.sdk.nouns import Deletable, Patchable, Readable, Thing, if_match
from muster.sdk.transport import Transport

POLL_SECONDS = 30
SERVING = ("ready", "degraded")
STOPPED = ("paused", "unfunded")
NODE_RESTS = ("paused", "gone")  # its host is let go of
VOLUME_RESTS = frozenset({"available", "failed", "gone"})


def cluster_rests(cluster: Thing) -> bool:
    """Whether nothing more will happen by itself: wish and observation agree, or it failed."""
    if cluster["phase"] == "gone":
        return True
    if cluster.get("delete_wished_at"):
        return False
    if cluster["phase"] == "failed":
        return True
    if cluster.get("paused"):
        return cluster["phase"] in STOPPED and all(node["phase"] in NODE_RESTS for node in cluster.get("nodes", []))
    return cluster["phase"] in SERVING and cluster["observed_generation"] >= cluster["generation"]


def volume_rests(volume: Thing) -> bool:
    return volume["phase"] in VOLUME_RESTS and not volume.get("delete_wished_at")


def request_rests(request: Thing) -> bool:
    return request["state"] in ("completed", "failed")


class Waitable(Readable):
    def __init__(
        self, transport: Transport, path: str, name: str, rests: Callable[[Thing], bool], clock: Clock | None = None
    ) -> None:
        super().__init__(transport, path, name)
        self._rests = rests
        self._clock = clock or RealClock()

    def watch(self, id: str, timeout_seconds: float) -> Iterator[Thing]:
        """The thing now and after every change; ends when it is gone, raises `TimedOut` at the deadline."""
        deadline = self._clock.now() + timeout_seconds * 1000
        seen = self._seen(id, None, 0)
        while seen is not None:
            yield seen
            newer: Thing | None = seen
            while newer is not None and newer["version"] == seen["version"]:
                left = (deadline - self._clock.now()) / 1000
                if left <= 0:
                    raise TimedOut(f"{self.name} {seen.get('name', id)} {state_of(seen)} still", seen)
                newer = self._seen(id, seen, min(left, POLL_SECONDS))
            seen = newer

    def _seen(self, id: str, last: Thing | None, wait_seconds: float) -> Thing | None:
        """How it looks now; None when it is gone. `last` is held against the server's version while waiting."""
        query = {"wait": max(1, round(wait_seconds))} if last else {}
        headers = {"If-None-Match": f'"{last["version"]}"'} if last else {}
        try:
            reply = self._transport.call(
                "GET", f"{self._path}/{id}", query=query, headers=headers, wait_seconds=wait_seconds
            )
        except ApiError as error:
            if error.code == "not_found" and last is not None:
                return None
            raise
        if reply.status_code == 304:
            return last
        thing: Thing = reply.json()
        return None if thing.get("phase") == "gone" else thing

    def wait(self, id: str, timeout_seconds: float = 1800) -> Thing:
        """The thing when it has come to rest."""
        last: Thing | None = None
        for last in self.watch(id, timeout_seconds):
            if self._rests(last):
                return last
        raise ApiError(404, "not_found", f"{self.name} {id} is gone")

    def wait_gone(self, id: str, timeout_seconds: float = 1800) -> None:
        try:
            for _ in self.watch(id, timeout_seconds):
                pass
        except ApiError as error:
            if error.code != "not_found":
                raise


def state_of(thing: Thing) -> str:
    return f"is {thing.get('phase') or thing.get('state')}"


class Clusters(Waitable, Patchable, Deletable):
    def resize(self, id: str, gpus: int, *, if_version: int | None = None, force: bool = False) -> Thing:
        return self.update(id, if_version=if_version, gpus=gpus, force=force or None)

    def delete(self, id: str, *, if_version: int | None = None, force: bool = False) -> None:
        query = {"force": force or None}
        self._transport.call("DELETE", f"{self._path}/{id}", query=query, headers=if_match(if_version))

    def pause(self, id: str) -> Thing:
        return self._do("POST", id, "pause")

    def resume(self, id: str) -> Thing:
        return self._do("POST", id, "resume")

    def restart(self, id: str, *, control: bool = False) -> Thing:
        return self._do("POST", id, "restart", {"control": control})

    def attach_ip(self, id: str, reserved_ip_id: str) -> Thing:
        return self._do("POST", id, "address", {"reserved_ip_id": reserved_ip_id})

    def detach_ip(self, id: str, reserved_ip_id: str) -> None:
        self._transport.call("DELETE", f"{self._path}/{id}/address/{reserved_ip_id}")

    def nodes(self, id: str) -> list[Thing]:
        items: list[Thing] = self._do("GET", id, "nodes")["items"]
        return items

    def explain(self, id: str) -> Thing:
        return self._do("GET", id, "explain")

    def access(self, id: str) -> Thing:
        return self._do("GET", id, "access")

    def kubeconfig(self, id: str) -> str:
        return self._transport.call("GET", f"{self._path}/{id}/kubeconfig").text

    def mount(self, id: str, volume_id: str, path: str = "", *, read_only: bool = False) -> Thing:
        body = {"volume_id": volume_id, "path": path, "read_only": read_only}
        return self._do("POST", id, "mounts", body)

    def unmount(self, id: str, volume_id: str) -> None:
        self._transport.call("DELETE", f"{self._path}/{id}/mounts/{volume_id}")

    def _do(self, method: str, id: str, verb: str, body: Any = None) -> Thing:
        answer: Thing = self._transport.call(method, f"{self._path}/{id}/{verb}", body=body).json()
        return answer


class Volumes(Waitable, Patchable, Deletable):
    def grow(self, id: str, size_gib: int, *, if_version: int | None = None) -> Thing:
        return self.update(id, if_version=if_version, size_gib=size_gib)

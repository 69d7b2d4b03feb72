"""The client: one attribute per noun of the native API.

from muster.sdk import Client

with Client("http://127.0.0.1:8787", key) as muster:
    cluster = muster.clusters.create(name="demo", type="slurm", gpu_type="H100_SXM", gpus=16)
    muster.clusters.wait(cluster["id"])
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import httpx

from muster.contracts.clock import Clock, Entropy
from muster.sdk.billing import Billing
from muster.sdk.errors import Unreachable
from muster.sdk.nouns import (
    Creatable,
    Deletable,
    Faults,
    Hosts,
    Listing,
    Patchable,
    Pools,
    Readable,
    Reservations,
    SecurityGroups,
    Thing,
)
from muster.sdk.resting import Clusters, Volumes, Waitable, cluster_rests, request_rests, volume_rests
from muster.sdk.transport import Transport

SILENCE_SECONDS = 45.0  # the server's heartbeat comes every 15


class Client:
    def __init__(
        self,
        url: str,
        key: str,
        *,
        verify: bool | ssl.SSLContext = True,
        pause: Callable[[float], None] = time.sleep,
        entropy: Entropy | None = None,
        clock: Clock | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        wire = Transport(url, key, verify=verify, pause=pause, entropy=entropy, http=http)
        self._transport = wire
        self._pause = pause
        self.url = wire.url
        self.accounts = Creatable(wire, "/accounts", "account")
        self.projects = Patchable(wire, "/projects", "project")
        self.members = Deletable(wire, "/members", "member")
        self.keys = Deletable(wire, "/keys", "key")
        self.regions = Listing(wire, "/regions", "region")
        self.gpu_types = Listing(wire, "/gpu-types", "gpu type")
        self.instance_types = Listing(wire, "/instance-types", "instance type")
        self.images = Listing(wire, "/images", "image")
        self.prices = Listing(wire, "/prices", "price")
        self.hosts = Hosts(wire, "/hosts", "host")
        self.pools = Pools(wire, "/pools", "pool")
        self.clusters = Clusters(wire, "/clusters", "cluster", cluster_rests, clock)
        self.volumes = Volumes(wire, "/volumes", "volume", volume_rests, clock)
        self.ssh_keys = Deletable(wire, "/ssh-keys", "ssh key")
        self.security_groups = SecurityGroups(wire, "/security-groups", "security group")
        self.reserved_ips = Deletable(wire, "/reserved-ips", "reserved ip")
        self.quotes = Deletable(wire, "/quotes", "quote")
        self.reservations = Reservations(wire, "/reservations", "reservation")
        self.calendar_lines = Patchable(wire, "/calendar-lines", "calendar line")
        self.requests = Waitable(wire, "/requests", "request", request_rests, clock)
        self.events = Readable(wire, "/events", "event")
        self.faults = Faults(wire, "/faults", "fault")
        self.billing = Billing(wire)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def whoami(self) -> Thing:
        return self._get("/whoami")

    def capacity(self) -> list[Thing]:
        items: list[Thing] = self._get("/capacity")["items"]
        return items

    def availability(self, **asked: Any) -> list[Thing]:
        """What could be had, day by day: region, gpu_type, days."""
        items: list[Thing] = self._transport.call("GET", "/availability", query=asked).json()["items"]
        return items

    def fleet(self) -> Thing:
        return self._get("/fleet")

    def ready(self) -> Any:
        """What /readyz says; raises while the server is not."""
        return self._transport.call("GET", "/readyz", open_path=True).text

    def changes(self, after: int | None = None) -> Iterator[Thing]:
        """Events as they happen, for ever; a broken stream is taken up where it broke off."""
        last = after
        while True:
            try:
                for event in self._changes_once(last):
                    last = event["seq"]
                    yield event
            except Unreachable:
                self.ready()  # a server that has gone away is the caller's to know
            self._pause(0.5)

    def _changes_once(self, last: int | None) -> Iterator[Thing]:
        with self._transport.stream("/changes", {"after": last}, SILENCE_SECONDS) as lines:
            for id, data in server_sent(lines):
                event: Thing = {"seq": id, **json.loads(data)}
                yield event

    def _get(self, path: str) -> Thing:
        answer: Thing = self._transport.call("GET", path).json()
        return answer


def server_sent(lines: Iterator[str]) -> Iterator[tuple[int, str]]:
    """(id, data) of each server-sent event that has both."""
    id, data = 0, []
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            id = int(value)
        elif name == "data":
            data.append(value)
        elif not line and data:
            yield id, "\n".join(data)
            data = []

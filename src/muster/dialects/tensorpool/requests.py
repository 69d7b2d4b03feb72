"""Requests: what `tp --wait` polls. A request that goes on says when it is worth asking again."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.tensorpool import render
from muster.errors import NotFound
from muster.model.accounts import Actor
from muster.model.base import SECOND, Instant
from muster.model.clusters import Cluster
from muster.model.events import Request
from muster.model.volumes import Volume

POLL_SECONDS: Final = 1
POLL_SECONDS_MAX: Final = 15
RECENT: Final = 50


class Requests:
    def __init__(self, house: House) -> None:
        self._house = house

    async def info(self, call: Call) -> Reply:
        request = await self._house.requests.request(call.actor, call.params["request_id"])
        cluster = await self._cluster(call.actor, request)
        told = msgspec.json.encode(render.request_of(request, cluster))
        if request.state in render.OVER:
            return Reply(200, told)
        wait = patience(cluster, self._house.clock.now())
        return Reply(200, told, headers=(("retry-after", str(wait)),))

    async def _cluster(self, actor: Actor, request: Request) -> Cluster | None:
        if request.kind != "cluster":
            return None
        try:
            return await self._house.clusters.cluster(actor, request.resource_id)
        except NotFound:
            return None  # gone, and the request outlives it


def patience(cluster: Cluster | None, now: Instant) -> int:
    """Seconds until something is expected to have changed, within reason."""
    until = cluster.status.waiting_until if cluster is not None else None
    if until is None or until <= now:
        return POLL_SECONDS
    return min(POLL_SECONDS_MAX, max(POLL_SECONDS, math.ceil((until - now) / SECOND)))


async def request_behind(house: House, actor: Actor, wished: Cluster | Volume) -> str | None:
    """The request that stands for the wish just accepted: the one of its generation."""
    page = await house.requests.requests(actor, resource_id=wished.id, limit=RECENT)
    return next((request.id for request in page.items if request.generation == wished.generation), None)

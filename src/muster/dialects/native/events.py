"""What happened, what is being done, and a stream of it, on the native wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from muster.contracts.http import Call, Reply, Stream
from muster.core.house import House
from muster.core.paging import PAGE_LIMIT_DEFAULT
from muster.dialects.native import views
from muster.dialects.native.asking import flag, number, paging, patience, read_seq, seen_version, text
from muster.dialects.native.replies import answer, listing, page_reply
from muster.dialects.native.translate import shown
from muster.dialects.native.watch import POLL_SECONDS, Watch
from muster.model.accounts import SYSTEM, Actor
from muster.model.events import Event, Request, RequestState

HEARTBEAT_SECONDS: Final = 15.0
STREAM_CHUNK: Final = 500
_OVER: Final = (RequestState.COMPLETED, RequestState.FAILED)


class Events:
    def __init__(self, house: House, watch: Watch) -> None:
        self._house = house
        self._watch = watch

    async def list(self, call: Call) -> Reply:
        limit = number(call, "limit")
        events = await self._house.events.events(
            call.actor,
            after=number(call, "cursor") or number(call, "after") or 0,
            limit=limit,
            project_id=text(call, "project_id"),
            kind=text(call, "kind"),
            resource_id=text(call, "resource_id"),
            newest_first=flag(call, "newest_first"),
        )
        more = len(events) == (limit or PAGE_LIMIT_DEFAULT)
        return listing((shown(event, views.Event) for event in events), str(events[-1].seq) if more else None)

    async def changes(self, call: Call) -> Stream:
        """From Last-Event-ID or ?after= on, else from now on."""
        kind, resource_id = text(call, "kind"), text(call, "resource_id")
        after = read_seq(call.headers.get("last-event-id"))
        if after is None:
            after = number(call, "after")
        if after is None:
            after = await self._house.events.last(call.actor)
        # Asked once here, so that what is wrong with the call is refused before a stream begins.
        await self._house.events.events(call.actor, after=after, limit=1, kind=kind, resource_id=resource_id)
        return Stream(self._lines(call.actor, after, kind, resource_id))

    async def _lines(
        self, actor: Actor, after: int, kind: str | None, resource_id: str | None
    ) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        yield b"retry: 2000\n\n"
        spoke = loop.time()
        with self._watch.listener() as listener:
            while not self._watch.closed:
                events = await self._house.events.events(
                    actor, after=after, limit=STREAM_CHUNK, kind=kind, resource_id=resource_id
                )
                if events:
                    after = events[-1].seq
                    yield b"".join(map(_line, events))
                    spoke = loop.time()
                elif loop.time() - spoke >= HEARTBEAT_SECONDS:
                    if not await self._still_welcome(actor):
                        return
                    yield b": still here\n\n"
                    spoke = loop.time()
                if len(events) < STREAM_CHUNK:
                    await listener.news(POLL_SECONDS)

    async def _still_welcome(self, actor: Actor) -> bool:
        """A stream outlives the check at the door; a revoked key must end it all the same."""
        if actor.key_id is None:
            return True
        return (await self._house.accounts.key(SYSTEM, actor.key_id)).revoked_at is None

    # --- requests

    async def requests(self, call: Call) -> Reply:
        page = await self._house.requests.requests(
            call.actor, project_id=text(call, "project_id"), resource_id=text(call, "resource_id"), **paging(call)
        )
        return page_reply(page, views.Request)

    async def request(self, call: Call) -> Reply:
        id = call.params["id"]
        known = seen_version(call)
        request = await self._watch.until(
            lambda: self._house.requests.request(call.actor, id),
            _over if known is None else lambda request: request.version != known,
            patience(call) or 0.0,
        )
        return answer(shown(request, views.Request), tag=request.version)


def _over(request: Request) -> bool:
    return request.state in _OVER


def _line(event: Event) -> bytes:
    data = msgspec.json.encode(shown(event, views.Event))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), data)

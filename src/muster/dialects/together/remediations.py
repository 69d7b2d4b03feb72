"""Remediations on Together's wire: /clusters/{cluster}/instances/{instance}/remediations; `-` is any instance."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.health.service import Wanted
from muster.core.house import House
from muster.dialects.together import answers, wire
from muster.dialects.together.asking import read, required, word, words
from muster.dialects.together.render import remediation_of
from muster.dialects.together.words import MODE, STATE, TRIGGER, UNSPOKEN_STATES
from muster.errors import Invalid
from muster.model.health import Remediation, RemediationMode

ANY: Final = "-"
PAGE_SIZE_MAX: Final = 1_000
_UUID4: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
ORDERS: Final = {"create_time": False, "create_time asc": False, "create_time desc": True}


class Remediations:
    def __init__(self, house: House) -> None:
        self._health = house.health

    async def create(self, call: Call) -> Reply:
        asked = read(call, wire.NewRemediation)
        required(asked.said)
        made = await self._health.create(
            call.actor,
            call.params["cluster_id"],
            call.params["instance_id"],
            mode=word(asked.said.mode or "", MODE, "mode"),
            reason=asked.said.reason or "",
            id=_own_id(call),
        )
        return Reply(200, _told(made), headers=asked.headers)

    async def list(self, call: Call) -> Reply:
        instance = call.params["instance_id"]
        page = await self._health.remediations(
            call.actor,
            call.params["cluster_id"],
            Wanted(
                node_id=None if instance == ANY else instance,
                modes=words(call, "mode", MODE),
                states=words(call, "state", STATE, unspoken=UNSPOKEN_STATES),
                triggers=words(call, "trigger", TRIGGER),
                newest_first=_newest_first(call),
            ),
            cursor=call.asked("page_token") or call.asked("pageToken") or None,
            limit=_page_size(call),
        )
        listing = answers.RemediationList(
            remediations=[remediation_of(item) for item in page.items],
            has_next=page.next_cursor is not None,
            next_page_token=page.next_cursor or "",
        )
        return Reply(200, msgspec.json.encode(listing))

    async def retrieve(self, call: Call) -> Reply:
        return Reply(200, _told(await self._health.remediation(call.actor, *_which(call))))

    async def approve(self, call: Call) -> Reply:
        asked = read(call, wire.Approval)
        mode = None if asked.said.mode is None else word(asked.said.mode, MODE, "mode")
        if mode is RemediationMode.POWER_CYCLE:
            raise Invalid("HOST_POWER_CYCLE cannot be set by an approval", field="mode", hint="Create one instead")
        made = await self._health.approve(call.actor, *_which(call), comment=asked.said.comment or "", mode=mode)
        return Reply(200, _told(made), headers=asked.headers)

    async def reject(self, call: Call) -> Reply:
        asked = read(call, wire.Rejection)
        made = await self._health.reject(call.actor, *_which(call), comment=asked.said.comment or "")
        return Reply(200, _told(made), headers=asked.headers)

    async def cancel(self, call: Call) -> Reply:
        return Reply(200, _told(await self._health.cancel(call.actor, *_which(call))))


def _told(remediation: Remediation) -> bytes:
    return msgspec.json.encode(remediation_of(remediation))


def _which(call: Call) -> tuple[str, str | None, str]:
    instance = call.params["instance_id"]
    return call.params["cluster_id"], None if instance == ANY else instance, call.params["remediation_id"]


def _own_id(call: Call) -> str | None:
    """SDK 2.x lets the client choose the id, so that a repeated create is one repair."""
    said = call.asked("remediation_id") or None
    if said is not None and not _UUID4.fullmatch(said):
        raise Invalid("remediation_id must be a lower-case UUIDv4", field="remediation_id")
    return said


def _page_size(call: Call) -> int | None:
    said = call.asked("page_size") or call.asked("pageSize") or None
    if said is None or said == "0":
        return None
    if len(said) > 4 or not said.isascii() or not said.isdigit() or int(said) > PAGE_SIZE_MAX:
        raise Invalid(f"page_size must be a whole number up to {PAGE_SIZE_MAX}", field="page_size")
    return int(said)


def _newest_first(call: Call) -> bool:
    said = (call.asked("order_by") or "create_time desc").strip().lower()
    if said not in ORDERS:
        raise Invalid(f"order_by cannot be {said}", field="order_by", hint=f"Use one of {', '.join(ORDERS)}")
    return ORDERS[said]

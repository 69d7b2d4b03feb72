"""Who a key is: the command line asks before every command, and dies when nobody answers."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.together import answers

HOUSE: Final = answers.Organization(id="muster", name="muster")
"""Whom the operator's key belongs to."""


class Whoami:
    def __init__(self, house: House) -> None:
        self._accounts = house.accounts

    async def current(self, call: Call) -> Reply:
        """/v3/whoami."""
        organization, project = await self._facts(call)
        answer = answers.Whoami(
            type="org_api_key" if project is None else "project_api_key",
            api_key=answers.KeyFacts(id=call.actor.key_id or ""),
            organization=organization,
            project=UNSET if project is None else project,
        )
        return Reply(200, msgspec.json.encode(answer))

    async def old(self, call: Call) -> Reply:
        """/v1/whoami."""
        organization, project = await self._facts(call)
        answer = answers.OldWhoami(
            api_key_id=call.actor.key_id or "",
            organization_id=organization.id,
            organization_name=organization.name,
            project_id=project.id if project else "",
            project_name=project.name if project else "",
            project_slug=project.slug if project else "",
            user_id=call.actor.member_id or UNSET,
        )
        return Reply(200, msgspec.json.encode(answer))

    async def _facts(self, call: Call) -> tuple[answers.Organization, answers.Project | None]:
        actor = call.actor
        if actor.project_id is None:
            return HOUSE, None
        project = await self._accounts.project(actor, actor.project_id)
        account = await self._accounts.account(actor, project.account_id)
        return (
            answers.Organization(id=account.id, name=account.name),
            answers.Project(id=project.id, name=project.name, slug=project.slug),
        )

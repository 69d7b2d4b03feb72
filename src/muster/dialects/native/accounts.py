"""Who am I, accounts, projects, members and keys, on the native wire."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.native import views, wire
from muster.dialects.native.asking import if_match, once, paging, read, text
from muster.dialects.native.replies import answer, nothing, page_reply
from muster.dialects.native.translate import shown


class Accounts:
    def __init__(self, house: House) -> None:
        self._accounts = house.accounts

    async def whoami(self, call: Call) -> Reply:
        actor = call.actor
        return answer(
            views.Whoami(
                role=actor.role,
                name=actor.name,
                account=actor.account_id,
                project=actor.project_id,
                member_id=actor.member_id,
                key_id=actor.key_id,
            )
        )

    # --- accounts

    async def accounts(self, call: Call) -> Reply:
        page = await self._accounts.accounts(call.actor, name=text(call, "name"), **paging(call))
        return page_reply(page, views.Account)

    async def create_account(self, call: Call) -> Reply:
        said = read(call, wire.NewAccount)
        account = await self._accounts.create_account(
            call.actor, name=said.name, postpaid=said.postpaid, once=once(call, said, "account")
        )
        return _made(account, views.Account, "accounts")

    async def account(self, call: Call) -> Reply:
        return _one(await self._accounts.account(call.actor, call.params["id"]), views.Account)

    # --- projects

    async def projects(self, call: Call) -> Reply:
        page = await self._accounts.projects(
            call.actor, account_id=text(call, "account_id"), name=text(call, "name"), **paging(call)
        )
        return page_reply(page, views.Project)

    async def create_project(self, call: Call) -> Reply:
        said = read(call, wire.NewProject)
        project = await self._accounts.create_project(
            call.actor,
            name=said.name,
            account_id=said.account_id,
            gpu_quota=said.gpu_quota,
            once=once(call, said, "project"),
        )
        return _made(project, views.Project, "projects")

    async def project(self, call: Call) -> Reply:
        return _one(await self._accounts.project(call.actor, call.params["id"]), views.Project)

    async def update_project(self, call: Call) -> Reply:
        said = read(call, wire.ProjectChange, keep_null=True)
        project = await self._accounts.update_project(
            call.actor,
            call.params["id"],
            name=said.name,
            gpu_quota=... if said.gpu_quota is UNSET else said.gpu_quota,
            if_version=if_match(call),
        )
        return _one(project, views.Project)

    # --- members

    async def members(self, call: Call) -> Reply:
        page = await self._accounts.members(
            call.actor, text(call, "project_id"), name=text(call, "name"), **paging(call)
        )
        return page_reply(page, views.Member)

    async def add_member(self, call: Call) -> Reply:
        said = read(call, wire.NewMember)
        member = await self._accounts.add_member(
            call.actor,
            name=said.name,
            role=said.role,
            email=said.email,
            project_id=said.project_id,
            once=once(call, said, "member"),
        )
        return _made(member, views.Member, "members")

    async def member(self, call: Call) -> Reply:
        return _one(await self._accounts.member(call.actor, call.params["id"]), views.Member)

    async def remove_member(self, call: Call) -> Reply:
        await self._accounts.remove_member(call.actor, call.params["id"], if_version=if_match(call))
        return nothing()

    # --- keys

    async def keys(self, call: Call) -> Reply:
        page = await self._accounts.keys(
            call.actor, text(call, "project_id"), name=text(call, "name"), **paging(call)
        )
        return page_reply(page, views.Key)

    async def create_key(self, call: Call) -> Reply:
        said = read(call, wire.NewKey)
        key, secret = await self._accounts.create_key(
            call.actor,
            name=said.name,
            role=said.role,
            project_id=said.project_id,
            member_id=said.member_id,
            once=once(call, said, "key"),
        )
        view = shown(key, views.KeyMade, secret=secret or None)
        return answer(view, status=201, tag=key.version, location=f"keys/{key.id}")

    async def key(self, call: Call) -> Reply:
        return _one(await self._accounts.key(call.actor, call.params["id"]), views.Key)

    async def revoke_key(self, call: Call) -> Reply:
        key = await self._accounts.revoke_key(call.actor, call.params["id"], if_version=if_match(call))
        return _one(key, views.Key)


def _one(noun: Any, view: type[views.View]) -> Reply:
    return answer(shown(noun, view), tag=noun.version)


def _made(noun: Any, view: type[views.View], place: str) -> Reply:
    return answer(shown(noun, view), status=201, tag=noun.version, location=f"{place}/{noun.id}")

"""Who calls: the gate before every command, the user, the organisation, and SSH keys.

Organisation = account; a person = the member behind a key, or the key itself when it has none.
"""

from __future__ import annotations

from typing import Final

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.tensorpool import answers, render, wire
from muster.dialects.tensorpool.asking import flag, read
from muster.dialects.tensorpool.tables import pairs, table
from muster.errors import Invalid, Unsupported
from muster.model.accounts import Account, Actor, Member, Project

PAGE: Final = 1_000
MICRO: Final = 1_000_000


def mine(actor: Actor, created_by: str) -> bool:
    """Whether this person made it: clusters remember a member or key, volumes a name."""
    return created_by in (actor.member_id, actor.key_id, actor.name)


class People:
    def __init__(self, house: House) -> None:
        self._accounts = house.accounts
        self._access = house.access
        self._billing = house.billing

    async def health(self, call: Call) -> Reply:
        """Before every command: whoever gets an answer at all has a good key."""
        read(call, wire.Health)
        return Reply(200, msgspec.json.encode(answers.Health(message="")))

    async def user(self, call: Call) -> Reply:
        person = await self._person(call.actor)
        account, project = await self._owners(call.actor)
        balance = await self._balance(call.actor) if account else None
        rows = [
            ("User", person.name),
            ("User ID", person.user_id),
            ("Email", person.email),
            ("Role", person.role),
            ("Organization", account.name if account else "none: this is the operator's key"),
            ("Project", project.name if project else None),
            ("Balance", _balance_text(balance) if balance else None),
        ]
        answer = answers.UserInfo(
            message=pairs(rows),
            user=person,
            organization_id=account.id if account else None,
            organization_name=account.name if account else None,
            project_id=project.id if project else None,
            project_name=project.name if project else None,
            balance=balance,
        )
        return Reply(200, msgspec.json.encode(answer))

    async def organization(self, call: Call) -> Reply:
        account, _ = await self._owners(call.actor)
        if account is None:
            raise Invalid("this key belongs to no organization", hint="use a key of a project")
        members = [_member(each) for each in (await self._accounts.members(call.actor, limit=PAGE)).items]
        rows = [(member.name, member.email or "-", member.role) for member in members]
        listed = table(("MEMBER", "EMAIL", "ROLE"), rows) if rows else "No members: its keys belong to the project."
        balance = await self._balance(call.actor)
        head = [("Organization", account.name), ("Organization ID", account.id), ("Balance", _balance_text(balance))]
        answer = answers.OrganizationInfo(
            message=f"{pairs(head)}\n\n{listed}",
            organization_id=account.id,
            name=account.name,
            members=members,
            balance=balance,
        )
        return Reply(200, msgspec.json.encode(answer))

    async def _balance(self, actor: Actor) -> answers.Balance:
        """Of the account that pays for this key's project."""
        found = await self._billing.balance(actor)
        ends = found.funds.runs_out_at
        return answers.Balance(
            available=found.funds.available / MICRO,
            hourly_cost=found.funds.hourly / MICRO,
            runs_out_at=None if ends is None else render.iso(ends),
            state=found.state,
        )

    async def preferences(self, call: Call) -> Reply:
        told = answers.Preferences(message="This server sends no mail and takes no payments by itself.")
        return Reply(200, msgspec.json.encode(told))

    async def prefer(self, call: Call) -> Reply:
        """What is so already may be asked for; anything else would be accepted and ignored, so it is refused."""
        said = read(call, wire.PreferenceChange)
        asked = [name for name in said.__struct_fields__ if getattr(said, name) not in (None, False)]
        if asked:
            raise Unsupported(
                "this server sends no mail and takes no payments by itself",
                field=asked[0],
                hint="its operator tops accounts up",
            )
        return await self.preferences(call)

    async def _person(self, actor: Actor) -> answers.Person:
        if actor.member_id is not None:
            return _member(await self._accounts.member(actor, actor.member_id))
        return answers.Person(user_id=actor.key_id or "", name=actor.name, email="", role=actor.role)

    async def _owners(self, actor: Actor) -> tuple[Account | None, Project | None]:
        if actor.project_id is None:
            return None, None
        project = await self._accounts.project(actor, actor.project_id)
        return await self._accounts.account(actor, project.account_id), project

    # --- SSH keys

    async def add_key(self, call: Call) -> Reply:
        said = read(call, wire.NewKey)
        person = await self._person(call.actor)
        key = await self._access.add_ssh_key(
            call.actor,
            public_key=said.public_key,
            name=said.name or person.email or person.name,
            member_id=call.actor.member_id,
        )
        message = f"SSH key {key.name} ({key.fingerprint}) saved as {key.id}. New clusters get it."
        answer = answers.KeyAdded(message=message, key_id=key.id, name=key.name, fingerprint=key.fingerprint)
        return Reply(200, msgspec.json.encode(answer))

    async def keys(self, call: Call) -> Reply:
        org = flag(call, "include_org")
        found = (await self._access.ssh_keys(call.actor, limit=PAGE)).items
        told = [render.key_of(key) for key in found if org or key.member_id == call.actor.member_id]
        return Reply(200, msgspec.json.encode(answers.KeyList(message=render.key_list(told), ssh_keys=told)))

    async def remove_key(self, call: Call) -> Reply:
        key = await self._access.ssh_key(call.actor, call.params["key_id"])
        await self._access.remove_ssh_key(call.actor, key.id)
        message = f"SSH key {key.name} removed. Clusters that have it keep it."
        return Reply(200, msgspec.json.encode(answers.Said(message=message)))


def _balance_text(balance: answers.Balance) -> str:
    return f"{balance.available:.2f}, {balance.hourly_cost:.2f} an hour ({balance.state})"


def _member(member: Member) -> answers.Person:
    return answers.Person(user_id=member.id, name=member.name, email=member.email, role=member.role)

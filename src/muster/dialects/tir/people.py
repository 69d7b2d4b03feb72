"""Who acts where: tokens, the accounts behind a key, teams and projects, as the SDK asks for them.

Leans on the house's accounts room. An account is what their teams were; a token is an API key of ours.
"""

from __future__ import annotations

from typing import Final

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.tir import answers, wire
from muster.dialects.tir.asking import own_project, project_of, read, team_of
from muster.dialects.tir.render import moment
from muster.dialects.tir.render import project_of as told_project
from muster.dialects.tir.render import team_of as told_team
from muster.errors import NotFound, Unsupported
from muster.model.accounts import Account, ApiKey, Project, Role

PAGE: Final = 1_000


class People:
    def __init__(self, house: House) -> None:
        self._house = house
        self._accounts = house.accounts

    # --- tokens ---------------------------------------------------------------------------------------------------

    async def create_token(self, call: Call) -> Reply:
        """One secret for both places it is sent in. It may do what the caller's own key may."""
        said = read(call, wire.NewToken)
        project = await own_project(self._house, call)
        role = Role.ADMIN if call.actor.is_operator else call.actor.role
        key, secret = await self._accounts.create_key(
            call.actor, name=said.token_name, role=role, project_id=project.id
        )
        return answers.reply(_token(key, project, secret), code=201, message="Token created successfully")

    async def tokens(self, call: Call) -> Reply:
        project = await own_project(self._house, call)
        return answers.reply([_token(key, project, "") for key in await self._living(call, project)])

    async def delete_token(self, call: Call) -> Reply:
        project = await own_project(self._house, call)
        for key in await self._living(call, project):
            if call.params["token_id"] == str(token_number(key)):
                await self._accounts.revoke_key(call.actor, key.id)
                return answers.reply("Token deleted successfully")
        raise NotFound(f"there is no token {call.params['token_id'][:40]}")

    async def _living(self, call: Call, project: Project) -> list[ApiKey]:
        page = await self._accounts.keys(call.actor, project.id, limit=PAGE)
        return [key for key in page.items if key.revoked_at is None]

    # --- accounts and teams ---------------------------------------------------------------------------------------

    async def iam_accounts(self, call: Call) -> Reply:
        """Whom this key may act for; `id` is what active_iam names."""
        role = call.actor.role
        return answers.reply(
            [
                answers.IamAccount(id=account.number, name=account.name, role=role, is_active=True)
                for account in await self._teams(call)
            ]
        )

    async def teams(self, call: Call) -> Reply:
        return answers.reply([told_team(account) for account in await self._teams(call)])

    async def _teams(self, call: Call) -> list[Account]:
        return (await self._accounts.accounts(call.actor, limit=PAGE)).items

    async def team(self, call: Call) -> Reply:
        return answers.reply(told_team(await team_of(self._house, call)))

    async def create_team(self, call: Call) -> Reply:
        account = await self._accounts.create_account(call.actor, name=read(call, wire.NewTeam).team_name)
        return answers.reply(told_team(account), code=201, message="Created Successfully")

    # --- projects -------------------------------------------------------------------------------------------------

    async def projects(self, call: Call) -> Reply:
        teams = {account.id: account.number for account in await self._teams(call)}
        asked = (await team_of(self._house, call)).id if "team_id" in call.params else None
        found = (await self._accounts.projects(call.actor, limit=PAGE)).items
        return answers.reply(
            [told_project(each, teams[each.account_id]) for each in found if asked in (None, each.account_id)]
        )

    async def project(self, call: Call) -> Reply:
        project = await project_of(self._house, call)
        account = await self._accounts.account(call.actor, project.account_id)
        return answers.reply(told_project(project, account.number))

    async def create_project(self, call: Call) -> Reply:
        name = read(call, wire.NewProject).project_name
        account = await team_of(self._house, call) if "team_id" in call.params else None
        project = await self._accounts.create_project(
            call.actor, name=name, account_id=account.id if account else None
        )
        owner = account or await self._accounts.account(call.actor, project.account_id)
        return answers.reply(told_project(project, owner.number), code=201, message="Created Successfully")

    async def keep(self, call: Call) -> Reply:
        """Teams and projects are the operator's and stay."""
        raise Unsupported("teams and projects are not deleted here", hint="ask the operator")


def token_number(key: ApiKey) -> int:
    """Keys have no number of the store's; this one fits a double and belongs to the key's own id."""
    return int(key.id.replace("-", "")[:12], 16)


def _token(key: ApiKey, project: Project, secret: str) -> answers.Token:
    return answers.Token(
        id=token_number(key),
        token_name=key.name,
        auth_token=secret or f"{key.prefix}…",
        api_key=secret or f"{key.prefix}…",
        project_id=project.number,
        created_at=moment(key.created_at),
    )

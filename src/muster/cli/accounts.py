"""account, project, member, key: who pays, what owns, who may act, and how they prove it."""

from __future__ import annotations

from pathlib import Path

import click

from muster.cli.nouns import Shown, add_delete, add_list, add_show
from muster.cli.verb import Session, Verb, group, project_id, project_option

ROLES = click.Choice(["admin", "member"])
ACCOUNT = Shown(
    "account",
    lambda client: client.accounts,
    [("NAME", "name"), ("ID", "id"), ("POSTPAID", "postpaid"), ("CREATED", "created_at")],
    operator=True,
    by_project=False,
)
PROJECT = Shown(
    "project",
    lambda client: client.projects,
    [
        ("NAME", "name"),
        ("ID", "id"),
        ("ACCOUNT", "account_id"),
        ("GPU QUOTA", "gpu_quota"),
        ("CREATED", "created_at"),
    ],
    by_project=False,
)
MEMBER = Shown(
    "member",
    lambda client: client.members,
    [("NAME", "name"), ("ROLE", "role"), ("EMAIL", "email"), ("ID", "id"), ("PROJECT", "project_id")],
)
KEY = Shown(
    "key",
    lambda client: client.keys,
    [
        ("NAME", "name"),
        ("ROLE", "role"),
        ("PREFIX", "prefix"),
        ("LAST USED", "last_used_at"),
        ("REVOKED", "revoked_at"),
        ("ID", "id"),
    ],
)


@group("account", "Accounts: who pays. The operator's to make.")
def account() -> None: ...


@group("project", "Projects: what owns clusters and volumes.")
def project() -> None: ...


@group("member", "Members: who may act in a project. An admin changes things; a member looks, and uses clusters.")
def member() -> None: ...


@group("key", "API keys: shown once, kept hashed, revoked at once.")
def key() -> None: ...


for noun, shown in ((account, ACCOUNT), (project, PROJECT), (member, MEMBER), (key, KEY)):
    add_list(noun, shown)
    add_show(noun, shown)
add_delete(member, MEMBER, "remove", "removed, its keys revoked")
add_delete(key, KEY, "revoke", "revoked")


@account.command("create", cls=Verb, operator=True)
@click.argument("name")
@click.option("--postpaid", is_flag=True, help="May use first and pay later.")
@click.pass_obj
def create_account(session: Session, name: str, postpaid: bool) -> None:
    """Make an account."""
    session.one(session.client.accounts.create(name=name, postpaid=postpaid), ACCOUNT.columns)


@project.command("create", cls=Verb, operator=True)
@click.argument("name")
@click.option("--account", help="Who pays, by name or id.")
@click.option("--gpu-quota", type=click.IntRange(0), help="GPUs it may hold at once; no limit when not given.")
@click.pass_obj
def create_project(session: Session, name: str, account: str | None, gpu_quota: int | None) -> None:
    """Make a project."""
    account_id = session.client.accounts.find(account)["id"] if account else None
    made = session.client.projects.create(name=name, account_id=account_id, gpu_quota=gpu_quota)
    session.one(made, PROJECT.columns)


@project.command("update", cls=Verb)
@click.argument("name_or_id")
@click.option("--name", help="A new name.")
@click.option("--gpu-quota", type=click.IntRange(0), help="GPUs it may hold at once (operator).")
@click.pass_obj
def update_project(session: Session, name_or_id: str, name: str | None, gpu_quota: int | None) -> None:
    """Rename a project, or set its quota."""
    if gpu_quota is not None:
        session.as_operator()
    found = session.client.projects.find(name_or_id)
    changed = session.client.projects.update(found["id"], if_version=found["version"], name=name, gpu_quota=gpu_quota)
    session.one(changed, PROJECT.columns)


@member.command("add", cls=Verb)
@click.argument("name")
@click.option("--role", type=ROLES, default="member", show_default=True)
@click.option("--email", default="")
@project_option
@click.pass_obj
def add_member(session: Session, name: str, role: str, email: str, project: str | None) -> None:
    """Let somebody act in a project."""
    within = project_id(session, project)
    session.one(
        session.client.members.create(name=name, role=role, email=email or None, project_id=within), MEMBER.columns
    )


member.add_command(add_member, "create")


@key.command("create", cls=Verb)
@click.argument("name")
@click.option(
    "--role", type=click.Choice(["admin", "member", "operator"]), help="Its member's, else admin, when not given."
)
@click.option("--member", help="Whose key it is, by name or id.")
@click.option(
    "--secret-file", type=click.Path(dir_okay=False), help="Write the secret here (0600), not on the screen."
)
@project_option
@click.pass_obj
def create_key(
    session: Session, name: str, role: str | None, member: str | None, secret_file: str | None, project: str | None
) -> None:
    """Make an API key. Its secret is shown this once and kept nowhere."""
    member_id = session.client.members.find(member)["id"] if member else None
    within = project_id(session, project)
    made = session.client.keys.create(name=name, role=role, project_id=within, member_id=member_id)
    if secret_file:
        write_secret(Path(secret_file), made.pop("secret"))
        session.say(f"secret written to {secret_file}")
    session.one(made, [("SECRET", "secret"), *KEY.columns] if "secret" in made else KEY.columns)


def write_secret(path: Path, secret: str) -> None:
    """Never for a moment readable by others."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(secret + "\n", encoding="utf-8")


@click.command("whoami", cls=Verb)
@click.pass_obj
def whoami(session: Session) -> None:
    """Whose key this is."""
    session.one(
        {**session.client.whoami(), "server": session.target.url, "source": session.target.source},
        [
            ("ROLE", "role"),
            ("NAME", "name"),
            ("ACCOUNT", "account"),
            ("PROJECT", "project"),
            ("SERVER", "server"),
            ("KEY FROM", "source"),
        ],
    )

"""The small print of accounts: bounds, what a member's key may grant, and the store's refusals in words. Pure."""

from __future__ import annotations

from typing import Final

from muster.errors import Forbidden, Invalid, NameTaken, UniqueViolation
from muster.model.accounts import Member, Project, Role

GPU_QUOTA_MAX: Final = 10_000_000


def check_quota(gpu_quota: int | None) -> None:
    if gpu_quota is not None and not 0 <= gpu_quota <= GPU_QUOTA_MAX:
        raise Invalid(f"a GPU quota is between 0 and {GPU_QUOTA_MAX}", field="gpu_quota", hint="null = no limit")


def check_member(member: Member, role: Role, project: Project | None) -> None:
    if project is None or member.project_id != project.id:
        raise Invalid("this member belongs to another project", field="member_id")
    if member.role is Role.MEMBER and role is not Role.MEMBER:
        raise Forbidden("a member's key grants no more than the member may", hint="make it with role member")


def taken(refused: UniqueViolation) -> NameTaken:
    match refused.rule:
        case "account_name":
            return NameTaken("there is an account of this name", field="name", hint="choose another name")
        case "project_slug":
            return NameTaken(
                "the account has a project of this name, or of one too much like it",
                field="name",
                hint="choose another name",
            )
        case "api_key_digest":
            return NameTaken("this secret is in use", field="secret", hint="let one be made for you")
        case _:
            return NameTaken("this exists already", hint="choose another name")

"""Who pays, what owns resources, who may act, and how a client proves it."""

from __future__ import annotations

from enum import StrEnum

from muster.model.base import Instant, Noun, Part


class Role(StrEnum):
    OPERATOR = "operator"  # owns the fleet; sees everything
    ADMIN = "admin"  # full control of a project
    MEMBER = "member"  # control plane read-only, data plane (ssh, kubectl, jobs) full


class Account(Noun, frozen=True, kw_only=True):
    number: int = 0
    name: str
    postpaid: bool = False
    created_at: Instant


class Project(Noun, frozen=True, kw_only=True):
    number: int = 0
    account_id: str
    name: str
    slug: str
    gpu_quota: int | None = None  # GPUs held at once; None = no limit
    created_at: Instant


class Member(Noun, frozen=True, kw_only=True):
    number: int = 0
    account_id: str
    project_id: str
    name: str
    email: str = ""
    role: Role
    created_at: Instant


class ApiKey(Noun, frozen=True, kw_only=True):
    """`digest` is SHA-256 of a 256-bit random secret; the secret itself is shown once and kept nowhere."""

    digest: str
    prefix: str  # first characters of the secret, so that people can tell keys apart
    name: str
    role: Role
    account_id: str | None = None
    project_id: str | None = None
    member_id: str | None = None
    created_at: Instant
    last_used_at: Instant | None = None
    revoked_at: Instant | None = None


class Actor(Part, frozen=True, kw_only=True):
    """Who acts: an API key's principal, or the system itself."""

    role: Role
    name: str
    account_id: str | None = None
    project_id: str | None = None
    member_id: str | None = None
    key_id: str | None = None

    @property
    def is_operator(self) -> bool:
        return self.role is Role.OPERATOR


SYSTEM = Actor(role=Role.OPERATOR, name="system")

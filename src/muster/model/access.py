"""SSH keys, security groups and reserved addresses: how people and packets get in."""

from __future__ import annotations

from muster.model.base import Instant, Noun, Part


class SshKey(Noun, frozen=True, kw_only=True):
    number: int = 0
    account_id: str
    project_id: str
    member_id: str | None = None  # None = the whole project's
    name: str
    public_key: str
    fingerprint: str  # SHA256:… ; unique per project
    created_at: Instant


class Rule(Part, frozen=True, kw_only=True):
    """One permission. Everything not permitted is refused."""

    direction: str  # inbound | outbound
    protocol: str  # tcp | udp | icmp | any
    port_min: int = 0
    port_max: int = 65535
    cidr: str = "0.0.0.0/0"
    description: str = ""


class SecurityGroup(Noun, frozen=True, kw_only=True):
    number: int = 0
    account_id: str
    project_id: str
    name: str
    rules: tuple[Rule, ...] = ()
    created_at: Instant
    updated_at: Instant


class ReservedIp(Noun, frozen=True, kw_only=True):
    number: int = 0
    account_id: str
    project_id: str
    region: str
    address: str
    cluster_id: str | None = None
    created_at: Instant

"""What is remembered: one declared table per noun, its uniqueness rules and its indexes.

Leans on model only. The migrations are written by hand; a test proves that a migrated database, of either kind, has
exactly these columns, rules and indexes. Scalar fields are columns, compound ones JSON text: relational where
something must be true, JSON where something is only said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cached_property
from types import NoneType
from typing import Any, Final, NamedTuple, get_args

import msgspec

from muster.model.access import ReservedIp, SecurityGroup, SshKey
from muster.model.accounts import Account, ApiKey, Member, Project
from muster.model.base import Noun
from muster.model.billing import Book, Budget, Contract, Funding, LedgerEntry, Usage
from muster.model.capacity import Booking, CalendarLine, Reservation
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region
from muster.model.clusters import Cluster, Node
from muster.model.events import IdempotencyKey, Request
from muster.model.health import Remediation
from muster.model.hosts import Host, Lease, Pool
from muster.model.jobs import Job
from muster.model.objects import ObjectAccess
from muster.model.volumes import Attachment, Volume


class Kind(StrEnum):
    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    JSON = "json"


class Column(NamedTuple):
    """`type` is the Python type behind the column, without its None."""

    name: str
    kind: Kind
    nullable: bool
    type: Any


class Rule(NamedTuple):
    """A uniqueness rule; `name` is what UniqueViolation.rule says, on both databases."""

    name: str
    columns: tuple[str, ...]


class Index(NamedTuple):
    name: str
    columns: tuple[str, ...]
    where: str = ""


@dataclass(frozen=True)
class Table:
    """What follows from the columns is worked out once: it is asked for with every question."""

    name: str
    noun: type[Noun]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]
    indexes: tuple[Index, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def numbered(self) -> bool:
        return "number" in self.names

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        return {column.name: column.kind for column in self.columns}


def _column(name: str, annotation: Any) -> Column:
    options = [option for option in get_args(annotation) if option is not NoneType]
    nullable = NoneType in get_args(annotation)
    type_ = options[0] if nullable else annotation
    if not isinstance(type_, type):
        return Column(name, Kind.JSON, nullable, type_)
    if issubclass(type_, bool):
        return Column(name, Kind.BOOLEAN, nullable, type_)
    if issubclass(type_, str):
        return Column(name, Kind.TEXT, nullable, type_)
    if issubclass(type_, int) and not issubclass(type_, Enum):
        return Column(name, Kind.INTEGER, nullable, type_)
    return Column(name, Kind.JSON, nullable, type_)


def columns_of(struct: type[msgspec.Struct]) -> tuple[Column, ...]:
    """Scalars first: SQLite reads a row from its start, and the JSON behind may spill to other pages."""
    columns = [_column(field.name, field.type) for field in msgspec.structs.fields(struct)]
    return tuple(sorted(columns, key=lambda column: (column.name != "id", column.kind is Kind.JSON)))


def _table(noun: type[Noun], rules: Mapping[str, str] | None = None, *indexes: Index) -> Table:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", noun.__name__).lower()
    columns = columns_of(noun)
    declared = [Rule(f"{name}_id", ("id",))]
    if any(column.name == "number" for column in columns):
        declared.append(Rule(f"{name}_number", ("number",)))
    declared += [Rule(rule, tuple(fields.split())) for rule, fields in (rules or {}).items()]
    return Table(name, noun, columns, tuple(declared), indexes)


def _index(name: str, fields: str, where: str = "") -> Index:
    return Index(name, tuple(fields.split()), where)


_ALIVE = "gone_at IS NULL"

_DECLARED: Final = (
    _table(Account, {"account_name": "name"}),
    _table(Project, {"project_slug": "account_id slug"}),
    _table(Member, None, _index("member_by_project", "project_id created_at id")),
    _table(ApiKey, {"api_key_digest": "digest"}, _index("api_key_by_project", "project_id created_at id")),
    _table(Region),
    _table(GpuType),
    _table(InstanceType),
    _table(Image),
    _table(Price),
    _table(
        Host,
        {"host_name": "name"},
        _index("host_by_age", "created_at id"),
        _index("host_by_region", "region created_at id"),
        _index("host_by_pool", "pool_id id", "pool_id IS NOT NULL"),
    ),
    _table(Pool, {"pool_name": "name"}, _index("pool_by_account", "account_id created_at id")),
    _table(
        Lease,
        None,
        _index("lease_by_cluster", "cluster_id"),
        _index("lease_by_host", "host_id"),
        _index("lease_by_end", "ends_at id", "ends_at IS NOT NULL"),
    ),
    _table(CalendarLine),
    _table(Booking, None, _index("booking_by_line", "line_id id")),
    _table(
        Reservation,
        {"reservation_cluster": "cluster_id"},
        _index("reservation_by_project", "project_id created_at id"),
        _index("reservation_open", "open created_at id"),
    ),
    _table(
        Volume,
        {"volume_live_name": "project_id live_name"},
        _index("volume_by_project", "project_id created_at id", _ALIVE),
        _index("volume_alive", "created_at id", _ALIVE),
    ),
    _table(
        Attachment,
        {"attachment_volume": "volume_id cluster_id", "attachment_path": "cluster_id mount_path"},
    ),
    _table(SshKey, {"ssh_key_fingerprint": "project_id fingerprint"}),
    _table(SecurityGroup, {"security_group_name": "project_id name"}),
    _table(
        ReservedIp,
        {"reserved_ip_address": "region address"},
        _index("reserved_ip_by_project", "project_id created_at id"),
    ),
    _table(
        Cluster,
        {"cluster_live_name": "project_id live_name"},
        _index("cluster_by_project", "project_id created_at id", _ALIVE),
        _index("cluster_alive", "created_at id", _ALIVE),
        _index("cluster_preemptible", "preemptible_line", "preemptible_line IS NOT NULL"),
        _index("cluster_short", "short_line", "short_line IS NOT NULL"),
    ),
    _table(
        Node,
        None,
        _index("node_by_cluster", "cluster_id"),
    ),
    _table(
        Remediation,
        {"remediation_open": "open_node_id"},
        _index("remediation_by_cluster", "cluster_id created_at id"),
        _index("remediation_by_state", "state cluster_id"),
    ),
    _table(
        Job,
        None,
        _index("job_by_project", "project_id created_at id"),
        _index("job_open", "ended_at id"),
        _index("job_owing", "teardown torn_down_at"),
    ),
    _table(
        Request,
        None,
        _index("request_by_resource", "resource_id created_at id"),
        _index("request_by_project", "project_id created_at id"),
    ),
    _table(
        Usage,
        {"usage_open": "open_key"},
        _index("usage_by_resource", "resource_id opened_at id"),
        _index("usage_open_by_account", "account_id opened_at id", "closed_at IS NULL"),
    ),
    _table(
        LedgerEntry,
        None,
        _index("ledger_entry_by_account", "account_id at id"),
        _index("ledger_entry_by_project", "project_id at id"),
        _index("ledger_entry_by_resource", "resource_id at id"),
    ),
    _table(Book),
    _table(Contract, None, _index("contract_by_project", "project_id created_at id")),
    _table(Budget),
    _table(Funding),
    _table(ObjectAccess),
    _table(IdempotencyKey, None, _index("idempotency_key_by_age", "created_at id")),
)

TABLES: Final[Mapping[type[Noun], Table]] = {table.noun: table for table in _DECLARED}

SLOT_RULE: Final = "lease_slot"
"""The rule that no GPU is granted twice; its table, host_slots, is beside the nouns: all that is held of a host."""

CELL_RULE: Final = "calendar_cell"
"""The rule that no hour of a line promises more hosts than are reservable; its table is beside the nouns, too."""

FIXED: Final[Mapping[type[Noun], tuple[str, ...]]] = {
    Lease: ("host_id", "slots"),
    Booking: ("line_id", "hosts", "from_at", "until_at"),
}
"""What is counted elsewhere at insert: a replacement that moved it would be a lie."""

SLOTS_MAX: Final = 62
"""Slots of one host: a mask must fit a signed 64-bit integer."""


def rule_by_columns() -> dict[str, str]:
    """SQLite names the columns of a broken rule ("cluster.project_id, cluster.live_name"), not the rule."""
    return {
        ", ".join(f"{table.name}.{column}" for column in rule.columns): rule.name
        for table in _DECLARED
        for rule in table.rules
    }


def require_slots(mask: int) -> None:
    if not 0 < mask < 1 << SLOTS_MAX:
        raise ValueError(f"a lease holds between 1 and {SLOTS_MAX} slots; its mask is {mask}")

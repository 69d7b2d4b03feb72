"""Money: stretches of capacity held by someone, what moved between books because of them, and what was agreed on.

All sums are integers in micro-units of the house's one currency. An entry has both its legs in one row, so an
unbalanced booking cannot be written down.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from muster.model.base import HOUR, Instant, Noun

CURRENCY: Final = "USD"
MICRO: Final = 1_000_000
MONTH_HOURS: Final = 730
"""A month of storage, in hours: a year has 8,760, whatever its months are called."""
UNIT_MS: Final[dict[str, int]] = {"node_hour": HOUR, "gib_month": MONTH_HOURS * HOUR}
"""The units that are charged by time; a term is charged by contract."""
ON_DEMAND: Final = "on_demand"
PREEMPTIBLE: Final = "preemptible"
POOL: Final = "pool"
METERED: Final = (ON_DEMAND, PREEMPTIBLE, POOL)
"""The billing types that are charged by what was served; the others are paid for by their contracts."""

REVENUE: Final = "operator:revenue"
CASH: Final = "operator:cash"
OVERRUN: Final = "operator:overrun"


def account_book(account_id: str) -> str:
    """The book in which an account's credit stands."""
    return f"account:{account_id}"


class UsageClass(StrEnum):
    """What held capacity does. Only serving is charged."""

    PROVISIONING = "provisioning"  # held, on its way up or down
    SERVING = "serving"
    PAUSED = "paused"  # kept for its owner, nothing of it serves
    FAILED = "failed"  # held, and broken


class Usage(Noun, frozen=True, kw_only=True):
    """An interval: so much of an item, held in one class, from one instant to another. At most one is open per
    resource, class and billing type; it is opened and closed in the batch of the phase or lease that it follows."""

    account_id: str
    project_id: str
    kind: str  # cluster | volume
    resource_id: str
    resource_name: str
    item: str  # an instance type, or "volume"
    region: str
    billing: str
    usage_class: UsageClass
    quantity: int  # nodes, or GiB
    opened_at: Instant
    closed_at: Instant | None = None
    open_key: str | None  # resource, class and billing type while it is open
    booked_until: Instant
    booked_micro: int = 0
    bookings: int = 0

    @property
    def charged(self) -> bool:
        return self.usage_class is UsageClass.SERVING and self.billing in METERED


class EntryKind(StrEnum):
    TOP_UP = "top_up"
    USAGE = "usage"
    CORRECTION = "correction"  # of a usage booked further than it lasted
    CONTRACT = "contract"
    REFUND = "refund"  # of a contract whose cluster never became ready
    OVERRUN = "overrun"  # what ran on while nobody could stop it: the operator's to bear


class LedgerEntry(Noun, frozen=True, kw_only=True):
    """`micro` moves from the book `debit` to the book `credit`. Never changed, never removed: the store refuses."""

    account_id: str
    project_id: str | None = None
    kind: EntryKind
    debit: str
    credit: str
    micro: int
    at: Instant  # the instant up to which it is owed
    since: Instant | None = None  # of what `item` was used, from when on
    usage_id: str | None = None
    resource_id: str | None = None
    resource_name: str = ""
    item: str = ""
    quantity: int = 0
    price_micro: int = 0
    memo: str = ""
    booked_by: str = "system"
    created_at: Instant


class Book(Noun, frozen=True, kw_only=True):
    """The sum of one book, kept by the database itself as entries are inserted."""

    micro: int = 0


class Contract(Noun, frozen=True, kw_only=True):
    """Capacity paid for in advance: a reservation, a window. Its price is booked once, with it."""

    account_id: str
    project_id: str
    resource_id: str
    micro: int
    starts_at: Instant
    ends_at: Instant
    memo: str = ""
    created_at: Instant


class Budget(Noun, frozen=True, kw_only=True):
    """What a project may spend in a calendar month (UTC). `id` is the project's."""

    account_id: str
    project_id: str
    monthly_micro: int
    created_at: Instant
    updated_at: Instant


class FundingState(StrEnum):
    FUNDED = "funded"
    LOW = "low"
    UNFUNDED = "unfunded"


class Funding(Noun, frozen=True, kw_only=True):
    """How an account stood when it was last looked at. `id` is the account's."""

    account_id: str
    state: FundingState
    since: Instant
    minute_micro: int = 0  # one minute's spend, when something last was spent

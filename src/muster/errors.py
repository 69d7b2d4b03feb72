"""The closed tree of things that can go wrong, as sentences with a code, a cause and a way out.

Leans on nothing. Every dialect has a wire form for every code here (an exhaustiveness test proves it), so a new
class is a deliberate act: add it, then teach each dialect its word.

    MusterError
    ├── CallError              the caller can do something about it
    │   ├── Invalid  Unauthenticated  Forbidden  NotFound  NameTaken  Stale  Protected  WrongPhase
    │   ├── NeverFits  QuotaExceeded  InsufficientBalance  OutOfStock  Unsupported  IdempotencyMismatch
    │   └── TooLarge  RateLimited  Unavailable
    ├── StoreError             a batch was refused; core translates it
    │   └── VersionMismatch  UniqueViolation  FenceLost  StoreFull
    └── DriverError            what a substrate or an orchestrator may say
        └── TryLater  NoneLeft  Never  UnknownOutcome  FencedOff
"""

from __future__ import annotations

from typing import Any, ClassVar


class MusterError(Exception):
    """Root of the tree; never raised itself."""


class CallError(MusterError):
    """Something the caller did or can act on. `field` names the offending input, `hint` the way out."""

    code: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        hint: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.hint = hint
        self.details = details or {}


class Invalid(CallError):
    code = "invalid"


class Unauthenticated(CallError):
    code = "unauthenticated"


class Forbidden(CallError):
    code = "forbidden"


class NotFound(CallError):
    """Absent, or another tenant's: the two are never told apart."""

    code = "not_found"


class NameTaken(CallError):
    code = "name_taken"


class Stale(CallError):
    """The caller's If-Match, or a concurrent change, says the resource moved on."""

    code = "stale"


class Protected(CallError):
    """Deletion protection, or something still in use."""

    code = "protected"


class WrongPhase(CallError):
    """The wish makes no sense in the present phase."""

    code = "wrong_phase"


class NeverFits(CallError):
    """No amount of waiting would let it fit this fleet."""

    code = "never_fits"


class QuotaExceeded(CallError):
    code = "quota_exceeded"


class InsufficientBalance(CallError):
    code = "insufficient_balance"


class OutOfStock(CallError):
    """It would fit, but not now; details say what is nearest."""

    code = "out_of_stock"


class Unsupported(CallError):
    """A known wish that this fleet cannot honour; refused rather than ignored."""

    code = "unsupported"


class IdempotencyMismatch(CallError):
    code = "idempotency_mismatch"


class TooLarge(CallError):
    code = "too_large"


class RateLimited(CallError):
    code = "rate_limited"

    def __init__(self, message: str, *, retry_after_seconds: float, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, details={"retry_after_seconds": retry_after_seconds})
        self.retry_after_seconds = retry_after_seconds


class Unavailable(CallError):
    """Our fault, passing: nothing was half written, ask again."""

    code = "unavailable"


CALL_ERRORS: tuple[type[CallError], ...] = (
    Invalid,
    Unauthenticated,
    Forbidden,
    NotFound,
    NameTaken,
    Stale,
    Protected,
    WrongPhase,
    NeverFits,
    QuotaExceeded,
    InsufficientBalance,
    OutOfStock,
    Unsupported,
    IdempotencyMismatch,
    TooLarge,
    RateLimited,
    Unavailable,
)


class StoreError(MusterError):
    """A batch was refused whole; nothing of it was written."""


class VersionMismatch(StoreError):
    """A guarded write met another version than it expected (or no row at all)."""

    def __init__(self, noun: str, key: str) -> None:
        super().__init__(f"{noun} {key} moved on")
        self.noun = noun
        self.key = key


class UniqueViolation(StoreError):
    """A uniqueness rule refused an insert. `rule` is the declared name of the constraint."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"unique rule {rule} refused the batch")
        self.rule = rule


class FenceLost(StoreError):
    """The claim behind this batch is no longer ours."""


class StoreFull(StoreError):
    """The disk is full; becomes a 503."""


class DriverError(MusterError):
    """Said by a substrate or an orchestrator; `because` is a sentence for people."""

    def __init__(self, because: str) -> None:
        super().__init__(because)
        self.because = because


class TryLater(DriverError):
    pass


class NoneLeft(DriverError):
    pass


class Never(DriverError):
    pass


class UnknownOutcome(DriverError):
    """The reply was lost: observe before repeating."""


class FencedOff(DriverError):
    """The call carried an older token than one already seen: a zombie's late call."""

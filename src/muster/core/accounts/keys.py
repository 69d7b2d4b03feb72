"""API keys: how a secret is made, hashed and recognised, and who was recognised a moment ago.

*Laws.* Only the SHA-256 of a secret is kept; the secret is shown once and logged nowhere. Digests are compared in
constant time. What is remembered is forgotten after two seconds, so a key revoked by another process ends then at
the latest; one revoked here ends at once.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from muster.contracts.clock import Entropy
from muster.errors import Invalid
from muster.model.accounts import Actor, ApiKey
from muster.model.base import MINUTE, SECOND, Instant

REMEMBER_MS: Final = 2 * SECOND
NOTE_USE_MS: Final = MINUTE
REMEMBERED_MAX: Final = 10_000
SECRET_CHARS_MIN: Final = 8
SECRET_CHARS_MAX: Final = 256
PREFIX_CHARS_MAX: Final = 7


def new_secret(entropy: Entropy) -> str:
    return f"mk-{entropy.token(32)}"


def checked_secret(secret: str) -> str:
    """A secret somebody chose for themselves: it must survive an HTTP header and not be a joke."""
    if not SECRET_CHARS_MIN <= len(secret) <= SECRET_CHARS_MAX:
        raise Invalid(f"a key has {SECRET_CHARS_MIN} to {SECRET_CHARS_MAX} characters", field="secret")
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise Invalid("a key is made of printable ASCII characters without spaces", field="secret")
    return secret


def digest_of_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def prefix_of(secret: str) -> str:
    """So much that people can tell keys apart, and never more than a quarter of the secret."""
    return secret[: min(PREFIX_CHARS_MAX, len(secret) // 4)]


def same_digest(one: str, other: str) -> bool:
    return hmac.compare_digest(one, other)


def actor_of(key: ApiKey) -> Actor:
    return Actor(
        role=key.role,
        name=key.name,
        account_id=key.account_id,
        project_id=key.project_id,
        member_id=key.member_id,
        key_id=key.id,
    )


class Recognised:
    """Who was recognised within the last two seconds, by digest; bounded, because strangers choose the digests."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Actor, Instant]] = {}
        self.forgotten = 0  # how often something was forgotten: a look-up begun before must not be remembered

    def actor(self, digest: str, now: Instant) -> Actor | None:
        known = self._known.get(digest)
        return known[0] if known is not None and now < known[1] else None

    def remember(self, digest: str, actor: Actor, now: Instant, *, forgotten: int) -> None:
        if forgotten != self.forgotten:
            return
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        self._known[digest] = (actor, now + REMEMBER_MS)

    def forget(self, digest: str) -> None:
        self.forgotten += 1
        self._known.pop(digest, None)

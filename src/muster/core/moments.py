"""Instants and stretches of time in words, for sentences that people read. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from muster.model.base import DAY, HOUR, MINUTE, Instant


def iso(at: Instant) -> str:
    """RFC 3339 with milliseconds and Z."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def said_at(at: Instant) -> str:
    """Tue 2026-01-06 09:00 UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%a %Y-%m-%d %H:%M UTC")


def said_for(length: Instant) -> str:
    """5 days, 3 h, 20 min: the largest unit that is at least one."""
    if length >= 2 * DAY:
        return f"{length / DAY:.3g} days"
    if length >= HOUR:
        return f"{length / HOUR:.3g} h"
    return f"{max(1, length // MINUTE)} min"

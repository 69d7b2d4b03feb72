"""The audit log: every mutating call leaves one line, in the batch that does what the line says. Pure."""

from __future__ import annotations

from typing import Any

from muster.model.accounts import Account, Actor, Project
from muster.model.base import Instant, Noun
from muster.model.events import Event


def audit(
    actor: Actor,
    kind: str,
    what: str,
    noun: Noun,
    *,
    at: Instant,
    message: str,
    cause: str | None = None,
    data: dict[str, Any] | None = None,
) -> Event:
    """The line that says `actor` did `what` to `noun`. Never put a secret into `message` or `data`."""
    account_id, project_id = _owners(noun)
    return Event(
        at=at,
        kind=kind,
        resource_id=noun.id,
        type=f"{kind}.{what}",
        account_id=account_id,
        project_id=project_id,
        actor=actor.name,
        cause=cause if cause is not None else (f"key {actor.key_id}" if actor.key_id else ""),
        message=message,
        data=data or {},
    )


def _owners(noun: Noun) -> tuple[str | None, str | None]:
    match noun:
        case Account():
            return noun.id, None
        case Project():
            return noun.account_id, noun.id
        case _:
            return getattr(noun, "account_id", None), getattr(noun, "project_id", None)

"""Wishes about volumes as rows: made here purely, written in one batch by whoever accepts them.

The clusters room uses these too, for volumes that are made and ended together with a cluster. Services write the
wish (size, deletion) and raise the generation; phase and actual size are the reconciler's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from muster.contracts.store import Insert, Op, Replace, Wake
from muster.core.accounts.audit import audit
from muster.core.accounts.names import clean_name
from muster.errors import Invalid
from muster.model.accounts import Actor
from muster.model.base import Instant, changed
from muster.model.events import Event, Request
from muster.model.volumes import Volume

SIZE_GIB_MAX: Final = 1 << 20  # one PiB
FLAVOURS: Final = ("shared", "sfs", "pfs", "dataset")


class Wished(NamedTuple):
    """A volume with a new wish, the request that a client can poll, and what the audit log says."""

    volume: Volume
    request: Request
    events: tuple[Event, ...]

    def ops(self) -> list[Op]:
        """All that must be in the accepting batch, besides the events."""
        first = self.volume.version == 1
        written: Op = Insert(self.volume) if first else Replace(self.volume)
        return [written, *self.beside()]

    def beside(self) -> list[Op]:
        return [Insert(self.request), Wake("volume", self.volume.id, self.request.created_at)]


def check_size(size_gib: int) -> int:
    if not 1 <= size_gib <= SIZE_GIB_MAX:
        raise Invalid(f"a volume has 1 to {SIZE_GIB_MAX} GiB", field="size_gib")
    return size_gib


def new_volume(
    *,
    id: str,
    request_id: str,
    account_id: str,
    project_id: str,
    name: str,
    region: str,
    size_gib: int,
    flavour: str = "shared",
    deletion_protection: bool = False,
    actor: Actor,
    at: Instant,
    cause: str | None = None,
) -> Wished:
    """A volume that somebody wants; raises Invalid when its shape makes no sense."""
    name = clean_name(name)
    if flavour not in FLAVOURS:
        raise Invalid(f"there is no flavour {flavour}", field="flavour", hint=f"use one of {', '.join(FLAVOURS)}")
    volume = Volume(
        id=id,
        account_id=account_id,
        project_id=project_id,
        name=name,
        live_name=name,
        region=region,
        size_gib=check_size(size_gib),
        flavour=flavour,
        deletion_protection=deletion_protection,
        phase_since=at,
        because="accepted",
        created_by=actor.name,
        created_at=at,
        updated_at=at,
    )
    message = f"volume {name} of {size_gib} GiB asked for in {region}"
    return _wished(volume, "create", "created", message, request_id, actor, at, cause)


def grown_volume(volume: Volume, size_gib: int, *, request_id: str, actor: Actor, at: Instant) -> Wished:
    later = changed(volume, size_gib=size_gib, generation=volume.generation + 1, updated_at=at)
    message = f"volume {volume.name} is to grow from {volume.actual_gib} to {size_gib} GiB"
    return _wished(later, "grow", "grow_wished", message, request_id, actor, at, None)


def edited_volume(volume: Volume, *, name: str | None, deletion_protection: bool | None, at: Instant) -> Volume:
    """The volume under its new name and protection; itself when neither is new."""
    called = volume.name if name is None else clean_name(name)
    protected = volume.deletion_protection if deletion_protection is None else deletion_protection
    if (called, protected) == (volume.name, volume.deletion_protection):
        return volume
    return changed(volume, name=called, live_name=called, deletion_protection=protected, updated_at=at)


def ended_volume(volume: Volume, *, request_id: str, actor: Actor, at: Instant, cause: str | None = None) -> Wished:
    """The wish that it go. Its name is free again from now on."""
    later = changed(volume, delete_wished_at=at, live_name=None, generation=volume.generation + 1, updated_at=at)
    message = f"volume {volume.name} is to be deleted"
    return _wished(later, "delete", "delete_wished", message, request_id, actor, at, cause)


def _wished(
    volume: Volume,
    operation: str,
    what: str,
    message: str,
    request_id: str,
    actor: Actor,
    at: Instant,
    cause: str | None,
) -> Wished:
    request = Request(
        id=request_id,
        account_id=volume.account_id,
        project_id=volume.project_id,
        kind="volume",
        resource_id=volume.id,
        operation=operation,
        generation=volume.generation,
        created_by=actor.name,
        created_at=at,
        updated_at=at,
    )
    data = {"size_gib": volume.size_gib, "request_id": request_id}
    event = audit(actor, "volume", what, volume, at=at, message=message, cause=cause, data=data)
    return Wished(volume, request, (event,))

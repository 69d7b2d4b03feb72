"""Volumes: shared storage that outlives clusters. Create, grow, delete, look.

Leans on accounts (rights, names, audit), the catalogue (regions) and the store's contract. Never meets a driver: it
writes wishes, with the request that a client can poll; reconcile.py makes them true.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.contracts.clock import Clock, Entropy
from muster.contracts.metering import FREE, Purse, Want
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Replace, Store
from muster.core.accounts.audit import audit
from muster.core.accounts.rights import own_project, require_sees, require_write
from muster.core.catalog.service import CatalogService
from muster.core.guarded import first_made, guarded, insert, require_version, submit
from muster.core.idempotency import REPEAT_WINDOW, Once
from muster.core.paging import Page, page_of
from muster.core.volumes.mounts import mounts_of, open_requests, staying_clusters, tell_clusters
from muster.core.volumes.wishes import Wished, check_size, edited_volume, ended_volume, grown_volume, new_volume
from muster.errors import (
    InsufficientBalance,
    Invalid,
    NameTaken,
    NotFound,
    Protected,
    QuotaExceeded,
    UniqueViolation,
    WrongPhase,
)
from muster.model.accounts import Actor, Project
from muster.model.phases import VolumePhase
from muster.model.volumes import Attachment, Volume


class VolumeService:
    def __init__(
        self, store: Store, clock: Clock, entropy: Entropy, catalog: CatalogService, purse: Purse = FREE
    ) -> None:
        self._purse = purse
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._catalog = catalog

    async def create(
        self,
        actor: Actor,
        *,
        name: str,
        region: str,
        size_gib: int,
        flavour: str = "shared",
        deletion_protection: bool = False,
        project_id: str | None = None,
        once: Once | None = None,
    ) -> Volume:
        """A volume, made by and by. The same name, size, region and flavour again within ten minutes is the same
        create and gets the same answer."""
        require_write(actor)
        project = await self._project(own_project(actor, project_id))
        if (first := await first_made(self._store, Volume, once, project.id)) is not None:
            return first
        wished = new_volume(
            id=self._entropy.uuid(),
            request_id=self._entropy.uuid(),
            account_id=project.account_id,
            project_id=project.id,
            name=name,
            region=await self._region(region),
            size_gib=size_gib,
            flavour=flavour,
            deletion_protection=deletion_protection,
            actor=actor,
            at=self._clock.now(),
        )
        try:
            await self._purse.require(project, [Want("volume", wished.volume.region, size_gib)])
        except (InsufficientBalance, QuotaExceeded):
            first = await self._same_create(wished.volume)  # the name comes before the balance
            if first is None:
                raise
            return first
        return await self._accept(wished, once)

    async def _accept(self, wished: Wished, once: Once | None) -> Volume:
        volume = wished.volume
        try:
            return await insert(
                self._store,
                Step.VOLUME_ACCEPT,
                volume,
                wished.events,
                also=wished.beside(),
                once=once,
                scope=volume.project_id,
            )
        except UniqueViolation as refused:
            first = await self._same_create(volume)
            if first is None:
                message = f"there is a volume {volume.name} in this project"
                raise NameTaken(message, field="name", hint="choose another name, or use that one") from refused
            return first

    async def _same_create(self, wanted: Volume) -> Volume | None:
        query = Find(Volume, equals={"project_id": wanted.project_id, "live_name": wanted.name}, limit=1)
        for volume in await self._store.find(query):
            fresh = wanted.created_at - volume.created_at < REPEAT_WINDOW
            same = all(getattr(volume, f) == getattr(wanted, f) for f in ("region", "size_gib", "flavour"))
            return volume if fresh and same else None
        return None

    async def volumes(
        self,
        actor: Actor,
        project_id: str | None = None,
        name: str | None = None,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Volume]:
        equals: dict[str, str | None] = {"gone_at": None}
        if project_id is not None or not actor.is_operator:
            equals["project_id"] = own_project(actor, project_id)
        if name is not None:
            equals["name"] = name
        return await page_of(self._store, Volume, equals, cursor=cursor, limit=limit)

    async def volume(self, actor: Actor, id: str) -> Volume:
        volume = await self._store.get(Volume, id)
        if volume is None or volume.gone_at is not None:
            raise NotFound(f"there is no volume {id}")
        require_sees(actor, volume.project_id, "volume", id)
        return volume

    async def attachments(self, actor: Actor, volume_id: str) -> list[Attachment]:
        await self.volume(actor, volume_id)
        return await mounts_of(self._store, volume_id)

    async def mounted(self, ids: Sequence[str]) -> set[str]:
        """Which of these, already seen by the caller, are mounted somewhere."""
        mounts = await self._store.find(Find(Attachment, one_of={"volume_id": ids})) if ids else []
        return {mount.volume_id for mount in mounts}

    async def grow(self, actor: Actor, id: str, size_gib: int, *, if_version: int | None = None) -> Volume:
        """Asking again for the size it is growing to changes nothing; for a size that was refused, tries again."""

        async def grow() -> Volume:
            volume = await self._writable(actor, id, if_version)
            if volume.delete_wished_at is not None:
                raise WrongPhase(f"volume {volume.name} is being deleted", hint="make a new one")
            if check_size(size_gib) < volume.size_gib:
                raise Invalid(
                    f"a volume never shrinks: this one has {volume.size_gib} GiB",
                    field="size_gib",
                    hint="make a smaller one and copy what you need",
                )
            if size_gib == volume.size_gib and not await self._gave_up(volume):
                return volume
            more = Want("volume", volume.region, size_gib - volume.size_gib)
            await self._purse.require(await self._project(volume.project_id), [more])
            now = self._clock.now()
            wished = grown_volume(volume, size_gib, request_id=self._entropy.uuid(), actor=actor, at=now)
            return await self._write(wished, await mounts_of(self._store, id))

        return await guarded(grow)

    async def edit(
        self,
        actor: Actor,
        id: str,
        *,
        name: str | None = None,
        deletion_protection: bool | None = None,
        if_version: int | None = None,
    ) -> Volume:
        """Its name and its protection: true as soon as they are written, so there is nothing to wait for."""

        async def edit() -> Volume:
            volume = await self._writable(actor, id, if_version)
            if volume.delete_wished_at is not None:
                raise WrongPhase(f"volume {volume.name} is being deleted", hint="make a new one")
            now = self._clock.now()
            later = edited_volume(volume, name=name, deletion_protection=deletion_protection, at=now)
            if later is volume:
                return volume
            message = f"volume {volume.name} is now {later.name}, " + (
                "protected from deletion" if later.deletion_protection else "not protected"
            )
            event = audit(actor, "volume", "edited", later, at=now, message=message)
            told = await tell_clusters(self._store, await mounts_of(self._store, id), now)
            try:
                await submit(self._store, Batch(Step.VOLUME_WISH, [Replace(later), *told], [event]))
            except UniqueViolation as refused:
                raise NameTaken(f"there is a volume {name} in this project", field="name") from refused
            return later

        return await guarded(edit)

    async def delete(self, actor: Actor, id: str, *, if_version: int | None = None) -> Volume:
        """The wish that it go; what is in it is lost. Refused while a cluster has it mounted, unless that cluster is
        on its way out too: then the volume goes after it, so that whoever ends both need not wait in between."""

        async def delete() -> Volume:
            volume = await self._writable(actor, id, None)
            if volume.delete_wished_at is not None:
                return volume
            require_version(volume, if_version)
            if volume.deletion_protection:
                raise Protected(
                    f"volume {volume.name} is protected from deletion", hint="set deletion_protection to false first"
                )
            mounts = await mounts_of(self._store, id)
            if staying := await staying_clusters(self._store, mounts):
                raise Protected(
                    f"volume {volume.name} is mounted on {len(staying)} cluster(s)",
                    hint="detach it there, or delete the cluster first",
                    details={"cluster_ids": staying},
                )
            wished = ended_volume(volume, request_id=self._entropy.uuid(), actor=actor, at=self._clock.now())
            return await self._write(wished, mounts)

        return await guarded(delete)

    async def _writable(self, actor: Actor, id: str, if_version: int | None) -> Volume:
        volume = await self.volume(actor, id)
        require_write(actor)
        require_version(volume, if_version)
        return volume

    async def _gave_up(self, volume: Volume) -> bool:
        """Whether the present size is wanted, not there, and nobody is working on it any more."""
        unmet = volume.actual_gib < volume.size_gib or volume.phase is VolumePhase.FAILED
        return unmet and not await open_requests(self._store, volume.id)

    async def _write(self, wished: Wished, mounts: list[Attachment]) -> Volume:
        told = await tell_clusters(self._store, mounts, wished.request.created_at)
        await submit(self._store, Batch(Step.VOLUME_WISH, [*wished.ops(), *told], wished.events))
        return wished.volume

    async def _project(self, id: str) -> Project:
        project = await self._store.get(Project, id)
        if project is None:
            raise NotFound(f"there is no project {id}")
        return project

    async def _region(self, region: str) -> str:
        known = (await self._catalog.current()).regions
        if region not in known:
            raise Invalid(
                f"there is no region {region}", field="region", hint=f"use one of {', '.join(sorted(known))}"
            )
        return region

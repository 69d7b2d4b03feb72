"""What can be had: read by every request, edited by the operator.

Leans on accounts (rights, audit) and the store. The catalogue is read from memory. Every edit leaves an event of kind
"catalog", so whether another process edited it is one question to the event log, asked at most every two seconds and
only about events since the last time; the tables themselves are read again only when the answer is yes. An edit made
in this process is seen by the next call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from muster.contracts.clock import Clock
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Op, Remove, Replace, Store
from muster.core.accounts.rights import require_operator
from muster.core.catalog.rules import Entry, Tables, check_entry, check_price_time
from muster.core.catalog.snapshot import Catalog
from muster.core.guarded import guarded, require_version, submit
from muster.errors import Invalid, NotFound, Protected, UniqueViolation, VersionMismatch
from muster.model.accounts import Actor
from muster.model.base import SECOND, Instant, N, Noun
from muster.model.billing import Usage
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region
from muster.model.clusters import Cluster
from muster.model.events import Event
from muster.model.hosts import Host
from muster.model.volumes import Volume

LOOK_AGAIN: Final[Instant] = 2 * SECOND

KINDS: Final[dict[type[Noun], str]] = {
    Region: "region",
    GpuType: "gpu type",
    InstanceType: "instance type",
    Image: "image",
    Price: "price",
}

__all__ = ["KINDS", "Catalog", "CatalogService"]


class CatalogService:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._catalog: Catalog | None = None
        self._edits = 0  # made through this very service
        self._looked_at: Instant = 0
        self._seen = 0  # the last event before which every edit is in `_catalog`

    async def current(self) -> Catalog:
        catalog = self._catalog
        if catalog is None or self._clock.now() - self._looked_at >= LOOK_AGAIN:
            return await self._look_again()
        return catalog

    async def put(self, actor: Actor, noun: N, *, if_version: int | None = None) -> N:
        """Write one line: a new one, or the next version of the one with this id."""

        async def write() -> None:
            if if_version is not None:
                require_version(await self._load(type(noun), noun.id), if_version)
            await self._write(actor, [noun])

        require_operator(actor)
        await guarded(write)
        return await self._load(type(noun), noun.id)

    async def put_all(self, actor: Actor, nouns: Iterable[Noun]) -> None:
        """Many lines in one batch, each of which may lean on those before it."""
        require_operator(actor)
        entries = list(nouns)
        if entries:
            await guarded(lambda: self._write(actor, entries))

    async def remove(self, actor: Actor, noun: type[Noun], id: str, *, if_version: int | None = None) -> None:
        """Take a line out. What is in use stays: clusters and hosts must find what they were made of."""

        async def write() -> None:
            known = await self._load(noun, id)
            require_version(known, if_version)
            if isinstance(known, Price) and known.valid_from <= self._clock.now():
                raise Protected(f"price {id} has held, and what it cost must stay explicable", hint="put a later one")
            used_by = await self._users(noun, id)
            if used_by:
                raise Protected(f"{KINDS[noun]} {id} is in use by {used_by}", hint="remove those first")
            event = self._event(actor, "removed", f"{KINDS[noun]} {id} removed", [known])
            await submit(self._store, Batch(Step.CATALOG_WRITE, [Remove(noun, id, known.version)], [event]))

        require_operator(actor)
        await guarded(write)
        self._forget()

    # ---- reading

    async def _load(self, noun: type[N], id: str) -> N:
        found = await self._store.get(noun, id) if noun in KINDS else None
        if found is None:
            raise NotFound(f"there is no {KINDS.get(noun, noun.__name__)} {id}")
        return found

    async def _look_again(self) -> Catalog:
        now, edits, last = self._clock.now(), self._edits, await self._store.last_event()
        catalog = self._catalog
        if catalog is None or await self._store.events(after=self._seen, limit=1, kind="catalog"):
            catalog = _catalog_of(await self._tables())
        if edits == self._edits:  # else an edit of our own overtook this reading: the next call looks again
            self._catalog, self._looked_at, self._seen = catalog, now, last
        return catalog

    async def _tables(self) -> Tables:
        return {noun: {entry.id: entry for entry in await self._store.find(Find(noun))} for noun in KINDS}

    # ---- writing

    async def _write(self, actor: Actor, nouns: Sequence[Noun]) -> None:
        """Against the tables, not the memory: an edit elsewhere a second ago counts."""
        tables = await self._tables()
        ops: list[Op] = []
        for noun in nouns:
            entry = check_entry(noun, tables)
            if isinstance(entry, Price):
                await self._check_price(entry, tables)
            op = _put(entry, tables[type(entry)].get(entry.id))
            tables[type(entry)][entry.id] = op.noun
            ops.append(op)
        message = (
            f"{KINDS[type(nouns[0])]} {nouns[0].id} written" if len(nouns) == 1 else f"{len(nouns)} lines written"
        )
        event = self._event(actor, "written", message, nouns)
        try:
            await submit(self._store, Batch(Step.CATALOG_WRITE, ops, [event]))
        except UniqueViolation as raced:
            # Another made the same new line first: look again, and write the next version of it.
            raise VersionMismatch("catalog", nouns[0].id) from raced
        finally:
            self._forget()

    async def _check_price(self, price: Price, tables: Tables) -> None:
        now = self._clock.now()
        check_price_time(price, tables, now)
        late = price.id not in tables[Price] and price.valid_from < now
        if late and await self._count(Usage, item=price.item, region=price.region):
            raise Invalid("this was used before it had a price", field="valid_from", hint="name a later date")

    def _forget(self) -> None:
        self._edits += 1
        self._catalog = None

    def _event(self, actor: Actor, what: str, message: str, nouns: Sequence[Noun]) -> Event:
        return Event(
            at=self._clock.now(),
            kind="catalog",
            resource_id=nouns[0].id,
            type=f"catalog.{what}",
            actor=actor.name,
            cause=f"key {actor.key_id}" if actor.key_id else "",
            message=message,
        )

    # ---- who needs it still

    async def _users(self, noun: type[Noun], id: str) -> str:
        """Who still needs this line, in words; "" when nobody does."""
        counts: dict[str, int] = {}
        if noun is Region:
            counts = {
                "hosts": await self._count(Host, region=id),
                "images": await self._count(Image, region=id),
                "clusters": await self._count(Cluster, region=id, gone_at=None),
                "volumes": await self._count(Volume, region=id, gone_at=None),
            }
        elif noun is GpuType:
            counts = {
                "hosts": await self._count(Host, gpu_type=id),
                "instance types": await self._count(InstanceType, gpu_type=id),
            }
        elif noun is InstanceType:
            counts = {"clusters": await self._clusters_with("instance_type", id)}
        elif noun is Image:
            counts = {"clusters": await self._clusters_with("image_id", id)}
        return " and ".join(f"{count} {what}" for what, count in counts.items() if count)

    async def _count(self, noun: type[Noun], **equals: Any) -> int:
        return await self._store.count(Find(noun, equals=equals))

    async def _clusters_with(self, field: str, value: str) -> int:
        """A cluster's wish is only said, not queried: look at the live ones. Rare, and bounded by what lives."""
        live = await self._store.find(Find(Cluster, equals={"gone_at": None}))
        return sum(getattr(cluster.spec, field) == value for cluster in live)


def _put(entry: Entry, known: Entry | None) -> Insert | Replace:
    if known is None:
        return Insert(msgspec.structs.replace(entry, version=1))
    return Replace(msgspec.structs.replace(entry, version=known.version + 1))


def _catalog_of(tables: Tables) -> Catalog:
    return Catalog(
        regions=tables[Region],
        gpu_types=tables[GpuType],
        instance_types=tables[InstanceType],
        images=tables[Image],
        prices=tables[Price],
    )

"""What a fault may be aimed at, looked up in the store: a host by its id or its name, a region, a cluster."""

from __future__ import annotations

from muster.contracts.faults import Place
from muster.contracts.store import Find, Store
from muster.model.catalog import Region
from muster.model.clusters import Cluster
from muster.model.hosts import Host


class StorePlaces:
    """What a fault may be aimed at: the hosts, regions and clusters the store knows."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def host(self, id_or_name: str) -> Place | None:
        found = await self._store.get(Host, id_or_name)
        if found is None:
            named = await self._store.find(Find(Host, equals={"name": id_or_name}, limit=1))
            found = named[0] if named else None
        return None if found is None else Place(found.id, found.name)

    async def region(self, name: str) -> bool:
        return await self._store.get(Region, name) is not None

    async def cluster(self, id: str) -> bool:
        return await self._store.get(Cluster, id) is not None

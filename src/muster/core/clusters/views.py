"""Cluster documents as bytes, kept as long as nothing of them changed.

A view's key is (who renders, id) and it is good for exactly one version: any write to a part of a cluster raises the
cluster's version in the same batch, so one row's head is all that must be read to serve a document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from muster.contracts.store import Find, Head, Store
from muster.core.accounts.rights import own_project, require_sees, sees
from muster.core.catalog.service import CatalogService
from muster.core.clusters.snapshot import ClusterView, first_view, load_view
from muster.core.paging import cursor_of, page_limit, read_cursor
from muster.errors import NotFound
from muster.model.accounts import Actor
from muster.model.clusters import Cluster, Node
from muster.model.hosts import Lease

Render: TypeAlias = Callable[[ClusterView], bytes]

CACHED_BYTES_MAX = 64 << 20
JUST_MADE_MAX = 1_000


class Views:
    def __init__(self, store: Store, catalog: CatalogService) -> None:
        self._store = store
        self._catalog = catalog
        self._kept: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._kept_bytes = 0
        self._just_made: dict[str, tuple[Cluster, list[Node], list[Lease]]] = {}

    def just_made(self, cluster: Cluster, nodes: list[Node], leases: list[Lease]) -> None:
        """Rows that this process has written a moment ago need not be read to show them."""
        self._just_made[cluster.id] = (cluster, nodes, leases)
        if len(self._just_made) > JUST_MADE_MAX:
            self._just_made.pop(next(iter(self._just_made)))

    async def rendered(self, actor: Actor, id: str, name: str, render: Render, *, accepted: bool = False) -> bytes:
        """The document of one cluster, by `name`'s renderer. `accepted` is said by the answer to its own create:
        whoever asks later, through whatever dialect, is told how it stands."""
        made = self._just_made.pop(id, None)
        if accepted and made is not None and sees(actor, made[0].project_id):
            return await self._first_document(made, name, render)
        head = await self._store.head(Cluster, id)
        if head is None:
            raise NotFound(f"there is no cluster {id}")
        require_sees(actor, head.project_id, "cluster", id)
        return await self._document(head, name, render)

    async def rendered_page(
        self,
        actor: Actor,
        name: str,
        render: Render,
        *,
        project_id: str | None = None,
        cluster_name: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> tuple[list[bytes], str | None]:
        most = page_limit(limit)
        heads = await self._store.heads(_query(actor, project_id, cluster_name, cursor, most + 1))
        documents = [await self._document(head, name, render) for head in heads[:most]]
        more = len(heads) > most
        return documents, cursor_of(heads[most - 1].created_at, heads[most - 1].key) if more else None

    async def views(
        self,
        actor: Actor,
        *,
        project_id: str | None = None,
        name: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> tuple[list[ClusterView], str | None]:
        most = page_limit(limit)
        clusters = await self._store.find(_query(actor, project_id, name, cursor, most + 1))
        catalog = await self._catalog.current()
        views = [await load_view(self._store, catalog, cluster) for cluster in clusters[:most]]
        more = len(clusters) > most
        return views, cursor_of(clusters[most - 1].created_at, clusters[most - 1].id) if more else None

    async def _document(self, head: Head, name: str, render: Render) -> bytes:
        kept = self._kept.get((name, head.key))
        if kept is not None and kept[0] == head.version:
            return kept[1]
        cluster = await self._store.get(Cluster, head.key)
        if cluster is None:
            raise NotFound(f"there is no cluster {head.key}")
        document = render(await load_view(self._store, await self._catalog.current(), cluster))
        self._keep((name, head.key), cluster.version, document)
        return document

    async def _first_document(
        self, made: tuple[Cluster, list[Node], list[Lease]], name: str, render: Render
    ) -> bytes:
        """As it was accepted: that is what its maker is told, even if the engine was faster than the answer."""
        document = render(first_view(await self._catalog.current(), *made))
        self._keep((name, made[0].id), made[0].version, document)
        return document

    def _keep(self, key: tuple[str, str], version: int, document: bytes) -> None:
        old = self._kept.pop(key, None)
        self._kept_bytes += len(document) - (len(old[1]) if old else 0)
        self._kept[key] = (version, document)
        while self._kept_bytes > CACHED_BYTES_MAX:
            _, dropped = self._kept.pop(next(iter(self._kept)))
            self._kept_bytes -= len(dropped)


def _query(actor: Actor, project_id: str | None, name: str | None, cursor: str | None, limit: int) -> Find[Cluster]:
    equals: dict[str, str | None] = {"gone_at": None}
    if project_id is not None or not actor.is_operator:
        equals["project_id"] = own_project(actor, project_id)
    if name is not None:
        equals["live_name"] = name
    return Find(Cluster, equals=equals, order="created_at", after=read_cursor(cursor), limit=limit)

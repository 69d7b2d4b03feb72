"""Requests: the asynchronous operations that a client can poll, and when each of them is over."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contracts.store import Store
from muster.core.accounts.rights import own_project, require_sees
from muster.core.paging import Page, page_of
from muster.errors import NotFound
from muster.model.accounts import Actor
from muster.model.base import Instant, changed
from muster.model.clusters import Cluster
from muster.model.events import Request, RequestState
from muster.model.phases import Phase


def new_request(
    id: str, kind: str, resource: Cluster, operation: str, *, generation: int, actor: Actor, at: Instant
) -> Request:
    return Request(
        id=id,
        account_id=resource.account_id,
        project_id=resource.project_id,
        kind=kind,
        resource_id=resource.id,
        operation=operation,
        generation=generation,
        created_by=actor.name,
        created_at=at,
        updated_at=at,
    )


def settle(requests: Sequence[Request], cluster: Cluster, at: Instant) -> list[Request]:
    """The requests whose state this cluster decides, in their next value."""
    settled = ((request, _verdict(request, cluster)) for request in requests)
    return [_in_state(request, *verdict, at) for request, verdict in settled if verdict[0] is not request.state]


def _verdict(request: Request, cluster: Cluster) -> tuple[RequestState, str]:
    if request.operation == "delete":
        return (RequestState.COMPLETED, "it is gone") if cluster.phase is Phase.GONE else _going(cluster)
    if cluster.phase in (Phase.DELETING, Phase.GONE):
        return RequestState.FAILED, "the cluster was deleted first"
    if cluster.phase is Phase.FAILED:
        return RequestState.FAILED, cluster.because
    if request.operation == "pause":
        return (RequestState.COMPLETED, "paused") if cluster.phase is Phase.PAUSED else _going(cluster)
    serving = cluster.phase in (Phase.READY, Phase.DEGRADED)
    if serving and cluster.status.observed_generation >= request.generation:
        return RequestState.COMPLETED, cluster.because
    return _going(cluster)


def _going(cluster: Cluster) -> tuple[RequestState, str]:
    return RequestState.PROCESSING, cluster.because


def _in_state(request: Request, state: RequestState, message: str, at: Instant) -> Request:
    over = state in (RequestState.COMPLETED, RequestState.FAILED)
    return changed(request, state=state, message=message, updated_at=at, finished_at=at if over else None)


class RequestReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def request(self, actor: Actor, id: str) -> Request:
        request = await self._store.get(Request, id)
        if request is None:
            raise NotFound(f"there is no request {id}")
        require_sees(actor, request.project_id, "request", id)
        return request

    async def requests(
        self,
        actor: Actor,
        *,
        project_id: str | None = None,
        resource_id: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Request]:
        equals: dict[str, str | None] = {}
        if project_id is not None or not actor.is_operator:
            equals["project_id"] = own_project(actor, project_id)
        if resource_id is not None:
            equals["resource_id"] = resource_id
        return await page_of(self._store, Request, equals, cursor=cursor, limit=limit, descending=True)

"""Repairs as people ask for them: create, look, approve, reject, cancel.

Leans on accounts (rights, audit) and the store. Never meets a driver: a repair that is pending is a wish, and
reconcile.py begins it. *Laws.* A person's repair needs no approval; the house's own waits for one. Approve and reject
move only what waits for approval, cancel only what has not begun. A record stays readable when its node, or its
cluster, is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from muster.contracts.clock import Clock, Entropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Op, Replace, Store, Wake
from muster.core.accounts.audit import audit
from muster.core.accounts.rights import require_sees, require_write
from muster.core.guarded import guarded, submit
from muster.core.paging import Page, cursor_of, page_limit, read_cursor
from muster.errors import Invalid, NotFound, Protected, UniqueViolation, Unsupported, WrongPhase
from muster.model.accounts import Actor
from muster.model.base import changed
from muster.model.clusters import Cluster, Node, NodeRole
from muster.model.health import Remediation, RemediationMode, RemediationState, RemediationTrigger
from muster.model.hosts import Host, Lease
from muster.model.phases import SERVING, NodePhase, Phase

TEXT_CHARS_MAX: Final = 2_000

_S = RemediationState


class Wanted(NamedTuple):
    """Which repairs a list is about; None = all of them."""

    node_id: str | None = None
    modes: Sequence[RemediationMode] | None = None
    states: Sequence[RemediationState] | None = None
    triggers: Sequence[RemediationTrigger] | None = None
    newest_first: bool = True


class RemediationService:
    def __init__(self, store: Store, clock: Clock, entropy: Entropy) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy

    # --- ask ------------------------------------------------------------------------------------------------------

    async def create(
        self,
        actor: Actor,
        cluster_id: str,
        node_id: str,
        *,
        mode: RemediationMode,
        reason: str = "",
        id: str | None = None,
    ) -> Remediation:
        """A repair that may begin at once. With an `id` of the caller's choosing, the same ask twice is one."""
        return await guarded(lambda: self._create(actor, cluster_id, node_id, mode, _checked(reason, "reason"), id))

    async def _create(
        self, actor: Actor, cluster_id: str, node_id: str, mode: RemediationMode, reason: str, id: str | None
    ) -> Remediation:
        cluster = await self._cluster(actor, cluster_id)
        require_write(actor)
        first = None if id is None else await self._first(cluster, node_id, mode, id)
        if first is not None:
            return first
        node = await self._node(cluster, node_id)
        await self._check(cluster, node, mode)
        now = self._clock.now()
        remediation = Remediation(
            id=id or self._entropy.uuid(),
            account_id=cluster.account_id,
            project_id=cluster.project_id,
            cluster_id=cluster.id,
            node_id=node.id,
            node_name=node.name,
            host_id=node.host_id,
            open_node_id=node.id,
            mode=mode,
            state=_S.PENDING,
            trigger=RemediationTrigger.MANUAL,
            reason=reason,
            requested_by=actor.name,
            created_at=now,
            updated_at=now,
        )
        try:
            await self._write(actor, Insert(remediation), remediation, cluster, "created")
        except UniqueViolation as taken:
            raise Protected(
                f"{node.name} is being repaired already",
                hint="wait until that remediation ends, or cancel it if it has not begun",
            ) from taken
        return remediation

    async def _first(self, cluster: Cluster, node_id: str, mode: RemediationMode, id: str) -> Remediation | None:
        known = await self._store.get(Remediation, id)
        if known is None:
            return None
        if (known.cluster_id, known.node_id, known.mode) != (cluster.id, node_id, mode):
            raise Protected("this remediation id was used for another repair", field="remediation_id")
        return known

    async def _node(self, cluster: Cluster, node_id: str) -> Node:
        node = await self._store.get(Node, node_id)
        if node is None or node.cluster_id != cluster.id or node.role is not NodeRole.WORKER:
            raise NotFound(f"cluster {cluster.name} has no worker {node_id}")
        return node

    async def _check(self, cluster: Cluster, node: Node, mode: RemediationMode) -> None:
        if cluster.phase not in SERVING:
            raise WrongPhase(
                f"a cluster that is {cluster.phase} is not repaired node by node", hint="wait until it is ready"
            )
        if node.phase in (NodePhase.LEAVING, NodePhase.GONE):
            raise WrongPhase(f"{node.name} is leaving the cluster or gone")
        if mode is RemediationMode.EVICT and cluster.spec.workers <= 1:
            raise WrongPhase("the last worker of a cluster is not evicted", hint="delete the cluster instead")
        if mode is RemediationMode.POWER_CYCLE and await self._shares_host(node):
            raise Unsupported(
                f"{node.name} has only a part of its host, which is not power-cycled under others", hint="reboot it"
            )

    async def _shares_host(self, node: Node) -> bool:
        host = await self._store.get(Host, node.host_id or "")
        lease = await self._store.get(Lease, node.lease_id or "")
        return host is not None and lease is not None and lease.slots.bit_count() < host.slots

    # --- look -----------------------------------------------------------------------------------------------------

    async def remediations(
        self,
        actor: Actor,
        cluster_id: str,
        wanted: Wanted = Wanted(),
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Remediation]:
        await self._cluster(actor, cluster_id, gone_too=True)
        most = page_limit(limit)
        equals = {"cluster_id": cluster_id} | ({} if wanted.node_id is None else {"node_id": wanted.node_id})
        lists = {"mode": wanted.modes, "state": wanted.states, "trigger": wanted.triggers}
        one_of: Mapping[str, Sequence[Any]] = {name: given for name, given in lists.items() if given is not None}
        if any(not given for given in one_of.values()):
            return Page([], None)
        found = await self._store.find(
            Find(
                Remediation,
                equals=equals,
                one_of=one_of,
                order="created_at",
                descending=wanted.newest_first,
                after=read_cursor(cursor),
                limit=most + 1,
            )
        )
        more = len(found) > most
        return Page(found[:most], cursor_of(found[most - 1].created_at, found[most - 1].id) if more else None)

    async def remediation(self, actor: Actor, cluster_id: str, node_id: str | None, id: str) -> Remediation:
        remediation = await self._store.get(Remediation, id)
        if remediation is None or remediation.cluster_id != cluster_id or node_id not in (None, remediation.node_id):
            raise NotFound(f"there is no remediation {id}")
        require_sees(actor, remediation.project_id, "remediation", id)
        return remediation

    # --- decide ---------------------------------------------------------------------------------------------------

    async def approve(
        self,
        actor: Actor,
        cluster_id: str,
        node_id: str | None,
        id: str,
        *,
        comment: str = "",
        mode: RemediationMode | None = None,
    ) -> Remediation:
        """Let it begin, by another mode if one is named."""
        return await self._review(actor, cluster_id, node_id, id, _S.PENDING, "approved", comment, mode)

    async def reject(
        self, actor: Actor, cluster_id: str, node_id: str | None, id: str, *, comment: str = ""
    ) -> Remediation:
        return await self._review(actor, cluster_id, node_id, id, _S.CANCELLED, "rejected", comment, None)

    async def _review(
        self,
        actor: Actor,
        cluster_id: str,
        node_id: str | None,
        id: str,
        state: RemediationState,
        what: str,
        comment: str,
        mode: RemediationMode | None,
    ) -> Remediation:
        async def review() -> Remediation:
            remediation = await self._movable(actor, cluster_id, node_id, id, (_S.PENDING_APPROVAL,), what)
            now = self._clock.now()
            moved = remediation.advance(state, at=now)
            reviewed = _reviewed(moved, actor, _checked(comment, "comment"), mode)
            return await self._move(actor, reviewed, what)

        return await guarded(review)

    async def cancel(self, actor: Actor, cluster_id: str, node_id: str | None, id: str) -> Remediation:
        async def cancel() -> Remediation:
            states = (_S.PENDING_APPROVAL, _S.PENDING)
            remediation = await self._movable(actor, cluster_id, node_id, id, states, "cancelled")
            return await self._move(actor, remediation.advance(_S.CANCELLED, at=self._clock.now()), "cancelled")

        return await guarded(cancel)

    async def _movable(
        self,
        actor: Actor,
        cluster_id: str,
        node_id: str | None,
        id: str,
        states: Sequence[RemediationState],
        what: str,
    ) -> Remediation:
        remediation = await self.remediation(actor, cluster_id, node_id, id)
        require_write(actor)
        if remediation.state not in states:
            raise WrongPhase(f"a remediation that is {remediation.state} cannot be {what}")
        return remediation

    async def _move(self, actor: Actor, remediation: Remediation, what: str) -> Remediation:
        cluster = await self._store.get(Cluster, remediation.cluster_id)
        await self._write(actor, Replace(remediation), remediation, cluster, what)
        return remediation

    # --- the small print ------------------------------------------------------------------------------------------

    async def _cluster(self, actor: Actor, id: str, *, gone_too: bool = False) -> Cluster:
        cluster = await self._store.get(Cluster, id)
        if cluster is None or (cluster.phase is Phase.GONE and not gone_too):
            raise NotFound(f"there is no cluster {id}")
        require_sees(actor, cluster.project_id, "cluster", id)
        return cluster

    async def _write(
        self, actor: Actor, op: Op, remediation: Remediation, cluster: Cluster | None, what: str
    ) -> None:
        """The cluster's version rises with its repairs: cached views hang on it."""
        now = remediation.updated_at
        ops: list[Op] = [op, Wake("health", remediation.cluster_id, now)]
        if cluster is not None:
            ops.append(Replace(changed(cluster, updated_at=now)))
        event = audit(
            actor,
            "remediation",
            what,
            remediation,
            at=now,
            message=f"{remediation.mode} of {remediation.node_name} {what}",
            data={"cluster_id": remediation.cluster_id, "node_id": remediation.node_id, "mode": remediation.mode},
        )
        await submit(self._store, Batch(Step.REMEDIATION_WISH, ops, [event]))


def _reviewed(remediation: Remediation, actor: Actor, comment: str, mode: RemediationMode | None) -> Remediation:
    """The same move, with who decided and what they said."""
    return replace(
        remediation,
        mode=mode or remediation.mode,
        reviewed_by=actor.name,
        reviewed_at=remediation.updated_at,
        review_comment=comment,
    )


def _checked(text: str, field: str) -> str:
    if len(text) > TEXT_CHARS_MAX:
        raise Invalid(f"{field} has at most {TEXT_CHARS_MAX} characters", field=field)
    return text

"""Carry out the repairs of a cluster: one step at a time, each a guarded batch under the claim.

Leans on the store's contract; never meets a driver: what it writes is a wish that the cluster's own reconciler
carries out. *Laws.* The input is a cluster's id and nothing else. A repair's state, the node it changes, the host it
cordons and the cluster whose view shows it move in one batch, so that a crash finds either all or nothing done.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from muster.contracts.clock import Clock, Entropy
from muster.contracts.reconciler import Advance, Gone, Outcome, Wait
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Find, Insert, Op, Replace, Store, Wake
from muster.core.accounts.audit import audit
from muster.core.health import plan as planning
from muster.core.health.plan import REPAIRS, Ward, plan
from muster.model.accounts import SYSTEM
from muster.model.base import Instant, changed
from muster.model.clusters import Cluster, Mending, Node
from muster.model.health import (
    OPEN,
    Remediation,
    RemediationMode,
    RemediationState,
    RemediationTrigger,
)
from muster.model.hosts import Host
from muster.model.phases import NodePhase

CHECKER: Final = "Muster Health Checker"
AUTO_APPROVED: Final = "Auto-Approved"
CORDONS: Final = (RemediationMode.HOST_AWARE, RemediationMode.POWER_CYCLE)


class HealthReconciler:
    """`kind` is "health": its work is woken by whoever writes a repair, and by a node that is lost."""

    kind = "health"

    def __init__(self, store: Store, clock: Clock, entropy: Entropy) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy

    async def everything(self) -> list[str]:
        """Clusters with an open repair, and clusters with a worker that is lost."""
        repairs = await self._store.find(Find(Remediation, one_of={"state": OPEN}))
        lost = await self._store.find(Find(Node, equals={"phase": NodePhase.LOST, "gone_at": None}))
        return sorted({r.cluster_id for r in repairs} | {node.cluster_id for node in lost})

    async def reconcile(self, id: str, claim: Claim) -> Outcome:
        cluster = await self._store.get(Cluster, id)
        if cluster is None:
            return Gone()
        ward = Ward(
            cluster=cluster,
            nodes=await self._store.find(Find(Node, equals={"cluster_id": id}, order="created_at")),
            remediations=await self._store.find(Find(Remediation, equals={"cluster_id": id}, order="created_at")),
        )
        now = self._clock.now()
        return await self._perform(plan(ward, now), ward, claim, now)

    @functools.singledispatchmethod
    async def _perform(self, step: object, ward: Ward, claim: Claim, now: Instant) -> Outcome:
        raise AssertionError(f"no way to perform {step}")

    @_perform.register
    async def _(self, step: planning.Well, ward: Ward, claim: Claim, now: Instant) -> Outcome:
        return Gone()

    @_perform.register
    async def _(self, step: planning.Watch, ward: Ward, claim: Claim, now: Instant) -> Outcome:
        return Wait(step.because, step.until)

    @_perform.register
    async def _(self, step: planning.Propose, ward: Ward, claim: Claim, now: Instant) -> Outcome:
        remediation = self._proposed(step, ward.cluster, now)
        await self._write(Insert(remediation), remediation, ward.cluster, claim, "proposed")
        return Advance(f"a repair of {step.node.name} was recorded")

    def _proposed(self, step: planning.Propose, cluster: Cluster, now: Instant) -> Remediation:
        """Where failover is on the deed needs no approval and has begun: the cluster replaces the node by itself."""
        node = step.node
        state = RemediationState.RUNNING if step.approved else RemediationState.PENDING_APPROVAL
        reason = f"{node.name} is dead: {node.because}"
        return Remediation(
            id=self._entropy.uuid(),
            account_id=cluster.account_id,
            project_id=cluster.project_id,
            cluster_id=cluster.id,
            node_id=node.id,
            node_name=node.name,
            host_id=node.host_id,
            open_node_id=node.id,
            mode=RemediationMode.HOST_AWARE,
            state=state,
            trigger=RemediationTrigger.AUTOMATED,
            reason=reason,
            requested_by=CHECKER,
            reviewed_by=AUTO_APPROVED if step.approved else "",
            review_comment="auto-approved: failover is on" if step.approved else "",
            reviewed_at=now if step.approved else None,
            started_at=now if step.approved else None,
            evidence=(reason,),
            created_at=now,
            updated_at=now,
        )

    @_perform.register
    async def _(self, step: planning.End, ward: Ward, claim: Claim, now: Instant) -> Outcome:
        failed = step.state is RemediationState.FAILED
        ended = step.remediation.advance(
            step.state, at=now, evidence=step.because, error=step.because if failed else ""
        )
        extra = await self._give_back(step.remediation)
        await self._write(Replace(ended), ended, ward.cluster, claim, "ended", extra=extra)
        return Advance(step.because)

    async def _give_back(self, remediation: Remediation) -> Sequence[Op]:
        """A host that was cordoned only to be power-cycled serves again, however that ended."""
        if remediation.mode is not RemediationMode.POWER_CYCLE or not remediation.cordoned:
            return ()
        host = await self._store.get(Host, remediation.host_id or "")
        if host is None or host.cordon_reason != _reason(remediation):
            return ()
        return (Replace(changed(host, cordoned=False, cordon_reason="")),)

    @_perform.register
    async def _(self, step: planning.Begin, ward: Ward, claim: Claim, now: Instant) -> Outcome:
        remediation, node = step.remediation, step.node
        extra = await self._cordon(remediation, node)
        begun = replace(
            remediation.advance(RemediationState.RUNNING, at=now, evidence=_seen(node)),
            host_id=node.host_id,
            generation=node.generation + 1,
            cordoned=bool(extra),
        )
        cluster = ward.cluster
        if remediation.mode is RemediationMode.EVICT:
            cluster = _without(cluster, node)
        else:
            extra.append(Replace(_to_be_mended(node, remediation, now)))
        await self._write(Replace(begun), begun, cluster, claim, "began", extra=extra)
        return Advance(f"the repair of {node.name} began")

    async def _cordon(self, remediation: Remediation, node: Node) -> list[Op]:
        if remediation.mode not in CORDONS or node.host_id is None:
            return []
        host = await self._store.get(Host, node.host_id)
        if host is None or host.cordoned:
            return []
        return [Replace(changed(host, cordoned=True, cordon_reason=_reason(remediation)))]

    async def _write(
        self,
        op: Op,
        remediation: Remediation,
        cluster: Cluster,
        claim: Claim,
        what: str,
        *,
        extra: Sequence[Op] = (),
    ) -> None:
        """The cluster's version rises with its repairs: cached views hang on it."""
        now = remediation.updated_at
        event = audit(
            SYSTEM,
            "remediation",
            what,
            remediation,
            at=now,
            message=remediation.evidence[-1] if remediation.evidence else remediation.reason,
            cause=f"cluster {cluster.id}",
            data={"cluster_id": cluster.id, "node_id": remediation.node_id, "state": remediation.state},
        )
        ops = [op, Replace(changed(cluster, updated_at=now)), *extra, Wake("cluster", cluster.id, now)]
        await self._store.apply(Batch(Step.REMEDIATION_RECORD, ops, [event], fence=claim))


def _reason(remediation: Remediation) -> str:
    return f"remediation {remediation.id} ({remediation.mode})"


def _seen(node: Node) -> str:
    return f"{node.name} was {node.phase}: {node.because}"


def _without(cluster: Cluster, node: Node) -> Cluster:
    """The wish for one worker less, and which one."""
    spec = replace(cluster.spec, workers=cluster.spec.workers - 1, leave_first=(*cluster.spec.leave_first, node.id))
    return replace(cluster, spec=spec, generation=cluster.generation + 1)


def _to_be_mended(node: Node, remediation: Remediation, now: Instant) -> Node:
    """A node at work drains first; one that is not is replaced, or booted anew, at once."""
    wish = REPAIRS[remediation.mode]
    because = f"remediation: {remediation.reason or remediation.mode}"
    mending = Mending(wish=wish, replaces=node.mending.replaces)
    if node.phase is NodePhase.RUNNING:
        return replace(node.advance(NodePhase.DRAINING, because=because, at=now), mending=mending)
    if remediation.mode in (RemediationMode.REBOOT, RemediationMode.POWER_CYCLE):
        booting = node.advance(NodePhase.BOOTING, because=because, at=now)
        return replace(booting, mending=mending, generation=node.generation + 1)
    if node.phase is NodePhase.FAILED:
        return changed(node, mending=mending)
    return replace(node.advance(NodePhase.FAILED, because=because, at=now), mending=mending)

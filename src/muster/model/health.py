"""Remediations: repairs of one node, with who asked, who approved, what was done and how it ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from muster.model.base import Instant, Noun
from muster.model.phases import IllegalMove


class RemediationMode(StrEnum):
    VM_ONLY = "vm_only"  # a new node on any host
    HOST_AWARE = "host_aware"  # the host is cordoned, a new node elsewhere
    EVICT = "evict"  # the node goes, nothing comes in its place
    REBOOT = "reboot"  # booted anew in place; its local disk is kept
    POWER_CYCLE = "power_cycle"  # the host is cordoned, cycled and given back


class RemediationState(StrEnum):
    PENDING_APPROVAL = "pending_approval"  # the system proposes, a person decides
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    AUTO_RESOLVED = "auto_resolved"  # the trouble went away first


class RemediationTrigger(StrEnum):
    MANUAL = "manual"
    AUTOMATED = "automated"


_S = RemediationState
REMEDIATION_MOVES: Final[dict[RemediationState, frozenset[RemediationState]]] = {
    _S.PENDING_APPROVAL: frozenset({_S.PENDING, _S.CANCELLED, _S.AUTO_RESOLVED}),
    _S.PENDING: frozenset({_S.RUNNING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.SUCCEEDED, _S.FAILED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.AUTO_RESOLVED: frozenset(),
}
OPEN: Final = (_S.PENDING_APPROVAL, _S.PENDING, _S.RUNNING)


class Remediation(Noun, frozen=True, kw_only=True):
    """`open_node_id` is the node's id while the repair is open: one repair at a time, and the store sees to it."""

    account_id: str
    project_id: str
    cluster_id: str
    node_id: str
    node_name: str
    host_id: str | None = None
    open_node_id: str | None
    mode: RemediationMode
    state: RemediationState
    trigger: RemediationTrigger
    reason: str = ""
    requested_by: str
    reviewed_by: str = ""
    review_comment: str = ""
    reviewed_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    generation: int = 0  # of the node, once it has been booted anew
    cordoned: bool = False  # we cordoned its host, so we give it back where the mode says so
    error: str = ""
    evidence: tuple[str, ...] = ()  # what was seen and done, in order
    created_at: Instant
    updated_at: Instant

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def advance(self, state: RemediationState, *, at: Instant, evidence: str = "", error: str = "") -> Remediation:
        """The repair in its next state; an illegal move is our own bug and raises."""
        if state not in REMEDIATION_MOVES[self.state]:
            raise IllegalMove(f"remediation {self.id}: {self.state} -> {state}")
        over = state not in OPEN
        return replace(
            self,
            version=self.version + 1,
            state=state,
            open_node_id=None if over else self.open_node_id,
            started_at=at if state is RemediationState.RUNNING else self.started_at,
            ended_at=at if over else None,
            error=error,
            evidence=(*self.evidence, evidence) if evidence else self.evidence,
            updated_at=at,
        )

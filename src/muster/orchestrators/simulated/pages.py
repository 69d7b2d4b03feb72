"""What the simulated orchestrator remembers of one cluster, and how that changes. Pure.

A page is a row of instants: who joined when, who is draining, which test run ends when. Everything else is computed
from it, the bodies and the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from muster.contracts.orchestrator import Member, Pending, Progress, Standing, Target
from muster.contracts.substrate import Power
from muster.contracts.world import Body, Span
from muster.errors import TryLater
from muster.model.base import Instant, Part
from muster.model.clusters import CheckResult
from muster.orchestrators.simulated.render import workers

JOIN: Final = Span(30, 60)  # driver install and first contact
RECONFIGURE: Final = Span(2, 4)
TEST: Final = Span(40, 80)
DRAIN: Final = Span(2, 5)
WIND_DOWN: Final = Span(60, 1500)  # work that was warned: much of it outlasts its notice
RUNS_KEPT: Final = 3

TESTS: Final = ("dcgm_diag", "gpu_burn", "nccl_single_node", "nccl_multi_node", "storage")
"""Names as `Acceptance.skip` has them."""

Draw: TypeAlias = Callable[..., Instant]
Bodies: TypeAlias = Mapping[str, Body]


class MemberNote(Part, frozen=True, kw_only=True):
    """`up_at` names the boot it joined in: after another boot it must join again."""

    generation: int
    up_at: Instant
    ready_at: Instant
    drained_at: Instant | None = None  # set from the wish to drain on; drained once it has passed


class RunNote(Part, frozen=True, kw_only=True):
    run: str
    done_at: Instant
    results: tuple[CheckResult, ...] = ()


class Page(Part, frozen=True, kw_only=True):
    generation: int = 0
    digest: str = ""
    settled_at: Instant = 0
    members: dict[str, MemberNote] = {}
    runs: tuple[RunNote, ...] = ()


def require_current(page: Page, target: Target) -> None:
    """Nodes refuse a plan older than the one they have; the caller reads its wish again and comes back."""
    if target.generation < page.generation:
        raise TryLater(f"plan {target.generation} is older than {page.generation}, which the nodes already have")
    for member in target.members:
        note = page.members.get(member.node_id)
        if note is not None and member.generation < note.generation:
            raise TryLater(f"{member.name} is in generation {note.generation} already, not {member.generation}")


def converged(page: Page, target: Target, digest: str, bodies: Bodies, now: Instant, draw: Draw) -> Page:
    """The page once work towards the target has begun: newly booted members join, leavers are forgotten."""
    members = {}
    for member in target.members:
        note = _joined(page.members.get(member.node_id), member, bodies.get(member.node_id), now, draw)
        if note is not None:
            members[member.node_id] = note
    settled_at = page.settled_at
    if page.digest and (page.generation, page.digest) != (target.generation, digest):
        settled_at = now + draw(RECONFIGURE, "reconfigure", target.cluster_id, digest)
    return replace(page, generation=target.generation, digest=digest, settled_at=settled_at, members=members)


def _joined(
    note: MemberNote | None, member: Member, body: Body | None, now: Instant, draw: Draw
) -> MemberNote | None:
    if body is None or body.power is not Power.UP:
        return note  # unreachable: what is known of it stays
    if note is not None and (note.generation, note.up_at) == (member.generation, body.up_at):
        return note
    ready_at = now + draw(JOIN, "join", member.node_id, member.generation)
    drained_at = None if note is None else note.drained_at  # a drain outlives a boot
    return MemberNote(generation=member.generation, up_at=body.up_at, ready_at=ready_at, drained_at=drained_at)


def progress(page: Page, target: Target, bodies: Bodies, now: Instant) -> Progress:
    """How far it is. Members that can never answer are failed and do not hold up the others."""
    waiting: list[str] = []
    failed: dict[str, str] = {}
    hints = [page.settled_at] if now < page.settled_at else []
    for member in target.members:
        body, note = bodies.get(member.node_id), page.members.get(member.node_id)
        if body is None or body.power in (Power.DEAD, Power.FAILED, Power.STOPPING):
            failed[member.node_id] = f"{member.name} is not running: {body.because if body else 'it is powered off'}"
        elif not _is_ready(note, body, now):
            waiting.append(member.name)
            hint = note.ready_at if note is not None and body.power is Power.UP else body.changes_at
            hints += [] if hint is None else [hint]
    if not waiting and now >= page.settled_at:
        return Progress(True, f"{len(target.members) - len(failed)} of {len(target.members)} nodes joined", failed)
    because = (
        f"{len(waiting)} of {len(target.members)} nodes are joining" if waiting else "the new plan is being applied"
    )
    return Progress(False, because, failed, min(hints, default=None))


def _is_ready(note: MemberNote | None, body: Body, now: Instant) -> bool:
    if note is None or now < note.ready_at:
        return False
    return body.power is not Power.STARTING and note.up_at == body.up_at


def standing(note: MemberNote | None, body: Body | None, now: Instant) -> Standing:
    """As slurmctld or the API server would put it."""
    if body is not None and body.power is Power.UNKNOWN:
        return Standing.UNKNOWN
    if note is None:
        return Standing.ABSENT
    if body is None or body.power is not Power.UP or note.up_at != body.up_at:
        return Standing.DOWN
    if now < note.ready_at:
        return Standing.ABSENT
    if note.drained_at is None:
        return Standing.IDLE
    return Standing.DRAINED if now >= note.drained_at else Standing.DRAINING


def at_work(target: Target, standings: Mapping[str, Standing], gpus: int | None = None) -> list[str]:
    """The workers on which so many GPUs are at work, in the order in which they are taken; all that could be."""
    able = [member for member in workers(target) if standings[member.node_id] is Standing.IDLE]
    per_node = max(1, able[0].gpus) if able else 1
    return [member.node_id for member in able[: None if gpus is None else -(-gpus // per_node)]]


def pending(target: Target, busy: Sequence[str], gpus: int) -> tuple[Pending, ...]:
    held = sum(member.gpus for member in target.members if member.node_id in busy)
    return (Pending(gpus - held),) if gpus > held else ()


def drained(page: Page, node_ids: Sequence[str], now: Instant, draw: Draw) -> Page:
    """Told twice, it drains once."""
    members = dict(page.members)
    for node_id in node_ids:
        note = members.get(node_id)
        if note is not None and note.drained_at is None:
            members[node_id] = replace(note, drained_at=now + draw(DRAIN, "drain", node_id, note.generation))
    return replace(page, members=members)


def warned(page: Page, node_ids: Sequence[str], now: Instant, draw: Draw) -> Page:
    """What is draining already goes on as it was; told twice, it is told once."""
    members = dict(page.members)
    for node_id in node_ids:
        note = members.get(node_id)
        if note is not None and note.drained_at is None:
            members[node_id] = replace(note, drained_at=now + draw(WIND_DOWN, "warn", node_id, note.generation))
    return replace(page, members=members)


def evicted(page: Page, node_ids: Sequence[str], now: Instant) -> Page:
    known = {id: page.members[id] for id in node_ids if id in page.members}
    done = {id: replace(note, drained_at=min(now, note.drained_at or now)) for id, note in known.items()}
    return replace(page, members=page.members | done)


def admitted(page: Page, node_ids: Sequence[str]) -> Page:
    back = {id: replace(page.members[id], drained_at=None) for id in node_ids if id in page.members}
    return replace(page, members=page.members | back)


def in_service(page: Page, node_ids: Sequence[str], bodies: Bodies, now: Instant) -> list[str]:
    """Those that may still carry work: neither drained nor unable to run anything."""
    busy = (Standing.IDLE, Standing.BUSY, Standing.DRAINING)
    return [id for id in node_ids if standing(page.members.get(id), bodies.get(id), now) in busy]


def expelled(page: Page, node_ids: Sequence[str]) -> Page:
    return replace(page, members={id: note for id, note in page.members.items() if id not in node_ids})


def with_run(page: Page, run: RunNote) -> Page:
    others = tuple(known for known in page.runs if known.run != run.run)
    return replace(page, runs=(*others, run)[-RUNS_KEPT:])


def results_of(target: Target, bodies: Bodies) -> tuple[CheckResult, ...]:
    """Every test on every worker: passed where the node is up, and said to be simulated."""
    acceptance, nodes = target.spec.acceptance, workers(target)
    tests = [test for test in TESTS if test not in acceptance.skip]
    if len(nodes) < 2 and "nccl_multi_node" in tests:
        tests.remove("nccl_multi_node")
    return tuple(_result(test, node, bodies.get(node.node_id)) for node in nodes for test in tests)


def _result(test: str, node: Member, body: Body | None) -> CheckResult:
    passed = body is not None and body.power is Power.UP
    why = "simulated" if passed else f"simulated: {node.name} did not answer"
    return CheckResult(test=test, node_id=node.node_id, passed=passed, simulated=True, detail=why)

"""Deliberate bugs, one for each invariant: small patches to the house that exactly one invariant must catch.

They check the checkers. A mutant says where it is looked for (its plot and its seeds) and who must find it; with that
one invariant taken away the very same history passes, which shows that no other would have noticed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any

from msgspec.structs import replace

from muster.contracts.store import Batch, Insert, Remove
from muster.contracts.substrate import Fence, Power, VolumeWish
from muster.core.accounts.service import AccountService
from muster.core.capacity.booking import Booker
from muster.core.capacity.calendar import HORIZON, Line
from muster.core.capacity.index import CONTROL, CapacityIndex
from muster.core.capacity.reservations import Reservations
from muster.core.capacity.service import Capacity
from muster.core.clusters import deeds
from muster.core.clusters import plan as planning
from muster.core.clusters import reclaim as reclaiming
from muster.core.clusters import reconcile as reconciling
from muster.core.clusters import records as recording
from muster.core.clusters.create import Creates
from muster.core.clusters.reconcile import ClusterReconciler
from muster.core.clusters.views import Views
from muster.core.idempotency import Once
from muster.engine.engine import Engine
from muster.errors import NoneLeft
from muster.model import clusters as cluster_nouns
from muster.model.hosts import Lease
from muster.model.phases import Phase
from muster.model.volumes import Volume
from muster.store.sqlite import SqliteStore
from muster.store.sqlite_apply import Applier
from muster.testing.simulation.history import Plot
from muster.testing.simulation.image import Drivers, as_they_are

Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Mutant:
    name: str
    caught_by: str
    patch: Patch = nullcontext
    dress: Callable[[Drivers], Drivers] = as_they_are
    plot: Plot | None = None  # None: it is looked for in the story
    seeds: range = range(1, 31)
    not_asked: frozenset[str] = frozenset()
    """Invariants that would see what comes of it in the end: asked neither with nor without the one that catches."""


@contextmanager
def swapped(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Put `make(original)` in the place of an attribute, and the original back."""
    original = owner.__dict__[name] if name in vars(owner) else getattr(owner, name)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def swap(*swaps: tuple[Any, str, Callable[[Any], Any]]) -> Patch:
    @contextmanager
    def all_of_them() -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, make in swaps:
                stack.enter_context(swapped(owner, name, make))
            yield

    return all_of_them


CALM = {"crash_chance": 0.0, "freeze_chance": 0.0}
"""For bugs that need no bad luck: the shorter the history, the better."""


def brief(**fields: Any) -> Plot:
    return Plot(**{"minutes": 15, "calm_minutes": 40, "planners": 0, **fields})


HEALTHY = Plot(
    users=1,
    planners=2,
    operators=0,
    hosts=10,
    minutes=40,
    calm_minutes=40,
    fault_minutes=0,
    **CALM,  # type: ignore[arg-type]
)
"""Nothing goes wrong, so whoever scheduled in time has it in time."""


# --- the bugs -------------------------------------------------------------------------------------------------------


def nobody(_: Any) -> Any:
    return ()


def hides_what_is_stopping(original: Any) -> Any:
    def leave(snapshot: Any, sight: Any, now: int, **also: Any) -> Any:
        seen = {key: seen for key, seen in sight.seen.items() if seen.power is not Power.STOPPING}
        return original(snapshot, deeds.Sight(seen, sight.standing), now, **also)

    return leave


def hides_a_stopping_network(original: Any) -> Any:
    def leave(snapshot: Any, sight: Any, now: int, **also: Any) -> Any:
        id = snapshot.cluster.id
        seen = {k: seen for k, seen in sight.seen.items() if k != id or seen.power is not Power.STOPPING}
        return original(snapshot, deeds.Sight(seen, sight.standing), now, **also)

    return leave


def does_not_look(_: Any) -> Any:
    async def still_there(self: Any, keys: Any, turn: Any) -> dict[str, Any]:
        await self._substrate.ensure_absent(keys, turn.fence)
        return {}

    return still_there


def does_not_look_for_networks(original: Any) -> Any:
    async def still_there(self: Any, keys: Any, turn: Any) -> dict[str, Any]:
        seen = await original(self, keys, turn)
        return {key: value for key, value in seen.items() if key != turn.cluster.id}

    return still_there


def forgets_the_lease(original: Any) -> Any:
    async def record_nodes(self: Any, turn: Any, nodes: Any, *, extra: Any = (), **rest: Any) -> None:
        kept = [op for op in extra if not (isinstance(op, Remove) and op.noun is Lease)]
        await original(self, turn, nodes, extra=kept, **rest)

    return record_nodes


def grants_what_is_not_there(original: Any) -> Any:
    def grants(self: Any, region: str, gpu_type: str, *rest: Any, **more: Any) -> Any:
        found = original(self, region, gpu_type, *rest, **more)
        control = found and gpu_type == CONTROL
        return [grant._replace(slots=grant.slots << 32) for grant in found] if control else found

    return grants


def answers_before_it_is_durable(original: Any) -> Any:
    async def later(store: Any, batch: Batch) -> None:
        await asyncio.sleep(20)
        await original(store, batch)

    writing = set()

    async def apply(self: Any, batch: Batch) -> Any:
        if not any(event.type == "cluster.delete_wished" for event in batch.events):
            return await original(self, batch)
        writing.add(asyncio.ensure_future(later(self, batch)))
        return {}

    return apply


def keeps_no_name(original: Any) -> Any:
    def new_cluster(*args: Any) -> Any:
        return replace(original(*args), live_name=None)

    return new_cluster


def never_known(_: Any) -> Any:
    async def first_answer(*_: Any) -> None:
        return None

    return first_answer


def always_another_key(original: Any) -> Any:
    count = itertools.count()
    return lambda self, project_id: f"{original(self, project_id)}:{next(count)}"


def tells_the_secret(original: Any) -> Any:
    async def new_key(self: Any, actor: Any, name: str, *rest: Any) -> Any:
        return await original(self, actor, f"{name} {rest[-1]}", *rest)

    return new_key


def serves_what_it_has(original: Any) -> Any:
    async def document(self: Any, head: Any, name: str, render: Any) -> bytes:
        kept = self._kept.get((name, head.key))
        document: bytes = kept[1] if kept else await original(self, head, name, render)
        return document

    return document


def stumbles_now_and_then(original: Any) -> Any:
    count = itertools.count(1)

    async def reconcile(self: Any, id: str, claim: Any) -> Any:
        if next(count) % 60 == 0:
            raise KeyError(id)
        return await original(self, id, claim)

    return reconcile


def any_move_will_do(_: Any) -> Any:
    return {phase: frozenset(Phase) for phase in Phase}


def skips_the_control_plane(original: Any) -> Any:
    def storage(snapshot: Any, sight: Any, now: int) -> Any:
        step = original[Phase.STORAGE](snapshot, sight, now)
        skips = isinstance(step, deeds.Move) and step.phase is Phase.CONTROL
        return deeds.Move(Phase.WORKERS, "why not") if skips else step

    return {**original, Phase.STORAGE: storage}


def is_not_woken(original: Any) -> Any:
    return lambda self, op: None if op.kind == "cluster" else original(self, op)


def makes_no_rounds(_: Any) -> Any:
    async def full_pass(self: Any) -> None:
        return None

    return full_pass


def leaves_the_network_of_the_paused(original: Any) -> Any:
    def leave(snapshot: Any, sight: Any, now: int, *, also: Any = ()) -> Any:
        return original(snapshot, sight, now, also=() if snapshot.cluster.phase is Phase.PAUSED else also)

    return leave


def hears_only_of_what_is_taken(original: Any) -> Any:
    def follow(self: Any, lines: Any) -> None:
        heard = [line for line in lines if not line.freed]
        if heard:
            original(self, heard)
        self._seq = lines[-1].seq

    return follow


def counts_no_promise(_: Any) -> Any:
    return lambda self, key, at, ends_at, *, spare=False: HORIZON


def reserves_everything(_: Any) -> Any:
    return property(lambda self: self.total)


def cannot_wait(original: Any) -> Any:
    def plan(*seen: Any) -> Any:
        step = original(*seen)
        early = isinstance(step, deeds.WaitFor) and step.because == "its window to begin"
        return deeds.TakeSeats("why wait") if early else step

    return plan


def keeps_the_booking(original: Any) -> Any:
    async def unbook(self: Any, booking: Any, key: Any) -> Any:
        return [op for op in await original(self, booking, key) if not isinstance(op, Remove)]

    return unbook


def leaves_no_time(_: Any) -> Any:
    async def lead(self: Any) -> int:
        return 1

    return lead


def makes_volumes_before_writing_them_down(drivers: Drivers) -> Drivers:
    class Hasty:
        def __getattr__(self, name: str) -> Any:
            return getattr(drivers.store, name)

        async def apply(self, batch: Batch) -> Any:
            made = [op.noun for op in batch.ops if isinstance(op, Insert) and isinstance(op.noun, Volume)]
            for volume in made:
                wish = VolumeWish(key=volume.id, region=volume.region, size_gib=volume.size_gib)
                with suppress(NoneLeft):  # where nothing is left it is only late, and does no other harm
                    await drivers.substrate.ensure([wish], Fence(volume.id, 0))
                await asyncio.sleep(10)
            return await drivers.store.apply(batch)

    return drivers._replace(store=Hasty())


def draws_from_everybodys(original: Any) -> Any:
    def grants(self: Any, *asked: Any, apart: str = "") -> Any:
        return original(self, *asked)

    return grants


MUTANTS = (
    Mutant(
        "a lease goes before its node is off",
        "no_host_given_twice",
        swap((planning, "_leave", hides_what_is_stopping), (ClusterReconciler, "_still_there", does_not_look)),
        plot=brief(hosts=2, check_seconds=100_000, **CALM),
        seeds=range(1, 61),
    ),
    Mutant(
        "a cluster is called gone while its network stands",
        "gone_is_gone",
        swap(
            (planning, "_leave", hides_a_stopping_network),
            (ClusterReconciler, "_still_there", does_not_look_for_networks),
        ),
        plot=brief(check_seconds=2, **CALM),
    ),
    Mutant(
        "a node goes and its lease stays",
        "leases_match_nodes",
        swap((ClusterReconciler, "_record_nodes", forgets_the_lease)),
        plot=brief(**CALM),
    ),
    Mutant(
        "placement grants slots that no host has",
        "slots_within_hosts",
        swap((CapacityIndex, "_grants", grants_what_is_not_there)),
        plot=brief(**CALM),
    ),
    Mutant(
        "a phase is skipped",
        "moves_along_the_table",
        swap((cluster_nouns, "CLUSTER_MOVES", any_move_will_do), (planning, "_PROVISION", skips_the_control_plane)),
        plot=brief(**CALM),
    ),
    Mutant(
        "a volume is made before it is written down",
        "intent_before_effect",
        dress=makes_volumes_before_writing_them_down,
        plot=brief(check_seconds=4, **CALM),
    ),
    Mutant(
        "a deletion is answered before it is durable",
        "answered_is_kept",
        swap((SqliteStore, "apply", answers_before_it_is_durable)),
        plot=brief(engines=1, check_seconds=8, **CALM),
        seeds=range(1, 61),
    ),
    Mutant(
        "a create has no memory",
        "one_create_one_cluster",
        swap(
            (Creates, "_first_answer", never_known),
            (Creates, "_new_cluster", keeps_no_name),
            (Once, "scoped", always_another_key),
        ),
        plot=brief(**CALM),
        seeds=range(1, 61),
    ),
    Mutant(
        "a preemptible worker is taken back under its jobs without notice",
        "notice_is_given",
        swap((reclaiming, "AT_WORK", nobody)),
    ),
    Mutant(
        "the log of events tells a secret",
        "no_secret_in_an_event",
        swap((AccountService, "_new_key", tells_the_secret)),
        plot=brief(**CALM),
    ),
    Mutant(
        "a kept document is served whatever happened since",
        "views_are_fresh",
        swap((Views, "_document", serves_what_it_has)),
        plot=brief(**CALM),
    ),
    Mutant(
        "a reconcile stumbles now and then",
        "nothing_raises",
        swap((ClusterReconciler, "reconcile", stumbles_now_and_then)),
        plot=brief(**CALM),
    ),
    Mutant(
        "wake-ups are lost and nobody makes the rounds",
        "everything_settles",
        swap((Applier, "_wake", is_not_woken), (Engine, "full_pass", makes_no_rounds)),
        plot=brief(**CALM),
    ),
    Mutant(
        "a cluster never shrinks",
        "healthy_is_ready",
        swap((planning, "surplus", lambda _: lambda snapshot, standings: [])),
        plot=brief(minutes=30, **CALM),
        seeds=range(10, 71),
    ),
    Mutant(
        "requests are never closed",
        "requests_end",
        swap((recording, "settle", lambda _: lambda requests, cluster, at: [])),
        plot=brief(**CALM),
    ),
    Mutant(
        "a paused cluster keeps its network",
        "no_orphan",
        swap((planning, "_leave", leaves_the_network_of_the_paused)),
        plot=None,
    ),
    Mutant(
        "the index never hears of what was freed",
        "index_agrees",
        swap((Capacity, "_follow", hears_only_of_what_is_taken)),
        plot=brief(**CALM),
    ),
    Mutant(
        "a pool is drawn from everybody's hosts",
        "pools_are_kept",
        swap((CapacityIndex, "_grants", draws_from_everybodys)),
        plot=brief(hosts=8, users=0, elastic=2, **CALM),
    ),
    Mutant(
        "whoever comes may have what is promised to others",
        "promises_fit",
        swap((Capacity, "room", counts_no_promise)),
        plot=replaced(HEALTHY, hosts=6),
        not_asked=frozenset({"ready_by_its_start", "everything_settles"}),
    ),
    Mutant(
        "windows promise more than may be reserved",
        "windows_within_share",
        swap((Line, "reservable", reserves_everything)),
        plot=replaced(HEALTHY, users=0, hosts=8),
        not_asked=frozenset({"ready_by_its_start"}),
    ),
    Mutant(
        "hosts are bound before their window begins",
        "bound_in_time",
        swap((reconciling, "plan", cannot_wait)),
        plot=replaced(HEALTHY, hosts=30),
        not_asked=frozenset({"promises_fit"}),
    ),
    Mutant(
        "a reservation ends and its hours stay booked",
        "bookings_match_reservations",
        swap((Booker, "unbook", keeps_the_booking)),
        plot=replaced(HEALTHY, hosts=30),
        not_asked=frozenset({"promises_fit"}),
    ),
    Mutant(
        "provisioning begins when it should be over",
        "ready_by_its_start",
        swap((Reservations, "lead", leaves_no_time)),
        plot=HEALTHY,
    ),
)

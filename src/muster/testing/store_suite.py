"""The laws of contracts/store.py as tests: a store that passes them may be used, whatever is behind it.

Subclass `StoreSuite` and give it an `opened` fixture that makes stores on one and the same memory; each call opens
another, as another process would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from itertools import count
from typing import Any, TypeAlias, TypeVar

import msgspec
import pytest

from muster.contracts.steps import Step
from muster.contracts.store import Batch, Claim, Expect, Find, Head, Insert, Op, Remove, Replace, Store, Wake
from muster.errors import FenceLost, StoreError, UniqueViolation, VersionMismatch
from muster.model.access import Rule, SecurityGroup
from muster.model.accounts import Account, ApiKey, Role
from muster.model.base import Noun, changed
from muster.model.catalog import Region
from muster.model.clusters import (
    Cluster,
    ClusterConfig,
    ClusterSpec,
    ClusterStatus,
    ClusterType,
    Moved,
    Node,
    NodeRole,
)
from muster.model.events import Event, IdempotencyKey
from muster.model.hosts import Host, HostHealth, Lease
from muster.model.phases import Phase

T = TypeVar("T")
Open: TypeAlias = Callable[[], Awaitable[Store]]
Story: TypeAlias = Callable[[Store], Coroutine[Any, Any, T]]

_names = count()


def cluster(id: str, *, name: str = "", project: str = "p1", at: int = 1_000, **fields: Any) -> Cluster:
    name = name or f"c-{next(_names)}"
    spec = ClusterSpec(
        type=ClusterType.SLURM,
        region="here",
        gpu_type="H100_SXM",
        instance_type="8xH100_SXM",
        workers=2,
        image_id="img",
        config=ClusterConfig(said={"wire": {"n": 1, "f": 1.5, "s": ["ü", None, True]}}),
    )
    told: dict[str, Any] = {
        "account_id": "a1",
        "project_id": project,
        "name": name,
        "live_name": name,
        "region": "here",
        "phase": Phase.CONTROL,
        "phase_since": at,
        "spec": spec,
        "digest": "d",
        "created_at": at,
        "updated_at": at,
    }
    return Cluster(id=id, **(told | fields))


def host(id: str, **fields: Any) -> Host:
    told: dict[str, Any] = {
        "name": id,
        "region": "here",
        "slots": 8,
        "cpus": 96,
        "memory_gib": 1024,
        "substrate": "test",
    }
    return Host(id=id, created_at=1, **(told | fields))


def lease(id: str, host_id: str, slots: int, *, cluster_id: str = "c") -> Lease:
    return Lease(
        id=id, host_id=host_id, slots=slots, node_id=f"n-{id}", cluster_id=cluster_id, project_id="p1", taken_at=1
    )


def event(type: str = "cluster.made", *, at: int = 1, kind: str = "cluster", id: str = "c", **fields: Any) -> Event:
    return Event(at=at, kind=kind, resource_id=id, type=type, actor="tester", **fields)


def batch(*ops: Op, events: tuple[Event, ...] = (), fence: Claim | None = None) -> Batch:
    return Batch(Step.CLUSTER_WISH, ops, events, fence)


async def refused(store: Store, error: type[StoreError], *ops: Op, **rest: Any) -> Any:
    with pytest.raises(error) as caught:
        await store.apply(batch(*ops, **rest))
    return caught.value


class StoreSuite:
    """Every test gets `opened`: an async function that opens one more store on the same memory."""

    def tell(self, opened: Open, story: Story[T], *, stores: int = 1) -> T:
        """Run a story with its store (or, as `self.others`, several on the same memory) and close them."""

        async def told() -> T:
            async with AsyncExitStack() as stack:
                all_ = [await opened() for _ in range(stores)]
                for store in all_:
                    stack.push_async_callback(store.close)
                self.others = all_[1:]
                return await story(all_[0])

        return asyncio.run(told())

    # Nouns come back as they went in.

    def test_a_noun_reads_back_as_written(self, opened: Open) -> None:
        wide = cluster("c1", gone_at=None, delete_wished_at=77)
        status = ClusterStatus(history=(Moved(phase="control", at=5, because="so"),), waiting_for="x")
        nouns: list[Noun] = [
            msgspec.structs.replace(wide, number=7, status=status),
            host("h1", cordoned=True, health=HostHealth.DEAD),
            ApiKey(id="k1", digest="d1", prefix="mk", name="k", role=Role.ADMIN, created_at=3),
            SecurityGroup(
                id="g1",
                number=1,
                account_id="a",
                project_id="p",
                name="web",
                rules=(Rule(direction="inbound", protocol="tcp", port_min=22, port_max=22),),
                created_at=1,
                updated_at=2,
            ),
        ]

        async def story(store: Store) -> None:
            await store.apply(batch(*map(Insert, nouns)))
            for noun in nouns:
                assert await store.get(type(noun), noun.id) == noun
            assert await store.get(Cluster, "nobody") is None

        self.tell(opened, story)

    def test_numbers_count_up_per_noun_and_are_never_given_twice(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Insert(cluster("c1")), Insert(cluster("c2"))))
            await store.apply(batch(Insert(Region(id="r1")), Insert(cluster("c3", number=40))))
            await store.apply(batch(Remove(Cluster, "c3"), Insert(cluster("c4"))))
            found = await store.find(Find(Cluster))
            assert [one.number for one in found] == [1, 2, 41]
            region = await store.get(Region, "r1")
            assert region is not None
            assert region.number == 1
            # Whoever replaces a value it never read back does not take the number away.
            await store.apply(batch(Replace(changed(region, number=0, title="R"))))
            assert await store.get(Region, "r1") == changed(region, title="R")

        self.tell(opened, story)

    # Whole or not at all.

    def test_a_refused_batch_leaves_nothing(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Insert(host("h1"))))
            seq = await store.capacity_seq()
            await refused(
                store,
                VersionMismatch,
                Insert(cluster("c1")),
                Insert(lease("l1", "h1", 3)),
                Wake("cluster", "c1", 5),
                Expect(Host, "h1", 9),
                events=(event(),),
            )
            assert await store.get(Cluster, "c1") is None
            assert await store.slots_taken() == {}
            assert await store.next_due() is None
            assert await store.events(after=0, limit=10) == []
            assert await store.capacity_seq() == seq

        self.tell(opened, story)

    def test_neighbours_of_a_refused_batch_are_applied(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            batches = [batch(Insert(cluster(f"c{n}", name="same" if n % 5 == 0 else ""))) for n in range(40)]
            answers = await asyncio.gather(*map(store.apply, batches), return_exceptions=True)
            lost = [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)]
            assert lost == [5, 10, 15, 20, 25, 30, 35]
            assert all(isinstance(answers[n], UniqueViolation) for n in lost)
            assert await store.count(Find(Cluster)) == 33

        self.tell(opened, story)

    # Versions.

    def test_replace_writes_only_over_the_version_before(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            first = cluster("c1", number=1)
            await store.apply(batch(Insert(first)))
            second = changed(first, because="second")
            await store.apply(batch(Replace(second)))
            error = await refused(store, VersionMismatch, Replace(changed(first, because="late")))
            assert (error.noun, error.key) == ("cluster", "c1")
            await refused(store, VersionMismatch, Replace(changed(changed(second))))
            await refused(store, VersionMismatch, Replace(changed(cluster("nobody"))))
            assert await store.get(Cluster, "c1") == second

        self.tell(opened, story)

    def test_expect_and_remove_are_guarded(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Insert(host("h1")), Insert(host("h2"))))
            await store.apply(batch(Expect(Host, "h1", 1), Remove(Host, "h2", 1)))
            await refused(store, VersionMismatch, Expect(Host, "h1", 2))
            await refused(store, VersionMismatch, Expect(Host, "h2", 1))
            await refused(store, VersionMismatch, Remove(Host, "h1", 2))
            await refused(store, VersionMismatch, Remove(Host, "h2"))
            await store.apply(batch(Remove(Host, "h1")))
            assert await store.count(Find(Host)) == 0

        self.tell(opened, story)

    def test_of_many_who_read_the_same_version_one_wins(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            first = cluster("c1", number=1)
            await store.apply(batch(Insert(first)))
            stores = [store, *self.others]
            tries = [stores[n % 3].apply(batch(Replace(changed(first, because=str(n))))) for n in range(12)]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            assert [type(answer) for answer in answers].count(VersionMismatch) == 11
            now = await store.get(Cluster, "c1")
            assert now is not None
            won = [n for n, answer in enumerate(answers) if not isinstance(answer, BaseException)]
            assert [now.because] == [str(n) for n in won]

        self.tell(opened, story, stores=3)

    # Uniqueness.

    @pytest.mark.parametrize(
        ("rule", "first", "second"),
        [
            ("cluster_id", cluster("c1"), cluster("c1")),
            ("cluster_live_name", cluster("c1", name="x"), cluster("c2", name="x")),
            ("cluster_number", cluster("c1", number=3), cluster("c2", number=3)),
            ("host_name", host("h1", name="n"), host("h2", name="n")),
            ("lease_slot", lease("l1", "h", 0b0110), lease("l2", "h", 0b1100)),
            (
                "account_name",
                Account(id="a1", name="n", created_at=1),
                Account(id="a2", name="n", created_at=1),
            ),
            (
                "idempotency_key_id",
                IdempotencyKey(id="k", digest="1", kind="c", resource_id="r", created_at=1),
                IdempotencyKey(id="k", digest="2", kind="c", resource_id="r", created_at=1),
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_a_broken_rule_is_named(self, opened: Open, rule: str, first: Noun, second: Noun) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Insert(first)))
            error = await refused(store, UniqueViolation, Insert(second))
            assert error.rule == rule

        self.tell(opened, story)

    def test_a_name_is_free_again_when_nobody_lives_under_it(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            first = cluster("c1", name="x")
            await store.apply(batch(Insert(first)))
            await store.apply(batch(Replace(changed(first, live_name=None)), Insert(cluster("c2", name="x"))))
            await store.apply(batch(Insert(cluster("c3", name="x", project="p2"))))
            assert await store.count(Find(Cluster, {"name": "x"})) == 3

        self.tell(opened, story)

    # Finding.

    def test_find_filters_orders_and_pages(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            # Two share every instant, so that the id must break the tie.
            made = [cluster(f"c{n}", at=1_000 + n // 2, project=f"p{n % 2}") for n in range(10)]
            await store.apply(batch(*map(Insert, made)))

            async def ids(**query: Any) -> list[str]:
                return [one.id for one in await store.find(Find(Cluster, **query))]

            assert await ids(equals={"project_id": "p1"}) == ["c1", "c3", "c5", "c7", "c9"]
            assert await ids(equals={"delete_wished_at": None, "phase": Phase.CONTROL}, limit=2) == ["c0", "c1"]
            assert await ids(one_of={"id": ["c2", "c9", "nobody"]}, order="id", descending=True) == ["c9", "c2"]
            assert await ids(one_of={"id": []}) == []
            assert await ids(one_of={"created_at": [1_000, 1_004]}) == ["c0", "c1", "c8", "c9"]
            assert await ids(order="created_at", after=(1_002, "c4"), limit=3) == ["c5", "c6", "c7"]
            assert await ids(order="created_at", descending=True, after=(1_002, "c4")) == ["c3", "c2", "c1", "c0"]
            assert await ids(after=("c7", "c7")) == ["c8", "c9"]
            assert await store.count(Find(Cluster, {"project_id": "p0"}, limit=1)) == 5
            with pytest.raises(ValueError, match="no column"):
                await ids(equals={"1 = 1 OR id": "x"})

        self.tell(opened, story)

    def test_booleans_are_found_as_booleans(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Insert(host("h1", cordoned=True)), Insert(host("h2"))))
            assert [one.id for one in await store.find(Find(Host, {"cordoned": True}))] == ["h1"]
            assert [one.id for one in await store.find(Find(Host, one_of={"cordoned": [False]}))] == ["h2"]

        self.tell(opened, story)

    def test_heads_tell_the_living_only(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            alive, gone = cluster("c1", at=5), cluster("c2", at=6, gone_at=9)
            await store.apply(batch(Insert(alive), Insert(gone)))
            await store.apply(batch(Replace(changed(alive))))
            assert await store.head(Cluster, "c1") == Head("c1", 2, "p1", 5)
            assert await store.head(Cluster, "c2") is None
            assert await store.head(Cluster, "c3") is None
            assert await store.heads(Find(Cluster, {"project_id": "p1"}, order="created_at")) == [
                Head("c1", 2, "p1", 5)
            ]
            node = Node(
                id="n",
                cluster_id="c",
                project_id="p",
                role=NodeRole.WORKER,
                name="w",
                ordinal=0,
                phase_since=1,
                created_at=3,
            )
            await store.apply(batch(Insert(node)))
            assert await store.head(Node, "n") == Head("n", 1, "p", 3)

        self.tell(opened, story)

    # The event log.

    def test_events_are_read_in_order_by_whom_they_concern(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            for n in range(6):
                one = event(f"t{n}", at=n, id=f"c{n % 2}", project_id=f"p{n % 3}", data={"n": n})
                await store.apply(batch(events=(one,)))
            await store.apply(batch(events=(event("t6", kind="volume"), event("t7", kind="volume"))))

            async def types(**query: Any) -> list[str]:
                return [one.type for one in await store.events(**query)]

            every = await store.events(after=0, limit=100)
            seqs = [one.seq for one in every]
            assert seqs == sorted(set(seqs))
            assert [one.data for one in every][:3] == [{"n": 0}, {"n": 1}, {"n": 2}]
            assert await store.last_event() == seqs[-1]
            assert await types(after=seqs[2], limit=2) == ["t3", "t4"]
            assert await types(after=0, limit=9, resource_id="c1") == ["t1", "t3", "t5"]
            assert await types(after=0, limit=9, project_id="p0") == ["t0", "t3"]
            assert await types(after=0, limit=9, kind="volume") == ["t6", "t7"]
            assert await types(after=0, limit=3, newest_first=True) == ["t7", "t6", "t5"]
            assert await types(after=seqs[2], limit=9, newest_first=True) == ["t1", "t0"]

        self.tell(opened, story)

    def test_pruned_events_are_forgotten_and_their_seq_is_not_given_again(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(events=tuple(event(at=n) for n in range(5))))
            last = await store.last_event()
            assert await store.prune_events(3, 2) == 2
            assert await store.prune_events(3, 9) == 1
            assert [one.at for one in await store.events(after=0, limit=9)] == [3, 4]
            assert await store.prune_events(100, 9) == 2
            await store.apply(batch(events=(event(),)))
            assert (await store.events(after=0, limit=9))[0].seq > last

        self.tell(opened, story)

    def test_old_idempotency_keys_are_forgotten_oldest_first(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            for n in range(5):
                key = IdempotencyKey(id=f"p:{9 - n}", digest="d", kind="cluster", resource_id="c", created_at=n)
                await store.apply(batch(Insert(key)))
            assert await store.prune_keys(3, 2) == 2
            assert [key.created_at for key in await store.find(Find(IdempotencyKey, order="created_at"))] == [2, 3, 4]
            assert await store.prune_keys(3, 9) == 1
            assert await store.prune_keys(3, 9) == 0

        self.tell(opened, story)

    def test_the_capacity_log_forgets_its_beginning_and_never_its_end(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            for n in range(6):
                await store.apply(batch(Insert(host(f"h{n}"))))
            last = await store.capacity_seq()
            assert await store.prune_capacity_log(3, 1) == 1
            assert await store.prune_capacity_log(3, 9) == 1
            assert [line.host_id for line in await store.capacity_log(0, 9)] == ["h2", "h3", "h4", "h5"]
            assert await store.prune_capacity_log(0, 9) == 3
            assert await store.capacity_seq() == last
            await store.apply(batch(Insert(host("h6"))))
            assert [line.host_id for line in await store.capacity_log(last, 9)] == ["h6"]

        self.tell(opened, story)

    def test_a_reader_that_resumes_misses_nothing(self, opened: Open) -> None:
        writers, each = 4, 25

        async def story(store: Store) -> None:
            async def write(by: int) -> None:
                mine = [store, *self.others][by % 3]
                for n in range(each):
                    await mine.apply(batch(events=(event(f"{by}.{n}.a"), event(f"{by}.{n}.b"))))

            async def read() -> list[str]:
                seen: list[str] = []
                after = 0
                while len(seen) < writers * each * 2:
                    page = await self.others[0].events(after=after, limit=7)
                    assert all(one.seq > after for one in page)
                    seen += [one.type for one in page]
                    after = page[-1].seq if page else after
                    await asyncio.sleep(0)
                return seen

            async with asyncio.timeout(60):
                reading = asyncio.create_task(read())
                await asyncio.gather(*map(write, range(writers)))
                seen = await reading
            assert len(set(seen)) == len(seen)
            for by in range(writers):
                order = [(int(one.split(".")[1]), one[-1]) for one in seen if one.startswith(f"{by}.")]
                assert order == sorted(order)

        self.tell(opened, story, stores=3)

    # Capacity.

    def test_leases_take_slots_and_give_them_back(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Insert(host("h1"))))
            start = await store.capacity_seq()
            await store.apply(batch(Insert(lease("l1", "h1", 0b11)), Insert(lease("l2", "h1", 0b1100))))
            assert await store.slots_taken() == {"h1": 0b1111}
            # Freed and taken again in one batch: order within a batch is kept.
            await store.apply(batch(Remove(Lease, "l1"), Insert(lease("l3", "h1", 0b1))))
            assert await store.slots_taken() == {"h1": 0b1101}
            one = await store.get(Host, "h1")
            assert one is not None
            await store.apply(batch(Replace(changed(one, cordoned=True))))
            log = await store.capacity_log(start, 100)
            assert [change[1:4] for change in log] == [
                ("h1", 0b11, 0),
                ("h1", 0b1100, 0),
                ("h1", 0, 0b11),
                ("h1", 0b1, 0),
                ("h1", 0, 0),
            ]
            assert log[-1].seq == await store.capacity_seq()
            assert await store.capacity_log(log[1].seq, 2) == log[2:4]

        self.tell(opened, story)

    def test_a_lease_may_be_replaced_but_not_moved(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            held = lease("l1", "h1", 0b1)
            await store.apply(batch(Insert(held)))
            await store.apply(batch(Replace(changed(held, generation=2))))
            await refused(store, VersionMismatch, Replace(changed(changed(held), slots=0b10)))
            assert await store.slots_taken() == {"h1": 0b1}

        self.tell(opened, story)

    def test_a_new_host_is_announced_in_the_capacity_log(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Insert(host("h1")), Insert(host("h2"))))
            await store.apply(batch(Remove(Host, "h1")))
            assert [change[1:4] for change in await store.capacity_log(0, 9)] == [
                ("h1", 0, 0),
                ("h2", 0, 0),
                ("h1", 0, 0),
            ]

        self.tell(opened, story)

    def test_of_many_who_want_the_same_slots_one_wins(self, opened: Open) -> None:
        slots, rivals = 8, 3

        async def story(store: Store) -> None:
            stores = [store, *self.others]
            asks = [
                stores[rival].apply(
                    batch(Insert(cluster(f"c{rival}.{slot}")), Insert(lease(f"l{rival}.{slot}", "h1", 1 << slot)))
                )
                for slot in range(slots)
                for rival in range(rivals)
            ]
            answers = await asyncio.gather(*asks, return_exceptions=True)
            lost = [answer for answer in answers if isinstance(answer, BaseException)]
            assert all(isinstance(error, UniqueViolation) and error.rule == "lease_slot" for error in lost)
            assert len(lost) == slots * (rivals - 1)
            assert await store.slots_taken() == {"h1": (1 << slots) - 1}
            assert await store.count(Find(Lease)) == await store.count(Find(Cluster)) == slots

        self.tell(opened, story, stores=rivals)

    def test_the_capacity_log_replays_without_contradiction(self, opened: Open) -> None:
        """Rivals hand two slots round. In commit order no slot is ever taken twice, nor freed when free."""
        rivals, rounds = 3, 20

        async def story(store: Store) -> None:
            async def fight(mine: Store, name: str) -> int:
                won = 0
                for n in range(rounds):
                    held = f"{name}.{n}"
                    try:
                        await mine.apply(batch(Insert(cluster(held)), Insert(lease(held, "h1", 0b11))))
                    except UniqueViolation:
                        continue
                    won += 1
                    await mine.apply(batch(Remove(Lease, held)))
                return won

            stores = [store, *self.others]
            wins = await asyncio.gather(*(fight(one, f"w{n}") for n, one in enumerate(stores)))
            taken = 0
            log = await store.capacity_log(0, 1_000)
            for change in log:
                assert not change.taken & taken
                assert change.freed & taken == change.freed
                taken = taken & ~change.freed | change.taken
            assert taken == 0
            assert len(log) == 2 * sum(wins)

        self.tell(opened, story, stores=rivals)

    # Work: claims, fences, wake-ups.

    def test_work_is_claimed_once_longest_due_first(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            for id, due_at in (("a", 30), ("b", 10), ("c", 20), ("d", 99)):
                await store.apply(batch(Wake("cluster", id, due_at)))
            assert await store.next_due() == 10
            assert await store.work_backlog(30) == (3, 4)
            assert await store.claim(worker="w", now=9, lease_ms=100, limit=9) == []
            first = await store.claim(worker="w", now=30, lease_ms=100, limit=2)
            assert [one.id for one in first] == ["b", "c"]
            assert {one.expires_at for one in first} == {130}
            rest = await store.claim(worker="v", now=30, lease_ms=100, limit=9)
            assert [one.id for one in rest] == ["a"]
            assert await store.next_due() == 99
            assert await store.work_backlog(30) == (0, 4)

        self.tell(opened, story)

    def test_an_expired_claim_goes_to_another_with_a_greater_token(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Wake("cluster", "c", 10)))
            [zombie] = await store.claim(worker="w", now=10, lease_ms=100, limit=1)
            assert await store.claim(worker="v", now=109, lease_ms=100, limit=1) == []
            assert await store.next_due() == 110
            [heir] = await store.claim(worker="v", now=110, lease_ms=100, limit=1)
            assert heir.token > zombie.token
            assert not await store.renew(zombie, 999)
            await store.release(zombie, due_at=500, failed=True)
            await refused(store, FenceLost, Insert(cluster("c1")), fence=zombie)
            await store.apply(batch(Insert(cluster("c1")), fence=heir))
            assert await store.renew(heir, 300)
            assert await store.next_due() == 300
            await store.release(heir, due_at=400, failed=False)
            await refused(store, FenceLost, Insert(cluster("c2")), fence=heir)
            assert await store.next_due() == 400

        self.tell(opened, story)

    def test_what_an_ended_worker_held_is_due_at_once_and_its_late_word_refused(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            for id in ("mine", "other"):
                await store.apply(batch(Wake("cluster", id, 10)))
            [ended] = await store.claim(worker="w", now=10, lease_ms=100, limit=1)
            [other] = await store.claim(worker="v", now=10, lease_ms=100, limit=1)
            assert await store.disown("w") == 1
            assert await store.disown("w") == 0
            [heir] = await store.claim(worker="w", now=11, lease_ms=100, limit=9)
            assert (heir.id, heir.attempts) == (ended.id, 0)
            assert heir.token > ended.token
            await refused(store, FenceLost, Insert(cluster("c1")), fence=ended)
            await store.apply(batch(Insert(cluster("c1")), fence=heir))
            assert await store.renew(other, 300), "who lives on keeps what it holds"

        self.tell(opened, story)

    def test_tokens_begin_above_what_others_have_seen_and_never_fall(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            tokens = []
            for least in (1_000, 5, 2_000):
                await store.tokens_above(least)
                await store.apply(batch(Wake("cluster", "c", 1)))
                [claim] = await store.claim(worker="w", now=1, lease_ms=100, limit=1)
                tokens.append(claim.token)
                await store.release(claim, due_at=None, failed=False)
            assert tokens == [1_001, 1_002, 2_001]

        self.tell(opened, story)

    def test_tokens_grow_even_when_the_row_went_and_came_back(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            tokens = []
            for now in (1, 2, 3):
                await store.apply(batch(Wake("cluster", "c", now)))
                [claim] = await store.claim(worker="w", now=now, lease_ms=100, limit=1)
                tokens.append(claim.token)
                await store.release(claim, due_at=None, failed=False)
                assert await store.work_backlog(99) == (0, 0)
            assert tokens == sorted(set(tokens))

        self.tell(opened, story)

    def test_a_wake_up_during_a_claim_is_not_lost(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            for due_at in (None, 9_000):
                await store.apply(batch(Wake("cluster", "c", 10)))
                [claim] = await store.claim(worker="w", now=10, lease_ms=100, limit=1)
                await store.apply(batch(Wake("cluster", "c", 50)))
                assert await store.claim(worker="v", now=60, lease_ms=100, limit=1) == []
                await store.release(claim, due_at=due_at, failed=False)
                [again] = await store.claim(worker="w", now=60, lease_ms=100, limit=1)
                await store.release(again, due_at=None, failed=False)
                assert await store.next_due() is None

        self.tell(opened, story)

    def test_a_wake_up_brings_work_forward_but_never_back(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Wake("cluster", "c", 50)))
            await store.apply(batch(Wake("cluster", "c", 80)))
            assert await store.next_due() == 50
            await store.apply(batch(Wake("cluster", "c", 20)))
            assert await store.next_due() == 20
            assert await store.work_backlog(20) == (1, 1)

        self.tell(opened, story)

    def test_failures_are_counted_until_one_succeeds(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Wake("cluster", "c", 0)))
            seen = []
            for failed in (True, True, False, True):
                [claim] = await store.claim(worker="w", now=0, lease_ms=100, limit=1)
                seen.append(claim.attempts)
                await store.release(claim, due_at=0, failed=failed)
            assert seen == [0, 1, 2, 0]

        self.tell(opened, story)

    def test_workers_of_several_stores_never_share_a_claim(self, opened: Open) -> None:
        pieces = 60

        async def story(store: Store) -> None:
            await store.apply(batch(*(Wake("cluster", f"c{n:02}", n) for n in range(pieces))))

            async def work(mine: Store, name: str) -> list[Claim]:
                taken: list[Claim] = []
                while claims := await mine.claim(worker=name, now=1_000, lease_ms=100, limit=4):
                    taken += claims
                return taken

            stores = [store, *self.others]
            hands = await asyncio.gather(*(work(one, f"w{n}") for n, one in enumerate(stores)))
            claims = [claim for hand in hands for claim in hand]
            assert len({claim.id for claim in claims}) == len(claims) == pieces
            assert len({claim.token for claim in claims}) == pieces

        self.tell(opened, story, stores=3)

    # Other stores on the same memory.

    def test_what_one_store_wrote_another_reads(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await store.apply(batch(Insert(cluster("c1", name="x"))))
            [other] = self.others
            assert await other.head(Cluster, "c1") is not None
            await refused(other, UniqueViolation, Insert(cluster("c2", name="x")))

        self.tell(opened, story, stores=2)

    def test_closed_and_opened_again_nothing_is_lost(self, opened: Open) -> None:
        self.tell(opened, lambda store: store.apply(batch(Insert(cluster("c1")), events=(event(),))))

        async def story(store: Store) -> None:
            assert await store.head(Cluster, "c1") is not None
            assert await store.last_event() == 1

        self.tell(opened, story)

"""The laws of contracts/store.py as tests: a store that passes them may be used, whatever is behind it.

Subclass `StoreSuite` and give it an `opened` fixture that makes stores on one and the same memory; each call opens
another, as another process would.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from muster.contracts.store import Expect, Find, Head, Insert, Remove, Replace, Store, Wake
from muster.errors import UniqueViolation, VersionMismatch
from muster.model.access import Rule, SecurityGroup
from muster.model.accounts import Account, ApiKey, Role
from muster.model.base import Noun, changed
from muster.model.catalog import Region
from muster.model.clusters import (
    Cluster,
    ClusterStatus,
    Moved,
    Node,
    NodeRole,
)
from muster.model.events import IdempotencyKey
from muster.model.hosts import Host, HostHealth
from muster.model.phases import Phase
from muster.testing.lease_suite import LeaseSuite
from muster.testing.log_suite import LogSuite
from muster.testing.store_rig import Open, batch, cluster, event, host, lease, refused
from muster.testing.work_suite import WorkSuite


class StoreSuite(LogSuite, LeaseSuite, WorkSuite):
    """Rows, versions, rules and questions; with the logs, the leases and the work, all laws of a store."""

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

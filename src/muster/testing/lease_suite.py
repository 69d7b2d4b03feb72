"""Leases as tests of a store: no slot is taken twice, and the log tells every change."""

from __future__ import annotations

import asyncio

from muster.contracts.store import Find, Insert, Remove, Replace, Store
from muster.errors import UniqueViolation, VersionMismatch
from muster.model.base import changed
from muster.model.clusters import (
    Cluster,
)
from muster.model.hosts import Host, Lease
from muster.testing.store_rig import Open, StoreRig, batch, cluster, host, lease, refused


class LeaseSuite(StoreRig):
    """`opened` as in the rig."""

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

"""Work as tests of a store: claims, fences, wake-ups."""

from __future__ import annotations

import asyncio

from muster.contracts.store import Claim, Insert, Store, Wake
from muster.errors import FenceLost
from muster.testing.store_rig import Open, StoreRig, batch, cluster, refused


class WorkSuite(StoreRig):
    """`opened` as in the rig."""

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

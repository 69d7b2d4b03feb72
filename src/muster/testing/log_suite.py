"""The event log and the capacity log as tests of a store: in order, no holes, forgotten from the beginning only."""

from __future__ import annotations

import asyncio
from typing import Any

from muster.contracts.store import Find, Insert, Store
from muster.model.events import IdempotencyKey
from muster.testing.store_rig import Open, StoreRig, batch, event, host


class LogSuite(StoreRig):
    """`opened` as in the rig."""

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

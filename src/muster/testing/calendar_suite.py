"""The calendar's law as tests of a store: no hour of a line promises more than may be, whoever books at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count

from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Op, Remove, Replace, Store
from muster.errors import StoreError, UniqueViolation, VersionMismatch
from muster.model.base import HOUR, changed
from muster.model.capacity import Booking, CalendarLine
from muster.testing.store_rig import Open, refused
from muster.testing.store_suite import StoreSuite

LINE = CalendarLine(id="line", region="here", gpu_type="H100_SXM", slots=8, reservable=3, guarded=True, created_at=0)
_ids = count()


def booking(hosts: int, first: int = 0, end: int = 4) -> Booking:
    return Booking(
        id=f"b-{next(_ids)}",
        line_id=LINE.id,
        reservation_id="r",
        hosts=hosts,
        from_at=first * HOUR,
        until_at=end * HOUR,
    )


async def write(store: Store, *ops: Op) -> None:
    await store.apply(Batch(Step.RESERVATION_ACCEPT, ops))


class CalendarSuite(StoreSuite):
    """Beside the laws of every store; `opened` as there."""

    def test_an_hour_over_the_limit_refuses_the_whole_batch(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await write(store, Insert(LINE), Insert(booking(2, 0, 6)))
            fits, over = booking(1, 0, 6), booking(2, 5, 9)
            over_the_limit = await refused(store, UniqueViolation, Insert(fits), Insert(over))
            assert over_the_limit.rule == "calendar_cell"
            assert len(await store.find(Find(Booking))) == 1
            await write(store, Insert(booking(3, 6, 9)), Insert(fits))

        self.tell(opened, story)

    def test_what_goes_in_the_same_batch_makes_room(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            first = booking(3)
            await write(store, Insert(LINE), Insert(first))
            await write(store, Remove(Booking, first.id), Insert(booking(3, 2, 8)))
            await write(store, Insert(booking(3, 0, 2)))
            await refused(store, UniqueViolation, Insert(booking(1, 1, 3)))

        self.tell(opened, story)

    def test_a_lower_limit_breaks_no_promise_and_gives_none(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            kept = booking(3)
            await write(store, Insert(LINE), Insert(kept))
            await write(store, Replace(changed(LINE, reservable=2)))
            await refused(store, UniqueViolation, Insert(booking(1)))
            assert await store.get(Booking, kept.id) == kept
            await write(store, Insert(booking(2, 4, 8)))

        self.tell(opened, story)

    def test_of_rivals_for_the_last_hosts_just_so_many_win(self, opened: Open) -> None:
        """Two processes, all at once, each with the count it saw: what is left is given once."""

        async def story(store: Store) -> None:
            await write(store, Insert(LINE))
            stores = [store, *self.others]
            asks = [booking(1, n % 3, 4 + n % 3) for n in range(12)]
            tries = [write(stores[n % 2], Insert(ask)) for n, ask in enumerate(asks)]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            self._judged(answers, asks, await store.find(Find(Booking)))

        self.tell(opened, story, stores=2)

    def _judged(self, answers: Sequence[object], asks: Sequence[Booking], kept: Sequence[Booking]) -> None:
        won = {ask.id for ask, answer in zip(asks, answers, strict=True) if answer is None}
        assert {one.id for one in kept} == won
        assert all(isinstance(answer, StoreError) for answer in answers if answer is not None), answers
        hours = [sum(one.hosts for one in kept if one.from_at <= at * HOUR < one.until_at) for at in range(8)]
        assert max(hours) == LINE.reservable

    def test_of_two_who_counted_the_same_line_one_decides_anew(self, opened: Open) -> None:
        async def story(store: Store) -> None:
            await write(store, Insert(LINE))
            moved = changed(LINE, revision=1)
            answers = await asyncio.gather(
                write(store, Replace(moved), Insert(booking(2))),
                write(self.others[0], Replace(moved), Insert(booking(2))),
                return_exceptions=True,
            )
            assert [type(answer) for answer in answers if answer is not None] == [VersionMismatch]
            assert len(await store.find(Find(Booking))) == 1

        self.tell(opened, story, stores=2)

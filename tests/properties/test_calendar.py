"""The calendar under random use: whatever is asked in whatever order, no instant is promised twice.

A naive sheet of counts, cell by cell and host by host, is the judge.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

from muster.core.capacity.calendar import FOREVER, Line, Promise

HOSTS = 24
HORIZON = 120
TURNS = 250_000 if os.environ.get("MUSTER_THOROUGH") else 25_000
"""For each of four seeds: 10^5 operations together, 10^6 when thorough."""


@dataclass
class Sheet:
    """What was promised and held, kept as plainly as can be."""

    line: Line
    held: dict[str, int] = field(default_factory=dict)
    promises: dict[str, Promise] = field(default_factory=dict)
    usable: set[str] = field(default_factory=set)

    def load(self, cell: int) -> int:
        held = sum(1 for host, until in self.held.items() if host in self.usable and until > cell)
        waiting = sum(p.hosts for p in self.promises.values() if not p.bound and p.start <= cell < p.end)
        return held + waiting

    def promised(self, cell: int) -> int:
        return sum(p.hosts for p in self.promises.values() if p.start <= cell < p.end)

    def room(self, start: int, end: int) -> int:
        kept = self.line.spares if any(self.promised(cell) for cell in range(start, end)) else 0
        return self.left(start, end) - kept

    def left(self, start: int, end: int) -> int:
        return len(self.usable) - max(self.load(cell) for cell in range(start, end))

    def reservable_room(self, start: int, end: int) -> int:
        promised = max(self.promised(cell) for cell in range(start, end))
        return min(self.line.reservable - promised, self.left(start, end) - self.line.spares)

    def free(self) -> list[str]:
        return sorted(host for host in self.usable if not self.held.get(host))


class Player:
    """Operators, tenants and bad luck, from one seed. Only asks what the line says it can give."""

    def __init__(self, seed: int, spares: int) -> None:
        self.dice = random.Random(seed)
        self.line = Line(share_percent=self.dice.choice((30, 50, 100)), spares=spares)
        self.sheet = Sheet(self.line)
        self.made = 0
        self.broken = False  # hosts were lost: promises may be short until some end
        for number in range(HOSTS):
            self.enrol(f"host-{number:02d}")

    def enrol(self, host: str) -> None:
        self.sheet.usable.add(host)
        self.line.set_host(host, self.sheet.held.get(host, 0))

    def reserve(self) -> None:
        start = self.dice.randrange(HORIZON - 1)
        end = self.dice.randrange(start + 1, HORIZON)
        hosts = self.dice.randrange(1, HOSTS // 2)
        if hosts <= self.line.reservable_room(start, end):
            self.made += 1
            promise = Promise(hosts, start, end)
            self.sheet.promises[f"p{self.made}"] = promise
            self.line.put(f"p{self.made}", promise)

    def extend(self) -> None:
        if not self.sheet.promises:
            return
        id = self.dice.choice(sorted(self.sheet.promises))
        old = self.sheet.promises[id]
        end = min(HORIZON, old.end + self.dice.randrange(1, 10))
        if end > old.end and old.hosts <= self.line.reservable_room(old.end, end):
            self.sheet.promises[id] = old._replace(end=end)
            self.line.put(id, old._replace(end=end))

    def cancel(self) -> None:
        if self.sheet.promises:
            id = self.dice.choice(sorted(self.sheet.promises))
            del self.sheet.promises[id]
            self.line.drop(id)

    def come(self) -> None:
        """An on-demand ask, for ever or with an end: it gets hosts only if no promise is eaten."""
        end = self.dice.choice((FOREVER, self.dice.randrange(1, HORIZON)))
        hosts = self.dice.randrange(1, 6)
        free = self.sheet.free()
        if hosts <= min(len(free), self.line.room(0, min(end, HORIZON))):
            for host in free[:hosts]:
                self.sheet.held[host] = end
                self.line.set_host(host, end)

    def go(self) -> None:
        held = sorted(self.sheet.held)
        if held:
            host = self.dice.choice(held)
            del self.sheet.held[host]
            if host in self.sheet.usable:
                self.line.set_host(host, 0)

    def fail(self) -> None:
        """A host dies; enrolled again some time later by `mend`."""
        if len(self.sheet.usable) > HOSTS - 3:
            host = self.dice.choice(sorted(self.sheet.usable))
            self.sheet.usable.discard(host)
            self.line.drop_host(host)
            self.broken = True

    def mend(self) -> None:
        for number in range(HOSTS):
            if f"host-{number:02d}" not in self.sheet.usable:
                self.enrol(f"host-{number:02d}")
                return

    def play(self) -> None:
        verbs = (self.reserve, self.reserve, self.come, self.go, self.extend, self.cancel)
        self.dice.choice(verbs)()


def hold_against(player: Player, dice: random.Random) -> None:
    """One window compared with the judge, and the law itself."""
    start = dice.randrange(HORIZON - 1)
    end = dice.randrange(start + 1, HORIZON)
    line, sheet = player.line, player.sheet
    assert line.room(start, end) == sheet.room(start, end)
    assert line.reservable_room(start, end) == sheet.reservable_room(start, end)
    if not player.broken:
        cell = dice.randrange(HORIZON)
        kept = line.spares if sheet.promised(cell) else 0
        assert sheet.load(cell) <= line.total - kept, f"more promised than exists at {cell}"
        assert sheet.promised(cell) <= line.reservable, f"windows over the reservable share at {cell}"


@pytest.mark.parametrize("seed", range(4))
def test_never_more_promised_than_exists(seed: int) -> None:
    player = Player(seed, spares=seed % 3)
    dice = random.Random(seed)
    for turn in range(TURNS):
        player.play()
        if turn % 25 == 0:
            hold_against(player, dice)


@pytest.mark.parametrize("seed", range(2))
def test_failures_are_counted_as_they_happen(seed: int) -> None:
    player = Player(seed, spares=1)
    dice = random.Random(seed)
    for turn in range(4_000):
        dice.choice((player.play, player.play, player.play, player.fail, player.mend))()
        if turn % 10 == 0:
            hold_against(player, dice)


@pytest.mark.parametrize("seed", range(20))
def test_earliest_start_is_the_first_that_fits(seed: int) -> None:
    player = Player(seed, spares=0)
    for _ in range(300):
        player.play()
    dice, line = random.Random(seed), player.line
    for _ in range(30):
        hosts, cells, start = dice.randrange(1, 12), dice.randrange(1, 30), dice.randrange(60)
        fits = (at for at in range(start, HORIZON) if line.reservable_room(at, at + cells) >= hosts)
        found = line.earliest(hosts, cells, start)
        first = next(fits, None)
        if first is not None:
            assert found == first
        else:
            assert found is None or found >= HORIZON


def play_on(player: Player) -> None:
    for turn in range(2_000):
        player.play()
        hold_against(player, random.Random(turn))


def test_a_mutant_that_forgets_the_unbound_is_noticed() -> None:
    """Check the checker: a line that counts a promise only once it is bound promises twice, and the judge says so."""

    class Forgetful(Line):
        def put(self, id: str, promise: Promise) -> None:
            super().put(id, promise._replace(bound=True))

    player = Player(7, spares=0)
    player.line = player.sheet.line = Forgetful(share_percent=100, spares=0)
    for number in range(HOSTS):
        player.enrol(f"host-{number:02d}")
    with pytest.raises(AssertionError):
        play_on(player)


def test_what_is_past_is_forgotten_and_the_rest_stays() -> None:
    line = Line(share_percent=100, spares=0)
    for number in range(4):
        line.set_host(str(number), 50 if number == 0 else 0)
    line.put("a", Promise(2, 10, 40))
    before = [line.room(cell, cell + 1) for cell in range(30, 60)]
    line.forget_before(30)
    assert [line.room(cell, cell + 1) for cell in range(30, 60)] == before
    line.drop("a")
    line.set_host("0", 0)
    assert line.room(30, 60) == 4


@pytest.mark.parametrize(("hosts", "spares"), [(0, 0), (1, 0), (2, 1), (8, 1), (32, 1), (33, 2), (640, 20)])
def test_unless_told_otherwise_one_in_thirty_two_is_a_spare_and_at_least_one_of_two(hosts: int, spares: int) -> None:
    line = Line(share_percent=100)
    for number in range(hosts):
        line.set_host(str(number))
    assert line.spares == spares
    assert line.reservable_room(0, 9) == hosts - spares


def test_spares_are_kept_only_beside_a_promise() -> None:
    line = Line(share_percent=100)
    for number in range(4):
        line.set_host(str(number))
    line.put("a", Promise(1, 10, 20))
    assert (line.room(0, 10), line.room(0, 11), line.room(20, 99)) == (4, 2, 4)
    assert line.room(10, 20, spare=True) == 3
    assert [(room.reservable, room.free) for room in line.rooms(9, 11)] == [(3, 4), (2, 2)]
    assert [line.earliest_room(hosts, 0) for hosts in (2, 3, 4, 5)] == [0, 20, 20, None]


@pytest.mark.parametrize("seed", range(20))
def test_the_first_room_for_ever_is_where_room_says_so(seed: int) -> None:
    player = Player(seed, spares=seed % 3)
    for _ in range(60):
        player.play()
    for hosts in range(1, HOSTS + 1):
        fits = (at for at in range(HORIZON + 1) if player.line.room(at, HORIZON + 1) >= hosts)
        assert player.line.earliest_room(hosts, 0) == next(fits, None)
        brief = (at for at in range(HORIZON + 1) if player.line.room(at, at + 5) >= hosts)
        assert player.line.earliest_room(hosts, 0, 5) == next(brief, None)

"""What the calendar costs among 100,000 reservations, against sweeping over all of them.

    .venv/bin/python bench/calendar.py [--reservations 100000]

One line of 60,000 hosts; reservations of 1 to 16 hosts for 1 hour to 28 days, spread over a year. Microseconds, best
of several rounds: the machine is shared and the best round is the one least disturbed.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from muster.core.capacity.calendar import Line, Promise

YEAR = 365 * 24
HOSTS = 60_000


def furnished(count: int, dice: random.Random) -> Line:
    line = Line(share_percent=100)
    for number in range(HOSTS):
        line.set_host(f"host-{number}")
    for number in range(count):
        start = dice.randrange(YEAR)
        line.put(str(number), Promise(dice.randint(1, 16), start, start + dice.choice((1, 6, 24, 72, 168, 672))))
    return line


def naive_room(line: Line, start: int, end: int) -> int:
    """What a first version does: sweep over the starts and ends of everything that touches the window."""
    turns: list[tuple[int, int]] = []
    for promise in line.promises.values():
        if promise.start < end and start < promise.end:
            turns += ((max(start, promise.start), promise.hosts), (promise.end, -promise.hosts))
    used = most = 0
    for _, change in sorted(turns):
        used += change
        most = max(most, used)
    return line.total - most


def best_us(call: Callable[[], object], rounds: int, calls: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reservations", type=int, default=100_000)
    options = parser.parse_args()
    dice = random.Random(1)
    line = furnished(options.reservations, dice)
    tight = min(room.reservable for room in line.rooms(24 * 40, YEAR - 24 * 40))
    print(f"{options.reservations} reservations on {HOSTS} hosts; the fullest hour leaves {tight}")
    for hours in (24, 168, 672, YEAR):
        start = 1_000 if hours < YEAR else 0
        assert line.reservable_room(start, start + hours) <= naive_room(line, start, start + hours)
        check = best_us(lambda a=start, b=start + hours: line.reservable_room(a, b), 5, 200)
        sweep = best_us(lambda a=start, b=start + hours: naive_room(line, a, b), 2, 1)
        print(f"is a window of {hours:>5} h free?      {check:>9.1f} µs   naive sweep {sweep:>9.0f} µs")
    never = line.reservable  # never fits while anything is promised: the whole year is looked at
    print(f"earliest start over a year         {best_us(lambda: line.earliest(never, 672, 0, YEAR), 5, 5):>9.0f} µs")
    change = Promise(4, 2_000, 2_672)
    both = best_us(lambda: (line.put("x", change), line.drop("x")), 5, 100)
    print(f"promise 28 days and take it back   {both:>9.1f} µs")


if __name__ == "__main__":
    main()

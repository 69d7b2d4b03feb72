"""Plots as inline SVG: scales, axes, lines, bars and boxes. Pure; knows nothing of replays.

Colours come from the style of the page (classes run0, run1, …), so that a plot is readable in dark and light. Where
two runs lie on each other, the second is dashed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH, HEIGHT = 560, 220
LEFT, TOP, RIGHT, BOTTOM = 62, 12, 18, 46
RUNS_MAX: Final = 3
"""So many runs have a colour of their own; further ones begin anew."""

Ticks = Sequence[tuple[float, str]]
"""Where, from 0 to 1, and what is written there."""


class Scale(NamedTuple):
    """Stops lie at equal distances on the page; between two of them it is linear."""

    stops: tuple[float, ...]

    def place(self, value: float) -> float:
        """From 0 to 1; what is beyond the ends is at the ends."""
        last = len(self.stops) - 1
        n = min(max(bisect_right(self.stops, value) - 1, 0), last - 1)
        low, high = self.stops[n], self.stops[n + 1]
        return min(1.0, max(0.0, (n + (value - low) / (high - low)) / last))

    @property
    def ticks(self) -> Ticks:
        return [(n / (len(self.stops) - 1), f"{stop:g}") for n, stop in enumerate(self.stops)]


def even(top: float, stops: int = 5) -> Scale:
    """From 0 to at least this, by 1, 2 or 5 of some power of ten."""
    rough = (top if top > 0 else 1) / stops
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))
    return Scale(tuple(round(n * step, 9) for n in range(max(1, math.ceil(top / step - 1e-9)) + 1)))


def part_of(stops: Sequence[float], top: float) -> Scale:
    """As many of these stops as it takes to reach this."""
    need = next((n for n, stop in enumerate(stops) if stop >= top), len(stops) - 1)
    return Scale(tuple(stops[: max(2, need + 1)]))


def named(labels: Sequence[str]) -> Ticks:
    """Equal places for names."""
    return [((n + 0.5) / len(labels), label) for n, label in enumerate(labels)]


def line(points: Sequence[tuple[float, float]], run: int) -> str:
    path = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in points)
    return f'<polyline class="line run{run % RUNS_MAX}" points="{path}"/>'


def box(x: float, width: float, low: float, high: float, run: int) -> str:
    return (
        f'<rect class="fill run{run % RUNS_MAX}" x="{_x(x - width / 2):.1f}" y="{_y(high):.1f}" '
        f'width="{width * WIDTH:.1f}" height="{(high - low) * HEIGHT:.1f}"/>'
    )


def rule(x: float, width: float, y: float, run: int) -> str:
    """A level stroke, as for the median of a box."""
    left, right = _x(x - width / 2), _x(x + width / 2)
    return f'<path class="rule run{run % RUNS_MAX}" d="M{left:.1f} {_y(y):.1f}H{right:.1f}"/>'


def whisker(x: float, low: float, high: float, run: int) -> str:
    return f'<path class="rule run{run % RUNS_MAX}" d="M{_x(x):.1f} {_y(low):.1f}V{_y(high):.1f}"/>'


def figure(title: str, names: Sequence[str], x: tuple[str, Ticks], y: tuple[str, Ticks], marks: Sequence[str]) -> str:
    """One plot: its title, who is who, both axes with their units, and what is drawn."""
    legend = "".join(
        f'<span class="key run{n % RUNS_MAX}"><i></i>{escape(name)}</span>' for n, name in enumerate(names)
    )
    view = f"0 0 {LEFT + WIDTH + RIGHT} {TOP + HEIGHT + BOTTOM}"
    said = escape(f"{title}: {', '.join(names)}")
    drawn = f"{_across(*x)}{_up(*y)}{''.join(marks)}"
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><p class="legend">{legend}</p>'
        f'<svg viewBox="{view}" role="img" aria-label="{said}">{drawn}</svg></figure>\n'
    )


def _across(label: str, ticks: Ticks) -> str:
    texts = "".join(f'<text x="{_x(at):.1f}" y="{_y(0) + 17:.1f}">{escape(text)}</text>' for at, text in ticks)
    return f'<g class="across">{texts}<text x="{_x(0.5):.1f}" y="{_y(0) + 38:.1f}">{escape(label)}</text></g>'


def _up(label: str, ticks: Ticks) -> str:
    texts = "".join(
        f'<path class="grid" d="M{_x(0):.1f} {_y(at):.1f}H{_x(1):.1f}"/>'
        f'<text x="{LEFT - 7}" y="{_y(at) + 4:.1f}">{escape(text)}</text>'
        for at, text in ticks
    )
    middle = f"{_y(0.5):.1f}"
    turned = f'<text class="turned" x="14" y="{middle}" transform="rotate(-90 14 {middle})">{escape(label)}</text>'
    return f'<g class="up">{texts}{turned}</g>'


def _x(share: float) -> float:
    return LEFT + share * WIDTH


def _y(share: float) -> float:
    return TOP + (1 - share) * HEIGHT

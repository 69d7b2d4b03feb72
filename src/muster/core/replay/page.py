"""A replay as one HTML page: figures side by side, and plots of every run. Pure.

Nothing is fetched and nothing runs: style and plots are in the page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from muster.core.replay.plot import Scale, box, even, figure, line, named, part_of, rule, whisker
from muster.core.replay.series import Series
from muster.model.base import DAY

WAIT_HOURS = (0.0, 0.1, 0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 96, 192, 384, 768)
"""Waits are read on these: most are minutes, some are days."""
PERCENT = even(100)

STYLE = """
:root{color-scheme:light dark;--ink:#1f2937;--paper:#fff;--grid:#d8dde4;--run0:#1d4ed8;--run1:#c2410c;--run2:#047857}
@media(prefers-color-scheme:dark){:root{--ink:#e5e7eb;--paper:#14181f;--grid:#3a414d;
--run0:#7ab0ff;--run1:#fb9a4b;--run2:#4ade9a}}
body{font:15px system-ui,sans-serif;margin:2rem auto;max-width:80rem;padding:0 1rem;color:var(--ink);
background:var(--paper)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,34rem),1fr));gap:1.5rem}
figure{margin:0}figcaption,caption{font-weight:600;text-align:left}svg{width:100%;height:auto}
text{fill:var(--ink);font-size:12px;text-anchor:middle}.up text{text-anchor:end}.up .turned{text-anchor:middle}
.run0{--run:var(--run0)}.run1{--run:var(--run1)}.run2{--run:var(--run2)}.grid{stroke:var(--grid)}
.line,.rule{fill:none;stroke:var(--run);stroke-width:2}.line.run1{stroke-dasharray:7 3}
.line.run2{stroke-dasharray:2 3}
.fill{fill:var(--run);fill-opacity:.35;stroke:var(--run)}
.legend{margin:.3rem 0}.key{margin-right:1.2rem}
.key i{display:inline-block;width:.8em;height:.8em;margin-right:.4em;background:var(--run)}
table{border-collapse:collapse;margin:1rem 0}
td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid var(--grid)}
td:first-child,th:first-child{text-align:left}
"""


class Run(NamedTuple):
    """What one fleet or policy came to; reservations have figures only, for nobody waits or is placed."""

    figures: Mapping[str, Any]
    series: Series | None = None


def page(title: str, told: Mapping[str, Run]) -> str:
    """`told`: by the name of the fleet or policy."""
    names = list(told)
    rows = [[key, *(told[name].figures.get(key) for name in names)] for key in told[names[0]].figures]
    runs = {name: run.series for name, run in told.items() if run.series is not None}
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1>{_table('Figures', ['', *names], rows)}"
        f"{plots(runs) + sizes_table(runs) if runs else ''}</body></html>\n"
    )


def plots(runs: Mapping[str, Series]) -> str:
    return f'<div class="plots">{over_time(runs)}{waited(runs)}{by_size(runs)}{in_one_leaf(runs)}</div>'


def over_time(runs: Mapping[str, Series]) -> str:
    """Two plots over the same days: GPUs in use, and asks that wait."""
    courses = [run.course for run in runs.values()]
    days = even(max(course.span * len(course.used) for course in courses) / DAY)
    queue = even(max(max(course.waiting) for course in courses))
    used, waiting = [], []
    for n, course in enumerate(courses):
        at = [days.place((span + 0.5) * course.span / DAY) for span in range(len(course.used))]
        used.append(line([(x, share) for x, share in zip(at, course.used, strict=True)], n))
        waiting.append(line([(x, queue.place(count)) for x, count in zip(at, course.waiting, strict=True)], n))
    across = ("days since the first ask", days.ticks)
    return figure("GPUs in use", list(runs), across, ("% of all GPUs", PERCENT.ticks), used) + figure(
        "Asks that wait", list(runs), across, ("asks in the queue", queue.ticks), waiting
    )


def waited(runs: Mapping[str, Series]) -> str:
    hours = _hours(max((run.waits[-1] for run in runs.values() if run.waits), default=0))
    lines = []
    for n, run in enumerate(runs.values()):
        shares = [bisect_right(run.waits, stop) / max(1, len(run.waits)) for stop in hours.stops]
        lines.append(line([(hours.place(stop), share) for stop, share in zip(hours.stops, shares, strict=True)], n))
    across = ("hours waited at most", hours.ticks)
    return figure("How long asks wait", list(runs), across, ("% of asks", PERCENT.ticks), lines)


def by_size(runs: Mapping[str, Series]) -> str:
    """Of each size and run: a box of the middle half, its median, and the 95th percentile."""
    sizes = sorted({size for run in runs.values() for size in run.spreads})
    hours = _hours(max((spread.p95 for run in runs.values() for spread in run.spreads.values()), default=0))
    marks = []
    for n, run in enumerate(runs.values()):
        for size, spread in run.spreads.items():
            x, width = _column(sizes.index(size), len(sizes), n, len(runs))
            low, middle, high, far = (hours.place(value) for value in spread[1:])
            marks += [box(x, width, low, high, n), rule(x, width, middle, n)]
            marks += [whisker(x, high, far, n), rule(x, width / 2, far, n)]
    title = "Waits by size of ask (box: middle half and median; whisker: 95th percentile)"
    across = ("hosts asked for", named([size.label for size in sizes]))
    return figure(title, list(runs), across, ("hours waited", hours.ticks), marks)


def in_one_leaf(runs: Mapping[str, Series]) -> str:
    sizes = sorted({size for run in runs.values() for size in run.one_leaf})
    marks = []
    for n, run in enumerate(runs.values()):
        for size, share in run.one_leaf.items():
            x, width = _column(sizes.index(size), len(sizes), n, len(runs))
            marks.append(box(x, width, 0, share, n))
    across = ("hosts asked for", named([size.label for size in sizes]))
    up = ("% of gangs that a leaf could hold", PERCENT.ticks)
    return figure("Gangs in one leaf", list(runs), across, up, marks) if sizes else ""


def sizes_table(runs: Mapping[str, Series]) -> str:
    """The numbers of the plots by size."""
    rows = [
        [size.label, name, spread.asks, spread.median, spread.p95, run.one_leaf.get(size)]
        for size in sorted({size for run in runs.values() for size in run.spreads})
        for name, run in runs.items()
        if (spread := run.spreads.get(size))
    ]
    heads = ["hosts asked for", "run", "asks started", "median wait, h", "95th percentile, h", "share in one leaf"]
    return _table("By size of ask", heads, rows)


def _column(place: int, places: int, run: int, runs: int) -> tuple[float, float]:
    """The middle and the width of one run's column at this place."""
    width = 0.7 / places / runs
    return (place + 0.5) / places + (run - (runs - 1) / 2) * width, width * 0.85


def _hours(top: float) -> Scale:
    return part_of(WAIT_HOURS, top)


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>\n" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>\n{body}</table>"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else escape(str(value))

"""A replay as one HTML page: the figures side by side, and how the waits are spread. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 640, 240
COLOURS = ("#2563eb", "#dc2626", "#059669")
WAIT_HOURS = (0.0, 0.1, 0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 96)

STYLE = (
    "body{font:15px system-ui;margin:2rem auto;max-width:46rem}table{border-collapse:collapse}"
    "td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ddd}td:first-child{text-align:left}"
)


def page(title: str, told: Mapping[str, tuple[Mapping[str, Any], Sequence[float]]]) -> str:
    """`told`: by fleet, its figures and its waits in hours."""
    names = list(told)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = "".join(_row(key, [told[name][0].get(key) for name in names]) for key in told[names[0]][0])
    plot = _plot({name: waits for name, (_, waits) in told.items() if waits})
    return (
        f"<!doctype html><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1><table><tr><th></th>{head}</tr>{rows}</table>{plot}"
    )


def _row(key: str, values: Sequence[Any]) -> str:
    cells = "".join(f"<td>{f'{value:.3f}' if isinstance(value, float) else value}</td>" for value in values)
    return f"<tr><td>{escape(key)}</td>{cells}</tr>"


def _plot(waits: Mapping[str, Sequence[float]]) -> str:
    """The share of asks that waited no longer than so many hours."""
    if not waits:
        return ""
    step = WIDTH / (len(WAIT_HOURS) - 1)
    lines, labels = [], []
    for colour, (name, each) in zip(COLOURS, waits.items(), strict=False):
        shares = [sum(wait <= hours for wait in each) / len(each) for hours in WAIT_HOURS]
        points = " ".join(f"{n * step:.1f},{HEIGHT * (1 - share):.1f}" for n, share in enumerate(shares))
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
        labels.append(f'<span style="color:{colour}">{escape(name)}</span>')
    ticks = "".join(
        f'<text x="{n * step:.1f}" y="{HEIGHT + 16}" font-size="11" text-anchor="middle">{hours:g}</text>'
        for n, hours in enumerate(WAIT_HOURS)
    )
    frame = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>'
    view = f"-10 -10 {WIDTH + 20} {HEIGHT + 40}"
    return (
        f"<h2>Asks that waited at most so many hours</h2><p>{' '.join(labels)}</p>"
        f'<svg viewBox="{view}" width="{WIDTH}">{frame}{"".join(lines)}{ticks}</svg>'
    )

"""How things look: tables for people, JSON and YAML for programs. Pure but for `emit`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import click

Thing: TypeAlias = dict[str, Any]
Column: TypeAlias = tuple[str, str | Callable[[Thing], Any]]

COLOURS = {
    **dict.fromkeys(("ready", "running", "available", "completed", "ok"), "green"),
    **dict.fromkeys(("degraded", "paused", "unfunded", "draining", "lost", "cordoned", "pending"), "yellow"),
    **dict.fromkeys(("failed", "dead"), "red"),
}


def emit(output: str, value: Any, text: Callable[[], str]) -> None:
    """`value` for programs, or `text` for people."""
    if output == "json":
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
    elif output == "yaml":
        import yaml  # asked for rarely

        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip("\n"))
    else:
        words = text()
        if words:
            click.echo(words)


def cell(thing: Thing, source: str | Callable[[Thing], Any]) -> str:
    value = source(thing) if callable(source) else thing.get(source)
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def table(things: Sequence[Thing], columns: Sequence[Column]) -> str:
    """Aligned columns, never cut: a script that greps a table must find whole words."""
    rows = [[title for title, _ in columns]] + [[cell(thing, source) for _, source in columns] for thing in things]
    widths = [max(len(row[n]) for row in rows) for n in range(len(columns) - 1)] + [0]
    lines = []
    for number, row in enumerate(rows):
        padded = [painted(text, text.ljust(width), number) for text, width in zip(row, widths, strict=True)]
        lines.append("  ".join(padded))
    return "\n".join(lines)


def painted(text: str, padded: str, row: int) -> str:
    if row == 0:
        return click.style(padded, bold=True)
    return click.style(padded, fg=COLOURS[text]) if text in COLOURS else padded


def facts(thing: Thing, columns: Sequence[Column]) -> str:
    """One thing, a fact a line."""
    width = max(len(title) for title, _ in columns)
    return "\n".join(
        f"{click.style(title.lower().ljust(width), bold=True)}  {painted(text, text, 1)}"
        for title, text in ((title, cell(thing, source)) for title, source in columns)
    )


def instant(text: str | None) -> float | None:
    """Seconds since the epoch of a time on the wire."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None


def span(seconds: float) -> str:
    """A stretch of time as people say it: 42s, 3m 10s, 2h 5m, 4d 1h."""
    whole = max(0, int(seconds))
    for unit, size, lesser, lesser_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // lesser_size
            return f"{whole // size}{unit}" + (f" {rest}{lesser}" if rest else "")
    return f"{whole}s"


def stopwatch(seconds: float) -> str:
    """A short stretch to the tenth, so that quick steps do not all look like nothing."""
    return f"{seconds:.1f}s" if 0 <= seconds < 10 else span(seconds)


def age(field: str, now: float) -> Callable[[Thing], str]:
    def of(thing: Thing) -> str:
        at = instant(thing.get(field))
        return "-" if at is None else span(now - at)

    return of

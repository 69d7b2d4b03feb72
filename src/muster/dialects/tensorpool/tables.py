"""Text for a terminal: aligned tables and pairs. `tp list` and `tp info` print these and nothing else. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [list(head), *([_plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def pairs(rows: Iterable[tuple[str, object]]) -> str:
    """Name and value, one a line; a name without a value is left out."""
    kept = [(name, _plain(value)) for name, value in rows if value not in (None, "")]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in kept)


def _plain(cell: object) -> str:
    """One line, nothing that a terminal would obey: names are other people's."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "".join(char if char.isprintable() else "?" for char in str(cell))

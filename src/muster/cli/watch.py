"""Watching a cluster: phases with their elapsed time and nodes joining, live on a terminal, line by line elsewhere.

What is shown is a pure function of the cluster and the time (`picture`, `news`); only `watched` draws.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from shlex import quote
from typing import TYPE_CHECKING, Final

import click

from muster.cli.ending import Ended
from muster.cli.show import Thing, instant, stopwatch

if TYPE_CHECKING:
    from rich.text import Text

    from muster.cli.verb import Session

ROAD: Final = ("network", "storage", "control", "workers", "drivers", "testing", "ready")
WAITS: Final = ("queued", "scheduled")
GOOD: Final = ("ready", "paused")
BAD: Final = ("failed", "degraded", "unfunded")


def title(cluster: Thing) -> str:
    simulated = "  (simulated)" if cluster.get("simulated") else ""
    return (
        f"{cluster['name']}  {cluster['type']}  {cluster['gpus']} × {cluster['gpu_type']}  "
        f"{cluster['region']}{simulated}"
    )


def stretches(cluster: Thing, now: float) -> list[tuple[str, float, str]]:
    """(phase, seconds spent in it, why it was entered), oldest first; the present one runs until now."""
    moves = cluster.get("history") or [{"phase": cluster["phase"], "at": cluster["phase_since"], "because": ""}]
    starts = [now if at is None else at for at in (instant(move["at"]) for move in moves)]
    ends = [*starts[1:], now]
    return [
        (move["phase"], end - start, move.get("because") or "")
        for move, start, end in zip(moves, starts, ends, strict=True)
    ]


def node_words(cluster: Thing) -> str:
    """controller running · login running · workers 1 of 2."""
    nodes = [node for node in cluster.get("nodes", []) if node["phase"] != "gone"]
    others = [f"{node['name']} {node['phase']}" for node in nodes if node["role"] != "worker"]
    workers = [node for node in nodes if node["role"] == "worker"]
    running = sum(node["phase"] == "running" for node in workers)
    return " · ".join([*others, f"workers {running} of {max(len(workers), cluster.get('workers', 0))}"])


def waiting_words(cluster: Thing) -> str:
    waiting = cluster.get("waiting") or {}
    return f"waiting: {waiting['for']}" if waiting.get("for") else ""


def picture(cluster: Thing, now: float) -> list[tuple[str, str]]:
    """(style, line) of the live view."""
    lines = [("bold", title(cluster))]
    past = stretches(cluster, now)
    for phase, seconds, _ in past[:-1]:
        lines.append(("green", f"  ✓ {phase:<10}{stopwatch(seconds):>8}"))
    phase, seconds, because = past[-1]
    rests = phase in GOOD or phase in BAD
    style = "bold green" if phase in GOOD else "bold red" if phase in BAD else "bold cyan"
    mark = "✓" if phase in GOOD else "✗" if phase in BAD else "▸"
    told = because if rests else waiting_words(cluster) or because
    lines.append((style, f"  {mark} {phase:<10}{'' if rests else stopwatch(seconds):>8}  {told}".rstrip()))
    if phase in ROAD:
        lines += [("dim", f"    {later}") for later in ROAD[ROAD.index(phase) + 1 :]]
    lines.append(("", f"  {node_words(cluster)}"))
    return lines


def news(before: Thing | None, after: Thing) -> list[str]:
    """What to say, without a terminal, when `before` became `after`: also phases that came and went in between."""
    told = len(before["history"]) if before else -1  # at first sight only where it stands
    said = [] if before else [title(after)]
    said += [f"{move['phase']}: {move.get('because') or ''}".rstrip(": ") for move in after["history"][told:]]
    if before is not None and node_words(before) != node_words(after):
        said.append(f"  {node_words(after)}")
    return said


def drawn(cluster: Thing, now: float) -> Text:
    from rich.text import Text

    return Text("\n").join(Text(line, style=style) for style, line in picture(cluster, now))


def watched(session: Session, changes: Iterator[Thing], rests: Callable[[Thing], bool]) -> Thing | None:
    """Draws every change until the cluster rests; the last sight of it, or None when it is gone."""
    if session.output == "table" and sys.stdout.isatty():
        return watched_live(session, changes, rests)
    last: Thing | None = None
    for cluster in changes:
        for line in news(last, cluster):
            click.echo(line, err=session.output != "table")
        last = cluster
        if rests(cluster):
            return cluster
    return None


def watched_live(session: Session, changes: Iterator[Thing], rests: Callable[[Thing], bool]) -> Thing | None:
    from rich.live import Live
    from rich.text import Text

    last: Thing | None = None

    def frame() -> Text:
        return drawn(last, session.now()) if last else Text("…")

    with Live(get_renderable=frame, refresh_per_second=4) as live:
        for cluster in changes:
            last = cluster
            live.refresh()
            if rests(cluster):
                return cluster
    return None


def watch_to_rest(session: Session, id: str, timeout_seconds: float) -> Thing:
    """The cluster at rest; a failed one ends the command with its reason."""
    from muster.sdk.resting import cluster_rests

    cluster = watched(session, session.client.clusters.watch(id, timeout_seconds), cluster_rests)
    if cluster is None:
        raise Ended(f"cluster {id} is gone")
    if cluster["phase"] == "failed":
        why = cluster.get("because") or "no reason was given"
        raise Ended(
            f"cluster {cluster['name']} failed: {why}", hint=f"muster cluster explain {quote(cluster['name'])}"
        )
    return cluster


def watch_to_end(session: Session, id: str, timeout_seconds: float) -> None:
    from muster.sdk.errors import ApiError

    try:
        watched(session, session.client.clusters.watch(id, timeout_seconds), lambda cluster: False)
    except ApiError as error:
        if error.code != "not_found":
            raise

"""`muster replay TRACE.csv`: what would this fleet have done? No server is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from muster.cli.ending import USAGE, Ended
from muster.cli.show import table
from muster.core.capacity.waiting import Patience
from muster.core.fleet_file import read_fleet_file
from muster.core.replay.figures import figures, lent_figures, promise_figures
from muster.core.replay.page import Run, page
from muster.core.replay.play import Windows, play, promise
from muster.core.replay.reclaim import play_lent
from muster.core.replay.series import series
from muster.core.replay.trace import (
    HOST_GPUS,
    Job,
    fleet_of_places,
    fleet_of_topology,
    read_trace,
    regular_fleet,
)
from muster.errors import Invalid
from muster.model.base import HOUR
from muster.model.hosts import Host

COMPARED: Mapping[str, Callable[[str], Any]] = {
    "hosts": int,
    "leaf-hosts": int,
    "pod-leaves": int,
    "leaf-patience": float,
    "lead-days": float,
    "preemptible-share": float,
    "slack-hours": float,
    "seed": int,
}
"""Options that the other side of a comparison may say differently."""
PATH = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("replay")
@click.argument("trace", type=PATH)
@click.option("--fleet-file", type=PATH, help="The hosts of a fleet file.")
@click.option("--topology", type=PATH, help="CSV with pod and leaf per host.")
@click.option("--hosts", type=click.IntRange(1), help="So many hosts of 8 GPUs.")
@click.option("--leaf-hosts", type=click.IntRange(1), default=8, show_default=True, help="Hosts under one leaf.")
@click.option("--pod-leaves", type=click.IntRange(1), default=5, show_default=True, help="Leaves under one pod.")
@click.option("--gpu-is-host", is_flag=True, help="One GPU of the trace is one whole host.")
@click.option("--from-day", type=float, default=0.0, show_default=True)
@click.option("--to-day", type=float, help="Up to, not including.")
@click.option(
    "--as",
    "as_",
    type=click.Choice(["on-demand", "reservation", "preemptible"]),
    default="on-demand",
    show_default=True,
)
@click.option("--lead-days", type=float, default=7.0, show_default=True, help="Windows begin up to so much later.")
@click.option("--slack-hours", type=float, default=0.0, show_default=True, help="A window's start may slip so far.")
@click.option(
    "--preemptible-share", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="Of asks, on lent hosts."
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--draws", type=click.IntRange(1), default=5, show_default=True, help="Leads are drawn so many times.")
@click.option(
    "--leaf-patience",
    type=click.FloatRange(0),
    default=Patience().ahead / HOUR,
    show_default=True,
    help="Hours a gang waits for one leaf.",
)
@click.option(
    "--compare", metavar="WHAT", help="So many hosts instead, or another policy: --compare leaf-patience=0."
)
@click.option("--html", "html_", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def replay(trace: Path, output: str, html_: Path | None, compare: str | None, **said: Any) -> None:
    """Drive TRACE through placement and the calendar, and tell what came of it."""
    try:
        jobs = read_trace(trace, from_day=said["from_day"], to_day=said["to_day"], gpu_is_host=said["gpu_is_host"])
        sides = {"as it is": said}
        if compare is not None:
            name, instead = other_side(compare)
            sides[name] = {**said, **instead}
        fleets = {name: fleet(side) for name, side in sides.items()}
    except Invalid as error:
        raise Ended(error.message, USAGE, error.hint or "") from error
    if not jobs:
        raise Ended("no asks in these days", USAGE, "look at --from-day and --to-day")
    told = {name: run(jobs, hosts, sides[name]) for name, hosts in fleets.items()}
    if html_ is not None:
        html_.write_text(page(trace.name, told))
    shown = {name: dict(one.figures) for name, one in told.items()}
    click.echo(json.dumps(shown if compare else shown["as it is"], indent=2) if output == "json" else as_table(shown))


def run(jobs: list[Job], hosts: list[Host], said: dict[str, Any]) -> Run:
    with click.progressbar(length=len(jobs), label=f"{len(hosts)} hosts", file=sys.stderr) as bar:
        progress: Callable[[int], None] = stepper(bar.update)
        if said["as_"] == "reservation":
            lead, slack = round(said["lead_days"] * 24 * HOUR), round(said["slack_hours"] * HOUR)
            windows = Windows(lead, slack, said["seed"], said["draws"])
            return Run(promise_figures(promise(jobs, len(hosts), windows, progress=progress)))
        if said["as_"] == "preemptible":
            lent = play_lent(jobs, len(hosts), said["preemptible_share"], said["seed"], progress)
            return Run(lent_figures(lent), series(lent.played))
        played = play(jobs, hosts, patience=Patience(round(said["leaf_patience"] * HOUR)), progress=progress)
        return Run(figures(played), series(played))


def other_side(compare: str) -> tuple[str, dict[str, Any]]:
    """Its name, and what it says instead: `88` hosts, or options as in `leaf-patience=0,hosts=88`."""
    if compare.isdigit():
        return f"{compare} hosts", {"hosts": int(compare)}
    instead: dict[str, Any] = {}
    for part in compare.split(","):
        option, _, value = part.partition("=")
        try:
            instead[option.replace("-", "_")] = COMPARED[option](value)
        except (KeyError, ValueError) as error:
            raise Invalid(
                f"cannot compare with {part!r}", hint=f"a number of hosts, or {', '.join(COMPARED)}"
            ) from error
    return compare, instead


def stepper(update: Callable[[int], None], every: int = 500) -> Callable[[int], None]:
    """A bar that is moved now and then: drawing it must not cost more than what it shows."""

    shown = 0

    def step(done: int) -> None:
        nonlocal shown
        if done - shown >= every:
            update(done - shown)
            shown = done

    return step


def fleet(said: dict[str, Any]) -> list[Host]:
    if said["fleet_file"] is not None:
        specs = list(read_fleet_file(said["fleet_file"], 0).hosts())
        return fleet_of_places([(spec.pod, spec.leaf) for spec in specs if spec.gpu_type and spec.slots == HOST_GPUS])
    if said["topology"] is not None:
        return fleet_of_topology(said["topology"], said["hosts"])
    if said["hosts"] is None:
        raise Ended("say which fleet", USAGE, "--hosts 80, --topology HOSTS.csv or --fleet-file FLEET.yaml")
    return regular_fleet(said["hosts"], said["leaf_hosts"], said["pod_leaves"])


def as_table(shown: dict[str, dict[str, Any]]) -> str:
    names = list(shown)
    rows = [{"figure": key, **{name: shown[name].get(key) for name in names}} for key in shown[names[0]]]
    return table(rows, [("", "figure"), *((name, name) for name in names)])

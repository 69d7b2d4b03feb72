"""The page of a replay: the numbers behind its plots, worked out by hand, and what a reader of the page sees."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from muster.cli.replay import replay
from muster.core.replay.figures import figures
from muster.core.replay.page import Run, page
from muster.core.replay.play import Played, play
from muster.core.replay.plot import LEFT, WIDTH, even, part_of
from muster.core.replay.reclaim import play_lent
from muster.core.replay.series import SPANS, Size, series, size_of
from muster.core.replay.trace import HOST_GPUS, Job, regular_fleet
from muster.model.base import HOUR

PLOTS = ["GPUs in use", "Asks that wait", "How long asks wait", "Waits by size of ask", "Gangs in one leaf"]


def job(at_hours: float, hours: float, gpus: int) -> Job:
    nodes, each = (gpus // HOST_GPUS, HOST_GPUS) if gpus >= HOST_GPUS else (1, gpus)
    return Job(round(at_hours * HOUR), round(hours * HOUR), gpus, nodes, each, "ann")


def played(hosts: int, *jobs: Job, leaf_hosts: int = 2) -> Played:
    return play(jobs, regular_fleet(hosts, leaf_hosts, 2))


def run(found: Played) -> Run:
    return Run(figures(found), series(found))


class Reader(HTMLParser):
    """What stands in a page: its tags with what they say, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def drawings(text: str) -> dict[str, ElementTree.Element]:
    """The plots by title."""
    parts = [part.split("</figure>")[0] for part in text.split("<figure>")[1:]]
    found = [ElementTree.fromstring(f"<figure>{part}</figure>") for part in parts]
    return {str(each.findtext("figcaption")).split(" (")[0]: each for each in found}


def classes(drawing: ElementTree.Element) -> set[str]:
    svg = drawing.find("svg")
    assert svg is not None
    return {word for one in svg.iter() for word in one.get("class", "").split()}


def two_runs() -> str:
    jobs = [job(0, 10, 8), job(0, 10, 16), job(1, 5, 16), job(2, 1, 3)]
    return page("trace", {"few": run(played(2, *jobs)), "many": run(played(6, *jobs))})


def test_every_plot_shows_both_runs_by_name_with_labelled_axes() -> None:
    found = drawings(two_runs())
    assert list(found) == PLOTS
    for drawing in found.values():
        assert ["".join(key.itertext()) for key in drawing.findall("p/span")] == ["few", "many"]
        assert {"run0", "run1"} <= classes(drawing)
        assert {"across", "up"} <= classes(drawing)
        assert drawing.findtext("svg/g[@class='up']/text[@class='turned']")
    assert "days since the first ask" in "".join(found["Asks that wait"].itertext())
    assert "% of all GPUs" in "".join(found["GPUs in use"].itertext())


def test_lines_stay_within_the_frame() -> None:
    for drawing in drawings(two_runs()).values():
        for each in drawing.iter("polyline"):
            for point in each.attrib["points"].split():
                x, y = map(float, point.split(","))
                assert LEFT - 1 <= x <= LEFT + WIDTH + 1
                assert 0 <= y <= 233


def test_names_are_said_and_never_obeyed() -> None:
    evil = '"><script>alert(1)</script>&'
    text = page(evil, {evil: run(played(2, job(0, 1, 16)))})
    read = Reader(text)
    assert all(tag != "script" for tag, _ in read.tags)
    assert read.texts.count(evil) >= 3  # the title, the heading, the tables, the legends
    assert any(evil in (said.get("aria-label") or "") for _, said in read.tags)


def test_the_page_fetches_nothing() -> None:
    read = Reader(two_runs())
    assert not {tag for tag, _ in read.tags} & {"script", "link", "img", "iframe", "object"}
    assert not [said for _, said in read.tags if {"src", "href", "onload"} & said.keys()]
    assert "prefers-color-scheme:dark" in two_runs()


def test_gpus_in_use_and_the_queue_over_time() -> None:
    """Two hosts, in use for four hours and for two; whoever asks for both after an hour waits for three."""
    found = played(2, job(0, 4, 8), job(0, 2, 8), job(1, 1, 16))
    course = series(found).course
    assert course.span * SPANS == 4 * HOUR
    quarter = SPANS // 4
    assert course.used == pytest.approx([1.0] * 2 * quarter + [0.5] * 2 * quarter)
    assert course.waiting == pytest.approx([0.0] * quarter + [1.0] * 3 * quarter)


def test_the_course_holds_all_that_the_figures_hold() -> None:
    found = played(3, *(job(n / 7, 1 + n % 5, (1, 8, 16, 24)[n % 4]) for n in range(60)))
    moments = found.course
    total = sum(
        before.used * (min(after.at, found.busy.span) - min(before.at, found.busy.span))
        for before, after in pairwise(moments)
    )
    assert total == found.busy.used
    assert moments[-1].used == moments[-1].waiting == 0


def test_waits_by_size() -> None:
    found = series(played(1, job(0, 2, 8), job(0, 2, 8), job(0, 2, 8), job(5, 1, 2)))
    assert {size.label: spread.asks for size, spread in found.spreads.items()} == {"part": 1, "1": 3}
    assert found.spreads[Size(1, 1)].median == 2
    assert found.waits == [0, 1, 2, 4]


def test_sizes_are_classes_of_hosts() -> None:
    labels = [size_of(job(0, 1, gpus)).label for gpus in (1, 8, 16, 24, 32, 40, 64, 72)]
    assert labels == ["part", "1", "2", "3–4", "3–4", "5–8", "5–8", "9–16"]


def test_gangs_in_one_leaf_by_size() -> None:
    """Leaves of two: a pair fits one, three hosts never do."""
    assert series(played(4, job(0, 1, 16), job(2, 1, 24))).one_leaf == {Size(2, 2): 1.0}


def test_hosts_that_are_lent_have_plots_too_but_no_leaves() -> None:
    lent = play_lent([job(0, 2, 8), job(0, 2, 8), job(1, 1, 8)], 1, 0.5, 0)
    text = page("lent", {"one": run(lent.played)})
    assert list(drawings(text)) == PLOTS[:-1]
    assert max(series(lent.played).course.waiting) >= 1


def test_reservations_have_figures_only(tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.csv", tmp_path / "page.html"
    trace.write_text("submit_time,duration,gpus\n0,3600,8\n")
    asked = [str(trace), "--hosts", "1", "--as", "reservation", "--html", str(out)]
    assert CliRunner().invoke(replay, asked).exit_code == 0
    assert "reserved_share" in out.read_text()
    assert not drawings(out.read_text())


def test_nothing_that_started_is_still_a_page() -> None:
    assert drawings(page("none", {"too small": run(played(1, job(0, 1, 16)))}))


@pytest.mark.parametrize("top", [0, 0.03, 1, 7, 39.9, 100, 12345])
def test_an_even_scale_reaches_its_top_in_few_steps(top: float) -> None:
    scale = even(top)
    assert scale.stops[-1] >= top
    assert 2 <= len(scale.stops) <= 7
    assert (scale.place(0), scale.place(scale.stops[-1])) == (0, 1)


def test_a_growing_scale_takes_the_stops_it_needs() -> None:
    scale = part_of((0, 1, 4, 16), 3)
    assert scale.stops == (0, 1, 4)
    assert [scale.place(value) for value in (-1, 0, 0.5, 1, 2.5, 4, 99)] == [0, 0, 0.25, 0.5, 0.75, 1, 1]

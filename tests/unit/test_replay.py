"""Replaying a trace: the figures of small stories that can be worked out by hand, and the command line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.replay import replay
from muster.clock import SeededEntropy
from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import Ask, Placement, Refusal
from muster.core.capacity.waiting import Patience
from muster.core.replay.figures import figures, lent_figures, promise_figures
from muster.core.replay.play import Played, Windows, play, promise
from muster.core.replay.reclaim import play_lent
from muster.core.replay.trace import fleet_of_topology, read_trace, regular_fleet
from muster.errors import Invalid
from muster.model.base import HOUR, SECOND

FIGURES = [
    "utilisation",
    "busy_while_queued",
    "mean_wait_h",
    "p95_wait_h",
    "weighted_wait_h",
    "multi_host_wait_h",
    "one_leaf_share",
    "reserved_share",
    "lost_share",
    "fairness",
]
HEADER = "submit_time,duration,gpus,type,tenant\n"


def trace(tmp_path: Path, *rows: tuple[float, float, int]) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "".join(f"{at},{length},{gpus},t,ann\n" for at, length, gpus in rows))
    return path


def played(tmp_path: Path, hosts: int, *rows: tuple[float, float, int], patience: Patience = Patience()) -> Played:
    return play(read_trace(trace(tmp_path, *rows)), regular_fleet(hosts, 2, 2), patience=patience)


def test_one_after_the_other_on_one_host(tmp_path: Path) -> None:
    found = played(tmp_path, 1, (0, 3600, 8), (0, 3600, 8))
    assert [one.started for one in found.outcomes] == [0, HOUR]
    told = figures(found)
    assert told["mean_wait_h"] == 0.5
    assert told["weighted_wait_h"] == 0.5
    assert told["busy_while_queued"] == 1.0


def test_whoever_is_over_in_time_goes_first_and_delays_nobody(tmp_path: Path) -> None:
    """Two hosts, one busy for two hours; two are wanted; an hour's job fits before, a three hours' job does not."""
    found = played(tmp_path, 2, (0, 7200, 8), (1, 3600, 16), (2, 3600, 8), (3, 10800, 8))
    assert [one.started for one in found.outcomes] == [0, 2 * HOUR, 2 * SECOND, 3 * HOUR + 0]


def test_slices_share_a_host_with_whoever_leaves_last(tmp_path: Path) -> None:
    """A long and a short one each hold half a host; a new long one joins the long: the other host empties soon."""
    found = played(tmp_path, 2, (0, 36000, 5), (1, 600, 5), (2, 36000, 3), (3, 600, 3), (1200, 60, 8))
    assert found.outcomes[-1].wait == 0


def test_a_gang_goes_to_one_leaf_and_may_wait_for_it(tmp_path: Path) -> None:
    rows = ((0, 600, 8), (0, 90000, 8), (1, 600, 8), (2, 36000, 16))
    torn = played(tmp_path, 4, (0, 600, 8), (0, 600, 8), (0, 90000, 8), (0, 90000, 8))
    assert all(one.wait == 0 for one in torn.outcomes)
    patient = played(tmp_path, 4, *rows, patience=Patience(ahead=HOUR))
    assert figures(patient)["one_leaf_share"] == 1.0


def test_a_placement_that_refuses_all_starts_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very function the service calls: when it is broken, so is the replay."""
    plain = CapacityIndex.place

    def broken(index: CapacityIndex, ask: Ask) -> Placement | Refusal:
        return plain(index, ask._replace(nodes=10_000))

    monkeypatch.setattr(CapacityIndex, "place", broken)
    assert figures(played(tmp_path, 4, (0, 600, 8)))["unstarted"] == 1


def test_windows_are_promised_until_an_hour_is_full(tmp_path: Path) -> None:
    jobs = read_trace(trace(tmp_path, (0, 3600, 8), (0, 3600, 8), (0, 3600, 8), (0, 3600, 1)))
    told = promise(jobs, 2, Windows(lead=0))
    assert figures(play(jobs, regular_fleet(2, 2, 2))).keys() <= promise_figures(told).keys()
    assert (told.asked, told.accepted) == (3, 2)
    assert promise(jobs, 2, Windows(lead=0, slack=HOUR)).accepted == 3


def test_lent_hosts_are_taken_back_from_whoever_loses_least_and_begins_anew(tmp_path: Path) -> None:
    """Two hosts: both are lent, to one that began early and one that began late; then one with right of way comes."""
    rows = ((0, 7200, 8), (3600, 7200, 8), (5400, 3600, 8))
    jobs = read_trace(trace(tmp_path, *rows))
    lent = play_lent(jobs, 2, 0.5, seed_that_lends(True, True, False))
    assert [one.started for one in lent.played.outcomes] == [0, 7200 * SECOND, 5400 * SECOND]
    assert lent.lost == 1800 * SECOND * 8
    told = lent_figures(lent)
    assert told["lost_share"] == pytest.approx(1800 / (7200 + 7200 + 3600 + 1800))
    assert play_lent(jobs, 2, 0.0, 0).lost == 0


def seed_that_lends(*wanted: bool) -> int:
    """The first seed by which exactly these asks are drawn."""
    for seed in range(1000):
        dice = SeededEntropy(seed)
        if all((dice.chance() < 0.5) == lent for lent in wanted):
            return seed
    raise AssertionError("no such seed")


def test_days_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "0,60,8,t,a\n90000,60,2,t,b\n").encode()))
    assert [job.at for job in read_trace(path)] == [0, 90_000 * SECOND]
    assert [job.gpus for job in read_trace(path, from_day=1)] == [2]
    assert [job.nodes for job in read_trace(path, gpu_is_host=True)] == [8, 2]
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(Invalid):
        read_trace(tmp_path / "x.csv")


def test_topology(tmp_path: Path) -> None:
    path = tmp_path / "hosts.csv"
    path.write_text("pod,leaf\np1,b\np0,a\np0,a\n")
    assert [(host.pod, host.leaf) for host in fleet_of_topology(path, 2)] == [("p0", "a"), ("p0", "a")]


def test_the_command_line(tmp_path: Path) -> None:
    path = trace(tmp_path, (0, 3600, 8), (0, 3600, 8))
    asked = [str(path), "--hosts", "1", "--compare", "2", "-o", "json", "--html", str(tmp_path / "page.html")]
    answer = CliRunner().invoke(replay, asked)
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told["as it is"]["mean_wait_h"] == 0.5
    assert told["2 hosts"]["mean_wait_h"] == 0
    assert "<svg" in (tmp_path / "page.html").read_text()
    for_policy = CliRunner().invoke(replay, [str(path), "--hosts", "1", "--compare", "leaf-patience=0,hosts=3"])
    assert "leaf-patience=0,hosts=3" in for_policy.stdout
    assert CliRunner().invoke(replay, [str(path), "--hosts", "1", "--compare", "colour=red"]).exit_code != 0
    table = CliRunner().invoke(replay, [str(path), "--hosts", "1", "--as", "reservation"])
    assert "reserved_share" in table.stdout
    lent = CliRunner().invoke(replay, [str(path), "--hosts", "1", "--as", "preemptible", "-o", "json"])
    assert json.loads(lent.stdout).keys() >= set(FIGURES)
    assert CliRunner().invoke(replay, [str(path)]).exit_code != 0

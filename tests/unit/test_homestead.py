"""A home on disk: one holder at a time, and no trace of one that left."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

import pytest

from muster.homestead import AlreadyRunning, held, make_home, write_info


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_home(tmp_path / "home")
    return tmp_path / "home"


def test_who_comes_second_is_told_where_the_first_one_runs(home: Path) -> None:
    with held(home, answers=True, moves=True):
        write_info(home, "server", {"url": "http://here", "pid": 7})
        with pytest.raises(AlreadyRunning, match=r"http://here \(pid 7"), held(home, answers=True, moves=False):
            pass
        with pytest.raises(AlreadyRunning), held(home, answers=False, moves=True):
            pass
    with held(home, answers=True, moves=True):
        pass


def test_answering_and_moving_are_held_apart(home: Path) -> None:
    with held(home, answers=True, moves=False), held(home, answers=False, moves=True):
        pass


def test_whoever_leaves_takes_its_lock_along(home: Path) -> None:
    with held(home, answers=True, moves=True):
        assert len(list((home / "run").iterdir())) == 2
    assert list((home / "run").iterdir()) == []


def test_a_lock_left_by_a_kill_holds_nobody_up(home: Path) -> None:
    (home / "run" / "server.lock").touch()
    with held(home, answers=True, moves=False):
        assert (home / "run" / "server.lock").exists()


def test_a_lock_file_that_went_while_we_reached_for_it_guards_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our open and our lock the holder leaves and a third one takes the place with a file of its own."""
    path = home / "run" / "server.lock"
    path.touch()
    flock, reached = fcntl.flock, []

    def replaced_once(file: IO[str], how: int) -> None:
        if not reached:
            path.rename(path.with_suffix(".old"))
            path.touch()
        reached.append(file)
        flock(file, how)

    monkeypatch.setattr("muster.homestead.fcntl.flock", replaced_once)
    with held(home, answers=True, moves=False):
        assert len(reached) == 2
        with pytest.raises(AlreadyRunning), held(home, answers=True, moves=False):
            pass

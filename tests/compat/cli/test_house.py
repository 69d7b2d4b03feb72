"""up, down and demo: a server from nothing, and nothing left of it."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from muster.cli import local
from muster.cli.target import is_alive, server_info

from .conftest import Shell


@pytest.fixture
def own(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


def up(own: Shell) -> subprocess.Popen[bytes]:
    log = own.home.parent / "server.log"
    child = local.start(own.home, ["--port", "0", "--time-scale", "1000"], log, own.environ)
    local.wait_until_ready(child, own.home, log)
    return child


def test_up_says_where_it_is_keeps_its_keys_private_and_is_there_only_once(own: Shell) -> None:
    child = up(own)
    try:
        info = server_info(own.home)
        assert info is not None
        for name in ("operator.key", "tenant.key"):
            assert stat.S_IMODE((own.home / name).stat().st_mode) == 0o600
        said = (own.home.parent / "server.log").read_text()
        assert info["url"] in said
        assert "tenant.key" in said
        assert (own.home / "tenant.key").read_text().strip() not in said
        second = own.run("up", "--port", "0").stdout
        assert info["url"] in second
        assert str(child.pid) in second
    finally:
        assert local.stop_child(child)
    assert server_info(own.home) is None


def test_down_ends_clusters_of_all_and_the_server(own: Shell) -> None:
    child = up(own)
    own.run("cluster", "create", "one", "--protect", "--wait")
    own.run("volume", "create", "kept", "--wait")
    assert "--yes" in own.run("down", code=2).stderr
    said = own.run("down", "--yes").stdout
    assert "cluster one is gone" in said
    assert child.wait(timeout=10) == 0

    again = up(own)
    assert own.json("cluster", "list") == []
    assert [volume["name"] for volume in own.json("volume", "list")] == ["kept"]
    assert local.stop_child(again)


def test_down_with_no_server_running_starts_one_to_end_what_is_left(own: Shell) -> None:
    child = up(own)
    own.run("cluster", "create", "left", "--wait")
    own.run("volume", "create", "data", "--wait")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    said = own.run("down", "--all", "--yes").stdout
    assert "starting one" in said
    assert "cluster left is gone" in said
    assert "volume data is gone" in said
    assert server_info(own.home) is None
    assert list((own.home / "run").iterdir()) == []


def test_down_of_nothing_is_done_at_once(own: Shell) -> None:
    assert "nothing to take down" in own.run("down").stdout


def test_the_demo_tells_its_story_and_leaves_nothing(own: Shell, tmp_path: Path) -> None:
    said = own.run("demo", "--once", "--time-scale", "1000", TMPDIR=str(tmp_path)).stdout
    assert "ready: " in said
    assert "host-death" in said
    assert "nothing is left" in said
    assert list(tmp_path.glob("muster-demo-*")) == []


def test_ctrl_c_takes_the_demo_down(own: Shell, tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "muster.cli.main", "demo", "--time-scale", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**own.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    assert demo.stdout is not None
    home = ""
    for line in demo.stdout:
        home = (re.findall(r"home (\S+)", line) or [home])[0]
        if "Ctrl-C takes everything down" in line:
            break
    pid = json.loads((Path(home) / "run" / "server.json").read_text())["pid"]
    demo.send_signal(signal.SIGINT)
    rest = demo.communicate(timeout=60)[0]
    assert "nothing is left" in rest
    assert not is_alive(pid)
    assert not Path(home).exists()

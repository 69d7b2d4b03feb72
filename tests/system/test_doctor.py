"""`muster doctor` finds nothing while all is well, and every kind of orphan that is planted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from muster.hostd.builder import GATEWAY_MAC
from muster.hostd.traces import CGROUPS, Home, unaccounted
from muster.testing.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("machine")


@contextmanager
def _group(home_id: str) -> Iterator[str]:
    """A process in a group of this home that no record knows, as an escaped one would be."""
    tree = next(path for path in (CGROUPS / "pids", CGROUPS) if path.is_dir())
    group = tree / f"muster-{home_id}" / "rogue"
    group.mkdir(parents=True)
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        (group / "cgroup.procs").write_text(str(sleeper.pid))
        yield f"process {sleeper.pid}: sleep 600"
    finally:
        sleeper.kill()
        sleeper.wait()
        group.rmdir()


@contextmanager
def _loop(home: Path) -> Iterator[str]:
    image = home / "hostd" / "volumes" / "rogue" / "image"
    image.parent.mkdir()
    with image.open("wb") as file:
        file.truncate(1 << 20)
    device = _said("losetup", "--find", "--show", str(image))
    try:
        yield f"loop device {device.removeprefix('/dev/')} of {image}"
    finally:
        _said("losetup", "--detach", device)
        image.unlink()
        image.parent.rmdir()


@contextmanager
def _mount(home: Path) -> Iterator[str]:
    point = home / "hostd" / "rogue"
    point.mkdir()
    _said("mount", "-t", "tmpfs", "rogue", str(point))
    try:
        yield f"mount {point}"
    finally:
        _said("umount", str(point))
        point.rmdir()


@contextmanager
def _link() -> Iterator[str]:
    _said(
        "ip", "link", "add", "v-4000", "address", GATEWAY_MAC.hex(":"), "type", "veth", "peer", "name", "muster-peer"
    )
    try:
        yield "link v-4000"
    finally:
        _said("ip", "link", "del", "v-4000")


@contextmanager
def _neighbour(home: Home) -> Iterator[str]:
    """Somebody else in a fabric's network namespace."""
    holder = next(pid for pid in _pids_marked(home.id))
    stranger = subprocess.Popen(["nsenter", f"--net=/proc/{holder}/ns/net", "sleep", "601"])
    try:
        yield f"process {stranger.pid}: sleep 601"
    finally:
        stranger.kill()
        stranger.wait()


def _pids_marked(home_id: str) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"MUSTER_FABRIC={home_id}/".encode() in path.read_bytes():
                yield int(path.parts[2])
        except OSError:
            continue


def _said(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def test_nothing_is_unaccounted_for_and_every_planted_orphan_is_found(tmp_path: Path) -> None:
    server = LocalServer(tmp_path)
    assert server.call("doctor").stdout.startswith("nothing: "), "a home that never was is clean"
    server.up()
    try:
        server.muster("cluster", "create", "demo", "--type", "slurm", "--gpus", "8", "--wait")
        assert server.muster("doctor") == "nothing\n"
        home = Home.at(server.home)
        assert home is not None
        with ExitStack() as planted:
            orphans = [
                *(planted.enter_context(each) for each in (_group(home.id), _loop(home.path), _mount(home.path))),
                *(planted.enter_context(each) for each in (_link(), _neighbour(home))),
            ]
            told = server.call("doctor")
            assert told.returncode == 1
            assert [orphan for orphan in orphans if orphan not in told.stdout] == []
            assert "uid range" not in told.stdout
        assert server.muster("doctor") == "nothing\n"
        server.kill()
        assert server.muster("doctor") == "nothing\n", "clusters run on without a server, and are accounted for"
    finally:
        server.down()
    assert unaccounted(home) == []

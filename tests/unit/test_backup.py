"""A home in one file and back: with a real server beside it, through the real command line."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from muster.cli import local
from muster.sdk import Client

SHAPE: Final[dict[str, Any]] = {"type": "slurm", "gpu_type": "H100_SXM", "gpus": 8, "region": "us-central-8"}


def muster(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "muster.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


class Served:
    """A server on a home, and its tenant."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __enter__(self) -> Client:
        flags = ["--fleet", "simulated", "--port", "0", "--time-scale", "1000"]
        log = self.home.with_suffix(".log")
        self._child = local.start(self.home, flags, log, {})
        info = local.wait_until_ready(self._child, self.home, log)
        self._client = Client(str(info["url"]), (self.home / "tenant.key").read_text().strip())
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()
        assert local.stop_child(self._child)


def ready(client: Client, id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.clusters.wait(id, timeout_seconds=120)
    assert found["phase"] == "ready", found["because"]
    return found


def test_a_home_comes_back_as_it_was_and_its_clusters_live_on(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "saved.tar.gz"
    with Served(home) as client:
        before = ready(client, client.clusters.create(name="kept", **SHAPE)["id"])
        taken = muster("backup", str(file), "--home", str(home))
        assert taken.returncode == 0, taken.stderr
        ready(client, client.clusters.create(name="later", **SHAPE)["id"])
        refused = muster("restore", str(file), "--home", str(home), "--yes")
        assert (refused.returncode, "already running" in refused.stderr) == (4, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    back = muster("restore", str(file), "--home", str(home), "--yes")
    assert back.returncode == 0, back.stderr
    with Served(home) as client:
        assert [one["name"] for one in client.clusters.list()] == ["kept"]
        assert ready(client, before["id"])["nodes"] == before["nodes"]
        client.clusters.resize(before["id"], 16)  # the drivers listen to the restored engine
        assert len(ready(client, before["id"])["nodes"]) == len(before["nodes"]) + 1
        ready(client, client.clusters.create(name="new", **SHAPE)["id"])


def test_a_backup_is_never_half_written_or_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    missing = muster("backup", str(file), "--home", str(tmp_path / "nowhere"))
    assert (missing.returncode, "pg_dump" in missing.stderr, file.exists()) == (2, True, False)
    file.write_text("mine")
    (tmp_path / "muster.db").touch()
    refused = muster("backup", str(file), "--home", str(tmp_path))
    assert (refused.returncode, file.read_text()) == (4, "mine")


@pytest.mark.parametrize("inside", ["nothing", "another", "damaged", "no archive"])
def test_what_is_no_backup_changes_nothing(tmp_path: Path, inside: str) -> None:
    home, file = tmp_path / "home", tmp_path / "b.tar.gz"
    home.mkdir()
    with closing(sqlite3.connect(home / "muster.db")) as database:
        database.execute("CREATE TABLE mine (a)")
    before = (home / "muster.db").read_bytes()
    if inside == "no archive":
        file.write_text("hello")
    else:
        with tarfile.open(file, "w:gz") as archive:
            odd = tmp_path / "odd"
            odd.write_text("odd")
            names = {"nothing": [], "another": ["../elsewhere"], "damaged": ["muster.db"]}
            for name in names[inside]:
                archive.add(odd, arcname=name)
    refused = muster("restore", str(file), "--home", str(home), "--yes")
    assert refused.returncode == 2, refused.stderr
    assert (home / "muster.db").read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()

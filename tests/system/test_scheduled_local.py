"""A scheduled cluster on real Slurm: nothing of it before its time, ready by its start, gone at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.testing.local import PATIENCE_SECONDS
from muster.testing.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("machine")
SERVES = timedelta(seconds=30)


def until(look: Callable[[], Any], good: Callable[[Any], bool], deadline: datetime) -> Any:
    while not good(seen := look()):
        assert datetime.now(UTC) < deadline, seen
        time.sleep(0.3)
    return seen


def moved(cluster: dict[str, Any], phase: str) -> datetime:
    return datetime.fromisoformat(next(one["at"] for one in cluster["history"] if one["phase"] == phase))


def test_it_appears_at_its_minute_and_goes_at_its_end(server: LocalServer) -> None:
    def shown(name: str) -> dict[str, Any]:
        return dict(json.loads(server.muster("cluster", "show", name, "-o", "json")))

    server.muster("cluster", "create", "first", "--gpus", "8", "--wait")
    first = shown("first")
    server.muster("cluster", "delete", "first", "--yes")
    lead = (moved(first, "ready") - moved(first, "network")) * 5 / 4 + timedelta(minutes=1)  # as it was measured

    starts_at = datetime.now(UTC) + lead + timedelta(seconds=10)
    times = [starts_at.isoformat(timespec="seconds"), (starts_at + SERVES).isoformat(timespec="seconds")]
    server.muster("cluster", "create", "night", "--gpus", "8", "--starts-at", times[0], "--ends-at", times[1])
    waiting = shown("night")
    assert (waiting["phase"], waiting["nodes"]) == ("scheduled", [])

    ready = until(lambda: shown("night"), lambda seen: seen["phase"] == "ready", starts_at)
    assert moved(ready, "network") >= starts_at - lead - timedelta(seconds=2), "no host before its window begins"
    assert server.muster("ssh", "night", "srun", "--gpus=8", "hostname").strip() == "worker-0"

    ends_at = datetime.fromisoformat(times[1])
    patience = ends_at + timedelta(seconds=2 * PATIENCE_SECONDS)
    until(lambda: server.call("cluster", "show", "night").returncode, lambda code: code != 0, patience)
    assert datetime.now(UTC) >= ends_at
    events = json.loads(server.muster("event", "list", "--resource", ready["id"], "-o", "json"))
    types = [event["type"] for event in events]
    assert types.count("cluster.ending") == 1

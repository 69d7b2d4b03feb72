"""What Slurm says of its queue, as 22.05 says it, and what we make of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.contracts.orchestrator import Member, Pending, Queue
from muster.orchestrators.slurm.queue import parse

WORKERS = [
    Member(node_id=f"id-{name}", name=name, role="worker", address="", gpus=8) for name in ("worker-0", "worker-1")
]


def job(**fields: Any) -> dict[str, Any]:
    plain = {
        "job_state": "PENDING",
        "state_reason": "Resources",
        "node_count": 1,
        "tasks": 1,
        "tres_per_job": "",
        "tres_per_node": "",
        "tres_per_task": "",
        "tres_per_socket": "",
        "array_task_string": "",
    }
    return {**plain, **fields}


def node(name: str, state: Any = "idle", flags: tuple[str, ...] = ("DYNAMIC_NORM",), last_busy: Any = 100) -> Any:
    return {"name": name, "state": state, "state_flags": list(flags), "last_busy": last_busy}


def read(jobs: list[Any] | None = None, nodes: list[Any] | None = None) -> Queue:
    return parse(json.dumps({"jobs": jobs or []}), json.dumps({"nodes": nodes or []}), WORKERS)


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        ({"tres_per_job": "gres:gpu:4"}, Pending(4, 1)),
        ({"tres_per_job": "gres:gpu:h100:16", "node_count": 2}, Pending(16, 2)),
        ({"tres_per_job": "gres:gpu:12"}, Pending(12, 2)),
        ({"tres_per_node": "gres:gpu:8", "node_count": 3}, Pending(24, 3)),
        ({"tres_per_node": "gres:gpu:a100:2,gres:nic:1"}, Pending(2, 1)),
        ({"tres_per_task": "gres:gpu:1", "tasks": 4}, Pending(4, 1)),
        ({"tres_per_socket": "gres:gpu:1", "node_count": 2}, Pending(2, 2)),
        ({"tres_per_node": "gres:gpu"}, Pending(1, 1)),
        ({"tres_per_job": "gres/gpu=4"}, Pending(4, 1)),
    ],
)
def test_gpus_are_counted_however_they_were_asked_for(asked: dict[str, Any], counts: Pending) -> None:
    assert read([job(**asked)]).pending == (counts,)


def test_jobs_without_gpus_do_not_count() -> None:
    assert read([job(node_count=4, tasks=400), job(tres_per_node="gres:nic:2")]).pending == ()


@pytest.mark.parametrize(
    "reason", ["Dependency", "JobHeldUser", "JobHeldAdmin", "BeginTime", "None", "BadConstraints", "Licenses", ""]
)
def test_who_waits_for_something_else_does_not_count(reason: str) -> None:
    assert read([job(tres_per_job="gres:gpu:4", state_reason=reason)]).pending == ()


@pytest.mark.parametrize(
    "reason",
    ["Resources", "Priority", "PartitionNodeLimit", "ReqNodeNotAvail, UnavailableNodes:growth-[1-3]"],
)
def test_who_waits_for_machines_counts(reason: str) -> None:
    assert read([job(tres_per_job="gres:gpu:4", state_reason=reason)]).pending == (Pending(4, 1),)


def test_what_runs_does_not_wait() -> None:
    assert read([job(tres_per_job="gres:gpu:4", job_state="RUNNING")]).pending == ()


@pytest.mark.parametrize(("array", "tasks"), [("0-3", 4), ("0-3,7%2", 5), ("5", 1), ("", 1), ("0-9,...", 1)])
def test_an_array_counts_by_its_tasks(array: str, tasks: int) -> None:
    assert len(read([job(tres_per_job="gres:gpu:1", array_task_string=array)]).pending) == tasks


def test_who_has_no_work_is_idle_since_its_last() -> None:
    nodes = [node("worker-0"), node("worker-1", "mixed"), node("growth-1", "down"), node("stranger")]
    assert read(nodes=nodes).idle_since == {"id-worker-0": 100_000}


@pytest.mark.parametrize("flag", ["DRAIN", "COMPLETING", "NOT_RESPONDING"])
def test_who_is_on_the_way_out_is_not_idle(flag: str) -> None:
    assert read(nodes=[node("worker-0", flags=(flag,))]).idle_since == {}


def test_newer_versions_say_it_with_lists_and_flags() -> None:
    jobs = [job(job_state=["PENDING"], node_count={"set": True, "number": 2}, tres_per_node="gres/gpu:8")]
    nodes = [node("worker-0", state=["IDLE"], last_busy={"set": True, "infinite": False, "number": 7})]
    assert read(jobs, nodes) == Queue((Pending(16, 2),), {"id-worker-0": 7_000})


@pytest.mark.parametrize("strange", ["", "slurm_load_jobs error", "[]", '{"jobs": null}', '{"jobs": [1]}'])
def test_what_cannot_be_read_changes_nothing(strange: str) -> None:
    assert parse(strange, strange, WORKERS) == Queue((), {})

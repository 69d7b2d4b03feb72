"""Slurm's queue in our words: what waits for machines and asks GPUs, and who has had no work since when. Pure.

Leans on `squeue --json` and `sinfo --json`. Laws: a job counts only while it waits for nothing but machines; what
cannot be read is nothing that waits and nobody who is idle, so that a strange answer changes no cluster's size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from muster.contracts.orchestrator import Member, Pending, Queue
from muster.model.base import SECOND, Instant

JOBS: Final = ["squeue", "--json"]
NODES: Final = ["sinfo", "--json"]

_FOR_MACHINES: Final = ("Resources", "Priority", "ReqNodeNotAvail", "PartitionNodeLimit", "PartitionConfig")
"""Slurm's reasons for which more nodes would help; `Dependency`, `JobHeldUser`, `BeginTime` and the like are not."""
_GPUS: Final = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?:[:=][a-z][^:=,]*)?(?:[:=](\d+))?(?=,|$)", re.IGNORECASE)
_UNFIT: Final = frozenset({"DRAIN", "DOWN", "FAIL", "MAINTENANCE", "NOT_RESPONDING", "COMPLETING", "REBOOT"})


def parse(jobs: str, nodes: str, workers: Sequence[Member]) -> Queue:
    per_node = max((worker.gpus for worker in workers), default=0)
    ids = {worker.name: worker.node_id for worker in workers}
    waiting = [asked for job in _rows(jobs, "jobs") for asked in _asks(job, per_node)]
    return Queue(tuple(waiting), dict(_idle(_rows(nodes, "nodes"), ids)))


def _rows(text: str, key: str) -> list[dict[str, Any]]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    return [row for row in found.get(key) or [] if isinstance(row, dict)] if isinstance(found, dict) else []


def _asks(job: Mapping[str, Any], per_node: int) -> list[Pending]:
    """One for each of its tasks, when it is an array that has not been spread out yet."""
    gpus = _gpus(job)
    if "PENDING" not in _words(job.get("job_state")) or _reason(job) not in _FOR_MACHINES or not gpus:
        return []
    nodes = max(1, _number(job.get("node_count")), -(-gpus // per_node) if per_node else 1)
    return [Pending(gpus, nodes)] * _tasks(str(job.get("array_task_string") or ""))


def _reason(job: Mapping[str, Any]) -> str:
    return re.split(r"[,\s]", str(job.get("state_reason") or ""), maxsplit=1)[0]


def _gpus(job: Mapping[str, Any]) -> int:
    """However it was asked for: per job, node, task or socket."""
    nodes, tasks = max(1, _number(job.get("node_count"))), max(1, _number(job.get("tasks")))
    ways = {"tres_per_job": 1, "tres_per_node": nodes, "tres_per_task": tasks, "tres_per_socket": nodes}
    return max(times * _counted(str(job.get(way) or "")) for way, times in ways.items())


def _counted(tres: str) -> int:
    """gres:gpu:h100:4 -> 4; gres:gpu -> 1."""
    return sum(int(found[1] or 1) for found in _GPUS.finditer(tres))


def _tasks(array: str) -> int:
    """0-3,7%2 -> 5 tasks that wait."""
    spans = [part.partition("-") for part in re.sub(r"[%:].*", "", array).split(",") if part]
    try:
        return max(1, sum(int(last or first) - int(first) + 1 for first, _, last in spans))
    except ValueError:
        return 1  # a long list is cut off by squeue: it says ... at its end


def _idle(nodes: Iterable[Mapping[str, Any]], ids: Mapping[str, str]) -> Iterable[tuple[str, Instant]]:
    for node in nodes:
        words = {*_words(node.get("state")), *_words(node.get("state_flags"))}
        since = _number(node.get("last_busy"))
        if node.get("name") in ids and "IDLE" in words and not words & _UNFIT and since:
            yield ids[str(node["name"])], since * SECOND


def _words(said: Any) -> set[str]:
    """A word, or a list of them, as newer versions have it."""
    return {str(word).upper() for word in (said if isinstance(said, list) else [said])}


def _number(said: Any) -> int:
    """A number, or one with its flags around it, as newer versions have it."""
    number = said.get("number") if isinstance(said, dict) else said
    return int(number) if isinstance(number, (int, float)) else 0

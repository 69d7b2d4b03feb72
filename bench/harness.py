"""Start a server on loopback, load it with wrk, and read requests per second beside CPU per request.

Machines are shared and noisy: compare only within one run, interleaved, and trust the CPU column more than the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
FIRST_NAME = "local n = 0"


class Result(NamedTuple):
    rps: float
    cpu_us: float
    p99_ms: float
    bad: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def http(method: str, url: str, key: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    request.add_header("authorization", f"Bearer {key}")
    if data:
        request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
            except (OSError, IndexError):
                continue
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def cpu_seconds(pid: int) -> float:
    total = 0
    for process in tree(pid):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
        except OSError:
            continue
    return total / TICKS


def memory_mb(pid: int) -> float:
    """Proportional set size of the tree."""
    total = 0
    for process in tree(pid):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            continue
    return total / 1024


def _environ() -> dict[str, str]:
    """Bytecode is kept, as on a machine where a server is started more than once."""
    return {name: said for name, said in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Server:
    """A server process in its own group, ended with it."""

    def __init__(
        self, command: list[str], ready_url: str, *, env: dict[str, str] | None = None, seconds: float = 180
    ):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log", delete=False)  # noqa: SIM115
        began = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            env={**_environ(), **(env or {})},
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while not self._answers(ready_url):
            if self.process.poll() is not None or time.perf_counter() - began > seconds:
                self.stop()
                raise RuntimeError(f"{command[0]} did not start: {Path(self.log.name).read_text()[-2000:]}")
            time.sleep(0.01)
        self.first_answer_seconds = time.perf_counter() - began

    def _answers(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return True
        except urllib.error.HTTPError as error:
            return error.code < 500
        except OSError:
            return False

    def stop(self) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sign)
                self.process.wait(20)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
            break
        self.log.close()
        Path(self.log.name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Stopped for a while: what it still has to do must not weigh on the one that is measured."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def wrk(
    url: str, key: str, *, lua: str = "", connections: int = 16, seconds: int = 4
) -> tuple[float, int, float, int]:
    """One run: requests per second, requests, 99th percentile in ms, answers that were not 2xx."""
    if shutil.which("wrk") is None:
        sys.exit("bench: wrk is missing; apt-get install wrk")
    script = f'wrk.headers["authorization"] = "Bearer {key}"\nwrk.headers["content-type"] = "application/json"\n{lua}'
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{seconds}s",
            "--timeout",
            "20s",
            "--latency",
            "-s",
            file.name,
            url,
        ]
        out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 60).stdout
    rps = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])  # type: ignore[index]
    count = int(re.search(r"(\d+) requests in", out)[1])  # type: ignore[index]
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", out)
    scale = {"us": 0.001, "ms": 1.0, "s": 1000.0}
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return rps, count, float(p99[1]) * scale[p99[2]] if p99 else 0.0, int(bad[1]) if bad else 0


def measure(server: Server, other: Server, url: str, key: str, *, lua: str = "", seconds: int = 4) -> Result:
    """One run on this server, after a second of the same that is not counted, while the other stands still."""
    with other.still():
        wrk(url, key, lua=lua.replace(FIRST_NAME, f"local n = {10**9}"), seconds=1)
        before = cpu_seconds(server.process.pid)
        rps, count, p99, bad = wrk(url, key, lua=lua, seconds=seconds)
        spent = cpu_seconds(server.process.pid) - before
    return Result(rps, spent * 1e6 / max(1, count), p99, bad)


def creating(path: str, body: dict[str, Any], name_field: str, tag: str) -> str:
    """Lua that posts this body with a name of its own each time."""
    text = json.dumps({**body, name_field: "@@"}).replace('"@@"', f"\"{tag}-' .. n .. '\"")
    return (
        f"{FIRST_NAME}\nrequest = function()\n n = n + 1\n return wrk.format('POST', '{path}', nil, '{text}')\nend\n"
    )

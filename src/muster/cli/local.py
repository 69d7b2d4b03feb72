"""A server on this machine: whether one runs on a home, starting one beside us, stopping it by its own pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.cli.ending import FAILED, Ended
from muster.cli.target import is_alive, key_in_home, server_info
from muster.clock import RealClock

if TYPE_CHECKING:
    from muster.sdk import Client

START_SECONDS = 60.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.05


def looks(seconds: float) -> Iterator[None]:
    """Yields now and then until the time is up."""
    clock = RealClock()
    deadline = clock.now() + seconds * 1000
    while clock.now() < deadline:
        yield
        time.sleep(LOOK_SECONDS)


def start(home: Path, flags: Sequence[str], log: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """`muster up` as a child with its own process group, so that our Ctrl-C is not its Ctrl-C."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "muster.cli.main", "up", "--home", str(home), *flags]
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environ,
            start_new_session=True,
        )


def wait_until_ready(child: subprocess.Popen[bytes], home: Path, log: Path) -> dict[str, Any]:
    """What the server says of itself once it answers."""
    for _ in looks(START_SECONDS):
        if child.poll() is not None:
            raise Ended(f"the server did not start: {last_words(log)}", FAILED)
        info = server_info(home)
        if info is not None and info.get("pid") == child.pid and answers(home, info):
            return info
    raise Ended(f"the server did not answer within {START_SECONDS:g} s: {last_words(log)}", FAILED)


def running_server(home: Path) -> dict[str, Any] | None:
    """The server on this home, when it answers: a pid in an old file may be somebody else's by now."""
    info = server_info(home)
    return info if info is not None and answers(home, info) else None


def answers(home: Path, info: dict[str, Any]) -> bool:
    from muster.sdk import SdkError

    try:
        with operator_client(home, info) as client:
            client.ready()
            return True
    except SdkError:
        return False


def operator_client(home: Path, info: dict[str, Any]) -> Client:
    from muster.cli.trust import trust
    from muster.sdk import Client

    return Client(str(info["url"]), key_in_home(home, True) or "", verify=trust(info.get("tls_cert")))


def last_words(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "it left no log"
    return lines[-1] if lines else "it said nothing"


def stop(pid: int) -> bool:
    """Asks another's process to end cleanly; whether it did in time."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return True
    return any(not is_alive(pid) for _ in looks(STOP_SECONDS))


def stop_child(child: subprocess.Popen[bytes]) -> bool:
    """The same for a server we started ourselves; whether it ended cleanly in time."""
    child.terminate()
    try:
        return child.wait(STOP_SECONDS) == 0
    except subprocess.TimeoutExpired:
        return False

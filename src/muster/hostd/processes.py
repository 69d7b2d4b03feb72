"""Who a process is: its pid together with its start time, so that a reused pid is never mistaken for it."""

from __future__ import annotations

import os
import signal

from muster.model.base import Part


class Identity(Part, frozen=True, kw_only=True):
    pid: int
    started: int  # clock ticks since boot, /proc/PID/stat field 22

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started

    def kill(self) -> None:
        if self.alive:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return


def start_time(pid: int) -> int | None:
    """None for the dead and for zombies."""
    try:
        with open(f"/proc/{pid}/stat") as handle:
            stat = handle.read()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def identify(pid: int) -> Identity | None:
    started = start_time(pid)
    return None if started is None else Identity(pid=pid, started=started)

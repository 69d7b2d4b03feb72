"""Running a command in a node the way the node's own processes run: same cgroup, namespaces and confinement.

Leans on linux, confine. Runs in forked children of hostd. Laws: plain `nsenter` would hand out a full capability set
and no filter, to a process that root in the node can see and take over; here the user namespace is joined last, the
second child is confined before exec, and until exec neither can be traced (hostd is not dumpable).
"""

from __future__ import annotations

import os
import signal
from typing import Final, NamedTuple

from muster.hostd import linux
from muster.hostd.confine import confine

_ORDER: Final = ("net", "uts", "ipc", "cgroup", "pid", "mnt", "user")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_USERS: Final = {"root": (0, "/root"), "ubuntu": (1000, "/home/ubuntu")}


class Command(NamedTuple):
    argv: tuple[str, ...]
    user: str = "root"
    env: tuple[tuple[str, str], ...] = ()


class Entered(NamedTuple):
    """hostd's side of a command under way. `pid` is its own child; `inner` yields the command's pid as text."""

    pid: int
    inner: int
    stdin: int
    stdout: int
    stderr: int


def enter(init: int, cgroup_files: list[str], command: Command) -> Entered:
    spaces = [os.open(f"/proc/{init}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in _ORDER]
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    inner_read, inner_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _outer(spaces, cgroup_files, command, (in_read, out_write, err_write), inner_write)
        except BaseException as error:
            os.write(err_write, f"hostd could not enter the node: {error}\n".encode())
        finally:
            os._exit(126)
    for fd in (*spaces, in_read, out_write, err_write, inner_write):
        os.close(fd)
    return Entered(pid, inner_read, in_write, out_read, err_read)


def _outer(
    spaces: list[int], cgroup_files: list[str], command: Command, standard: tuple[int, int, int], inner: int
) -> None:
    for path in cgroup_files:
        with open(path, "w") as handle:
            handle.write("0")
    for space in spaces:
        linux.setns(space)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        _inner(command, standard)
    os.write(inner, f"{child}\n".encode())
    os.closerange(0, 65536)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(code if code >= 0 else 128 - code)


def _inner(command: Command, standard: tuple[int, int, int]) -> None:
    uid, home = _USERS[command.user]
    try:
        os.setsid()
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        for number, fd in enumerate(standard):
            os.dup2(fd, number)
        os.closerange(3, 65536)
        confine()
        if uid:
            os.setgroups([uid])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        os.umask(0o022)
        os.chdir(home if os.path.isdir(home) else "/")
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        environment = {"PATH": _PATH, "HOME": home, "USER": command.user, "LOGNAME": command.user}
        environment |= {"LANG": "C.UTF-8", "TERM": "dumb", **dict(command.env)}
        os.execvpe(command.argv[0], command.argv, environment)  # noqa: S606
    except BaseException as error:
        os.write(2, f"{command.argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)

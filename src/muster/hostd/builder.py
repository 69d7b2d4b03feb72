"""One node, from nothing to its init: namespaces, an id-mapped root, devices, masks, network, confinement.

Leans on linux, confine, netlink. Runs in a forked child of hostd, which is single-threaded; the child speaks with
hostd over two pipes and dies with it. Laws:

- the mount namespace stays owned by the *initial* user namespace: root in the node has no power over its own mounts;
- limits and cgroup come before the first process of the node;
- `ready PID` is said before the network is plugged, `up` only once init has been exec'ed; hostd's death before its
  `go` takes the half-built node along;
- after `clone` the init does nothing but system calls;
- paths that a tenant may have prepared (below a volume) are opened only after the root has changed, without symlinks.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from muster.hostd import linux
from muster.hostd.confine import confine
from muster.hostd.mounting import graft
from muster.hostd.netlink import Netlink, mac_of, quieten

IDS_PER_CLUSTER: Final = 65536
GATEWAY: Final = "10.77.0.1"
GATEWAY_MAC: Final = mac_of(GATEWAY)
GPU_MAJOR: Final = 60
"""LOCAL/EXPERIMENTAL: with a real driver loaded, 195:N would be the machine's own GPU."""

_NAMESPACES: Final = (
    linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWCGROUP
)
_QUIET: Final = linux.ATTR_RDONLY | linux.ATTR_NOSUID | linux.ATTR_NODEV | linux.ATTR_NOEXEC
_MASKED_FILES: Final = (
    *("proc/kcore", "proc/keys", "proc/key-users", "proc/kallsyms", "proc/kmsg", "proc/timer_list"),
    *("proc/sysrq-trigger", "proc/sched_debug", "proc/vmallocinfo", "proc/slabinfo", "proc/pagetypeinfo"),
    *("proc/iomem", "proc/ioports", "proc/modules", "proc/config.gz", "proc/cmdline"),
)
_MASKED_DIRECTORIES: Final = (
    *("proc/acpi", "proc/scsi", "proc/asound", "proc/bus", "proc/fs", "proc/irq", "proc/tty/driver"),
    *("sys/firmware", "sys/kernel", "sys/fs", "sys/power", "sys/block", "sys/dev/block", "sys/class/block"),
    *("sys/module", "sys/hypervisor"),
)
_DEVICES: Final = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
_LINKS: Final = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
)


class Bind(NamedTuple):
    """A directory of the machine shown in the node, through the node's id map."""

    source: str
    target: str
    read_only: bool = False


class Plan(NamedTuple):
    """Everything the builder needs, in daylight."""

    name: str
    directory: str  # the node's own: mount points, nothing else
    rootfs: str
    id_base: int
    address: str
    gpus: int
    disk_bytes: int
    tmp_bytes: int
    shm_bytes: int
    binds: tuple[Bind, ...]
    cgroup_files: tuple[str, ...]
    limit: Callable[[], None]  # writes the limits of those groups


class Building(NamedTuple):
    """hostd's side of a node under construction."""

    pid: int
    said: int  # read: `ready PID`, then `up`, or `error …`
    go: int  # write one byte


def start_building(plan: Plan) -> Building:
    said_read, said_write = os.pipe()
    go_read, go_write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(said_write)
        os.close(go_read)
        return Building(pid, said_read, go_write)
    status = 1
    try:
        _keep_only(said_write, go_read)
        _build(plan, said_write, go_read)
        status = 0
    except BaseException as error:
        os.write(said_write, f"error {error}\n".encode())
    finally:
        os._exit(status)


def _keep_only(*wanted: int) -> None:
    """Nothing else stays open: end-of-file on these pipes must mean that the other side died."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    start = 3
    for fd in sorted(wanted):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, 65536)


def _build(plan: Plan, said: int, go: int) -> None:
    os.setsid()
    os.chdir("/")
    os.umask(0o022)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for name in ("root", "rw", "lower", "empty"):
        os.makedirs(f"{plan.directory}/{name}", exist_ok=True)
    linux.unshare(linux.CLONE_NEWNS)
    linux.make_private()
    plan.limit()
    for path in plan.cgroup_files:
        _write(path, "0")
    release_read, release = os.pipe()
    heard, init_said = os.pipe()
    init = linux.clone(_NAMESPACES | signal.SIGCHLD)
    if init == 0:
        for fd in (release, heard, said, go):
            os.close(fd)
        _init(plan, release_read, init_said)
    os.close(release_read)
    os.close(init_said)
    try:
        _furnish(plan, init, release, heard)
        os.write(said, f"ready {init}\n".encode())
        if os.read(go, 1) != b"g":
            raise RuntimeError("hostd went away")
        network_up(plan.address)
        os.write(release, b"g")
        trouble = os.read(heard, 500)  # end of file: init has exec'ed
        if trouble:
            raise RuntimeError(f"init: {trouble.decode()}")
    except BaseException:
        os.kill(init, signal.SIGKILL)
        raise
    os.write(said, b"up\n")


def _furnish(plan: Plan, init: int, release: int, heard: int) -> None:
    for name in ("uid_map", "gid_map"):
        _write(f"/proc/{init}/{name}", f"0 {plan.id_base} {IDS_PER_CLUSTER}\n")
    os.write(release, b"m")
    userns, netns, pidns = (os.open(f"/proc/{init}/ns/{kind}", os.O_RDONLY) for kind in ("user", "net", "pid"))
    root = f"{plan.directory}/root"
    _mount_root(plan, root, userns)
    _mount_memory(plan, root)
    trees = [(linux.open_tree(bind.source), bind) for bind in plan.binds]
    for tree, bind in trees:
        read_only = linux.ATTR_RDONLY if bind.read_only else 0
        linux.set_attributes(tree, linux.ATTR_NOSUID | linux.ATTR_NODEV | read_only, userns)
    linux.setns(netns, linux.CLONE_NEWNET)
    linux.setns(pidns, linux.CLONE_NEWPID)
    quieten()
    _mount_kernel(root, heard)
    mask(f"{plan.directory}/empty", root)
    os.chdir(root)
    linux.pivot_root_here()
    for tree, bind in sorted(trees, key=lambda pair: pair[1].target):
        graft(tree, bind.target, plan.id_base)


def _mount_root(plan: Plan, root: str, userns: int) -> None:
    lower, writable = f"{plan.directory}/lower", f"{plan.directory}/rw"
    linux.bind(plan.rootfs, lower, linux.ATTR_RDONLY | linux.ATTR_NODEV, userns)
    linux.mount("rw", writable, "tmpfs", linux.MS_NODEV, f"size={plan.disk_bytes},mode=700,nr_inodes=200k")
    os.mkdir(f"{writable}/upper", 0o755)
    os.mkdir(f"{writable}/work", 0o755)
    os.chown(f"{writable}/upper", plan.id_base, plan.id_base)
    layers = f"lowerdir={lower},upperdir={writable}/upper,workdir={writable}/work,volatile"
    linux.mount("root", root, "overlay", linux.MS_NODEV, layers)


def _mount_memory(plan: Plan, root: str) -> None:
    """tmpfs and /dev. /dev belongs to the initial user namespace: nodes made here work, mknod inside does not."""
    base = plan.id_base
    owner = f"uid={base},gid={base}"
    guarded = linux.MS_NOSUID | linux.MS_NODEV
    dev = f"{root}/dev"
    linux.mount("run", f"{root}/run", "tmpfs", guarded, f"size=64m,mode=755,{owner}")
    linux.mount("tmp", f"{root}/tmp", "tmpfs", guarded, f"size={plan.tmp_bytes},mode=1777,{owner}")  # noqa: S108
    linux.mount("dev", dev, "tmpfs", linux.MS_NOSUID | linux.MS_NOEXEC, f"size=256k,nr_inodes=256,mode=755,{owner}")
    gpus = [(f"nvidia{number}", GPU_MAJOR, number) for number in range(plan.gpus)]
    for name, major, minor in (*_DEVICES, *gpus, ("nvidiactl", GPU_MAJOR, 255)):
        os.mknod(f"{dev}/{name}", 0o020666, os.makedev(major, minor))
        os.chmod(f"{dev}/{name}", 0o666)  # noqa: S103 - as on any machine
        os.chown(f"{dev}/{name}", base, base)
    for name, points_at in _LINKS:
        os.symlink(points_at, f"{dev}/{name}")
    os.mkdir(f"{dev}/pts")
    os.mkdir(f"{dev}/shm")
    pts = f"newinstance,ptmxmode=0666,mode=620,gid={base + 5},max=256"
    linux.mount("devpts", f"{dev}/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, pts)
    linux.mount("shm", f"{dev}/shm", "tmpfs", guarded, f"size={plan.shm_bytes},mode=1777,{owner}")


def _mount_kernel(root: str, heard: int) -> None:
    """/sys belongs to the mounter's net namespace, /proc to its pid namespace: both joined by now, as host root."""
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("sysfs", f"{root}/sys", "sysfs", flags | linux.MS_RDONLY)
    child = os.fork()  # only a child is in the new pid namespace
    if child == 0:
        status = 1
        try:
            linux.mount("proc", f"{root}/proc", "proc", flags)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("mount of /proc failed")
    # init must have written its sysctls before /proc/sys is covered and its root moved
    said = os.read(heard, 500)
    if said != b"k":
        raise RuntimeError(f"init: {said.decode()}")


def mask(empty: str, root: str) -> None:
    """What the kernel tells of the machine is covered. `empty` is a directory to mount an empty one on."""
    linux.bind(f"{root}/proc/sys", f"{root}/proc/sys", _QUIET)
    for path in _MASKED_FILES:
        if os.path.exists(f"{root}/{path}"):
            linux.bind(f"{root}/dev/null", f"{root}/{path}", _QUIET & ~linux.ATTR_NODEV)
    linux.mount("none", empty, "tmpfs", _QUIET, "size=4k,nr_inodes=1,mode=755")
    for path in _MASKED_DIRECTORIES:
        if os.path.isdir(f"{root}/{path}") and not os.path.islink(f"{root}/{path}"):
            linux.bind(empty, f"{root}/{path}", _QUIET)


def network_up(address: str) -> None:
    """We are in the node's network namespace; the node itself needs no CAP_NET_ADMIN and no `ip`."""
    netlink = Netlink()
    link = socket.if_nametoindex("eth0")
    netlink.up(1)
    netlink.up(link)
    netlink.add_address(link, address)
    netlink.add_route(link, GATEWAY)
    netlink.add_neighbour(link, GATEWAY, GATEWAY_MAC)
    netlink.add_route(link, via=GATEWAY)
    netlink.close()


def _init(plan: Plan, released: int, said: int) -> None:
    """The node's first process. Ignored SIGCHLD survives exec, so `sleep` reaps orphans without knowing it."""
    try:
        if os.read(released, 1) != b"m":
            os._exit(1)
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        _write("/proc/sys/user/max_user_namespaces", "0")
        linux.sethostname(plan.name)
        os.write(said, b"k")
        if os.read(released, 1) != b"g":
            os._exit(1)
        os.chdir("/")
        os.dup2(said, 3, inheritable=False)
        os.closerange(4, 65536)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        confine()
        os.execve("/bin/sleep", ["init", "infinity"], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})  # noqa: S606
    except BaseException as error:
        os.write(said, str(error).encode())
    finally:
        os._exit(1)


def _write(path: str, value: str) -> None:
    with open(path, "w") as handle:
        handle.write(value)

"""The same daemons in the same kind of nodes, started bare: no server, no records, nobody to ask.

What `bench/run local` is measured against. Its own way from nothing to `srun` over all nodes: every node is built at
once by a forked child, all are plugged in one batch, the controller is let go first and the workers when it listens.
Nodes are as closed as Muster's (limits, masks, capabilities, the filter): isolation is part of what a tenant gets, so
a reference without it would be quicker for doing less. System calls, groups, masks and confinement are hostd's;
nothing else of Muster runs. Root only.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from muster.hostd import linux
from muster.hostd.builder import mask
from muster.hostd.cgroups import Cgroups, Limits
from muster.hostd.confine import confine
from muster.hostd.netlink import Netlink, mac_of, quieten

ID_BASE, IDS = 0x6FF00000, 65536
GATEWAY = "10.77.0.1"
NODE = (
    linux.CLONE_NEWUSER | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
    | linux.CLONE_NEWCGROUP | signal.SIGCHLD
)  # fmt: skip
DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
NODE_LIMITS, WHOLE_LIMITS = Limits(pids=1024, memory_bytes=2 << 30), Limits(pids=24_000, memory_bytes=16 << 30)
CPUS, MEMORY_MIB, GPUS = 32, 512 * 1024, 8
SPEC = f"CPUs={CPUS} Sockets=1 CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory={MEMORY_MIB} Gres=gpu:h100:{GPUS}"
INIT = f"""#!/bin/bash
exec 9<> <(:)
install -d -o munge -g munge /run/munge
install -d -o slurm -g slurm /run/slurm /var/spool/slurmctld /var/log/slurm
mkdir -p /run/sshd /var/spool/slurmd
setpriv --reuid=munge --regid=munge --clear-groups munged --force --key-file=/etc/cluster/munge.key
case $ROLE in
  controller) slurmctld ;;
  worker) slurmd -Z -N $NAME --conf "{SPEC} Feature=worker" ;;
esac
/usr/sbin/sshd -f /etc/cluster/sshd_config
trap '' CHLD
exec sleep infinity
"""
CONF = f"""ClusterName=bare
SlurmctldHost=controller(10.77.0.2)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmctldParameters=enable_configless
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU={MEMORY_MIB // CPUS}
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
MaxNodeCount=1024
TreeWidth=65533
NodeSet=workers Feature=worker
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Node(NamedTuple):
    name: str
    role: str
    address: str

    @property
    def link(self) -> str:
        return f"b-{self.name}"


class Started(NamedTuple):
    builder: int
    heard: int
    told: int


class Bare:
    """A cluster of so many workers in a directory of its own."""

    def __init__(self, rootfs: Path, workers: int) -> None:
        self._rootfs = rootfs
        self._directory = Path(tempfile.mkdtemp(prefix="muster-bare-"))
        names = [("controller", "controller"), ("login", "login")]
        names += [(f"worker-{number}", "worker") for number in range(workers)]
        self.nodes = [Node(name, role, f"10.77.1.{n}" if n else "10.77.0.2") for n, (name, role) in enumerate(names)]
        self.inits: dict[str, int] = {}
        self._cgroups = Cgroups(self._directory.name)
        self._holder = 0

    def start(self) -> float:
        """Seconds until every worker is idle and `srun` over all of them has answered."""
        began = time.perf_counter()
        self._files()
        self._cgroups.make((), WHOLE_LIMITS)
        self._holder = _holder()
        started = {node: self._build(node) for node in self.nodes}
        for node, its in started.items():
            said = os.read(its.heard, 200).decode()
            if not said.startswith("ready "):
                raise RuntimeError(f"{node.name}: {said}")
            self.inits[node.name] = int(said.split()[1])
        _in_network(self._holder, self._plug)
        for node, its in started.items():
            if node.role != "worker":
                os.write(its.told, b"g")
        _in_network(self.inits["controller"], _await_controller)
        for node, its in started.items():
            if node.role == "worker":
                os.write(its.told, b"g")
        for its in started.values():
            os.waitpid(its.builder, 0)
            os.close(its.heard)
            os.close(its.told)
        self._await_idle()
        self.srun()
        return time.perf_counter() - began

    def srun(self) -> float:
        return srun(self.inits["login"], len(self.nodes) - 2)

    def stop(self) -> None:
        for pid in (*self.inits.values(), self._holder):
            os.kill(pid, signal.SIGKILL)
        for pid in (*self.inits.values(), self._holder):
            while os.path.exists(f"/proc/{pid}") and not _is_zombie(pid):
                time.sleep(0.002)
        os.waitpid(self._holder, 0)
        while not self._cgroups.kill() or not self._cgroups.remove():
            time.sleep(0.002)
        shutil.rmtree(self._directory)

    def _files(self) -> None:
        users = {row.split(":")[0]: row for row in (self._rootfs / "etc/passwd").read_text().splitlines()}
        munge = users["munge"].split(":")
        cluster = self._directory / "cluster"
        (cluster / "slurm").mkdir(parents=True)
        (self._directory / "home").mkdir()
        (cluster / "init").write_text(INIT)
        (cluster / "slurm" / "slurm.conf").write_text(CONF)
        (cluster / "slurm" / "gres.conf").write_text(f"Name=gpu Type=h100 File=/dev/nvidia[0-{GPUS - 1}]\n")
        (cluster / "slurm" / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        (cluster / "slurm" / "plugstack.conf").write_text("")
        hosts = "".join(f"{node.address} {node.name}\n" for node in self.nodes)
        (cluster / "hosts").write_text("127.0.0.1 localhost\n" + hosts)
        (cluster / "munge.key").write_bytes(os.urandom(128))
        os.chmod(cluster / "munge.key", 0o400)
        os.chown(cluster / "munge.key", int(munge[2]), int(munge[3]))
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(cluster / "host_key")]
        subprocess.run(keygen, check=True)
        (cluster / "sshd_config").write_text("Port 22\nHostKey /etc/cluster/host_key\nUsePAM no\n")

    def _plug(self) -> None:
        netlink = Netlink()
        for node in self.nodes:
            mac, init = mac_of(node.address), self.inits[node.name]
            netlink.add_veth(node.link, mac_of(GATEWAY), peer="eth0", peer_mac=mac, peer_netns_pid=init)
            index = socket.if_nametoindex(node.link)
            netlink.add_route(index, node.address)
            netlink.add_neighbour(index, node.address, mac)
        netlink.close()

    def _build(self, node: Node) -> Started:
        self._cgroups.make((node.name,), NODE_LIMITS, devices=True)
        heard, say = os.pipe()
        listen, told = os.pipe()
        builder = os.fork()
        if builder:
            os.close(say)
            os.close(listen)
            return Started(builder, heard, told)
        try:
            for path in self._cgroups.join_files((node.name,)):
                Path(path).write_text("0")
            _node(node, self._directory, str(self._rootfs), listen, say)
        except BaseException as error:
            os.write(say, f"error {error}".encode())
        finally:
            os._exit(1)

    def _await_idle(self) -> None:
        wanted = len(self.nodes) - 2
        while _run(self.inits["controller"], 0, "sinfo", "-h", "-N", "-o", "%T").split().count("idle") < wanted:
            time.sleep(0.05)


def srun(login: int, nodes: int) -> float:
    began = time.perf_counter()
    said = _run(login, 1000, "srun", f"-N{nodes}", f"--gpus-per-node={GPUS}", "hostname")
    if len(set(said.split())) != nodes:
        raise RuntimeError(f"srun over {nodes} nodes: {said!r}")
    return time.perf_counter() - began


def _run(init: int, user: int, *words: str) -> str:
    command = ["nsenter", f"--target={init}", "--all", f"--setuid={user}", f"--setgid={user}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/").stdout


def _holder() -> int:
    """A network namespace that routes between nodes, kept by a sleeping process."""
    heard, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        linux.unshare(linux.CLONE_NEWNET)
        quieten()
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        netlink = Netlink()
        netlink.up(1)
        netlink.add_address(1, GATEWAY)
        os.write(say, b"k")
        os.closerange(3, 1024)
        os.execv("/bin/sleep", ["bare-fabric", "infinity"])
    os.close(say)
    os.read(heard, 1)
    os.close(heard)
    return pid


def _in_network(pid: int, work) -> None:  # type: ignore[no-untyped-def]
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    linux.setns(there, linux.CLONE_NEWNET)
    try:
        work()
    finally:
        linux.setns(home, linux.CLONE_NEWNET)
        os.close(home)
        os.close(there)


def _await_controller() -> None:
    """Asked from its own network: a knock from elsewhere before its link is up would be lost, and waited for."""
    while True:
        try:
            socket.create_connection(("10.77.0.2", 6817), 0.5).close()
        except OSError:
            time.sleep(0.01)
        else:
            return


def _node(node: Node, directory: Path, rootfs: str, listen: int, say: int) -> None:
    place = directory / node.name
    for name in ("lower", "rw", "root", "empty"):
        (place / name).mkdir(parents=True)
    os.setsid()
    linux.unshare(linux.CLONE_NEWNS)
    linux.make_private()
    released, release = os.pipe()
    heard, acknowledge = os.pipe()
    init = linux.clone(NODE)
    if init == 0:
        _init(node, released, acknowledge)
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{init}/{name}").write_text(f"0 {ID_BASE} {IDS}\n")
    os.write(release, b"m")
    user, net, pids = (os.open(f"/proc/{init}/ns/{kind}", os.O_RDONLY) for kind in ("user", "net", "pid"))
    root = str(place / "root")
    _root(place, root, rootfs, user)
    for source, target in ((directory / "cluster", "etc/cluster"), (directory / "home", "home")):
        linux.bind(str(source), f"{root}/{target}", linux.ATTR_NOSUID | linux.ATTR_NODEV, user)
    linux.setns(net, linux.CLONE_NEWNET)
    linux.setns(pids, linux.CLONE_NEWPID)
    quieten()
    linux.mount("sysfs", f"{root}/sys", "sysfs", linux.MS_RDONLY)
    child = os.fork()
    if child == 0:
        linux.mount("proc", f"{root}/proc", "proc", linux.MS_NOSUID)
        os._exit(0)
    os.waitpid(child, 0)
    os.read(heard, 1)  # init has written below /proc/sys, which is covered now
    mask(str(place / "empty"), root)
    os.chdir(root)
    linux.pivot_root_here()
    os.write(say, f"ready {init}".encode())
    os.read(listen, 1)
    _network(node.address)
    os.write(release, b"g")
    os._exit(0)


def _root(place: Path, root: str, rootfs: str, user: int) -> None:
    linux.bind(rootfs, str(place / "lower"), linux.ATTR_RDONLY | linux.ATTR_NODEV, user)
    linux.mount("rw", str(place / "rw"), "tmpfs", linux.MS_NODEV, "size=1g,mode=700")
    for name in ("upper", "work"):
        (place / "rw" / name).mkdir()
    os.chown(place / "rw" / "upper", ID_BASE, ID_BASE)
    layers = f"lowerdir={place}/lower,upperdir={place}/rw/upper,workdir={place}/rw/work,volatile"
    linux.mount("root", root, "overlay", linux.MS_NODEV, layers)
    owner = f"uid={ID_BASE},gid={ID_BASE}"
    for name, mode in (("run", "755"), ("tmp", "1777"), ("dev", "755")):
        flags = linux.MS_NOSUID | (0 if name == "dev" else linux.MS_NODEV)
        linux.mount(name, f"{root}/{name}", "tmpfs", flags, f"size=256m,mode={mode},{owner}")
    for name, major, minor in (*DEVICES, *((f"nvidia{number}", 60, number) for number in range(GPUS))):
        os.mknod(f"{root}/dev/{name}", 0o020666, os.makedev(major, minor))
        os.chmod(f"{root}/dev/{name}", 0o666)
    for name, target in (("fd", "/proc/self/fd"), ("ptmx", "pts/ptmx")):
        os.symlink(target, f"{root}/dev/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{root}/dev/{name}")
    linux.mount("devpts", f"{root}/dev/pts", "devpts", linux.MS_NOSUID, "newinstance,ptmxmode=0666")
    linux.mount("shm", f"{root}/dev/shm", "tmpfs", linux.MS_NOSUID, f"size=64m,mode=1777,{owner}")


def _network(address: str) -> None:
    netlink = Netlink()
    link = socket.if_nametoindex("eth0")
    netlink.up(1)
    netlink.up(link)
    netlink.add_address(link, address)
    netlink.add_route(link, GATEWAY)
    netlink.add_neighbour(link, GATEWAY, mac_of(GATEWAY))
    netlink.add_route(link, via=GATEWAY)
    netlink.close()


def _init(node: Node, released: int, acknowledge: int) -> None:
    try:
        os.read(released, 1)
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
        linux.sethostname(node.name)
        os.write(acknowledge, b"k")
        os.read(released, 1)
        os.chdir("/")
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.closerange(3, 1024)
        confine()
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        os.execve("/bin/bash", ["init", "/etc/cluster/init"], {"PATH": path, "ROLE": node.role, "NAME": node.name})
    finally:
        os._exit(1)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

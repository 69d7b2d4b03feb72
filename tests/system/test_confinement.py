"""Root inside a node against everything outside it: each attempt fails or stays inside."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.contracts.hands import Ran
from muster.contracts.substrate import Fence, Power, VolumeWish
from muster.hostd.cgroups import Cgroups
from muster.hostd.traces import CGROUPS
from muster.model.clusters import Mount
from muster.testing.local import Fleet, fabric_wish, fleet, node_wish

pytestmark = pytest.mark.usefixtures("machine")
OURS = Fence("alpha", 1)


class Cell:
    """A node, and a tenant with sudo in it."""

    def __init__(self, running: Fleet) -> None:
        self.fleet = running

    async def root(self, script: str, *, seconds: float = 20) -> Ran:
        """As a tenant gets root: through sudo."""
        argv = ["sudo", "-n", "bash", "-c", script]
        return await self.fleet.substrate.run("node-1", argv, user="ubuntu", seconds=seconds)

    async def python(self, script: str) -> str:
        ran = await self.root(f"python3 - <<'EOF'\n{script}\nEOF")
        assert ran.code == 0, ran
        return ran.out.strip()


def in_a_cell(home: Path, story: Callable[[Cell], Awaitable[None]]) -> None:
    async def told() -> None:
        async with fleet(home) as running:
            nodes = [node_wish(f"node-{n}", fabric="alpha", name=f"node-{n}") for n in (1, 2)]
            await running.substrate.ensure([fabric_wish("alpha"), *nodes], OURS)
            await running.until(["node-1", "node-2"], Power.UP)
            await story(Cell(running))
            assert (await running.substrate.run("node-2", ["true"])).code == 0, "the neighbour runs on"

    asyncio.run(told())


SHELL_ATTEMPTS = {
    "mknod of the disk": "mknod /tmp/disk b 254 0",
    "mknod of memory": "mknod /tmp/mem c 1 1",
    "mknod of null": "mknod /root/null c 1 3",
    "mount a tmpfs": "mount -t tmpfs none /mnt",
    "mount proc": "mount -t proc none /mnt",
    "mount a host device": "mount /dev/vda /mnt",
    "mount cgroups": "mount -t cgroup2 none /mnt",
    "unmount the mask of /proc/sys": "umount /proc/sys",
    "remount /proc/sys writable": "mount -o remount,rw,bind /proc/sys",
    "unmount the cluster's files": "umount /etc/cluster",
    "write to the cluster's files": "touch /etc/cluster/x",
    "write core_pattern": "echo x > /proc/sys/kernel/core_pattern",
    "turn on forwarding": "echo 1 > /proc/sys/net/ipv4/ip_forward",
    "allow user namespaces again": "echo 9 > /proc/sys/user/max_user_namespaces",
    "drop the machine's caches": "echo 3 > /proc/sys/vm/drop_caches",
    "a new user namespace": "unshare -U true",
    "a new mount namespace": "unshare -m true",
    "a new network namespace": "unshare -n true",
    "enter init's namespaces": "nsenter -t 1 -m true",
    "set the hostname": "hostname other",
    "set the clock": "date -s 2000-01-01",
    "read the kernel's log": "dmesg | grep .",
    "load a module": "modprobe dummy",
    "its own link": "ip link set eth0 down",
    "a raw packet socket": "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
    "vsock to the hypervisor": "python3 -c 'import socket; socket.socket(socket.AF_VSOCK)'",
    "a kernel crypto socket": "python3 -c 'import socket; socket.socket(socket.AF_ALG)'",
    "a better priority": "nice -n -20 true 2>&1 | grep -q . && exit 1",
    "a higher limit": "ulimit -n $(( $(ulimit -Hn) + 1 ))",
    "escape the OOM killer": "echo -1000 > /proc/self/oom_score_adj",
    "chown to an id that is not its own": "touch /tmp/f && chown 70000 /tmp/f",
    "reach a cgroup": "ls -d /sys/fs/cgroup/*/ | grep .",
    "reboot": "python3 -c 'import ctypes,os; os._exit(0 if ctypes.CDLL(None).reboot(0x1234567)==0 else 1)'",
    "open /dev/mem": "head -c1 /dev/mem",
    "open /dev/kmsg": "head -c1 /dev/kmsg",
    "open loop control": "true > /dev/loop-control && test -c /dev/loop-control",
    "open kvm": "test -c /dev/kvm",
    "open fuse": "test -c /dev/fuse",
}


def test_root_in_a_node_is_denied(tmp_path: Path) -> None:
    async def story(cell: Cell) -> None:
        allowed = [name for name, script in SHELL_ATTEMPTS.items() if (await cell.root(script)).code == 0]
        assert allowed == []
        ran = await cell.root("id -u; cat /proc/self/status | grep -E 'Seccomp:|CapBnd'")
        assert ran.out.split() == ["0", "CapBnd:", "00000000a00c25fb", "Seccomp:", "2"]

    in_a_cell(tmp_path, story)


# number, arguments; all must fail
_CALLS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
calls = dict(bpf=(321, 0, 0, 0), perf_event_open=(298, 0, 0, -1, -1, 0), userfaultfd=(323, 0), keyctl=(250, 0, -3, 1),
    io_uring_setup=(425, 8, 0), open_by_handle_at=(304, -100, 0, 0), init_module=(175, 0, 0, 0),
    kexec_load=(246, 0, 0, 0, 0),
    iopl=(172, 3), swapon=(167, b'/tmp/x', 0), acct=(163, b'/tmp/x'), setns=(308, 3, 0), clone3=(435, 0, 0),
    open_tree=(428, -100, b'/', 1), fsopen=(430, b'tmpfs', 0), move_mount=(429, -1, b'', -100, b'/mnt', 4),
    pivot_root=(155, b'/', b'/'), mount_setattr=(442, -1, b'', 0, 0, 0), quotactl=(179, 0, 0, 0, 0),
    clone_newuser=(56, 0x10000011, 0, 0, 0, 0),
    clone_newns=(56, 0x20011, 0, 0, 0, 0), x32_getpid=(0x40000000 + 39,))
for name, (number, *arguments) in calls.items():
    pid = os.getpid()
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if os.getpid() != pid: os._exit(0)
    if result >= 0: print('ALLOWED', name)
"""


def test_system_calls_that_lead_out_are_refused(tmp_path: Path) -> None:
    async def story(cell: Cell) -> None:
        assert await cell.python(_CALLS) == ""

    in_a_cell(tmp_path, story)


def test_other_processes_files_and_addresses_are_out_of_reach(tmp_path: Path) -> None:
    decoy = subprocess.Popen(["sleep", "300"])
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    secret = tmp_path / "secret"
    secret.write_text("of the machine")

    async def story(cell: Cell) -> None:
        for attempt in (f"kill -9 {decoy.pid}", f"ls /proc/{decoy.pid}/root", f"cat {secret}"):
            assert (await cell.root(attempt)).code != 0, attempt
        attach = f"ctypes.CDLL(None).ptrace(16, {decoy.pid}, 0, 0)"
        assert await cell.python(f"import ctypes\nprint({attach})") == "-1", "ptrace"
        assert decoy.poll() is None
        processes = int((await cell.root("ls -d /proc/[0-9]* | wc -l")).out)
        assert processes < 12, "it sees its own processes and no others"
        assert (await cell.root("ls -di /proc/1/root/ | cut -d' ' -f1")).out == (
            await cell.root("ls -di / | cut -d' ' -f1")
        ).out
        for address in ("127.0.0.1", "10.77.0.1"):
            assert (await cell.root(f"timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{port}'")).code != 0, address
        spoof = "import socket; s=socket.socket(); s.bind(('10.77.0.99', 0))"
        assert (await cell.root(f'python3 -c "{spoof}"')).code != 0

    try:
        in_a_cell(tmp_path, story)
    finally:
        decoy.kill()
        decoy.wait()
        listener.close()


def test_another_nodes_files_are_out_of_reach(tmp_path: Path) -> None:
    async def story(cell: Cell) -> None:
        places = ("/root", "/tmp", "/var/tmp", "/dev/shm", "/run")
        hide = "; ".join(f"echo theirs > {place}/of-node-2" for place in places)
        assert (await cell.fleet.substrate.run("node-2", ["sh", "-c", hide])).code == 0
        found = "find / /proc/[0-9]*/root/ -xdev -name of-node-2 2>/dev/null"
        assert (await cell.root(found, seconds=60)).out == ""

    in_a_cell(tmp_path, story)


def test_a_node_is_limited_in_memory_processes_cpu_and_disk(tmp_path: Path) -> None:
    async def story(cell: Cell) -> None:
        groups = Cgroups(cell.fleet.home_id)
        limits = [Path(file).parent for file in groups.join_files(("alpha", "node-1"))]
        files = (
            "pids.max",
            "memory.max",
            "memory.limit_in_bytes",
            "cpu.max",
            "cpu.cfs_quota_us",
            "cpu.cfs_period_us",
        )
        there = [group / name for group in limits for name in files if (group / name).exists()]
        said = {path.name: path.read_text().strip() for path in there}
        memory = int(said.get("memory.max") or said["memory.limit_in_bytes"])
        assert said["pids.max"] == "1024"
        assert memory == 768 << 20
        wish = node_wish("node-1", fabric="alpha", name="node-1")
        quota = said.get("cpu.max", "").split() or [said["cpu.cfs_quota_us"], said["cpu.cfs_period_us"]]
        assert int(quota[0]) == wish.cpus * int(quota[1])
        disk = int((await cell.root("df --output=size -B1 / | tail -1")).out)
        assert disk <= memory // 2, "what is written lies in its memory"

    in_a_cell(tmp_path, story)


def test_groups_of_the_second_version_are_joined_killed_and_removed() -> None:
    """On the kernel itself, as far as a machine that uses v1 controllers can show it."""
    tree = next((path for path in (CGROUPS, CGROUPS / "unified") if (path / "cgroup.controllers").exists()), None)
    if tree is None:
        pytest.skip("needs a cgroup2 file system: mount one at /sys/fs/cgroup or /sys/fs/cgroup/unified")
    groups = Cgroups(f"test-{os.getpid()}", tree)
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        groups.make(("fabric", "node"))
        for path in groups.join_files(("fabric", "node")):
            Path(path).write_text(str(sleeper.pid))
        assert groups.members() == [sleeper.pid]
        assert not groups.kill(), "there was somebody"
        sleeper.wait(10)
        assert groups.kill()
        assert groups.remove()
        assert groups.children() == set()
    finally:
        sleeper.kill()
        sleeper.wait()
        groups.remove()


def test_a_fork_bomb_stays_inside_and_ends_with_the_node(tmp_path: Path) -> None:
    async def story(cell: Cell) -> None:
        bomb = asyncio.create_task(cell.root("b(){ b|b & }; b; sleep 4", seconds=6))
        await asyncio.sleep(1.5)
        assert await asyncio.to_thread(subprocess.call, ["true"]) == 0, "the machine can still fork"
        assert (await cell.fleet.substrate.run("node-2", ["hostname"])).out == "node-2\n"
        await cell.fleet.substrate.ensure_absent(["node-1"], OURS)
        await cell.fleet.until_absent(["node-1"])
        await asyncio.gather(bomb, return_exceptions=True)

    in_a_cell(tmp_path, story)


def test_a_memory_hog_a_full_disk_and_full_shared_memory_stay_inside(tmp_path: Path) -> None:
    async def story(cell: Cell) -> None:
        full = await cell.root("head -c 20G /dev/zero > /var/tmp/big", seconds=60)
        assert full.code != 0
        assert (await cell.root("rm -f /var/tmp/big && df --output=used / | tail -1")).code == 0
        hog = await cell.root("python3 -c 'a=[]\nwhile True: a.append(bytearray(1<<26))'", seconds=60)
        assert hog.code != 0, "killed at its limit"
        assert (await cell.root("true")).code == 0, "and the node runs on"

    in_a_cell(tmp_path, story)


def test_a_prepared_path_does_not_lead_a_mount_astray(tmp_path: Path) -> None:
    """A tenant puts a symlink where a volume will be mounted: refused, and nothing of the node is covered."""

    async def story(cell: Cell) -> None:
        substrate = cell.fleet.substrate
        await substrate.ensure([VolumeWish(key="data", region="here", size_gib=1)], Fence("data", 1))
        await cell.fleet.until(["data"], Power.UP)
        await cell.root("ln -s /etc /mnt/trap")
        wish = replace(
            node_wish("node-1", fabric="alpha", name="node-1"), mounts=(Mount(volume_id="data", path="/mnt/trap"),)
        )
        await substrate.ensure([wish], OURS)
        for _ in range(3000):
            seen = (await substrate.observe(["node-1"]))["node-1"]
            if seen.because:
                break
            await asyncio.sleep(0.02)
        assert "symbolic links" in seen.because
        assert (await cell.root("test -e /etc/passwd")).code == 0
        await substrate.ensure([replace(wish, mounts=())], OURS)

    in_a_cell(tmp_path, story)


def test_only_the_named_user_may_call(tmp_path: Path) -> None:
    async def told() -> None:
        async with fleet(tmp_path) as running:
            os.chmod(tmp_path, 0o755)
            mode = (tmp_path / "hostd.sock").stat().st_mode & 0o777
            assert mode == 0o600
            script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
            command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "python3", "-c", script]
            assert await asyncio.to_thread(subprocess.call, [*command, str(running.home / "hostd.sock")]) != 0

    asyncio.run(told())

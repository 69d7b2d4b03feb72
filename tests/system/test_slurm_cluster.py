"""What a tenant does on a real Slurm cluster, and what happens to it when things break."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.contracts.orchestrator import Standing
from muster.contracts.substrate import Fence, Power, VolumeWish
from muster.errors import DriverError, Never
from muster.hostd.rootfs import rootfs_path
from muster.model.access import Rule
from muster.model.clusters import ClusterConfig, Mount, Scripts
from muster.testing.local import PATIENCE_SECONDS, Fleet, cache, fleet
from muster.testing.local_slurm import SlurmCluster, slurm

pytestmark = pytest.mark.usefixtures("machine")

Story = Callable[[SlurmCluster], Awaitable[None]]


def on_a_cluster(
    home: Path, story: Story, *, workers: int = 2, prepare: Callable[[SlurmCluster], None] | None = None
) -> None:
    async def told() -> None:
        async with fleet(home) as running, slurm(running) as orchestrator:
            cluster = SlurmCluster(running, "alpha", orchestrator)
            if prepare is not None:
                prepare(cluster)
            progress = await cluster.converge(workers)
            assert not progress.failed, progress
            await story(cluster)

    asyncio.run(told())


def test_srun_sbatch_scancel_as_the_tenant(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        hosts = await cluster.says("login", "srun -N2 --gpus-per-node=2 hostname")
        assert sorted(hosts.split()) == ["worker-0", "worker-1"]
        await cluster.says("login", "sbatch --wait -N2 -o out.txt --wrap 'srun hostname'")
        assert sorted((await cluster.says("worker-1", "cat out.txt")).split()) == ["worker-0", "worker-1"]
        await cluster.says("login", "sbatch -J long --wrap 'sleep 600'")
        await cluster.says("login", "scancel -n long")
        await _until_says(cluster, "login", "squeue -h -n long", "")

    on_a_cluster(tmp_path, story)


def test_gpus_are_counted_and_handed_out(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        assert await cluster.says("login", "srun --gpus=h100:1 sh -c 'echo $CUDA_VISIBLE_DEVICES'") == "0"
        both = "srun -N1 --gpus=1 sh -c 'echo $CUDA_VISIBLE_DEVICES; sleep 1' & " * 2 + "wait"
        await cluster.says("login", "scontrol update nodename=worker-1 state=drain reason=test", user="root")
        assert sorted((await cluster.says("login", both)).split()) == ["0", "1"]
        ran = await cluster.run("login", "srun --immediate=2 --gpus=3 true")
        assert ran.code != 0, "three GPUs do not exist on a node of two"

    on_a_cluster(tmp_path, story)


def test_ssh_from_outside_and_between_nodes(tmp_path: Path) -> None:
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    home = tmp_path / "home"
    home.mkdir()

    def prepare(cluster: SlurmCluster) -> None:
        cluster.keys = (key.with_suffix(".pub").read_text().strip(),)

    async def story(cluster: SlurmCluster) -> None:
        facts = await cluster.orchestrator.access(await cluster.now())
        options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        command = ["ssh", "-i", str(key), *options, "-o", "BatchMode=yes", "-p", str(facts.ssh_port)]
        command += [f"{facts.ssh_user}@{facts.ssh_host}"]

        async def ssh(words: str) -> str:
            process = await asyncio.create_subprocess_exec(*command, words, stdout=asyncio.subprocess.PIPE)
            out, _ = await asyncio.wait_for(process.communicate(), 30)
            assert process.returncode == 0, words
            return out.decode().strip()

        assert await ssh("hostname") == "login"
        assert sorted((await ssh("srun -N2 hostname")).split()) == ["worker-0", "worker-1"]
        assert await ssh("ssh -o BatchMode=yes worker-1 hostname") == "worker-1"
        assert await ssh("sudo -n id -u") == "0"

    on_a_cluster(home, story, prepare=prepare)


def test_a_failing_prolog_drains_the_node_with_its_reason(tmp_path: Path) -> None:
    def prepare(cluster: SlurmCluster) -> None:
        script = '#!/bin/sh\n[ "$(hostname)" = worker-0 ] && exit 1\nexit 0\n'
        cluster.config = ClusterConfig(scripts=Scripts(worker_prolog=script))

    async def story(cluster: SlurmCluster) -> None:
        await cluster.says("login", "sbatch -w worker-0 --wrap true")
        await cluster.until_standing("worker-0", Standing.DRAINED)
        assert "prolog" in (await cluster.says("login", "sinfo -h -R -o %E")).lower()
        assert await cluster.says("login", "srun -w worker-1 hostname") == "worker-1"

    on_a_cluster(tmp_path, story, prepare=prepare)


def test_scripts_and_extra_lines_are_applied_live_or_refused_whole(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        scripts = Scripts(
            extra_slurm_conf="MaxArraySize=4242",
            nodeset_init="#!/bin/sh\necho made > /etc/nodeset\n",
            login_init="#!/bin/sh\necho made > /etc/login-init\n",
            lifecycle="#!/bin/sh\necho made > /etc/lifecycle\n",
        )
        cluster.config = ClusterConfig(scripts=scripts)
        await cluster.converge()
        assert "4242" in await cluster.says("login", "scontrol show config | grep MaxArraySize")
        assert await cluster.says("worker-1", "cat /etc/nodeset /etc/lifecycle") == "made\nmade"
        assert await cluster.says("login", "cat /etc/login-init /etc/lifecycle") == "made\nmade"
        for refused, because in (
            ("Include /etc/passwd", "Include may not be set"),
            ("AuthType=auth/none", "AuthType may not be set"),
            ("NoSuchOption=1", "unrecognized key"),
            ("PriorityType=priority/nosuch", "priority"),  # parsed, but no controller starts with it
            (
                "PartitionName=x Nodes=nosuch",
                "Invalid node names in partition x",
            ),  # nor reads it while running: it dies
        ):
            cluster.config = ClusterConfig(scripts=replace(scripts, extra_slurm_conf=refused))
            with pytest.raises(Never, match=because):
                await cluster.converge()
        assert "4242" in await cluster.says("login", "scontrol show config | grep MaxArraySize")
        assert sorted((await cluster.says("login", "srun -N2 hostname")).split()) == ["worker-0", "worker-1"]
        job = await cluster.says("login", "sbatch --parsable --wrap 'sleep 600'")
        await _until_says(cluster, "login", f"squeue -h -j {job} -o %T", "RUNNING")
        cluster.config = ClusterConfig(scripts=replace(scripts, extra_slurm_conf="SchedulerType=sched/builtin"))
        await cluster.converge()
        assert "builtin" in await cluster.says("login", "scontrol show config | grep SchedulerType"), (
            "read at a start"
        )
        assert await cluster.says("login", f"squeue -h -j {job} -o %T") == "RUNNING"
        assert "gpu:h100:2" in await cluster.says("login", "scontrol show node worker-1 | grep Gres")
        assert await cluster.says("controller", "ls /tmp", user="root") == "", "trials leave nothing behind"

    on_a_cluster(tmp_path, story)


def test_two_clusters_at_once_cannot_reach_one_another(tmp_path: Path) -> None:
    async def story(alpha: SlurmCluster) -> None:
        beta = SlurmCluster(alpha.fleet, "beta", alpha.orchestrator)
        await beta.converge(1)
        # the same addresses in both: whoever answers on beta's addresses is alpha's own, or nobody
        assert await alpha.says("login", "srun -w worker-1 hostname") == "worker-1"
        assert await beta.says("login", "srun hostname") == "worker-0"
        ran = await beta.run("login", "timeout 2 bash -c 'exec 3<>/dev/tcp/10.77.0.5/6818'")
        assert ran.code != 0, "beta has no second worker at that address; alpha has"
        assert (await alpha.run("login", "exec 3<>/dev/tcp/10.77.0.5/6818")).code == 0
        other = await beta.says("controller", "cat /etc/cluster/munge.key", user="root")
        assert other != await alpha.says("controller", "cat /etc/cluster/munge.key", user="root")
        assert (await alpha.run("login", "timeout 2 bash -c 'exec 3<>/dev/tcp/198.51.100.1/80'")).code != 0

    on_a_cluster(tmp_path, story)


def test_shared_memory_follows_the_wish_while_running(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        await cluster.says("worker-0", "echo kept > /dev/shm/file")
        cluster.shm_gib = 3
        await cluster.power_up()
        await _until_says(cluster, "worker-0", "df --output=size -BG /dev/shm | tail -1", "3G")
        assert await cluster.says("worker-0", "cat /dev/shm/file") == "kept"
        assert "nosuid,nodev" in await cluster.says("worker-0", "findmnt -n -o OPTIONS /dev/shm")

    on_a_cluster(tmp_path, story, workers=1)


def test_security_rules_open_and_close_the_door_live(tmp_path: Path) -> None:
    async def knocks(port: int) -> bool:
        """Whether sshd greets us from outside."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return (await asyncio.wait_for(reader.read(4), 10)) == b"SSH-"
        finally:
            writer.close()
            await writer.wait_closed()

    async def story(cluster: SlurmCluster) -> None:
        facts = await cluster.orchestrator.access(await cluster.now())
        assert await knocks(facts.ssh_port), "without groups SSH is let in"
        for cidr, opened in (("203.0.113.0/24", False), ("127.0.0.0/8", True)):
            cluster.rules = (Rule(direction="inbound", protocol="tcp", port_min=22, port_max=22, cidr=cidr),)
            await cluster.power_up()
            assert await knocks(facts.ssh_port) is opened, cidr
        shut = (Rule(direction="inbound", protocol="tcp", port_min=80, port_max=80),)
        for cluster.rules, because in (
            (shut, "only port 80 is let in"),
            ((), "a group without rules lets nothing in"),
        ):
            await cluster.power_up()
            assert not await knocks(facts.ssh_port), because
        assert await cluster.says("login", "srun hostname"), "rules do not come between the nodes"

    on_a_cluster(tmp_path, story, workers=1)


def test_volumes_outlive_clusters_attach_detach_and_grow_while_running(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        substrate, owner = cluster.fleet.substrate, Fence("data", 1)
        await substrate.ensure([VolumeWish(key="data", region="here", size_gib=1)], owner)
        await cluster.fleet.until(["data"], Power.UP)
        cluster.mounts = (Mount(volume_id="data", path="/mnt/data"),)
        await cluster.power_up()
        await _mounted(cluster, "worker-0")
        await _mounted(cluster, "worker-1")
        await cluster.says("worker-0", "echo kept > /mnt/data/file")
        assert await cluster.says("worker-1", "cat /mnt/data/file") == "kept"
        ran = await cluster.run(
            "worker-0", "head -c 1500000000 /dev/zero > /mnt/data/big; rm -f /mnt/data/big; exit 0"
        )
        assert "No space left" in ran.err
        await substrate.ensure([VolumeWish(key="data", region="here", size_gib=3)], owner)
        await _until_says(cluster, "worker-0", "df --output=size -BG /mnt/data | tail -1", "3G")
        cluster.mounts = ()
        await cluster.power_up()
        await _until_says(cluster, "worker-1", "findmnt -n /mnt/data || echo none", "none")
        await cluster.remove()
        second = SlurmCluster(cluster.fleet, "beta", cluster.orchestrator)
        second.mounts = (Mount(volume_id="data", path="/data", read_only=True),)
        await second.converge(1)
        assert await second.says("worker-0", "cat /data/file") == "kept"
        assert (await second.run("worker-0", "touch /data/new")).code != 0

    on_a_cluster(tmp_path, story)


async def _mounted(cluster: SlurmCluster, name: str) -> None:
    await _until_says(cluster, name, "findmnt -n -o FSTYPE /mnt/data || echo none", "xfs")


async def _until_says(cluster: SlurmCluster, name: str, command: str, wanted: str) -> None:
    said = ""
    for _ in range(int(PATIENCE_SECONDS / 0.05)):
        said = (await cluster.says(name, command)).strip()
        if said == wanted:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{command}: {said!r}, not {wanted!r}")


def test_resize_under_a_running_job(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        job = await cluster.says("login", "sbatch --parsable --exclusive -w worker-0 --wrap 'sleep 600'")
        await cluster.until_standing("worker-0", Standing.BUSY)
        started = await cluster.says("controller", "cat /run/slurm/slurmctld.pid")
        await cluster.converge(3)
        assert sorted((await cluster.says("login", "srun -N2 hostname")).split()) == ["worker-1", "worker-2"]
        full = await cluster.now()
        leaving = cluster.key("worker-2")
        await cluster.orchestrator.drain(full, [leaving], "the cluster shrinks", cluster.fence)
        await cluster.until_standing("worker-2", Standing.DRAINED)
        cluster.workers.remove("worker-2")
        cluster.generation += 1
        await cluster.orchestrator.expel(await cluster.now(), [leaving], cluster.fence)
        await cluster.fleet.substrate.ensure_absent([leaving], cluster.fence)
        await cluster.fleet.until_absent([leaving])
        await cluster.converge_to(await cluster.now())
        assert "worker-2" not in await cluster.says("login", "sinfo -h -N -o %N")
        assert await cluster.says("login", f"squeue -h -j {job} -o %T") == "RUNNING"
        assert await cluster.says("controller", "cat /run/slurm/slurmctld.pid") == started, "nothing was restarted"

    on_a_cluster(tmp_path, story)


def test_a_killed_node_is_down_at_once_and_its_job_is_requeued(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        woken = asyncio.Event()
        cluster.fleet.substrate.watch(lambda owner: woken.set())
        job = await cluster.says("login", "sbatch --parsable --requeue -w worker-0 --wrap 'sleep 600'")
        await cluster.until_standing("worker-0", Standing.BUSY)
        await asyncio.sleep(0)
        woken.clear()
        cluster.kill_init("worker-0")
        await asyncio.wait_for(
            woken.wait(), PATIENCE_SECONDS
        )  # nobody asks meanwhile: the kernel tells hostd, hostd us
        assert await cluster.standing("worker-0") is Standing.DOWN
        word = ""
        for _ in range(300):  # a reply of the dead slurmd, still under way, may speak for it once more
            word = await cluster.says("login", "sinfo -h -N -n worker-0 -o %T")
            if word.rstrip("*") == "down":
                break
            await cluster.standing("worker-0")
        else:
            raise AssertionError(f"Slurm still believes in the dead node: {word}")
        await _until_says(cluster, "login", f"squeue -h -j {job} -o %T", "PENDING")
        cluster.boots["worker-0"] = 2
        await cluster.converge()
        await cluster.until_standing("worker-0", Standing.IDLE)
        assert sorted((await cluster.says("login", "srun -N2 hostname")).split()) == ["worker-0", "worker-1"]

    on_a_cluster(tmp_path, story)


def test_a_requeued_job_runs_again_soon(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        job = await cluster.says("login", "sbatch --parsable --requeue --wrap 'sleep 600'")
        await _until_says(cluster, "login", f"squeue -h -j {job} -o %T", "RUNNING")
        struck = await cluster.says("login", f"squeue -h -j {job} -o %N")
        other = {"worker-0": "worker-1", "worker-1": "worker-0"}[struck]
        cluster.kill_init(struck)
        for _ in range(400):
            await cluster.standing(struck)
            if await cluster.says("login", f"squeue -h -j {job} -o %T:%N") == f"RUNNING:{other}":
                return
            await asyncio.sleep(0.3)
        raise AssertionError(await cluster.says("login", f"scontrol show job {job}"))

    on_a_cluster(tmp_path, story)


def test_a_killed_slurmd_is_noticed_and_mended(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        woken = asyncio.Event()
        cluster.orchestrator.watch(lambda owner: woken.set())
        await cluster.standing("worker-0")
        await cluster.says("worker-0", "kill -9 $(cat /run/slurm/slurmd.pid)", user="root")
        await asyncio.wait_for(woken.wait(), PATIENCE_SECONDS)
        assert await cluster.standing("worker-0") is Standing.DOWN
        await cluster.converge_to(await cluster.now())
        await cluster.until_standing("worker-0", Standing.IDLE)
        assert await cluster.says("login", "srun -w worker-0 hostname") == "worker-0"

    on_a_cluster(tmp_path, story)


def test_a_cut_link_is_unknown_and_heals(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        await cluster.fleet.substrate.cut_link(cluster.key("worker-0"))
        await cluster.until_standing("worker-0", Standing.UNKNOWN)
        assert (await cluster.fleet.substrate.observe([cluster.key("worker-0")]))[
            cluster.key("worker-0")
        ].power is Power.UP
        await cluster.fleet.substrate.mend_link(cluster.key("worker-0"))
        await cluster.until_standing("worker-0", Standing.IDLE)
        assert await cluster.says("login", "srun -w worker-0 hostname") == "worker-0"

    on_a_cluster(tmp_path, story)


def test_a_killed_slurmctld_is_started_again_and_gpus_still_work(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        job = await cluster.says("login", "sbatch --parsable --exclusive -w worker-0 --wrap 'sleep 600'")
        await cluster.until_standing("worker-0", Standing.BUSY)
        # slurmctld saves its state within some five seconds; earlier kills lose the job by design
        saved = "touch /tmp/now; for i in {1..80}; do [ $S/job_state -nt /tmp/now ] && break; sleep 0.1; done"
        await cluster.says("controller", f"S=/var/spool/slurmctld; {saved}", user="root")
        await cluster.says("controller", "kill -9 $(cat /run/slurm/slurmctld.pid)", user="root")
        await cluster.until_standing("controller", Standing.DOWN)
        await cluster.converge_to(await cluster.now())
        await cluster.until_standing("worker-1", Standing.IDLE)
        assert await cluster.says("login", "srun -w worker-1 --gpus=2 sh -c 'echo $CUDA_VISIBLE_DEVICES'") == "0,1"
        assert await cluster.says("login", f"squeue -h -j {job} -o %T") == "RUNNING"

    on_a_cluster(tmp_path, story)


def test_clusters_run_on_while_hostd_is_killed_and_are_adopted(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        job = await cluster.says("login", "sbatch --parsable --exclusive -w worker-0 --wrap 'sleep 600'")
        await cluster.until_standing("worker-0", Standing.BUSY)
        before = {name: cluster.init_of(name) for name in ("controller", "login", "worker-0", "worker-1")}
        cluster.fleet.kill(signal.SIGKILL)
        with pytest.raises(DriverError):
            await cluster.says("login", "true")
        await cluster.fleet.start()
        assert {name: cluster.init_of(name) for name in before} == before
        assert await cluster.says("login", f"squeue -h -j {job} -o %T") == "RUNNING"
        await cluster.converge(3)
        assert sorted((await cluster.says("login", "srun -N2 hostname")).split()) == ["worker-1", "worker-2"]
        cluster.fleet.kill(signal.SIGKILL)
        os.kill(before["worker-1"], signal.SIGKILL)
        await cluster.fleet.start()
        found = await cluster.fleet.substrate.observe([cluster.key("worker-0"), cluster.key("worker-1")])
        assert found[cluster.key("worker-0")].power is Power.UP
        assert found[cluster.key("worker-1")].power is Power.DEAD

    on_a_cluster(tmp_path, story)


def test_accounting_is_a_choice_and_can_be_made_later(tmp_path: Path) -> None:
    async def story(cluster: SlurmCluster) -> None:
        running = await cluster.says("login", "sbatch --parsable --exclusive -w worker-0 --wrap 'sleep 600'")
        await cluster.until_standing("worker-0", Standing.BUSY)
        assert (await cluster.run("login", "sacct")).code != 0, "off by default"
        cluster.config = ClusterConfig(accounting=True)
        progress = await cluster.converge()
        assert not progress.failed, progress
        await cluster.until_standing("worker-1", Standing.IDLE)
        job = await cluster.says("login", "sbatch --parsable --wait -w worker-1 --gpus=1 -J counted --wrap hostname")
        said = ""
        for _ in range(600):
            said = await cluster.says("login", f"sacct -n -X -P -j {job} -o JobName,State,AllocTRES,User")
            if "COMPLETED" in said:
                break
            await asyncio.sleep(0.1)
        assert said.startswith("counted|COMPLETED|")
        assert "gres/gpu=1" in said
        assert said.endswith("|ubuntu")
        assert await cluster.says("login", f"squeue -h -j {running} -o %T") == "RUNNING"

    on_a_cluster(tmp_path, story)


def test_another_image_by_its_name_and_an_unknown_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, home = tmp_path / "cache", tmp_path / "home"
    for directory in (own / "images", home):
        directory.mkdir(parents=True)
    (own / "rootfs").symlink_to(cache() / "rootfs")
    image = own / "images" / "custom"
    subprocess.run(["cp", "-a", "--reflink=auto", str(rootfs_path(cache())), str(image)], check=True)
    (image / "etc" / "flavour").write_text("our own\n")
    monkeypatch.setenv("MUSTER_CACHE", str(own))

    def prepare(cluster: SlurmCluster) -> None:
        cluster.config = ClusterConfig(slurm_image="custom")

    async def story(cluster: SlurmCluster) -> None:
        assert await cluster.says("login", "srun cat /etc/flavour") == "our own"
        cluster.config = ClusterConfig(slurm_image="nowhere")
        cluster.boots = dict.fromkeys(("controller", "login", "worker-0"), 2)
        with pytest.raises(Never, match=r"no image 'nowhere' \(it has: custom\)"):
            await cluster.power_up()

    on_a_cluster(home, story, workers=1, prepare=prepare)
    shutil.rmtree(own)  # large: not for pytest to keep


def test_a_single_instance_is_a_cluster_of_one(tmp_path: Path) -> None:
    def prepare(cluster: SlurmCluster) -> None:
        cluster.control = ()

    async def story(cluster: SlurmCluster) -> None:
        said = await cluster.says("worker-0", "srun --gpus=2 sh -c 'hostname; echo $CUDA_VISIBLE_DEVICES'")
        assert said.split() == ["worker-0", "0,1"]
        facts = await cluster.orchestrator.access(await cluster.now())
        assert facts.login_name == "worker-0"
        assert facts.ssh_port
        assert await cluster.standing("worker-0") is Standing.IDLE

    on_a_cluster(tmp_path, story, workers=1, prepare=prepare)


def test_two_homes_on_one_machine_never_touch_one_another(tmp_path: Path) -> None:
    async def told() -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        async with fleet(tmp_path / "one") as one, fleet(tmp_path / "two") as two:
            both: list[Fleet] = [one, two]
            for running in both:
                async with slurm(running) as orchestrator:
                    cluster = SlurmCluster(running, "alpha", orchestrator)
                    cluster.workers, cluster.generation = [], 1
                    await cluster.power_up()
            bases = [
                (await running.substrate.run("alpha-login", ["cat", "/proc/self/uid_map"])).out.split()[1]
                for running in both
            ]
            assert bases[0] != bases[1], "no uid range is shared"
            await one.remove_everything()
            assert (await two.until(["alpha-login"], Power.UP))["alpha-login"].power is Power.UP

    asyncio.run(told())

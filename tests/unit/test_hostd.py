"""hostd's decisions and its memory, without root and without a machine to change."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.contracts.substrate import FabricWish, Power
from muster.errors import FencedOff, Never
from muster.hostd.cgroups import Cgroups, Limits
from muster.hostd.children import Children
from muster.hostd.confine import KEPT, filter_program
from muster.hostd.disks import copy_sparse
from muster.hostd.fabric import address_of, permits, ruleset
from muster.hostd.launch import keep_in_sight
from muster.hostd.netlink import mac_of
from muster.hostd.processes import Identity, identify
from muster.hostd.rootfs import DEFAULT_MIRROR, machine_mirror, recipe_digest, rootfs_path
from muster.hostd.shop import Rations, Shop
from muster.hostd.state import FabricRecord, NodeRecord, State, checked_key, id_base
from muster.model.access import Rule
from muster.testing.local import fabric_wish, node_wish


def rule(cidr: str = "0.0.0.0/0", low: int = 22, high: int = 22, protocol: str = "tcp", way: str = "inbound") -> Rule:
    return Rule(direction=way, protocol=protocol, port_min=low, port_max=high, cidr=cidr)


def test_rules_judge_address_port_protocol_and_direction() -> None:
    office = (rule("203.0.113.0/24"), rule("0.0.0.0/0", 8000, 8999))
    assert permits(office, "203.0.113.9", 22)
    assert not permits(office, "198.51.100.1", 22)
    assert permits(office, "198.51.100.1", 8080)
    assert not permits((rule(protocol="udp"),), "203.0.113.9", 22)
    assert not permits((rule(way="outbound"),), "203.0.113.9", 22)
    assert permits((rule(protocol="any"),), "203.0.113.9", 22)
    assert not permits((rule("0.0.0.0/0"),), "2001:db8::1", 22), "an IPv4 rule says nothing of IPv6"


def test_without_a_group_ssh_and_nothing_else_comes_in() -> None:
    assert permits(None, "198.51.100.1", 22)
    assert not permits(None, "198.51.100.1", 6817)
    assert "tcp dport 22-22 accept" in ruleset(None)


def test_a_group_without_rules_lets_nothing_in() -> None:
    assert not permits((), "198.51.100.1", 22)
    assert "dport" not in ruleset(())


def test_the_edge_drops_by_default() -> None:
    text = ruleset((rule(low=80, high=90),))
    assert text.count("policy drop") == 3
    assert "tcp dport 80-90 accept" in text
    assert "dport 22" not in text


def test_addresses_are_distinct_and_inside_the_fabric() -> None:
    addresses = [address_of(number) for number in range(2000)]
    assert len(set(addresses)) == 2000
    assert "10.77.0.1" not in addresses
    assert len({mac_of(address) for address in addresses}) == 2000


def test_fences_never_fall_and_owners_are_apart(tmp_path: Path) -> None:
    state = State(tmp_path / "state", "home", tmp_path / "ids")
    state.fence("a", 5)
    state.fence("a", 5)
    with pytest.raises(FencedOff):
        state.fence("a", 4)
    state.fence("b", 1)
    again = State(tmp_path / "state", "home", tmp_path / "ids")
    with pytest.raises(FencedOff):
        again.fence("a", 4)


def test_two_homes_never_share_a_uid_range(tmp_path: Path) -> None:
    one = State(tmp_path / "one", "one", tmp_path / "ids")
    two = State(tmp_path / "two", "two", tmp_path / "ids")
    taken = [one.take_range("x"), two.take_range("x"), one.take_range("y")]
    assert len(set(taken)) == 3
    two.free_range(taken[0], "x")
    assert one.take_range("z") not in taken, "another home's range is not ours to free"
    one.sweep_ranges({"x"})
    assert sorted(path.name for path in (tmp_path / "ids").iterdir()) == sorted(map(str, taken[:2]))
    assert id_base(1) - id_base(0) == 65536


def test_records_come_back_whole(tmp_path: Path) -> None:
    state = State(tmp_path / "state", "home", tmp_path / "ids")
    record = FabricRecord(
        wish=FabricWish(key="k", region="r", rules=(rule(),)),
        owner="o",
        slot=3,
        holder=Identity(pid=1, started=2),
        numbers={"n": 0},
    )
    state.save("fabric", record)
    assert state.load("fabric", FabricRecord) == {"k": record}
    state.forget("fabric", "k")
    assert state.load("fabric", FabricRecord) == {}


@pytest.mark.parametrize("key", ["", "../x", "a/b", ".hidden", "x" * 101, "a b", "a\n"])
def test_keys_are_names_and_never_paths(key: str) -> None:
    with pytest.raises(Never):
        checked_key(key)


def test_a_process_is_its_pid_and_its_start() -> None:
    me = identify(1)
    assert me is not None
    assert me.alive
    assert not Identity(pid=1, started=me.started + 1).alive


def test_the_filter_is_a_sound_program() -> None:
    """Every jump lands inside, and the last word is a decision."""
    program = [struct.unpack_from("HBBI", filter_program(), at) for at in range(0, len(filter_program()), 8)]
    for at, (code, if_true, if_false, _) in enumerate(program):
        if code & 0x07 == 0x05:
            assert at + 1 + max(if_true, if_false) < len(program)
    assert program[-1][0] == 0x06
    assert "sys_admin" not in KEPT
    assert len(KEPT) == 14


def test_the_mirror_is_the_machines_own(tmp_path: Path) -> None:
    apt = tmp_path / "apt" / "sources.list.d"
    apt.mkdir(parents=True)
    release = tmp_path / "os-release"
    release.write_text('ID=debian\nVERSION_CODENAME="trixie"\n')
    assert machine_mirror(tmp_path) == DEFAULT_MIRROR
    (apt / "a.list").write_text("deb [arch=amd64 signed-by=/x] https://other.example/apt stable main\n")
    (apt / "debian.sources").write_text(
        "Types: deb\n# a comment\nURIs: http://mirror.example/debian/\nSuites: trixie trixie-updates\n"
    )
    assert machine_mirror(tmp_path) == "http://mirror.example/debian"
    release.write_text("ID=ubuntu\nVERSION_CODENAME=noble\n")
    assert machine_mirror(tmp_path) == DEFAULT_MIRROR, "an Ubuntu mirror has no Debian"


def test_the_root_file_system_is_named_by_its_recipe() -> None:
    assert rootfs_path(Path("/c")).name.endswith(recipe_digest())


def test_nothing_is_covered_where_nothing_is_closed() -> None:
    keep_in_sight([Path("/usr/bin")])


LIMITS = Limits(pids=99, memory_bytes=1 << 30, cpu_weight=50, cpus=4)


def _v1(root: Path) -> Path:
    for name in ("pids", "memory", "cpu", "devices", "unified"):
        (root / name).mkdir()
    return root


def _hybrid(root: Path) -> Path:
    """As systemd mounts it: two controllers in one place, and a link for each."""
    for name in ("pids", "memory", "cpu,cpuacct", "devices", "unified", "systemd"):
        (root / name).mkdir()
    (root / "cpu").symlink_to("cpu,cpuacct")
    (root / "cpuacct").symlink_to("cpu,cpuacct")
    return root


def _v2(root: Path) -> Path:
    (root / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids rdma misc\n")
    return root


V1_FILES = {
    "pids/muster-h/fabric/node/pids.max": "99",
    "memory/muster-h/fabric/node/memory.limit_in_bytes": str(1 << 30),
    "cpu/muster-h/fabric/node/cpu.shares": "512",
    "cpu/muster-h/fabric/node/cpu.cfs_quota_us": "400000",
    "devices/muster-h/fabric/node/devices.deny": "a",
}
V2_FILES = {
    "muster-h/fabric/node/pids.max": "99",
    "muster-h/fabric/node/memory.max": str(1 << 30),
    "muster-h/fabric/node/memory.swap.max": "0",
    "muster-h/fabric/node/cpu.weight": "50",
    "muster-h/fabric/node/cpu.max": "400000 100000",
}


@pytest.mark.parametrize(("layout", "files"), [(_v1, V1_FILES), (_hybrid, V1_FILES), (_v2, V2_FILES)])
def test_limits_on_every_layout_of_cgroups(
    tmp_path: Path, layout: Callable[[Path], Path], files: dict[str, str]
) -> None:
    groups = Cgroups("h", layout(tmp_path))
    assert groups.lacks() == ""
    groups.make(("fabric", "node"), LIMITS, devices=True)
    assert {path: (tmp_path / path).read_text() for path in files} == files
    assert groups.children() == {"fabric"}
    assert groups.children(("fabric",)) == {"node"}
    for path in groups.join_files(("fabric", "node")):
        Path(path).write_text("4194304\n")
    assert groups.members() == [4194304], "one process, in however many trees"


def test_on_v2_every_level_hands_its_controllers_down(tmp_path: Path) -> None:
    Cgroups("h", _v2(tmp_path)).make(("fabric", "node"))
    for level in ("", "muster-h", "muster-h/fabric"):
        assert (tmp_path / level / "cgroup.subtree_control").exists(), level
    assert not (tmp_path / "muster-h/fabric/node/cgroup.subtree_control").exists(), "processes sit at the leaf"


def test_a_machine_that_could_not_limit_nodes_is_told_so(tmp_path: Path) -> None:
    assert "no cgroup file system" in Cgroups("h", tmp_path).lacks()
    (tmp_path / "memory").mkdir()
    assert "for pids" in Cgroups("h", tmp_path).lacks()
    (tmp_path / "cgroup.controllers").write_text("cpu io\n")
    assert "for pids and memory" in Cgroups("h", tmp_path).lacks()


def shop_in(directory: Path) -> Shop:
    state = State(directory / "state", "home", directory / "ids")
    return Shop(state, Cgroups("home", directory), Children(), Rations.of_this_machine(), directory, directory)


def put(shop: Shop, name: str, power: Power) -> None:
    wish = node_wish(name, fabric="c", name=name)
    shop.put_node(NodeRecord(wish=wish, owner="c", number=0, power=power))


def test_of_nodes_coming_up_their_owner_hears_when_the_last_is_there(tmp_path: Path) -> None:
    async def story() -> None:
        shop, heard = shop_in(tmp_path), list[str]()
        shop.listeners.add(heard.append)
        shop.put_fabric(FabricRecord(wish=fabric_wish("c"), owner="c", slot=0))
        for power in (Power.STARTING, Power.UP):
            for name in ("a", "b"):
                put(shop, name, power)
        assert heard == [], "its network is still on its way"
        shop.put_fabric(FabricRecord(wish=fabric_wish("c"), owner="c", slot=0, power=Power.UP))
        assert heard == ["c"]

    asyncio.run(story())


def test_bad_news_does_not_wait_for_the_good(tmp_path: Path) -> None:
    async def story() -> None:
        shop, heard = shop_in(tmp_path), list[str]()
        shop.listeners.add(heard.append)
        put(shop, "a", Power.STARTING)
        put(shop, "b", Power.UP)
        assert heard == []
        put(shop, "b", Power.DEAD)
        assert heard == ["c"]

    asyncio.run(story())


def test_whoever_waits_for_a_slow_one_hears_of_the_others_meanwhile(tmp_path: Path) -> None:
    async def story() -> None:
        shop, heard = shop_in(tmp_path), asyncio.Event()
        shop.listeners.add(lambda owner: heard.set())
        put(shop, "slow", Power.STARTING)
        put(shop, "quick", Power.UP)
        await asyncio.wait_for(heard.wait(), 10)

    asyncio.run(story())


def test_a_copy_is_the_same_and_holds_no_more_than_what_is_there(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as handle:
        handle.truncate(64 << 20)
        for at, data in ((0, b"head"), (5 << 20, bytes(1 << 20)), ((64 << 20) - 4, b"tail")):
            handle.seek(at)
            handle.write(data)
    copy_sparse(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks * 512 <= 1 << 20

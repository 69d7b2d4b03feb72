"""A cluster's own network: a namespace with one routed veth per node, and the rules at its edge.

Leans on linux, netlink and `nft`. Laws: the namespace belongs to the initial user namespace, so no tenant has power
over its links or rules; the machine's own network is never touched; there is no shared segment and no ARP (the
kernel's ARP table is the whole machine's); a source address that is not the node's is dropped; nodes of one cluster
reach one another and nothing else; from outside only what a rule permits comes in.

The namespace is held by a sleeping process, because it must outlive hostd.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from muster.hostd import linux
from muster.hostd.builder import GATEWAY, GATEWAY_MAC
from muster.hostd.netlink import Netlink, mac_of, quieten, write_sysctl
from muster.model.access import Rule

NETWORK: Final = "10.77.0.0"
NODES_MAX: Final = 60_000
OWN_MARK: Final = 0x6D
"""On connections of the house itself (probes): the tenant's rules do not apply to them."""
_SO_MARK: Final = 36
WITHOUT_GROUPS: Final = (Rule(direction="inbound", protocol="tcp", port_min=22, port_max=22),)
"""A cluster without any security group lets SSH in and nothing else."""


def address_of(number: int) -> str:
    return f"10.77.{number // 250}.{2 + number % 250}"


def link_of(number: int) -> str:
    return f"v-{number}"


def permits(rules: Sequence[Rule] | None, source: str, port: int) -> bool:
    """Whether a TCP connection from that outside address to that port of a node may come in."""
    rules = WITHOUT_GROUPS if rules is None else rules
    asking = ipaddress.ip_address(source)
    return any(
        rule.direction == "inbound"
        and rule.protocol in ("tcp", "any")
        and rule.port_min <= port <= rule.port_max
        and asking in ipaddress.ip_network(rule.cidr, strict=False)
        for rule in rules
    )


def ruleset(rules: Sequence[Rule] | None) -> str:
    """The edge's rules for nft. Addresses are judged by `permits` before a connection is made; ports here as well."""
    rules = WITHOUT_GROUPS if rules is None else rules
    ports = sorted(
        {
            (rule.port_min, rule.port_max)
            for rule in rules
            if rule.direction == "inbound" and rule.protocol in ("tcp", "any")
        }
    )
    opened = "".join(f"    tcp dport {low}-{high} accept\n" for low, high in ports)
    return f"""table inet edge
delete table inet edge
table inet edge {{
  chain inward {{
    type filter hook output priority 0; policy drop;
    meta mark {OWN_MARK} accept
    ct state established,related accept
{opened}  }}
  chain at_gateway {{
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    icmp type echo-request limit rate 10/second accept
  }}
  chain between {{
    type filter hook forward priority 0; policy drop;
    iifname "v-*" oifname "v-*" accept
  }}
}}
"""


def start_holder(cgroup_files: Sequence[str], rules: Sequence[Rule] | None, marker: str) -> tuple[int, int]:
    """Fork the holder of a new fabric. -> (its pid, a descriptor that says `ok` or what went wrong)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    try:
        os.setsid()
        for path in cgroup_files:
            with open(path, "w") as handle:
                handle.write("0")
        linux.unshare(linux.CLONE_NEWNET)
        _furnish(rules)
        os.write(write, b"ok\n")
        null = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.closerange(3, 65536)
        os.chdir("/")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.execve("/bin/sleep", ["muster-fabric", "infinity"], {"MUSTER_FABRIC": marker})  # noqa: S606
    except BaseException as error:
        os.write(write, f"{error}\n".encode())
    finally:
        os._exit(1)


def _furnish(rules: Sequence[Rule] | None) -> None:
    quieten()
    write_sysctl("net/ipv4/ip_forward", "1")
    for which in ("all", "default"):
        write_sysctl(f"net/ipv4/conf/{which}/rp_filter", "1")
    netlink = Netlink()
    netlink.up(1)
    netlink.add_address(1, GATEWAY)
    netlink.add_unreachable(NETWORK, 16)
    netlink.close()
    load_rules(rules)


def load_rules(rules: Sequence[Rule] | None) -> None:
    """Into the network namespace we stand in; replaces the former ones at one stroke."""
    done = subprocess.run(
        ["/usr/sbin/nft", "-f", "-"], input=ruleset(rules).encode(), capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"nft: {done.stderr.decode(errors='replace').strip()[:300]}")


@contextmanager
def inside(holder: int) -> Iterator[None]:
    """Stand in the fabric's network namespace; never across an await, or others would stand there too."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        linux.setns(there, linux.CLONE_NEWNET)
        try:
            yield
        finally:
            linux.setns(home, linux.CLONE_NEWNET)
    finally:
        os.close(home)
        os.close(there)


def plug(holder: int, number: int, init: int) -> None:
    """A veth from the fabric to the node, routed to its one address."""
    address = address_of(number)
    with inside(holder):
        netlink = Netlink()
        try:
            _drop_link(netlink, link_of(number))
            netlink.add_veth(link_of(number), GATEWAY_MAC, peer="eth0", peer_mac=mac_of(address), peer_netns_pid=init)
            link = socket.if_nametoindex(link_of(number))
            netlink.add_route(link, address)
            netlink.add_neighbour(link, address, mac_of(address))
        finally:
            netlink.close()


def _drop_link(netlink: Netlink, name: str) -> None:
    """A link left by the node's former boot whose namespace is still being torn down."""
    try:
        netlink.delete_link(name)
    except OSError:
        return


def set_link(holder: int, number: int, *, up: bool) -> None:
    """Cut a node's link, or mend it: for tests of what happens then."""
    with inside(holder):
        netlink = Netlink()
        netlink.set_link(link_of(number), up=up)
        if up:
            link = socket.if_nametoindex(link_of(number))
            netlink.add_route(link, address_of(number))
            netlink.add_neighbour(link, address_of(number), mac_of(address_of(number)))
        netlink.close()


def open_socket(holder: int, *, own: bool) -> socket.socket:
    """An unconnected TCP socket that lives in the fabric."""
    with inside(holder):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        if own:
            made.setsockopt(socket.SOL_SOCKET, _SO_MARK, OWN_MARK)
        return made

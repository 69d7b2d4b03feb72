"""SSH keys, security groups and reserved addresses on TIR's wire.

Leans on the house's access room. Keys and groups belong to the project here; theirs to the account.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.tir import answers, wire, words
from muster.dialects.tir.asking import location_of, number_in_path, own_project, read, read_rules
from muster.dialects.tir.render import group_of, ip_of, key_of
from muster.errors import Invalid
from muster.model.access import ReservedIp, Rule, SecurityGroup, SshKey

PAGE: Final = 1_000
_PORTS: Final = re.compile(r"(?P<low>[0-9]{1,5})(?:\s*[-:]\s*(?P<high>[0-9]{1,5}))?", re.A)
_EVERY_PORT: Final = ("", "all", "any", "*")


class Access:
    def __init__(self, house: House) -> None:
        self._house = house
        self._access = house.access

    # --- ssh keys -------------------------------------------------------------------------------------------------

    async def add_key(self, call: Call) -> Reply:
        said = read(call, wire.NewSshKey)
        project = await own_project(self._house, call)
        key = await self._access.add_ssh_key(
            call.actor, public_key=said.ssh_key, name=said.label, project_id=project.id
        )
        return answers.reply(key_of(key), message="Your SSH Key has been added")

    async def keys(self, call: Call) -> Reply:
        """Also for /sync/: there is one list, and nothing it could be behind."""
        project = await own_project(self._house, call)
        found = await self._access.ssh_keys(call.actor, project.id, limit=PAGE)
        return answers.reply([key_of(key) for key in found.items])

    async def delete_key(self, call: Call) -> Reply:
        key = await self._house.numbers.find(call.actor, SshKey, number_in_path(call, "key_id"))
        await self._access.remove_ssh_key(call.actor, key.id)
        return answers.reply("SSH Key has been deleted successfully.")

    # --- security groups ------------------------------------------------------------------------------------------

    async def create_group(self, call: Call) -> Reply:
        said = read(call, wire.NewSecurityGroup)
        project = await own_project(self._house, call)
        group = await self._access.create_security_group(
            call.actor, name=said.name, rules=list(rules_in(said.rules)), project_id=project.id
        )
        return answers.reply(group_of(group), code=201, message="Created Successfully")

    async def groups(self, call: Call) -> Reply:
        project = await own_project(self._house, call)
        found = await self._access.security_groups(call.actor, project.id, limit=PAGE)
        return answers.reply([group_of(group) for group in found.items])

    async def _group(self, call: Call) -> SecurityGroup:
        return await self._house.numbers.find(call.actor, SecurityGroup, number_in_path(call, "group_id"))

    async def group(self, call: Call) -> Reply:
        return answers.reply(group_of(await self._group(call)))

    async def set_rules(self, call: Call) -> Reply:
        """The array is the whole: what is not in it is gone. Clusters under the group take it over as they run."""
        group = await self._group(call)
        group = await self._access.set_rules(call.actor, group.id, list(rules_in(read_rules(call))))
        return answers.reply(group_of(group), message="Security Group updated successfully")

    async def delete_group(self, call: Call) -> Reply:
        group = await self._group(call)
        await self._access.remove_security_group(call.actor, group.id)
        return answers.reply("Security Group deleted successfully")

    # --- reserved addresses ---------------------------------------------------------------------------------------

    async def reserve(self, call: Call) -> Reply:
        project = await own_project(self._house, call)
        location = await location_of(self._house, call)
        ip = await self._access.reserve_ip(call.actor, region=location, project_id=project.id)
        return answers.reply(ip_of(ip, None), message=f"IP {ip.address} allocated successfully.")

    async def ips(self, call: Call) -> Reply:
        project = await own_project(self._house, call)
        found = await self._access.reserved_ips(call.actor, project.id, limit=PAGE)
        return answers.reply([await self._told(call, ip) for ip in found.items])

    async def ip(self, call: Call) -> Reply:
        return answers.reply(await self._told(call, await self._ip(call)))

    async def release(self, call: Call) -> Reply:
        ip = await self._ip(call)
        await self._access.release_ip(call.actor, ip.id)
        return answers.reply(f"IP {ip.address} released successfully.")

    async def _ip(self, call: Call) -> ReservedIp:
        return await self._house.numbers.find(call.actor, ReservedIp, number_in_path(call, "ip_id"))

    async def _told(self, call: Call, ip: ReservedIp) -> answers.ReservedIp:
        cluster = await self._house.clusters.cluster(call.actor, ip.cluster_id) if ip.cluster_id else None
        return ip_of(ip, cluster.number if cluster else None)


# --- rules --------------------------------------------------------------------------------------------------------


def rules_in(items: Sequence[wire.RuleItem]) -> Iterator[Rule]:
    """One of theirs may name many ports; one of ours is one range."""
    for at, item in enumerate(items):
        field = f"rules[{at}]"
        protocol = _protocol(item, field)
        ports = item.ports if protocol in ("tcp", "udp") else ()
        for low, high in [_ports(port, field) for port in ports] or [(0, 65535)]:
            yield Rule(
                direction=item.rule_type.lower(),
                protocol=protocol,
                port_min=low,
                port_max=high,
                cidr=_cidr(item, field),
                description=item.description,
            )


def _protocol(item: wire.RuleItem, field: str) -> str:
    if item.protocol_type.lower() == words.PROTOCOL_TYPE["any"].lower():
        return "any"
    for ours, theirs in words.PROTOCOL.items():
        if item.protocol.lower() == theirs.lower():
            return ours
    raise Invalid(
        f"{item.protocol[:40]!r} is not one of {', '.join(words.PROTOCOL.values())}", field=f"{field}.protocol"
    )


def _ports(said: int | str, field: str) -> tuple[int, int]:
    text = str(said).strip().lower()
    if text in _EVERY_PORT:
        return 0, 65535
    found = _PORTS.fullmatch(text)
    if found is None:
        raise Invalid(f"{text[:40]!r} is neither a port nor a range of ports", field=f"{field}.ports")
    low = int(found["low"])
    return low, int(found["high"] or low)


def _cidr(item: wire.RuleItem, field: str) -> str:
    if item.network_type.lower() == "any":
        return "0.0.0.0/0"
    if not item.cidr_ip:
        raise Invalid("a manual network needs an address", field=f"{field}.cidr_ip")
    if "/" in item.cidr_ip:
        return item.cidr_ip
    return f"{item.cidr_ip}/{32 if item.cidr_subnet is None else item.cidr_subnet}"

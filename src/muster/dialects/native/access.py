"""SSH keys, security groups and reserved addresses, on the native wire."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.native import views, wire
from muster.dialects.native.asking import if_match, once, paging, read, text
from muster.dialects.native.replies import answer, listing, nothing, page_reply
from muster.dialects.native.translate import shown
from muster.model.access import Rule, SecurityGroup


class Access:
    def __init__(self, house: House) -> None:
        self._access = house.access

    # --- ssh keys

    async def ssh_keys(self, call: Call) -> Reply:
        page = await self._access.ssh_keys(
            call.actor, text(call, "project_id"), name=text(call, "name"), **paging(call)
        )
        return page_reply(page, views.SshKey)

    async def add_ssh_key(self, call: Call) -> Reply:
        said = read(call, wire.NewSshKey)
        key = await self._access.add_ssh_key(
            call.actor,
            public_key=said.public_key,
            name=said.name,
            project_id=said.project_id,
            once=once(call, said, "ssh-key"),
        )
        return answer(shown(key, views.SshKey), status=201, tag=key.version, location=f"ssh-keys/{key.id}")

    async def ssh_key(self, call: Call) -> Reply:
        key = await self._access.ssh_key(call.actor, call.params["id"])
        return answer(shown(key, views.SshKey), tag=key.version)

    async def remove_ssh_key(self, call: Call) -> Reply:
        await self._access.remove_ssh_key(call.actor, call.params["id"], if_version=if_match(call))
        return nothing()

    # --- security groups

    async def groups(self, call: Call) -> Reply:
        page = await self._access.security_groups(
            call.actor, text(call, "project_id"), name=text(call, "name"), **paging(call)
        )
        return listing(map(_group, page.items), page.next_cursor)

    async def create_group(self, call: Call) -> Reply:
        said = read(call, wire.NewSecurityGroup)
        group = await self._access.create_security_group(
            call.actor,
            name=said.name,
            rules=_rules(said.rules),
            project_id=said.project_id,
            once=once(call, said, "security-group"),
        )
        return answer(_group(group), status=201, tag=group.version, location=f"security-groups/{group.id}")

    async def group(self, call: Call) -> Reply:
        group = await self._access.security_group(call.actor, call.params["id"])
        return answer(_group(group), tag=group.version)

    async def set_rules(self, call: Call) -> Reply:
        said = read(call, wire.RulesBody)
        group = await self._access.set_rules(
            call.actor, call.params["id"], _rules(said.rules), name=said.name, if_version=if_match(call)
        )
        return answer(_group(group), tag=group.version)

    async def remove_group(self, call: Call) -> Reply:
        await self._access.remove_security_group(call.actor, call.params["id"], if_version=if_match(call))
        return nothing()

    # --- reserved addresses

    async def ips(self, call: Call) -> Reply:
        page = await self._access.reserved_ips(
            call.actor, text(call, "project_id"), region=text(call, "region"), **paging(call)
        )
        return page_reply(page, views.ReservedIp)

    async def reserve(self, call: Call) -> Reply:
        said = read(call, wire.NewReservedIp)
        ip = await self._access.reserve_ip(
            call.actor, region=said.region, project_id=said.project_id, once=once(call, said, "reserved-ip")
        )
        return answer(shown(ip, views.ReservedIp), status=201, tag=ip.version, location=f"reserved-ips/{ip.id}")

    async def ip(self, call: Call) -> Reply:
        ip = await self._access.reserved_ip(call.actor, call.params["id"])
        return answer(shown(ip, views.ReservedIp), tag=ip.version)

    async def release(self, call: Call) -> Reply:
        await self._access.release_ip(call.actor, call.params["id"], if_version=if_match(call))
        return nothing()


def _rules(said: Sequence[wire.Rule]) -> tuple[Rule, ...]:
    return msgspec.convert(said, tuple[Rule, ...], from_attributes=True)


def _group(group: SecurityGroup) -> views.SecurityGroup:
    rules = msgspec.convert(group.rules, list[wire.Rule], from_attributes=True)
    return shown(group, views.SecurityGroup, rules=rules)

"""Hosts, room, trouble on demand and the fleet itself, on the native wire."""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict

from muster.contracts.faults import Fault
from muster.contracts.http import Call, Reply
from muster.core.figures import backlog, hosts
from muster.core.hosts.service import HostSpec
from muster.core.house import House
from muster.core.idempotency import Once
from muster.dialects.native import views, wire
from muster.dialects.native.asking import once, paging, read, text
from muster.dialects.native.replies import answer, listing, nothing, page_reply
from muster.dialects.native.translate import shown
from muster.errors import Invalid
from muster.model.hosts import Host, HostRole

ASKED_MAX = 1_000


class Fleet:
    def __init__(self, house: House) -> None:
        self._house = house
        self._asked: dict[Once, Fault] = {}

    async def hosts(self, call: Call) -> Reply:
        page = await self._house.hosts.hosts(
            call.actor,
            region=text(call, "region"),
            role=_role(text(call, "role")),
            pool_id=text(call, "pool_id"),
            **paging(call),
        )
        return page_reply(page, views.Host)

    async def import_hosts(self, call: Call) -> Reply:
        said = read(call, wire.HostImport)
        specs = msgspec.convert(said.hosts, list[HostSpec], from_attributes=True)
        made = await self._house.hosts.import_hosts(call.actor, specs)
        view = {"items": [shown(host, views.Host) for host in made], "next_cursor": None}
        return answer(view, status=201)

    async def host(self, call: Call) -> Reply:
        return _host(await self._house.hosts.host(call.actor, call.params["id"]))

    async def cordon(self, call: Call) -> Reply:
        said = read(call, wire.Cordon)
        return _host(await self._house.hosts.cordon(call.actor, call.params["id"], said.reason))

    async def uncordon(self, call: Call) -> Reply:
        return _host(await self._house.hosts.uncordon(call.actor, call.params["id"]))

    async def capacity(self, call: Call) -> Reply:
        await self._house.capacity.sync()
        return listing(shown(row, views.Room) for row in self._house.capacity.summary())

    async def fleet(self, call: Call) -> Reply:
        due, work = await backlog(self._house)
        facts = self._house.fleet
        view = views.Fleet(
            substrate=facts.substrate,
            simulated=facts.simulated,
            hosts=await hosts(self._house),
            engine={"due": due, "work": work},
        )
        return answer(view)

    # --- trouble on demand

    async def faults(self, call: Call) -> Reply:
        return listing(shown(fault, views.Fault) for fault in await self._house.trouble.faults(call.actor))

    async def inject(self, call: Call) -> Reply:
        said = read(call, wire.NewFault)
        key = once(call, said, "fault")
        fault = self._asked.get(key) if key is not None else None
        if fault is None:
            fault = await self._house.trouble.inject(call.actor, Fault(**asdict(said)))
            self._remember(key, fault)
        return answer(shown(fault, views.Fault), status=201, location=f"faults/{fault.id}")

    def _remember(self, key: Once | None, fault: Fault) -> None:
        """Faults belong to the world, not to the store; so do the keys of those who asked for them, for a while."""
        if key is not None:
            self._asked[key] = fault
            if len(self._asked) > ASKED_MAX:
                del self._asked[next(iter(self._asked))]

    async def clear(self, call: Call) -> Reply:
        await self._house.trouble.clear(call.actor, call.params["id"])
        return nothing()


def _host(host: Host) -> Reply:
    return answer(shown(host, views.Host), tag=host.version)


def _role(said: str | None) -> HostRole | None:
    try:
        return None if said is None else HostRole(said)
    except ValueError:
        raise Invalid("role must be gpu or control", field="role") from None

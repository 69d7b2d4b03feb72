"""Hosts: enrolled by import, set aside by cordon, marked dead by what the system sees. They outlive clusters.

Leans on accounts (rights, audit), the catalogue's tables and the store. Every change is an event, which is the host's
own history; every change of a host also reaches the capacity log (the store sees to it), and so each placement index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from muster.contracts.clock import Clock, Entropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Op, Replace, Store
from muster.core.accounts.audit import audit
from muster.core.accounts.rights import require_operator
from muster.core.guarded import guarded, submit
from muster.core.hosts.rules import HostSpec, check_change, check_spec, described, differences
from muster.core.paging import Page, page_of
from muster.errors import Invalid, NotFound, UniqueViolation, VersionMismatch
from muster.model.accounts import SYSTEM, Actor
from muster.model.base import changed
from muster.model.catalog import GpuType, Region
from muster.model.events import Event
from muster.model.hosts import Host, HostHealth, HostRole, Lease

HOSTS_PER_BATCH: Final = 2_000
EVENTS_PER_BATCH_MAX: Final = 100
"""An import of more hosts than this leaves one event per batch instead of one per host."""

REASON_CHARS_MAX: Final = 500

ENROLLED: Final = "enrolled"
CHANGED: Final = "changed"

__all__ = ["HostService", "HostSpec"]


class _Entry(NamedTuple):
    """One machine of an import. `what` is to be written of it: enrolled, changed, or "" for nothing."""

    what: str
    host: Host


class HostService:
    def __init__(self, store: Store, clock: Clock, entropy: Entropy, substrate: str = "simulated") -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._substrate = substrate

    # ---- reading

    async def hosts(
        self,
        actor: Actor,
        *,
        region: str | None = None,
        role: HostRole | None = None,
        pool_id: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[Host]:
        require_operator(actor)
        asked = {"region": region, "role": role, "pool_id": pool_id}
        equals = {name: value for name, value in asked.items() if value is not None}
        return await page_of(self._store, Host, equals, cursor=cursor, limit=limit)

    async def host(self, actor: Actor, id_or_name: str) -> Host:
        require_operator(actor)
        return await self._load(id_or_name)

    async def _load(self, id_or_name: str) -> Host:
        host = await self._store.get(Host, id_or_name)
        if host is None:
            host = next(iter(await self._store.find(Find(Host, equals={"name": id_or_name}))), None)
        if host is None:
            raise NotFound(f"there is no host {id_or_name}")
        return host

    # ---- enrolling

    async def import_hosts(self, actor: Actor, hosts: Iterable[HostSpec]) -> list[Host]:
        """Enrol machines, or change what is known of those already enrolled under their name. All are checked before
        the first is written. Many are written in several batches; a repeated import finishes what was cut short."""
        require_operator(actor)
        specs = list(hosts)
        await self._check(specs)
        return [host for batch in _batches(specs) for host in await self._import_batch(actor, batch)]

    async def import_fleet(self, actor: Actor, hosts: Iterable[HostSpec]) -> int:
        """The same for a whole fleet, batch by batch so that it need not fit in memory; how many there were."""
        require_operator(actor)
        count = 0
        for batch in _batches(hosts):
            await self._check(batch)
            count += len(await self._import_batch(actor, batch))
        return count

    async def _check(self, specs: list[HostSpec]) -> None:
        regions = {region.id for region in await self._store.find(Find(Region))}
        gpu_types = {gpu_type.id for gpu_type in await self._store.find(Find(GpuType))}
        seen: set[str] = set()
        for spec in specs:
            check_spec(spec, regions, gpu_types)
            if spec.name in seen:
                raise Invalid(f"host {spec.name} is named twice in one import", field="name")
            seen.add(spec.name)

    async def _import_batch(self, actor: Actor, specs: list[HostSpec]) -> list[Host]:
        return await guarded(lambda: self._try_import(actor, specs))

    async def _try_import(self, actor: Actor, specs: list[HostSpec]) -> list[Host]:
        names = [spec.name for spec in specs]
        known = {host.name: host for host in await self._store.find(Find(Host, one_of={"name": names}))}
        leased = await self._leased(known.values())
        entries = [self._entry(spec, known.get(spec.name), leased) for spec in specs]
        written = [entry for entry in entries if entry.what]
        if written:
            ops: list[Op] = [Insert(host) if what == ENROLLED else Replace(host) for what, host in written]
            await self._write(ops, self._import_events(actor, written))
        return [host for _, host in entries]

    def _entry(self, spec: HostSpec, known: Host | None, leased: dict[str, int]) -> _Entry:
        """What is to be written of one machine, and what it then is."""
        if known is None:
            return _Entry(ENROLLED, self._new_host(spec))
        fields = differences(known, spec)
        if not fields:
            return _Entry("", known)
        check_change(known, fields, leased[known.id])
        return _Entry(CHANGED, changed(known, **fields))

    def _new_host(self, spec: HostSpec) -> Host:
        return Host(
            id=self._entropy.uuid(),
            name=spec.name,
            region=spec.region,
            pod=spec.pod,
            leaf=spec.leaf,
            role=spec.role,
            gpu_type=spec.gpu_type,
            slots=spec.slots,
            cpus=spec.cpus,
            memory_gib=spec.memory_gib,
            substrate=self._substrate,
            created_at=self._clock.now(),
        )

    async def _leased(self, hosts: Iterable[Host]) -> dict[str, int]:
        held: dict[str, int] = defaultdict(int)
        ids = [host.id for host in hosts]
        for lease in await self._store.find(Find(Lease, one_of={"host_id": ids})) if ids else ():
            held[lease.host_id] |= lease.slots
        return held

    def _import_events(self, actor: Actor, written: list[_Entry]) -> list[Event]:
        """A line for each host, or, when they come by the thousand, one for all of them."""
        now = self._clock.now()
        if len(written) <= EVENTS_PER_BATCH_MAX:
            return [audit(actor, "host", what, host, at=now, message=described(host)) for what, host in written]
        first, last = written[0].host, written[-1].host
        message = f"{len(written)} hosts, {first.name} to {last.name}"
        return [audit(actor, "host", ENROLLED, first, at=now, message=message, data={"hosts": len(written)})]

    # ---- setting aside

    async def cordon(self, actor: Actor, id_or_name: str, reason: str) -> Host:
        """No new lease here; what runs goes on. Cordoning again only changes the reason."""
        if not reason.strip():
            raise Invalid("say why, so that the next person knows", field="reason")
        if len(reason) > REASON_CHARS_MAX:
            raise Invalid(f"a reason has at most {REASON_CHARS_MAX} characters", field="reason")
        return await self._change(
            actor, id_or_name, "cordoned", reason.strip(), cordoned=True, cordon_reason=reason.strip()
        )

    async def uncordon(self, actor: Actor, id_or_name: str) -> Host:
        return await self._change(actor, id_or_name, "uncordoned", "in use again", cordoned=False, cordon_reason="")

    async def mark_health(self, host_id: str, health: HostHealth, because: str) -> Host:
        """What the system saw of a host: dead ones get no new leases until they are seen well again."""
        what = "dead" if health is HostHealth.DEAD else "well"
        return await self._change(SYSTEM, host_id, what, because, health=health)

    async def _change(self, actor: Actor, id_or_name: str, what: str, why: str, **fields: Any) -> Host:
        async def write() -> Host:
            host = await self._load(id_or_name)
            if all(getattr(host, name) == value for name, value in fields.items()):
                return host
            after = changed(host, **fields)
            event = audit(actor, "host", what, after, at=self._clock.now(), message=f"{host.name}: {why}")
            await self._write([Replace(after)], [event])
            return after

        require_operator(actor)
        return await guarded(write)

    async def _write(self, ops: list[Op], events: list[Event]) -> None:
        try:
            await submit(self._store, Batch(Step.HOST_WRITE, ops, events))
        except UniqueViolation as raced:
            # Another enrolled the same name first: look again, and change that one.
            raise VersionMismatch("host", raced.rule) from raced


def _batches(hosts: Iterable[HostSpec]) -> Iterator[list[HostSpec]]:
    rest = iter(hosts)
    while batch := list(islice(rest, HOSTS_PER_BATCH)):
        yield batch

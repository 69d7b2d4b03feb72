"""Where there is room: the placement index kept abreast of the database, and its refusals as errors with a way out.

Leans on the store and on index.py. The index is only a hint. It is fed from the capacity log, so each replica has its
own; a grant is believed taken the moment it is handed out, and the unique slots in the database have the last word.
Whoever is refused there comes back with `refused`, and what was believed wrongly is read again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, NoReturn

from muster.contracts.store import CapacityChange, Find, Op, Store
from muster.core.capacity.calendar import CELL, HORIZON, end_cell, first_cell
from muster.core.capacity.index import CapacityIndex, Stock
from muster.core.capacity.lines import KnownLine, Lines
from muster.core.capacity.placement import Ask, Grant, LineKey, Placement, Refusal, Why
from muster.core.capacity.refusals import Nearest, refuse
from muster.core.capacity.waiting import OVERDUE_MAX, Patience, Waiting, starters
from muster.core.moments import said_at
from muster.errors import OutOfStock, Protected, Unavailable
from muster.model.base import Instant
from muster.model.hosts import Host, Lease, Pool

HOSTS_PER_READ: Final = 2_000
LINES_PER_READ: Final = 2_000
PLACEMENTS_PER_SYNC: Final = 16
LINES_BEHIND_MAX: Final = 20_000
"""Further behind than this, reading the whole fleet anew is the shorter way."""


class MovedLines(NamedTuple):
    """Lines that lose or gain hosts, and what says so in the batch."""

    keys: tuple[LineKey, ...]
    ops: list[Op]


class Capacity:
    def __init__(
        self, store: Store, patience: Patience = Patience(), sold_out: Callable[[str], bool] = lambda region: False
    ) -> None:
        self._store = store
        self._patience = patience
        self._sold_out = sold_out
        self._index = CapacityIndex()
        self.lines = Lines(store)
        self._seq = -1  # the last line of the capacity log that the index knows; -1 = nothing was read yet
        self._doubtful: set[str] = set()  # hosts to read again before the next decision
        self._turn = asyncio.Lock()
        self._unsynced = 0
        self._asked = 0
        self._answered = 0

    @property
    def loaded(self) -> bool:
        return self._seq >= 0

    async def ready(self) -> None:
        """Read the fleet, if that was not done before."""
        await self.sync()

    async def sync(self) -> None:
        """Know all that was committed before this call. Callers who wait for the same turn share one reading."""
        self._asked = ticket = self._asked + 1
        async with self._turn:
            if self._answered >= ticket:
                return
            answers = self._asked
            await self._catch_up()
            self._answered = answers
            self._unsynced = 0

    async def fits_ever(self, ask: Ask) -> None:
        """Raise `NeverFits` when no amount of waiting would help. Believes a yes, checks a no."""
        if self._index.never(ask) is None:
            return
        await self.sync()
        refusal = self._index.never(ask)
        if refusal is not None:
            self._refuse(ask, refusal)

    def require_stock(self, ask: Ask) -> None:
        """Raise `OutOfStock` when the region has nothing for new wishes, whatever is free: trouble somebody asked
        for. What was accepted before goes on."""
        if self._sold_out(ask.region):
            refuse(ask, self._index.sold_out(ask), Nearest())

    async def place(self, ask: Ask) -> Placement:
        """Grants that are free as far as we know, and from now on believed taken. Ends in a batch that is applied,
        or in `refused` or `give_back`."""
        answer = self._decide(ask) if self._up_to_date() and self._lines_known(ask) else None
        if answer is None or isinstance(answer, Refusal):
            await self._look_for(ask)
            answer = self._decide(ask)
        if isinstance(answer, Refusal):
            self._refuse(ask, answer)
        self._take(answer, ask.ends_at)
        return answer

    async def place_in_turn(self, mine: int, queue: Sequence[Waiting], now: Instant) -> Placement:
        """As `place`, for one that waits: when those who wait are taken in turn, is it among those who start?"""
        ask = queue[mine].ask
        await self._look_for(ask)
        found = self._in_turn(mine, queue, now)
        if found is None:
            answer = self._decide(ask)
            self._refuse(ask, answer if isinstance(answer, Refusal) else self._index.not_its_turn(ask, answer))
        self._take(found, ask.ends_at)
        return found

    def _in_turn(self, mine: int, queue: Sequence[Waiting], now: Instant) -> Placement | None:
        """Played through on the index itself and taken back: nothing else runs meanwhile."""
        taken: list[Placement] = []

        def take(one: Waiting, placement: Placement) -> None:
            self._take(placement, one.ask.ends_at)
            taken.append(placement)

        try:
            started = starters(queue, self._index, now, take, self._patience, self._decide)
        finally:
            for placement in taken:
                self._untake(placement)
        return next((start.placement for start in started if start.key == mine), None)

    def _take(self, placement: Placement, ends_at: Instant | None) -> None:
        self._index.take((*placement.workers, *placement.pooled), ends_at)
        self._index.take(placement.control)

    def _untake(self, placement: Placement) -> None:
        for grant in (*placement.workers, *placement.pooled, *placement.control):
            self._index.free(grant.host_id, grant.slots)

    async def _look_for(self, ask: Ask) -> None:
        """Lines first, hosts after: a host that leaves its line is written with the line, so whoever has an older
        version of the line is refused, and whoever has this one knows of the move."""
        await self.sync()
        while not self._lines_known(ask):
            for key in self._index.keys_for(ask.region, ask.gpu_type, ask.gpus_per_node):
                await self.lines.known(key, self._index)
            await self.sync()

    def _decide(self, ask: Ask) -> Placement | Refusal:
        """Where, unless that would take what is promised to others."""
        answer = self._index.place(ask)
        if isinstance(answer, Refusal):
            return answer
        for key, hosts in answer.lines:
            if hosts <= ask.promised:
                continue
            room = self.room(key, ask.at, ask.ends_at, spare=ask.spare)
            if hosts - ask.promised > room:
                return self._index.kept_back(ask, key, room)
        return answer

    def room(self, key: LineKey, at: Instant, ends_at: Instant | None, *, spare: bool = False) -> int:
        """Whole hosts of a line that may be taken from now until then without breaking a promise."""
        line = self.lines.get(key)
        if line is None or not line.row.guarded:
            return HORIZON
        line.grid.forget_before(first_cell(at))
        until = first_cell(at) + HORIZON if ends_at is None else end_cell(ends_at)
        return line.grid.room(first_cell(at), until, spare=spare)

    # ---- what is nearest, by the same belief that refused

    def _refuse(self, ask: Ask, refusal: Refusal) -> NoReturn:
        key, nodes = self.line_for(ask.region, ask.gpu_type, ask.gpus_per_node), refusal.free_nodes
        whole = key is not None and key.slots == ask.gpus_per_node
        if key is not None and whole:
            nodes = min(nodes, max(0, self.room(key, ask.at, ask.ends_at, spare=ask.spare)) + ask.promised)
        later = self.later(ask) if refusal.why is Why.NOT_NOW else None
        refuse(ask, refusal, Nearest(nodes if nodes < ask.nodes else 0, later, whole))

    def later(self, ask: Ask) -> Instant | None:
        """From when all of it could be had: by the known ends of what is held, and by what was promised to others.
        None when nobody knows."""
        free, open_at = self._index.free_by(ask, ask.at - OVERDUE_MAX), self._promises_allow(ask)
        return None if free is None or open_at is None else max(ask.at, free, open_at)

    def _promises_allow(self, ask: Ask) -> Instant | None:
        """From when no promise stands against it, for as long as it would stay. Slices are asked for as if on hosts
        of their own, so what is said of them is rather too late than too early."""
        key = self.line_for(ask.region, ask.gpu_type, ask.gpus_per_node)
        line = None if key is None else self.lines.get(key)
        if key is None or line is None or not line.row.guarded:
            return ask.at
        hosts = -(-ask.nodes // (key.slots // ask.gpus_per_node)) - ask.promised
        first = first_cell(ask.at)
        cells = None if ask.ends_at is None else max(1, end_cell(ask.ends_at) - first)
        found = line.grid.earliest_room(hosts, first, cells) if hosts > 0 else first
        return None if found is None else found * CELL

    async def kept(self, hosts: Mapping[LineKey, int], since: Instant, until: Instant) -> list[Op]:
        """What guards, in its batch, that hosts held up to one instant are held up to another; raises `OutOfStock`
        where they are promised to others by then."""
        await self.sync()
        for key, held in hosts.items():
            line = await self.lines.known(key, self._index, fresh=True)
            room = line.grid.room(end_cell(since), end_cell(until)) if line.row.guarded else HORIZON
            if held > room:
                raise OutOfStock(
                    f"{held} hosts of {key.gpu_type} would be held until {said_at(until)}; all but {max(0, room)} of "
                    f"those left in {key.region} are promised to reservations by then",
                    field="ends_at",
                    hint=f"it may stay until {said_at(end_cell(since) * CELL)}",
                )
        return self.lines.guard(hosts)

    def _lines_known(self, ask: Ask) -> bool:
        keys = self._index.keys_for(ask.region, ask.gpu_type, ask.gpus_per_node)
        return all(self.lines.get(key) is not None for key in keys)

    def guard(self, placement: Placement) -> list[Op]:
        """Goes into the batch that takes these grants: the calendar has not moved on since we looked."""
        return self.lines.guard(key for key, _ in placement.lines)

    async def lines_of(self, hosts: Sequence[Host], *, leaving: bool, at: Instant) -> MovedLines:
        """The calendar's lines of which these free hosts go (`leaving` everybody's for a pool), held against a batch
        so that nobody else may have chosen them by an older look."""
        keys = {LineKey(host.region, host.gpu_type, host.slots) for host in hosts}
        for key in keys:
            await self.lines.known(key, self._index)
        await self.sync()
        for key in keys if leaving else ():
            going = sum(host.slots == key.slots for host in hosts)
            if going > self.room(key, at, None):
                raise Protected(f"{going} hosts cannot be set apart: what is left was promised to reservations")
        return MovedLines(tuple(keys), [self.lines.write(key) for key in keys])

    def line_keys(self) -> list[LineKey]:
        """Every line of the calendar that has hosts, as of the last `sync`."""
        return self._index.line_keys()

    def whole_host_key(self, region: str, gpu_type: str, gpus: int) -> LineKey | None:
        """The line whose hosts are nodes of so many GPUs, whole."""
        keys = self._index.keys_for(region, gpu_type, gpus)
        return next((key for key in keys if key.slots == gpus), None)

    def line_for(self, region: str, gpu_type: str, gpus: int) -> LineKey | None:
        """The line that nodes of so many GPUs come from: its hosts whole, or the largest hosts there are."""
        keys = self._index.keys_for(region, gpu_type, gpus)
        return next((key for key in keys if key.slots == gpus), keys[-1] if keys else None)

    def free_hosts(self, key: LineKey) -> int:
        return self._index.free_hosts(key)

    def reclaimable(self, ask: Ask) -> int:
        """Hosts that would have to be asked back for this to fit; 0 when that would not help."""
        key = self.line_for(ask.region, ask.gpu_type, ask.gpus_per_node)
        free, _ = self._index.pool_stock(ask.region, ask.gpu_type, ask.pool_id) if ask.pool_nodes else (0, 0)
        if key is None or ask.pool_nodes * ask.gpus_per_node > free:
            return 0
        lacking = ask.nodes - self._index.free_nodes(ask.region, ask.gpu_type, ask.gpus_per_node)
        hosts = -(-lacking // (key.slots // ask.gpus_per_node))
        promised = not ask.promised and hosts + self.free_hosts(key) > self.room(key, ask.at, ask.ends_at)
        return 0 if hosts > self._index.lent_hosts(key) or promised else max(0, hosts)

    async def open_for_booking(self, key: LineKey) -> KnownLine:
        """The line with counts good enough to give a promise on."""
        await self.sync()
        await self.lines.open_for_booking(key, self._index)
        await self.sync()
        return await self.lines.known(key, self._index)

    async def look_at(self, key: LineKey) -> KnownLine:
        """The line as it is now: to tell somebody about it, not to give a promise on."""
        await self.sync()
        line = await self.lines.known(key, self._index, fresh=True)
        if not self._index.watches(key):
            self._index.watch(key, line.grid)
        return line

    def _up_to_date(self) -> bool:
        """Near enough: a yes that is some grants behind is checked by the database, and a no is not given."""
        self._unsynced += 1
        return self.loaded and not self._doubtful and self._unsynced < PLACEMENTS_PER_SYNC

    async def refused(self, placement: Placement) -> None:
        """The database refused the batch: our belief about these hosts was wrong, so read them again."""
        self.give_back(placement)
        async with self._turn:
            await self._read_doubtful()

    def give_back(self, placement: Placement) -> None:
        """The batch was not submitted, or nobody knows how it ended: these hosts are read again before use."""
        for host_id, slots, _ in placement.workers + placement.control + placement.pooled:
            self._index.free(host_id, slots)
            self._doubtful.add(host_id)
        self.lines.doubt(key for key, _ in placement.lines)

    def summary(self) -> list[Stock]:
        """Free and total nodes by region, GPU type and GPUs per node, as of the last `sync`."""
        self._require_loaded()
        return self._index.summary()

    def pool_stock(self, pool: Pool) -> tuple[int, int]:
        """GPUs of a pool that are free, and that there are, as of the last `sync`."""
        return self._index.pool_stock(pool.region, pool.gpu_type, pool.id)

    def regions_by_free(self, gpu_type: str, gpus: int) -> list[tuple[str, int]]:
        """(region, free nodes of this shape), most first, as of the last `sync`."""
        self._require_loaded()
        found = self._index.regions_by_free(gpu_type, gpus)
        return [each for each in found if not self._sold_out(each[0])] or found

    def _require_loaded(self) -> None:
        if not self.loaded:
            raise Unavailable("the fleet is still being read", hint="ask again in a second")

    # ---- following the database

    async def _catch_up(self) -> None:
        if not self.loaded:
            await self._load()
        lines = await self._store.capacity_log(self._seq, LINES_PER_READ)
        while lines:
            if await self._lost_track(lines):
                await self._load()
            else:
                self._follow(lines)
                await self._read_doubtful()
            if len(lines) < LINES_PER_READ:
                break
            lines = await self._store.capacity_log(self._seq, LINES_PER_READ)
        if self._doubtful:
            await self._read_doubtful()

    async def _lost_track(self, lines: Sequence[CapacityChange]) -> bool:
        """So far behind that the lines in between may have been forgotten, or cost more than reading the fleet."""
        if len(lines) < LINES_PER_READ:
            return lines[-1].seq - self._seq > LINES_BEHIND_MAX
        return await self._store.capacity_seq() - self._seq > LINES_BEHIND_MAX

    def _follow(self, lines: Sequence[CapacityChange]) -> None:
        """Each line says what became of some slots, so lines read twice, or late, come to the same in the end."""
        for _, host_id, taken, freed, ends_at in lines:
            if taken and not self._index.knows(host_id, taken, ends_at):
                self._index.take((Grant(host_id, taken),), ends_at)
            if freed:
                self._index.free(host_id, freed)
            if not taken and not freed:
                self._doubtful.add(host_id)
        self._seq = lines[-1].seq

    async def _load(self) -> None:
        """The whole fleet, a page at a time so that others get their turn; the log's end is noted first, for what
        happens meanwhile is then followed from there."""
        seq = await self._store.capacity_seq()
        taken = await self._store.slots_taken()
        index, after = CapacityIndex(), None
        while True:
            # By age, for hosts enrolled together lie together on disk; then by id, which is the index's own order.
            hosts = await self._store.find(Find(Host, order="created_at", after=after, limit=HOSTS_PER_READ))
            for host in sorted(hosts, key=attrgetter("id")):
                index.set_host(host, taken.get(host.id, 0))
            if len(hosts) < HOSTS_PER_READ:
                break
            after = (hosts[-1].created_at, hosts[-1].id)
            await asyncio.sleep(0)
        await self._load_ends(index)
        index.watch_as(self._index)
        self._index, self._seq = index, seq

    async def _load_ends(self, index: CapacityIndex) -> None:
        """Leases with a known end, earliest first; those without are none of our business."""
        ends: dict[str, list[tuple[int, Instant | None]]] = defaultdict(list)
        after: tuple[int, str] = (0, "")
        while leases := await self._store.find(Find(Lease, order="ends_at", after=after, limit=HOSTS_PER_READ)):
            for lease in leases:
                ends[lease.host_id].append((lease.slots, lease.ends_at))
            after = (leases[-1].ends_at or 0, leases[-1].id)
        for host_id, held in ends.items():
            index.set_ends(host_id, held)

    async def _read_doubtful(self) -> None:
        """Hosts that changed, or of which we may believe something wrong: what the database says of them now."""
        while self._doubtful:
            ids = set(islice(self._doubtful, HOSTS_PER_READ))
            self._doubtful -= ids  # before the reading: whoever casts doubt while we read is heard in the next round
            try:
                await self._read(ids)
            except BaseException:
                self._doubtful |= ids
                raise

    async def _read(self, ids: set[str]) -> None:
        hosts = await self._store.find(Find(Host, one_of={"id": list(ids)}))
        leases = await self._store.find(Find(Lease, one_of={"host_id": list(ids)}))
        held, ends = _held(leases), _ends(leases)
        for host in hosts:
            self._index.set_host(host, held[host.id])
            self._index.set_ends(host.id, ends[host.id])
        for gone in ids.difference(host.id for host in hosts):
            self._index.drop_host(gone)


def _held(leases: Iterable[Lease]) -> dict[str, int]:
    held: dict[str, int] = defaultdict(int)
    for lease in leases:
        held[lease.host_id] |= lease.slots
    return held


def _ends(leases: Iterable[Lease]) -> dict[str, list[tuple[int, Instant | None]]]:
    ends: dict[str, list[tuple[int, Instant | None]]] = defaultdict(list)
    for lease in leases:
        ends[lease.host_id].append((lease.slots, lease.ends_at))
    return ends

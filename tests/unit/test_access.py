"""SSH keys, security groups and reserved addresses against a real store."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.clock import SeededEntropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert, Replace
from muster.core.access.pool import SIMULATED_BLOCK, free_address, simulated_pools
from muster.core.access.pool import Network as Net
from muster.core.access.rules import RULES_MAX, checked_rules
from muster.core.access.service import RESERVED_IPS_MAX, AccessService
from muster.core.idempotency import Once
from muster.errors import (
    Forbidden,
    Invalid,
    NameTaken,
    NotFound,
    OutOfStock,
    Protected,
    QuotaExceeded,
    Stale,
    Unsupported,
)
from muster.model.access import ReservedIp, Rule, SshKey
from muster.model.accounts import SYSTEM, Account, Actor, Member, Project, Role
from muster.model.base import changed
from muster.model.catalog import Region
from muster.model.clusters import Cluster, ClusterSpec, ClusterType
from muster.model.phases import Phase
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock

ADMIN = Actor(role=Role.ADMIN, name="ada", account_id="a", project_id="ours")
MEMBER = Actor(role=Role.MEMBER, name="mia", account_id="a", project_id="ours")
STRANGER = Actor(role=Role.ADMIN, name="eve", account_id="a", project_id="theirs")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILGQAqIcrmT36vtf0x8Fg3DlxqWco6yJvxEH5b1CJs4x"
SSH_IN = Rule(direction="inbound", protocol="tcp", port_min=22, port_max=22)


class Gate:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.service = AccessService(store, self.clock, SeededEntropy(1), simulated_pools)
        rows = [
            Account(id="a", name="a", created_at=1),
            Project(id="ours", account_id="a", name="ours", slug="ours", created_at=1),
            Project(id="theirs", account_id="a", name="theirs", slug="theirs", created_at=1),
            Region(id="eu-1"),
            Region(id="eu-2"),
        ]
        asyncio.run(store.apply(Batch(Step.ACCOUNT_WRITE, [Insert(row) for row in rows])))

    async def cluster(self, name: str, *groups: str, project_id: str = "ours") -> Cluster:
        spec = ClusterSpec(
            type=ClusterType.SLURM,
            region="eu-1",
            gpu_type="H100_SXM",
            instance_type="8xH100_SXM",
            workers=1,
            image_id="",
            security_group_ids=groups,
        )
        cluster = Cluster(
            id=name,
            account_id="a",
            project_id=project_id,
            name=name,
            live_name=name,
            region="eu-1",
            phase=Phase.READY,
            phase_since=1,
            spec=spec,
            digest="",
            created_at=1,
            updated_at=1,
        )
        await self.store.apply(Batch(Step.CLUSTER_ACCEPT, [Insert(cluster)]))
        return cluster

    async def woken(self) -> set[tuple[str, str]]:
        claims = await self.store.claim(worker="w", now=self.clock.now(), lease_ms=1, limit=100)
        for claim in claims:
            await self.store.release(claim, due_at=None, failed=False)
        return {(claim.kind, claim.id) for claim in claims}


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True)
    yield Gate(store)
    asyncio.run(store.close())


def test_the_same_ssh_key_twice_is_one_key(gate: Gate) -> None:
    async def story() -> None:
        key = await gate.service.add_ssh_key(ADMIN, name="laptop", public_key=f"{KEY} ada@lab\n")
        assert (key.name, key.public_key, key.number) == ("laptop", f"{KEY} ada@lab", 1)
        again = await gate.service.add_ssh_key(ADMIN, name="other name", public_key=KEY)
        assert again == key
        theirs = await gate.service.add_ssh_key(STRANGER, public_key=f"{KEY} eve's")
        assert (theirs.id != key.id, theirs.name) == (True, "eve's")
        assert (await gate.service.ssh_keys(ADMIN)).items == [key]
        assert len((await gate.service.ssh_keys(SYSTEM)).items) == 2
        await gate.service.remove_ssh_key(ADMIN, key.id)
        with pytest.raises(NotFound):
            await gate.service.ssh_key(ADMIN, key.id)
        events = await gate.store.events(after=0, limit=10, resource_id=key.id)
        assert [(e.type, e.actor) for e in events] == [("ssh_key.added", "ada"), ("ssh_key.removed", "ada")]

    asyncio.run(story())


def test_an_ssh_key_may_belong_to_a_member_of_the_project(gate: Gate) -> None:
    async def story() -> None:
        mia = Member(id="m", account_id="a", project_id="ours", name="Mia", role=Role.MEMBER, created_at=1)
        await gate.store.apply(Batch(Step.ACCOUNT_WRITE, [Insert(mia)]))
        with pytest.raises(NotFound):
            await gate.service.add_ssh_key(STRANGER, public_key=KEY, member_id="m")
        key = await gate.service.add_ssh_key(ADMIN, public_key=KEY, member_id="m")
        assert key.member_id == "m"
        raised = await gate.store.get(Member, "m")
        assert raised is not None
        assert raised.version == 2

    asyncio.run(story())


def test_foreign_and_read_only_hands_are_kept_off(gate: Gate) -> None:
    async def story() -> None:
        service = gate.service
        key = await service.add_ssh_key(ADMIN, public_key=KEY)
        group = await service.create_security_group(ADMIN, name="web")
        ip = await service.reserve_ip(ADMIN, region="eu-1")
        for foreign in (
            service.ssh_key(STRANGER, key.id),
            service.remove_ssh_key(STRANGER, key.id),
            service.add_ssh_key(STRANGER, public_key=KEY, project_id="ours"),
            service.security_group(STRANGER, group.id),
            service.set_rules(STRANGER, group.id, []),
            service.remove_security_group(STRANGER, group.id),
            service.reserved_ip(STRANGER, ip.id),
            service.release_ip(STRANGER, ip.id),
            service.reserved_ips(STRANGER, "ours"),
            service.reserve_ip(SYSTEM, region="eu-1", project_id="no-such"),
        ):
            with pytest.raises(NotFound):
                await foreign
        for forbidden in (
            service.add_ssh_key(MEMBER, public_key=KEY),
            service.remove_ssh_key(MEMBER, key.id),
            service.create_security_group(MEMBER, name="x"),
            service.set_rules(MEMBER, group.id, []),
            service.remove_security_group(MEMBER, group.id),
            service.reserve_ip(MEMBER, region="eu-1"),
            service.release_ip(MEMBER, ip.id),
        ):
            with pytest.raises(Forbidden):
                await forbidden
        assert await service.security_group(MEMBER, group.id) == group
        with pytest.raises(Invalid, match="no project"):
            await service.create_security_group(SYSTEM, name="whose")

    asyncio.run(story())


def test_new_rules_wake_the_clusters_under_them_and_no_others(gate: Gate) -> None:
    async def story() -> None:
        group = await gate.service.create_security_group(ADMIN, name="web", rules=[SSH_IN])
        await gate.cluster("under", "other", group.id)
        await gate.cluster("beside")
        gone = await gate.cluster("gone", group.id)
        await gate.store.apply(Batch(Step.CLUSTER_GONE, [Replace(changed(gone, gone_at=5))]))
        later = await gate.service.set_rules(ADMIN, group.id, [], if_version=group.version)
        assert (later.rules, later.version) == ((), 2)
        assert await gate.woken() == {("cluster", "under")}
        assert await gate.service.set_rules(ADMIN, group.id, []) == later
        assert await gate.woken() == set()
        with pytest.raises(Stale):
            await gate.service.set_rules(ADMIN, group.id, [SSH_IN], if_version=group.version)

    asyncio.run(story())


def test_a_security_group_in_use_stays(gate: Gate) -> None:
    async def story() -> None:
        group = await gate.service.create_security_group(ADMIN, name="web")
        cluster = await gate.cluster("under", group.id)
        with pytest.raises(Protected, match="under") as refused:
            await gate.service.remove_security_group(ADMIN, group.id)
        assert refused.value.details == {"cluster_ids": ["under"]}
        await gate.store.apply(Batch(Step.CLUSTER_GONE, [Replace(changed(cluster, gone_at=5))]))
        await gate.service.remove_security_group(ADMIN, group.id)
        assert (await gate.service.security_groups(ADMIN)).items == []

    asyncio.run(story())


def test_names_of_groups_are_taken_once_per_project(gate: Gate) -> None:
    async def story() -> None:
        service = gate.service
        web = await service.create_security_group(ADMIN, name="web", once=Once("k", "d"))
        assert await service.create_security_group(ADMIN, name="web", once=Once("k", "d")) == web
        with pytest.raises(NameTaken):
            await service.create_security_group(ADMIN, name="web")
        db = await service.create_security_group(ADMIN, name="db")
        with pytest.raises(NameTaken):
            await service.set_rules(ADMIN, db.id, [], name="web")
        assert (await service.set_rules(ADMIN, db.id, [], name="db2")).name == "db2"
        await service.create_security_group(STRANGER, name="web")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (Rule(direction="sideways", protocol="tcp"), "rules[0].direction"),
        (Rule(direction="inbound", protocol="gre"), "rules[0].protocol"),
        (Rule(direction="inbound", protocol="tcp", port_min=80, port_max=22), "rules[0].port_min"),
        (Rule(direction="inbound", protocol="tcp", port_min=-1), "rules[0].port_min"),
        (Rule(direction="inbound", protocol="tcp", port_max=65_536), "rules[0].port_min"),
        (Rule(direction="inbound", protocol="icmp", port_min=1, port_max=1), "rules[0].port_min"),
        (Rule(direction="inbound", protocol="any", cidr="10.0.0.1/8"), "rules[0].cidr"),
        (Rule(direction="inbound", protocol="any", cidr="everywhere"), "rules[0].cidr"),
        (Rule(direction="inbound", protocol="any", cidr=""), "rules[0].cidr"),
        (Rule(direction="inbound", protocol="any", description="x" * 256), "rules[0].description"),
    ],
)
def test_rules_that_make_no_sense_name_their_field(rule: Rule, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        checked_rules([rule])
    assert refused.value.field == field


def test_rules_are_kept_in_one_form() -> None:
    twice = [Rule(direction="inbound", protocol="any", cidr=" 203.0.113.7 ")] * 2
    assert [rule.cidr for rule in checked_rules(twice)] == ["203.0.113.7/32"]
    assert checked_rules([Rule(direction="outbound", protocol="any", cidr="::/0")])[0].cidr == "::/0"
    with pytest.raises(Invalid):
        checked_rules([SSH_IN] * (RULES_MAX + 1))


def test_addresses_are_given_lowest_first_and_come_back(gate: Gate) -> None:
    async def story() -> None:
        first = await gate.service.reserve_ip(ADMIN, region="eu-1")
        second = await gate.service.reserve_ip(STRANGER, region="eu-1")
        elsewhere = await gate.service.reserve_ip(ADMIN, region="eu-2")
        assert len({first.address, second.address, elsewhere.address}) == 3
        await gate.service.release_ip(ADMIN, first.id)
        assert (await gate.service.reserve_ip(STRANGER, region="eu-1")).address == first.address
        only = await gate.service.reserved_ips(ADMIN, region="eu-2")
        assert only.items == [elsewhere]
        with pytest.raises(Invalid):
            await gate.service.reserve_ip(ADMIN, region="atlantis")

    asyncio.run(story())


def test_an_address_is_reserved_once_for_one_idempotency_key(gate: Gate) -> None:
    async def story() -> None:
        first = await gate.service.reserve_ip(ADMIN, region="eu-1", once=Once("k", "d"))
        assert await gate.service.reserve_ip(ADMIN, region="eu-1", once=Once("k", "d")) == first
        assert await gate.store.count(Find(ReservedIp)) == 1

    asyncio.run(story())


def test_an_attached_address_stays(gate: Gate) -> None:
    async def story() -> None:
        ip = await gate.service.reserve_ip(ADMIN, region="eu-1")
        await gate.store.apply(Batch(Step.CLUSTER_ACCEPT, [Replace(changed(ip, cluster_id="c"))]))
        with pytest.raises(Protected):
            await gate.service.release_ip(ADMIN, ip.id)

    asyncio.run(story())


def test_addresses_run_out_honestly(gate: Gate) -> None:
    async def story() -> None:
        tiny = AccessService(gate.store, gate.clock, SeededEntropy(2), lambda region: Net("192.0.2.0/30"))
        assert (await tiny.reserve_ip(ADMIN, region="eu-1")).address == "192.0.2.1"
        assert (await tiny.reserve_ip(ADMIN, region="eu-1")).address == "192.0.2.2"
        with pytest.raises(OutOfStock):
            await tiny.reserve_ip(ADMIN, region="eu-1")
        with pytest.raises(Unsupported):
            await AccessService(gate.store, gate.clock, SeededEntropy(3)).reserve_ip(ADMIN, region="eu-1")
        for _ in range(RESERVED_IPS_MAX - 2):
            await gate.service.reserve_ip(ADMIN, region="eu-2")
        with pytest.raises(QuotaExceeded):
            await gate.service.reserve_ip(ADMIN, region="eu-2")

    asyncio.run(story())


def test_two_who_reach_for_one_address_get_two(gate: Gate) -> None:
    """The other takes the address between our look and our write."""

    async def story() -> None:
        raced: list[str] = []

        class Busy:
            def __getattr__(self, name: str) -> object:
                return getattr(gate.store, name)

            async def find(self, query: Find[ReservedIp]) -> list[ReservedIp]:
                found = await gate.store.find(query)
                if query.noun is ReservedIp and not raced:
                    raced.append((await gate.service.reserve_ip(STRANGER, region="eu-1")).address)
                return found

        slow = AccessService(Busy(), gate.clock, SeededEntropy(4), simulated_pools)  # type: ignore[arg-type]
        mine = await slow.reserve_ip(ADMIN, region="eu-1")
        assert [mine.address] != raced
        assert await gate.store.count(Find(ReservedIp, equals={"region": "eu-1"})) == 2

    asyncio.run(story())


def test_regions_never_share_simulated_addresses() -> None:
    pools = [simulated_pools(Region(id=f"r{n}", number=n)) for n in range(200)]
    nets = [pool for pool in pools if pool is not None]
    assert len(nets) == 128
    assert all(net.subnet_of(SIMULATED_BLOCK) for net in nets)
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(nets))
    assert free_address(Net("192.0.2.0/30"), {"192.0.2.1", "192.0.2.2"}) is None


def test_lists_come_in_pages(gate: Gate) -> None:
    async def story() -> None:
        for n in range(3):
            gate.clock.advance(1)
            await gate.service.create_security_group(ADMIN, name=f"g{n}")
        page = await gate.service.security_groups(ADMIN, limit=2)
        rest = await gate.service.security_groups(ADMIN, limit=2, cursor=page.next_cursor)
        assert [g.name for g in (*page.items, *rest.items)] == ["g0", "g1", "g2"]
        assert rest.next_cursor is None
        assert [g.name for g in (await gate.service.security_groups(ADMIN, name="g1")).items] == ["g1"]
        assert await gate.store.count(Find(SshKey)) == 0

    asyncio.run(story())

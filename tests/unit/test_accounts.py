"""Accounts, projects, members and keys against a real store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.clock import SeededEntropy
from muster.contracts.steps import Step
from muster.contracts.store import Batch, Find, Insert
from muster.core.accounts.names import clean_email, clean_name, slug_of
from muster.core.accounts.service import AccountService
from muster.core.idempotency import Once
from muster.errors import (
    CallError,
    Forbidden,
    IdempotencyMismatch,
    Invalid,
    NameTaken,
    NotFound,
    Stale,
    StoreFull,
    Unauthenticated,
    Unavailable,
)
from muster.model.access import SshKey
from muster.model.accounts import SYSTEM, Account, Actor, ApiKey, Member, Project, Role
from muster.store.sqlite import SqliteStore
from muster.testing.clock import ManualClock


class Office:
    """The service, its surroundings, and two tenants."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.processes = 0
        self.service = self.another()
        self.acme, self.admin = asyncio.run(self._tenant("acme"))
        self.rival, self.rival_admin = asyncio.run(self._tenant("rival"))

    def another(self) -> AccountService:
        """A second process on the same store."""
        self.processes += 1
        return AccountService(self.store, self.clock, SeededEntropy(self.processes))

    async def _tenant(self, name: str) -> tuple[Project, Actor]:
        account = await self.service.create_account(SYSTEM, name=name)
        project = await self.service.create_project(SYSTEM, account_id=account.id, name=name)
        key, secret = await self.service.create_key(SYSTEM, name=f"{name} admin", project_id=project.id)
        actor = await self.service.authenticate(secret)
        await self.service.close()
        assert actor.key_id == key.id
        return project, actor

    async def member(self, role: Role = Role.MEMBER) -> tuple[Member, ApiKey, str]:
        member = await self.service.add_member(self.admin, name="Mia", role=role)
        key, secret = await self.service.create_key(self.admin, name="mia's", member_id=member.id)
        return member, key, secret


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    store = SqliteStore.open(tmp_path / "muster.db", inline=True)
    yield Office(store)
    asyncio.run(store.close())


def test_a_key_opens_the_door_and_only_its_digest_is_kept(office: Office) -> None:
    async def story() -> None:
        key, secret = await office.service.create_key(office.admin, name="ci", role=Role.ADMIN)
        actor = await office.service.authenticate(secret)
        assert (actor.role, actor.name, actor.project_id) == (Role.ADMIN, "ci", office.acme.id)
        assert actor.account_id == office.acme.account_id
        assert secret.startswith("mk-")
        assert len(secret) >= 46
        assert secret not in str(key)
        assert secret.startswith(key.prefix)
        assert len(key.prefix) < 10
        assert all(secret not in str(event) for event in await office.store.events(after=0, limit=1000))
        with pytest.raises(Unauthenticated):
            await office.service.authenticate(secret + "x")
        with pytest.raises(Unauthenticated):
            await office.service.authenticate("")
        await office.service.close()

    asyncio.run(story())


def test_a_revoked_key_ends_at_once_here_and_within_two_seconds_elsewhere(office: Office) -> None:
    async def story() -> None:
        key, secret = await office.service.create_key(office.admin, name="ci")
        elsewhere = office.another()
        await office.service.authenticate(secret)
        await elsewhere.authenticate(secret)
        await office.service.close()
        await elsewhere.close()
        revoked = await office.service.revoke_key(office.admin, key.id)
        assert revoked.revoked_at == office.clock.now()
        with pytest.raises(Unauthenticated):
            await office.service.authenticate(secret)
        assert (await elsewhere.authenticate(secret)).key_id == key.id
        office.clock.advance(2)
        with pytest.raises(Unauthenticated):
            await elsewhere.authenticate(secret)
        again = await office.service.revoke_key(office.admin, key.id)
        assert again == revoked
        events = await office.store.events(after=0, limit=100, resource_id=key.id)
        assert [event.type for event in events] == ["key.created", "key.revoked"]
        assert events[-1].actor == "acme admin"
        assert events[-1].project_id == office.acme.id

    asyncio.run(story())


def test_a_look_up_under_way_does_not_outlive_a_revocation(office: Office) -> None:
    """The read of the key and its revocation interleave: the reader must not remember what it read."""

    async def story() -> None:
        key, secret = await office.service.create_key(office.admin, name="ci")
        find = office.store.find
        at_the_desk, go_on = asyncio.Event(), asyncio.Event()

        class Slow:
            """The same store over a slow line."""

            def __getattr__(self, name: str) -> object:
                return getattr(office.store, name)

            async def find(self, query: Find[ApiKey]) -> list[ApiKey]:
                found = await find(query)
                at_the_desk.set()
                await go_on.wait()
                return found

        service = AccountService(Slow(), office.clock, SeededEntropy(5))  # type: ignore[arg-type]
        early = asyncio.create_task(service.authenticate(secret))
        await at_the_desk.wait()
        await service.revoke_key(office.admin, key.id)
        go_on.set()
        await early  # it was asked before the key ended
        with pytest.raises(Unauthenticated):
            await service.authenticate(secret)
        await service.close()

    asyncio.run(story())


def test_the_key_in_use_may_revoke_itself(office: Office) -> None:
    async def story() -> None:
        assert office.admin.key_id is not None
        revoked = await office.service.revoke_key(office.admin, office.admin.key_id)
        assert revoked.revoked_at is not None

    asyncio.run(story())


def test_last_use_is_noted_once_a_minute(office: Office) -> None:
    async def story() -> None:
        key, secret = await office.service.create_key(office.admin, name="ci")

        async def used(seconds: float) -> ApiKey:
            office.clock.advance(seconds)
            await office.service.authenticate(secret)
            await office.service.close()
            return await office.service.key(office.admin, key.id)

        first = await used(5)
        assert first.last_used_at == office.clock.now()
        assert await used(59) == first
        later = await used(2)  # a second later it would still be remembered, and not even read
        assert later.last_used_at == office.clock.now()
        assert later.version == first.version + 1

    asyncio.run(story())


def test_the_operator_may_choose_the_secret_of_a_key_but_a_tenant_may_not(office: Office) -> None:
    async def story() -> None:
        service = office.service
        key, secret = await service.create_key(SYSTEM, name="op", role=Role.OPERATOR, secret="chosen-by-hand")
        assert secret == "chosen-by-hand"
        assert key.prefix == "cho"
        assert (await service.authenticate("chosen-by-hand")).is_operator
        await service.close()
        with pytest.raises(NameTaken) as taken:
            await service.create_key(SYSTEM, name="op2", role=Role.OPERATOR, secret="chosen-by-hand")
        assert "chosen" not in str(taken.value)
        for bad in ("short", "with space in it", "naïve-secret", "new\nline-secret", "x" * 257):
            with pytest.raises(Invalid):
                await service.create_key(SYSTEM, name="bad", role=Role.OPERATOR, secret=bad)
        with pytest.raises(Forbidden):
            await service.create_key(office.admin, name="mine", secret="chosen-by-tenant")

    asyncio.run(story())


def test_nobody_grants_more_than_they_have(office: Office) -> None:
    async def story() -> None:
        service = office.service
        member, _, secret = await office.member()
        mia = await service.authenticate(secret)
        await service.close()
        assert (mia.role, mia.member_id) == (Role.MEMBER, member.id)
        with pytest.raises(Forbidden):
            await service.create_key(office.admin, name="root", role=Role.OPERATOR)
        with pytest.raises(Forbidden):
            await service.create_key(office.admin, name="more", role=Role.ADMIN, member_id=member.id)
        with pytest.raises(Invalid):
            await service.add_member(office.admin, name="Op", role=Role.OPERATOR)
        with pytest.raises(Invalid):
            await service.create_key(SYSTEM, name="op", role=Role.OPERATOR, project_id=office.acme.id)
        for forbidden in (
            service.create_key(mia, name="k"),
            service.add_member(mia, name="Max", role=Role.MEMBER),
            service.remove_member(mia, member.id),
            service.revoke_key(mia, mia.key_id or ""),
            service.update_project(mia, office.acme.id, name="mine"),
            service.create_account(office.admin, name="free"),
            service.create_project(office.admin, name="free"),
            service.update_project(office.admin, office.acme.id, gpu_quota=10_000),
        ):
            with pytest.raises(Forbidden):
                await forbidden
        assert (await service.project(mia, office.acme.id)).name == "acme"

    asyncio.run(story())


def test_foreign_things_do_not_exist(office: Office) -> None:
    async def story() -> None:
        service, stranger = office.service, office.rival_admin
        member, key, _ = await office.member()
        for foreign in (
            service.account(stranger, office.acme.account_id),
            service.project(stranger, office.acme.id),
            service.update_project(stranger, office.acme.id, name="mine"),
            service.members(stranger, office.acme.id),
            service.member(stranger, member.id),
            service.remove_member(stranger, member.id),
            service.add_member(stranger, name="Eve", role=Role.ADMIN, project_id=office.acme.id),
            service.key(stranger, key.id),
            service.keys(stranger, office.acme.id),
            service.revoke_key(stranger, key.id),
            service.create_key(stranger, name="k", project_id=office.acme.id),
            service.create_key(stranger, name="k", member_id=member.id),
            service.project(SYSTEM, "no-such"),
            service.create_key(SYSTEM, name="k", project_id="no-such"),
        ):
            with pytest.raises(NotFound):
                await foreign
        assert [account.name for account in (await service.accounts(stranger)).items] == ["rival"]
        assert [project.name for project in (await service.projects(stranger)).items] == ["rival"]
        assert (await service.members(stranger)).items == []
        assert {k.name for k in (await service.keys(stranger)).items} == {"rival admin"}
        assert {k.name for k in (await service.keys(SYSTEM)).items} == {"acme admin", "rival admin", "mia's"}

    asyncio.run(story())


def test_a_member_leaves_with_all_its_keys(office: Office) -> None:
    async def story() -> None:
        service = office.service
        member, key, secret = await office.member(Role.ADMIN)
        pin = SshKey(
            id="pin",
            account_id=member.account_id,
            project_id=member.project_id,
            member_id=member.id,
            name="laptop",
            public_key="ssh-ed25519 AAAA",
            fingerprint="SHA256:x",
            created_at=1,
        )
        await office.store.apply(Batch(Step.ACCESS_WRITE, [Insert(pin)]))
        other, other_secret = await service.create_key(office.admin, name="other", member_id=member.id)
        actor = await service.authenticate(secret)
        await service.close()
        assert actor.role is Role.ADMIN
        await service.remove_member(office.admin, member.id)
        for lost in (secret, other_secret):
            with pytest.raises(Unauthenticated):
                await service.authenticate(lost)
        for row in (key, other):
            kept = await office.store.get(ApiKey, row.id)
            assert kept is not None
            assert kept.revoked_at is not None
        with pytest.raises(NotFound):
            await service.member(office.admin, member.id)
        with pytest.raises(NotFound):
            await service.create_key(office.admin, name="late", member_id=member.id)
        events = await office.store.events(after=0, limit=3, newest_first=True)
        assert {event.type for event in events} == {"member.removed", "key.revoked"}
        assert await office.store.count(Find(SshKey, equals={"member_id": member.id})) == 0

    asyncio.run(story())


def test_a_removal_sees_a_key_that_was_made_meanwhile(office: Office) -> None:
    """The key is made between the removal's reading and its writing; it must be revoked all the same."""

    async def story() -> None:
        member, _, _ = await office.member()
        late: list[str] = []

        class Interrupted:
            def __getattr__(self, name: str) -> object:
                return getattr(office.store, name)

            async def find(self, query: Find[ApiKey]) -> list[ApiKey]:
                found = await office.store.find(query)
                if query.noun is ApiKey and not late:
                    late.append((await office.service.create_key(office.admin, name="late", member_id=member.id))[1])
                return found

        service = AccountService(Interrupted(), office.clock, SeededEntropy(6))  # type: ignore[arg-type]
        await service.remove_member(office.admin, member.id)
        with pytest.raises(Unauthenticated):
            await office.service.authenticate(late[0])

    asyncio.run(story())


def test_names_are_taken_once(office: Office) -> None:
    async def story() -> None:
        service, account_id = office.service, office.acme.account_id
        with pytest.raises(NameTaken):
            await service.create_account(SYSTEM, name=" acme ")
        second = await service.create_project(SYSTEM, account_id=account_id, name="Über Lab")
        assert second.slug == "uber-lab"
        with pytest.raises(NameTaken):
            await service.create_project(SYSTEM, account_id=account_id, name="uber--lab")
        with pytest.raises(NameTaken):
            await service.update_project(SYSTEM, second.id, name="ACME")
        elsewhere = await service.create_project(SYSTEM, account_id=office.rival.account_id, name="Über Lab")
        assert elsewhere.number != second.number
        with pytest.raises(Invalid):
            await service.create_project(SYSTEM, name="homeless")
        with pytest.raises(NotFound):
            await service.create_project(SYSTEM, name="lost", account_id="no-such")

    asyncio.run(story())


def test_a_project_is_updated_under_the_version_that_was_seen(office: Office) -> None:
    async def story() -> None:
        service, id = office.service, office.acme.id
        renamed = await service.update_project(office.admin, id, name="Acme Two", if_version=1)
        assert (renamed.slug, renamed.version, renamed.gpu_quota) == ("acme-two", 2, None)
        with pytest.raises(Stale) as stale:
            await service.update_project(office.admin, id, name="Acme Three", if_version=1)
        assert stale.value.details == {"version": 2}
        limited = await service.update_project(SYSTEM, id, gpu_quota=16)
        assert (limited.gpu_quota, limited.name) == (16, "Acme Two")
        assert await service.update_project(SYSTEM, id, gpu_quota=16) == limited
        assert (await service.update_project(SYSTEM, id, gpu_quota=None)).gpu_quota is None
        with pytest.raises(Invalid):
            await service.update_project(SYSTEM, id, gpu_quota=-1)

    asyncio.run(story())


def test_said_twice_is_done_once(office: Office) -> None:
    async def story() -> None:
        service, once = office.service, Once("abc", "body")
        first = await service.create_account(SYSTEM, name="again", once=once)
        assert await service.create_account(SYSTEM, name="again", once=once) == first
        with pytest.raises(IdempotencyMismatch):
            await service.create_account(SYSTEM, name="again", once=Once("abc", "other body"))
        member = await service.add_member(office.admin, name="Max", role=Role.MEMBER, once=once)
        assert await service.add_member(office.admin, name="Max", role=Role.MEMBER, once=once) == member
        assert await office.store.count(Find(Member)) == 1
        key, secret = await service.create_key(office.admin, name="k", once=Once("def", "key"))
        repeated = await service.create_key(office.admin, name="k", once=Once("def", "key"))
        assert secret
        assert repeated == (key, "")
        assert await office.store.count(Find(Account)) == 3

    asyncio.run(story())


def test_lists_come_in_pages(office: Office) -> None:
    async def story() -> None:
        service = office.service
        for n in range(5):
            office.clock.advance(1)
            await service.add_member(office.admin, name=f"m{n}", role=Role.MEMBER)
        names: list[str] = []
        cursor = None
        while True:
            page = await service.members(office.admin, cursor=cursor, limit=2)
            names += [member.name for member in page.items]
            if (cursor := page.next_cursor) is None:
                break
        assert names == ["m0", "m1", "m2", "m3", "m4"]
        assert [m.name for m in (await service.members(office.admin, name="m3")).items] == ["m3"]

    asyncio.run(story())


def test_a_full_disk_is_told_as_ours(office: Office) -> None:
    async def story() -> None:
        class Full:
            def __getattr__(self, name: str) -> object:
                return getattr(office.store, name)

            async def apply(self, batch: object) -> None:
                raise StoreFull("no space")

        service = AccountService(Full(), office.clock, SeededEntropy(7))  # type: ignore[arg-type]
        with pytest.raises(Unavailable):
            await service.create_account(SYSTEM, name="no room")
        with pytest.raises(Unavailable):
            await service.update_project(SYSTEM, office.acme.id, name="no room")
        _, secret = await office.service.create_key(office.admin, name="still")
        assert await service.authenticate(secret)  # noting its use fails, and that is nobody's business
        await service.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("given", "kept"), [("  a b ", "a b"), ("x" * 63, "x" * 63), ("名前", "名前"), ("O'Hara & Co.", "O'Hara & Co.")]
)
def test_names_as_they_are_kept(given: str, kept: str) -> None:
    assert clean_name(given) == kept


@pytest.mark.parametrize("given", ["", "   ", "x" * 64, "a\nb", "a\x00b", "a\u202eb", "tab\tname"])
def test_names_that_are_refused(given: str) -> None:
    with pytest.raises(Invalid) as refused:
        clean_name(given)
    assert refused.value.field == "name"


@pytest.mark.parametrize("given", ["@", "a@", "a b@c", "a@b@c", "a", "x" * 250 + "@a.org"])
def test_mail_addresses_that_are_refused(given: str) -> None:
    with pytest.raises(CallError):
        clean_email(given)
    assert clean_email(" ada@example.org ") == "ada@example.org"
    assert clean_email("") == ""


def test_slugs_exist_for_every_name_and_differ() -> None:
    assert slug_of("Team  A / B") == "team-a-b"
    assert slug_of("名前") != slug_of("別名")
    assert slug_of("名前").startswith("project-")

"""The laws of contracts/substrate.py, one test each. Whoever hands out hosts passes these.

Use: subclass `SubstrateSuite` in a test module and give it a fixture `rigs` that returns a factory of rigs. Time is
the rig's affair (`settle`), so the same stories run under a virtual clock and against real machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pytest
from msgspec.structs import replace

from muster.contracts.substrate import FabricWish, Fence, NodeWish, Owned, Power, Seen, Substrate, VolumeWish, Wish
from muster.errors import DriverError, FencedOff, Never, NoneLeft, UnknownOutcome
from muster.model.access import Rule
from muster.model.base import Instant
from muster.model.clusters import Mount
from muster.testing.laws import Capability, Rig, law, until

__all__ = ["SubstrateRig", "SubstrateSuite"]


class SubstrateRig(Rig, Protocol):
    """A substrate with free hosts and the means to hurt them; hooks of undeclared capabilities are never called."""

    @property
    def substrate(self) -> Substrate: ...

    def node(self, key: str, *, fabric: str, host: int = 0, slot: int = 0) -> NodeWish:
        """A worker's wish on the rig's n-th host (0, 1 or 2), on one of its slots (0 or 1)."""

    @property
    def region(self) -> str: ...

    def now(self) -> Instant: ...

    async def advance_to(self, at: Instant) -> None:
        """VIRTUAL_TIME: the clock shows exactly this."""

    async def kill_host(self, host: int) -> None: ...

    async def hide_host(self, host: int) -> None: ...

    async def lose_reply(self, host: int) -> None:
        """The next ensure that touches this host does its work and raises UnknownOutcome."""

    async def fail_boot(self, host: int) -> None:
        """The next boot on this host fails."""

    async def run_out(self) -> None:
        """Nothing new can be had in the rig's region."""

    async def reopen(self) -> Substrate:
        """CAN_REOPEN: another driver over the same machines; the rig closes it."""


OURS = Fence("owner-a", 1)


async def seen(rig: SubstrateRig, key: str) -> Seen | None:
    return (await rig.substrate.observe([key])).get(key)


async def until_power(rig: SubstrateRig, keys: Sequence[str], power: Power) -> dict[str, Seen]:
    async def met() -> bool:
        found = await rig.substrate.observe(keys)
        return all(key in found and found[key].power is power for key in keys)

    await until(rig, met, f"{', '.join(keys)} {power}")
    return await rig.substrate.observe(keys)


async def until_absent(rig: SubstrateRig, keys: Sequence[str]) -> None:
    async def met() -> bool:
        return not await rig.substrate.observe(keys)

    await until(rig, met, f"{', '.join(keys)} absent")


async def node_up(rig: SubstrateRig, key: str = "node-1", *, host: int = 0) -> NodeWish:
    """A fabric `net` and one node on it, both up."""
    wish = rig.node(key, fabric="net", host=host)
    await rig.substrate.ensure([FabricWish(key="net", region=rig.region), wish], OURS)
    await until_power(rig, ["net", key], Power.UP)
    return wish


class SubstrateSuite:
    @law()
    async def test_what_is_ensured_comes_up(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        await rig.substrate.ensure([VolumeWish(key="vol", region=rig.region, size_gib=2)], OURS)
        await until_power(rig, ["vol"], Power.UP)
        node, volume = await seen(rig, wish.key), await seen(rig, "vol")
        assert node is not None
        assert node.address
        assert node.generation == wish.generation
        assert volume is not None
        assert volume.size_gib == 2

    @law()
    async def test_same_key_twice_is_one_thing(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        before = await seen(rig, wish.key)
        await rig.substrate.ensure([wish], OURS)
        await rig.substrate.ensure([wish, wish], OURS)
        assert await seen(rig, wish.key) == before
        assert [thing.key for thing in await rig.substrate.owned()].count(wish.key) == 1

    @law()
    async def test_no_call_waits_and_starting_is_said(self, rig: SubstrateRig) -> None:
        wishes: list[Wish] = [FabricWish(key="net", region=rig.region), rig.node("node-1", fabric="net")]
        await rig.substrate.ensure(wishes, OURS)
        node = await seen(rig, "node-1")
        assert node is not None
        assert node.power in (Power.STARTING, Power.UP)

    @law()
    async def test_nodes_on_one_host_share_it_by_slot(self, rig: SubstrateRig) -> None:
        wishes = [rig.node("node-1", fabric="net", slot=0), rig.node("node-2", fabric="net", slot=1)]
        await rig.substrate.ensure([FabricWish(key="net", region=rig.region), *wishes], OURS)
        found = await until_power(rig, ["node-1", "node-2"], Power.UP)
        assert found["node-1"].address != found["node-2"].address

    @law()
    async def test_mounts_change_in_place(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        await rig.substrate.ensure([VolumeWish(key="vol", region=rig.region, size_gib=1)], OURS)
        await until_power(rig, ["vol"], Power.UP)
        await rig.substrate.ensure([replace(wish, mounts=(Mount(volume_id="vol", path="/data"),))], OURS)
        after = await seen(rig, wish.key)
        assert after is not None
        assert after.power is Power.UP
        await rig.substrate.ensure([wish], OURS)
        await rig.substrate.ensure_absent(["vol"], OURS)
        await until_absent(rig, ["vol"])

    @law()
    async def test_rules_change_in_place(self, rig: SubstrateRig) -> None:
        await node_up(rig)
        rule = Rule(direction="inbound", protocol="tcp", port_min=22, port_max=22)
        await rig.substrate.ensure([FabricWish(key="net", region=rig.region, rules=(rule,))], OURS)
        found = await rig.substrate.observe(["net", "node-1"])
        assert found["net"].power is Power.UP
        assert found["node-1"].power is Power.UP

    @law()
    async def test_a_volume_grows_in_place_and_never_shrinks(self, rig: SubstrateRig) -> None:
        await rig.substrate.ensure([VolumeWish(key="vol", region=rig.region, size_gib=1)], OURS)
        await until_power(rig, ["vol"], Power.UP)
        await rig.substrate.ensure([VolumeWish(key="vol", region=rig.region, size_gib=3)], OURS)

        async def grown() -> bool:
            volume = await seen(rig, "vol")
            assert volume is not None
            assert volume.power is Power.UP
            return volume.size_gib == 3

        await until(rig, grown, "vol has 3 GiB")
        with pytest.raises(Never):
            await rig.substrate.ensure([VolumeWish(key="vol", region=rig.region, size_gib=2)], OURS)
        assert await grown()

    @law()
    async def test_what_cannot_change_in_place_is_refused(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        elsewhere = rig.node(wish.key, fabric="net", host=1)
        with pytest.raises(Never):
            await rig.substrate.ensure([elsewhere], OURS)
        after = await seen(rig, wish.key)
        assert after is not None
        assert after.power is Power.UP

    @law()
    async def test_a_raised_generation_boots_anew(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        await rig.substrate.ensure([replace(wish, generation=2)], OURS)
        first = await seen(rig, wish.key)
        assert first is not None
        assert first.power in (Power.STARTING, Power.STOPPING, Power.UP)

        async def booted() -> bool:
            node = await seen(rig, wish.key)
            assert node is not None, "a reboot in place is never seen as absent"
            return node.power is Power.UP and node.generation == 2

        await until(rig, booted, "node-1 up in generation 2")

    @law()
    async def test_an_older_generation_is_refused(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        newer = replace(wish, generation=2)
        await rig.substrate.ensure([newer], OURS)
        with pytest.raises(DriverError):
            await rig.substrate.ensure([wish], OURS)
        found = await until_power(rig, [wish.key], Power.UP)
        assert found[wish.key].generation == 2

    @law()
    async def test_absent_of_the_unknown_is_success(self, rig: SubstrateRig) -> None:
        await rig.substrate.ensure_absent(["never-heard-of"], OURS)
        assert await rig.substrate.observe(["never-heard-of"]) == {}

    @law()
    async def test_absent_only_when_observe_says_so(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        await rig.substrate.ensure_absent([wish.key], OURS)
        await rig.substrate.ensure_absent([wish.key], OURS)
        node = await seen(rig, wish.key)
        owned = [thing.key for thing in await rig.substrate.owned()]
        assert node is None or node.power is Power.STOPPING
        assert (node is None) or (wish.key in owned), "still seen, so still owned"
        await until_absent(rig, [wish.key])
        assert wish.key not in [thing.key for thing in await rig.substrate.owned()]

    @law()
    async def test_everything_goes_in_one_call(self, rig: SubstrateRig) -> None:
        """A cluster's end names its fabric and its nodes together, in any order."""
        wish = await node_up(rig)
        await rig.substrate.ensure_absent(["net", wish.key], OURS)
        await until_absent(rig, ["net", wish.key])
        assert await rig.substrate.owned() == []

    @law()
    async def test_a_key_may_be_used_again_after_it_is_absent(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        await rig.substrate.ensure_absent([wish.key], OURS)
        await until_absent(rig, [wish.key])
        await rig.substrate.ensure([rig.node(wish.key, fabric="net", host=1)], OURS)
        await until_power(rig, [wish.key], Power.UP)

    @law()
    async def test_going_while_still_starting(self, rig: SubstrateRig) -> None:
        wish = rig.node("node-1", fabric="net")
        await rig.substrate.ensure([FabricWish(key="net", region=rig.region), wish], OURS)
        await rig.substrate.ensure_absent(["node-1", "net"], OURS)
        await until_absent(rig, ["node-1", "net"])

    @law()
    async def test_owned_is_complete_and_says_whose(self, rig: SubstrateRig) -> None:
        await node_up(rig)
        volume = VolumeWish(key="vol", region=rig.region, size_gib=1)
        await rig.substrate.ensure([volume], Fence("owner-b", 7))
        assert sorted(await rig.substrate.owned()) == [
            Owned("net", "fabric", "owner-a"),
            Owned("node-1", "node", "owner-a"),
            Owned("vol", "volume", "owner-b"),
        ]

    @law()
    async def test_an_older_token_is_fenced_off(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        await rig.substrate.ensure([wish], Fence("owner-a", 5))
        with pytest.raises(FencedOff):
            await rig.substrate.ensure([rig.node("node-2", fabric="net", host=1)], Fence("owner-a", 4))
        with pytest.raises(FencedOff):
            await rig.substrate.ensure_absent([wish.key], Fence("owner-a", 4))
        found = await rig.substrate.observe([wish.key, "node-2"])
        assert {key: node.power for key, node in found.items()} == {wish.key: Power.UP}
        await rig.substrate.ensure([wish], Fence("owner-a", 5))

    @law()
    async def test_owners_are_fenced_apart(self, rig: SubstrateRig) -> None:
        await rig.substrate.ensure([FabricWish(key="net-a", region=rig.region)], Fence("owner-a", 100))
        await rig.substrate.ensure([FabricWish(key="net-b", region=rig.region)], Fence("owner-b", 1))
        assert set(await rig.substrate.observe(["net-a", "net-b"])) == {"net-a", "net-b"}

    @law()
    async def test_another_owner_cannot_touch_it(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        with pytest.raises(DriverError):
            await rig.substrate.ensure_absent([wish.key], Fence("owner-b", 9))
        after = await seen(rig, wish.key)
        assert after is not None
        assert after.power is Power.UP

    @law(Capability.CAN_REOPEN)
    async def test_another_process_sees_the_same_and_is_fenced_the_same(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        await rig.substrate.ensure([wish], Fence("owner-a", 5))
        other = await rig.reopen()
        assert (await other.observe([wish.key]))[wish.key].power is Power.UP
        assert sorted(await other.owned()) == sorted(await rig.substrate.owned())
        with pytest.raises(FencedOff):
            await other.ensure_absent([wish.key], Fence("owner-a", 4))

    @law(Capability.CAN_KILL_HOST)
    async def test_a_dead_host_kills_its_nodes_and_no_others(self, rig: SubstrateRig) -> None:
        await node_up(rig, "node-1", host=0)
        await rig.substrate.ensure([rig.node("node-2", fabric="net", host=1)], OURS)
        await until_power(rig, ["node-2"], Power.UP)
        await rig.kill_host(0)
        await until_power(rig, ["node-1"], Power.DEAD)
        other = await seen(rig, "node-2")
        assert other is not None
        assert other.power is Power.UP
        assert "node-1" in [thing.key for thing in await rig.substrate.owned()], "dead is not gone"
        await rig.substrate.ensure_absent(["node-1"], OURS)
        await until_absent(rig, ["node-1"])

    @law(Capability.CAN_HIDE_HOST)
    async def test_unreachable_is_unknown_and_never_gone(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        await rig.hide_host(0)
        await until_power(rig, [wish.key], Power.UNKNOWN)
        assert wish.key in [thing.key for thing in await rig.substrate.owned()]

    @law(Capability.CAN_LOSE_REPLY)
    async def test_after_a_lost_reply_observe_tells_the_truth(self, rig: SubstrateRig) -> None:
        await rig.substrate.ensure([FabricWish(key="net", region=rig.region)], OURS)
        await rig.lose_reply(0)
        with pytest.raises(UnknownOutcome):
            await rig.substrate.ensure([rig.node("node-1", fabric="net")], OURS)
        assert await seen(rig, "node-1") is not None
        await rig.substrate.ensure([rig.node("node-1", fabric="net")], OURS)
        await until_power(rig, ["node-1"], Power.UP)

    @law(Capability.CAN_FAIL_BOOT)
    async def test_a_failed_boot_stays_failed_until_booted_anew(self, rig: SubstrateRig) -> None:
        await rig.fail_boot(0)
        wish = rig.node("node-1", fabric="net")
        await rig.substrate.ensure([FabricWish(key="net", region=rig.region), wish], OURS)
        found = await until_power(rig, ["node-1"], Power.FAILED)
        assert found["node-1"].because
        await rig.substrate.ensure([wish], OURS)
        again = await seen(rig, "node-1")
        assert again is not None
        assert again.power is Power.FAILED
        await rig.substrate.ensure([replace(wish, generation=2)], OURS)
        await until_power(rig, ["node-1"], Power.UP)

    @law(Capability.CAN_RUN_OUT)
    async def test_none_left_is_said_of_the_new_and_spares_the_old(self, rig: SubstrateRig) -> None:
        wish = await node_up(rig)
        await rig.run_out()
        with pytest.raises(NoneLeft):
            await rig.substrate.ensure([rig.node("node-2", fabric="net", host=1)], OURS)
        assert await seen(rig, "node-2") is None
        await rig.substrate.ensure([wish], OURS)
        after = await seen(rig, wish.key)
        assert after is not None
        assert after.power is Power.UP

    @law(Capability.VIRTUAL_TIME)
    async def test_look_again_at_is_the_very_instant_of_change(self, rig: SubstrateRig) -> None:
        wish = rig.node("node-1", fabric="net")
        await rig.substrate.ensure([FabricWish(key="net", region=rig.region), wish], OURS)
        await _changes_exactly_when_told(rig, "net", Power.STARTING)
        await _changes_exactly_when_told(rig, "node-1", Power.STARTING)
        await rig.substrate.ensure_absent(["node-1"], OURS)
        await _changes_exactly_when_told(rig, "node-1", Power.STOPPING)

    @law(Capability.ANNOUNCES, Capability.CAN_KILL_HOST)
    async def test_trouble_is_announced(self, rig: SubstrateRig) -> None:
        woken: list[str] = []
        wake: Callable[[str], None] = woken.append
        rig.substrate.watch(wake)
        await node_up(rig)
        woken.clear()
        await rig.kill_host(0)

        async def announced() -> bool:
            return "owner-a" in woken

        await until(rig, announced, "owner-a woken")


async def _changes_exactly_when_told(rig: SubstrateRig, key: str, power: Power) -> None:
    before = await seen(rig, key)
    assert before is not None
    assert before.power is power
    assert before.look_again_at is not None
    assert before.look_again_at > rig.now()
    await rig.advance_to(before.look_again_at - 1)
    assert await seen(rig, key) == before
    await rig.advance_to(before.look_again_at)
    after = await seen(rig, key)
    assert after is None or after.power is not power

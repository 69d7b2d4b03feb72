"""The native dialect's pure parts: reading, translating, waiting."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec.structs
import pytest

from muster.contracts.http import Call
from muster.core.clusters.commands import CreateCluster, MountWish
from muster.core.clusters.snapshot import ClusterView
from muster.dialects.native import asking, translate, wire
from muster.dialects.native.clusters import at_rest
from muster.dialects.native.routes import Native
from muster.dialects.native.watch import POLL_SECONDS, Watch
from muster.errors import Invalid, Unauthenticated
from muster.model.base import MINUTE
from muster.model.clusters import Cluster, ClusterConfig, ClusterSpec, ClusterStatus, ClusterType, Oidc, Scripts
from muster.model.phases import CLUSTER_LIMITS, Phase

AT = 1_700_000_000_123


def call(body: bytes = b"", query: str = "", **headers: str) -> Call:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Call(id="r", method="GET", path="/", params={}, raw_query=query.encode(), raw_headers=raw, body=body)


def cluster(**fields: Any) -> Cluster:
    spec = ClusterSpec(
        type=ClusterType.SLURM,
        region="Delhi",
        gpu_type="H100_SXM",
        instance_type="8xH100_SXM",
        workers=1,
        image_id="i",
        paused=fields.pop("paused", False),
    )
    given: dict[str, Any] = {
        "id": "c",
        "account_id": "a",
        "project_id": "p",
        "name": "n",
        "live_name": "n",
        "region": "Delhi",
        "phase": Phase.CONTROL,
        "phase_since": AT,
        "spec": spec,
        "digest": "",
        "created_at": AT,
        "updated_at": AT,
    }
    return Cluster(**(given | fields))


def test_stamps_are_rfc_3339_with_milliseconds() -> None:
    assert translate.stamp(AT) == "2023-11-14T22:13:20.123Z"
    assert translate.stamp(0) == "1970-01-01T00:00:00.000Z"
    assert translate.instant(datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)) == AT
    assert translate.instant(None) is None


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_is_told_and_stuck_is_true_only_past_its_limit(phase: Phase) -> None:
    document = translate.render_cluster(ClusterView(cluster(phase=phase, version=7), []), simulated=True)
    assert translate.tag_of(document) == '"7"'
    fresh = translate.told(document, AT)
    assert fresh.startswith(b'{"stuck":false,"id":"c"')
    late = translate.told(document, AT + 365 * 24 * 60 * MINUTE)
    expected = b"false" if CLUSTER_LIMITS[phase] is None else b"true"
    assert late.startswith(b'{"stuck":' + expected + b',"id":"c"')
    assert late.split(b",", 1)[1] == fresh.split(b",", 1)[1]


def test_a_page_of_documents_is_one_json() -> None:
    document = translate.render_cluster(ClusterView(cluster(), []), simulated=False)
    page = translate.told_page([document, document], "next", AT)
    assert page.startswith(b'{"items":[{"stuck":false')
    assert page.endswith(b'],"next_cursor":"next"}')
    assert translate.told_page([], None, AT) == b'{"items":[],"next_cursor":null}'


def test_a_create_becomes_the_houses_command_field_by_field() -> None:
    body = (
        b'{"name":"n","type":"kubernetes","gpu_type":"H100_SXM","gpus":16,"region":null,'
        b'"ends_at":"2023-11-14T22:13:20.123Z","mounts":[{"volume_id":"v","path":"/data"}],'
        b'"config":{"scripts":{"login_init":"#!/bin/sh"},"oidc":null},"acceptance":{"skip":["nccl"]}}'
    )
    command = translate.create_cluster(asking.read(call(body), wire.NewCluster))
    assert isinstance(command, CreateCluster)
    assert (command.name, command.type, command.gpus, command.region) == ("n", ClusterType.KUBERNETES, 16, "")
    assert command.ends_at == AT
    assert command.mounts == (MountWish(volume_id="v", path="/data"),)
    assert command.config == ClusterConfig(scripts=Scripts(login_init="#!/bin/sh"))
    assert command.acceptance.skip == ("nccl",)


def test_a_plain_create_is_translated_as_an_adorned_one_is() -> None:
    """The short way, for wishes that say nothing of what has a form of its own in the core, comes to the same."""
    plain = b'{"name":"n","type":"slurm","gpu_type":"H100_SXM","gpus":8,"queue":true,"ssh_keys":["k"]}'
    adorned = plain[:-1] + b',"config":{"ingress":true}}'
    short = translate.create_cluster(asking.read(call(plain), wire.NewCluster))
    long = translate.create_cluster(asking.read(call(adorned), wire.NewCluster))
    assert short == msgspec.structs.replace(long, config=ClusterConfig())


def test_every_field_of_a_create_can_be_said() -> None:
    said, known = set(wire.NewCluster.__struct_fields__), set(CreateCluster.__struct_fields__)
    assert said <= known
    assert known - said <= {"lasts_ms"}, "ends_at says as much here"
    assert set(wire.Config.__struct_fields__) == set(ClusterConfig.__struct_fields__) - {"said"}


def test_a_change_of_configuration_keeps_the_rest() -> None:
    oidc = Oidc(
        issuer_url="u", client_id="c", username_claim="u", username_prefix="p", group_claim="g", group_prefix="p"
    )
    now = ClusterConfig(shm_gib=4, scripts=Scripts(worker_prolog="a"), oidc=oidc, said={"tir": {"x": 1}})
    later = translate.changed_config(now, {"ingress": True, "scripts": {"worker_epilog": "b"}})
    assert later == ClusterConfig(
        shm_gib=4,
        scripts=Scripts(worker_prolog="a", worker_epilog="b"),
        oidc=oidc,
        ingress=True,
        said={"tir": {"x": 1}},
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"name":1}', "name"),
        (b"{}", "name"),
        (b'{"name":"n","x":1}', "x"),
        (b'{"name":null}', "name"),
        (b'{"name":"' + b"x" * 64 + b'"}', "name"),
        (b"nonsense", "body"),
        (rb'{"name":"a\u0000b"}', "body"),
        (b"[]", "body"),
    ],
)
def test_a_wrong_body_names_its_field(body: bytes, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        asking.read(call(body), wire.NewAccount)
    assert refused.value.field == field


def test_tags_and_patience_are_read_or_refused() -> None:
    assert asking.if_match(call()) is None
    assert asking.if_match(call(if_match="*")) is None
    assert asking.if_match(call(if_match='"12"')) == 12
    assert asking.if_match(call(if_match='W/"12"')) == 12
    assert asking.if_match(call(if_match="twelve")) == -1
    assert asking.patience(call(query="wait=2.5")) == 2.5
    assert asking.patience(call()) is None
    for wrong in ("wait=-1", "wait=61", "wait=nan", "wait=long"):
        with pytest.raises(Invalid):
            asking.patience(call(query=wrong))
    for wrong in ("limit=-1", "limit=x", "limit=99999999999999999999", "limit=%C2%B2", f"limit={'9' * 6_000}"):
        with pytest.raises(Invalid):
            asking.paging(call(query=wrong))
    assert asking.read_seq("9" * 6_000) is None


def test_once_is_scoped_by_what_was_said() -> None:
    first = asking.once(call(idempotency_key="k"), wire.NewAccount(name="a"), "account")
    same = asking.once(call(idempotency_key="k"), wire.NewAccount(name="a"), "account")
    other = asking.once(call(idempotency_key="k"), wire.NewAccount(name="b"), "account")
    elsewhere = asking.once(call(idempotency_key="k"), wire.NewAccount(name="a"), "project")
    assert first == same
    assert len({first, other, elsewhere}) == 3
    assert asking.once(call(), None, "account") is None
    with pytest.raises(Invalid):
        asking.once(call(idempotency_key="x" * 256), None, "account")


def test_a_key_comes_as_a_bearer() -> None:
    speak = Native.credentials
    native: Any = object()
    assert speak(native, {"authorization": "Bearer mk-1"}, "") == "mk-1"
    assert speak(native, {"authorization": "bearer mk-1 "}, "") == "mk-1"
    assert speak(native, {}, "") is None
    with pytest.raises(Unauthenticated):
        speak(native, {"authorization": "Basic abc"}, "")


@pytest.mark.parametrize(
    ("fields", "rests"),
    [
        ({"phase": Phase.CONTROL}, False),
        ({"phase": Phase.READY, "status": ClusterStatus(observed_generation=1)}, True),
        ({"phase": Phase.READY, "generation": 2, "status": ClusterStatus(observed_generation=1)}, False),
        ({"phase": Phase.DEGRADED, "status": ClusterStatus(observed_generation=1)}, True),
        ({"phase": Phase.FAILED}, True),
        ({"phase": Phase.READY, "paused": True, "status": ClusterStatus(observed_generation=1)}, False),
        ({"phase": Phase.PAUSED, "paused": True}, True),
        ({"phase": Phase.PAUSED, "paused": False}, False),
        ({"phase": Phase.READY, "delete_wished_at": AT, "status": ClusterStatus(observed_generation=1)}, False),
    ],
)
def test_at_rest_means_that_nothing_more_will_happen_by_itself(fields: dict[str, Any], rests: bool) -> None:
    assert at_rest(cluster(**fields)) is rests


class Looks:
    """Counts how often it was looked at; done from the given look on."""

    def __init__(self, done_at: int) -> None:
        self.count = 0
        self._done_at = done_at

    async def look(self) -> int:
        self.count += 1
        return self.count

    def done(self, seen: int) -> bool:
        return seen >= self._done_at


def test_a_waiter_hears_the_bell_long_before_it_would_look_again() -> None:
    async def story() -> float:
        watch, looks = Watch(), Looks(2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        loop.call_later(0.01, watch.ring)
        await watch.until(looks.look, looks.done, 30)
        return loop.time() - began

    assert asyncio.run(story()) < POLL_SECONDS


def test_a_ring_between_look_and_wait_is_not_missed() -> None:
    async def story() -> float:
        watch = Watch()
        loop = asyncio.get_running_loop()
        looks = Looks(2)

        async def look() -> int:
            seen = await looks.look()
            watch.ring()
            return seen

        began = loop.time()
        await watch.until(look, looks.done, 30)
        return loop.time() - began

    assert asyncio.run(story()) < POLL_SECONDS


def test_waiting_ends_with_time_or_with_the_server() -> None:
    async def story() -> tuple[int, int]:
        watch, never = Watch(), Looks(10**9)
        timed = await watch.until(never.look, never.done, 0.02)
        asyncio.get_running_loop().call_later(0.01, watch.close)
        async with asyncio.timeout(POLL_SECONDS):
            closed = await watch.until(never.look, never.done, 60)
        return timed, closed

    timed, closed = asyncio.run(story())
    assert 1 <= timed < closed

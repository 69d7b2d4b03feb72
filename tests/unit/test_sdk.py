"""The SDK against a small server with a memory: retries, pages, names, waiting, the stream of changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from muster.sdk import ApiError, Client, TimedOut, Unreachable
from muster.sdk.client import server_sent
from muster.sdk.resting import cluster_rests

Handler = Callable[[httpx.Request], httpx.Response]


class Minutes:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 0

    def now(self) -> int:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += int(seconds * 1000)


def client_of(handler: Handler, **extra: Any) -> Client:
    http = httpx.Client(transport=httpx.MockTransport(handler))
    return Client("http://muster.test", "mk-secret", http=http, **extra)


def problem(status: int, code: str, **said: Any) -> httpx.Response:
    return httpx.Response(status, json={"status": status, "code": code, "detail": f"it is {code}", **said})


def test_a_refusal_keeps_its_sentence_code_field_and_way_out() -> None:
    client = client_of(lambda request: problem(400, "invalid", field="gpus", hint="ask for 8", request_id="r-1"))
    with pytest.raises(ApiError) as refused:
        client.clusters.create(name="demo", gpus=3)
    error = refused.value
    assert (error.status, error.code, error.field, error.hint) == (400, "invalid", "gpus", "ask for 8")
    assert (str(error), error.request_id) == ("it is invalid", "r-1")


def test_an_answer_that_is_no_json_is_still_an_error_with_a_status() -> None:
    client = client_of(lambda request: httpx.Response(502, text="<html>"))
    with pytest.raises(ApiError) as refused:
        client.whoami()
    assert refused.value.status == 502


def test_patience_is_what_the_server_asks_for_and_a_retry_carries_the_same_key() -> None:
    keys: list[str] = []
    paused: list[float] = []

    def handler(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) < 3:
            return httpx.Response(429, headers={"Retry-After": "7"}, json={"code": "rate_limited"})
        return httpx.Response(201, json={"id": "c-1"})

    client = client_of(handler, pause=paused.append)
    assert client.clusters.create(name="demo")["id"] == "c-1"
    assert paused == [7.0, 7.0]
    assert len(set(keys)) == 1


def test_patience_ends() -> None:
    paused: list[float] = []
    client = client_of(lambda request: problem(503, "unavailable"), pause=paused.append)
    with pytest.raises(ApiError, match="it is unavailable"):
        client.whoami()
    assert len(paused) == 4


def test_a_lost_reply_is_tried_again_but_a_silent_address_is_not() -> None:
    calls: list[str] = []

    def lost_once(request: httpx.Request) -> httpx.Response:
        calls.append(request.method)
        if len(calls) == 1:
            raise httpx.ReadError("reset")
        return httpx.Response(200, json={"role": "admin"})

    assert client_of(lost_once, pause=lambda seconds: None).whoami() == {"role": "admin"}

    def refused(request: httpx.Request) -> httpx.Response:
        calls.append("refused")
        raise httpx.ConnectError("refused")

    with pytest.raises(Unreachable):
        client_of(refused).whoami()
    assert calls.count("refused") == 1


def pages_of(items: list[dict[str, Any]], size: int) -> Handler:
    def handler(request: httpx.Request) -> httpx.Response:
        query = dict(request.url.params)
        start = int(query.get("cursor", "0"))
        end = start + min(size, int(query["limit"]))
        return httpx.Response(
            200, json={"items": items[start:end], "next_cursor": str(end) if end < len(items) else None}
        )

    return handler


@pytest.mark.parametrize(("limit", "count"), [(None, 7), (5, 5), (3, 3), (100, 7)])
def test_pages_are_walked_to_the_end_or_the_limit(limit: int | None, count: int) -> None:
    items = [{"id": f"v-{n}", "name": f"n{n}"} for n in range(7)]
    assert list(client_of(pages_of(items, 3)).volumes.list(limit=limit)) == items[:count]


def test_names_are_found_and_a_name_with_two_meanings_is_refused() -> None:
    items = [{"id": "1", "name": "demo"}, {"id": "2", "name": "demo-2"}, {"id": "3", "name": "twin"}]
    client = client_of(pages_of([*items, {"id": "4", "name": "twin"}], 10))
    assert client.clusters.find("demo")["id"] == "1"
    with pytest.raises(ApiError) as missing:
        client.clusters.find("absent")
    assert missing.value.code == "not_found"
    with pytest.raises(ApiError) as twin:
        client.clusters.find("twin")
    assert twin.value.code == "ambiguous"
    assert "3, 4" in (twin.value.hint or "")


def test_an_id_is_asked_for_directly() -> None:
    id = "3b241101-e2bb-4255-8caf-4136c566a962"

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.path == f"/muster/v1/clusters/{id}"
        return httpx.Response(200, json={"id": id})

    assert client_of(handler).clusters.find(id) == {"id": id}


def cluster(version: int, phase: str, generation: int = 1, observed: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "id": "c-1",
        "name": "demo",
        "version": version,
        "phase": phase,
        "generation": generation,
        "observed_generation": observed,
        **more,
    }


def story(*steps: dict[str, Any] | None) -> Handler:
    """Each call that knows the present version moves the story on; None is a 404."""
    at = 0

    def handler(request: httpx.Request) -> httpx.Response:
        nonlocal at
        present = steps[at]
        known = request.headers.get("If-None-Match")
        if present is not None and known == f'"{present["version"]}"':
            assert int(request.url.params["wait"]) >= 1
            at = min(at + 1, len(steps) - 1)
        present = steps[at]
        return problem(404, "not_found") if present is None else httpx.Response(200, json=present)

    return handler


def test_waiting_ends_at_rest_and_not_before_the_wish_is_observed() -> None:
    told = story(
        cluster(1, "workers"),
        cluster(2, "ready", observed=1, generation=2),
        cluster(3, "ready", observed=2, generation=2),
        None,
    )
    assert client_of(told).clusters.wait("c-1")["version"] == 3


def test_waiting_for_the_end_ends_with_the_thing() -> None:
    told = story(cluster(1, "ready", observed=1), cluster(2, "deleting"), None)
    client_of(told).clusters.wait_gone("c-1")


def test_waiting_has_a_deadline_and_says_how_it_looked() -> None:
    minutes = Minutes()

    def handler(request: httpx.Request) -> httpx.Response:
        minutes.at += 30_000
        return (
            httpx.Response(304)
            if "If-None-Match" in request.headers
            else httpx.Response(200, json=cluster(1, "workers"))
        )

    with pytest.raises(TimedOut, match="demo is workers still") as late:
        client_of(handler, clock=minutes).clusters.wait("c-1", timeout_seconds=90)
    assert late.value.last == cluster(1, "workers")


@pytest.mark.parametrize(
    ("thing", "rests"),
    [
        (cluster(1, "network"), False),
        (cluster(1, "ready", observed=1), True),
        (cluster(1, "ready", generation=2, observed=1), False),
        (cluster(1, "ready", observed=1, delete_wished_at="2026-01-01T00:00:00.000Z"), False),
        (cluster(1, "failed"), True),
        (cluster(1, "queued"), False),
        (cluster(1, "ready", generation=2, observed=1, paused=True), False),
        (cluster(1, "paused", generation=2, observed=1, paused=True), True),
        (cluster(1, "paused", generation=2, paused=True, nodes=[{"phase": "leaving"}]), False),
        (cluster(1, "paused", generation=3, observed=2, paused=False), False),
        (cluster(1, "deleting", observed=1), False),
    ],
)
def test_what_rest_is(thing: dict[str, Any], rests: bool) -> None:
    assert cluster_rests(thing) is rests


def test_changes_resume_where_the_stream_broke() -> None:
    asked: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        last = request.url.params.get("after")
        asked.append(last)
        seq = int(last or "0") + 1
        text = f": heartbeat\n\nid: {seq}\nevent: change\ndata: {json.dumps({'type': 'cluster.phase'})}\n\n"
        return httpx.Response(200, text=text, headers={"Content-Type": "text/event-stream"})

    changes = client_of(handler, pause=lambda seconds: None).changes()
    assert [next(changes)["seq"] for _ in range(3)] == [1, 2, 3]
    assert asked == [None, "1", "2"]


def test_server_sent_events_may_span_lines() -> None:
    assert list(server_sent(iter(["id: 4", "data: {", "data: }", "", ":", ""]))) == [(4, "{\n}")]

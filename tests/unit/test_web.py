"""The door: routing, letting in, limits, refusals and streams, spoken to over the ASGI protocol itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from muster.clock import SeededEntropy, ticks
from muster.contracts.faults import Fault, FaultKind, WireFault
from muster.contracts.http import Call, Dialect, Reply, Route, SocketRoute, Stream, WebSocket
from muster.errors import CallError, Invalid, RateLimited, StoreFull, Unauthenticated
from muster.model.accounts import Actor, Role
from muster.web.asgi import App, Limits, RawHeaders
from muster.web.limits import BUCKETS_MAX, OpenCalls, RateLimit
from muster.web.logs import JsonLines, TextLines, hide_secrets
from muster.web.metrics import Gauge, Metrics
from muster.web.router import RouteClash, Router, params_of


class HandClock:
    def __init__(self) -> None:
        self.at = 1_000_000
        self.slept: list[float] = []

    def now(self) -> int:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Doors:
    """One key opens."""

    async def authenticate(self, secret: str) -> Actor:
        if secret != "mk-right":
            raise Unauthenticated("this key is not known")
        return Actor(role=Role.ADMIN, name="ann", key_id="k1")


class Plain:
    """A dialect with as few manners as possible."""

    def __init__(
        self, name: str, routes: Sequence[Route], prefix: str = "/", sockets: Sequence[SocketRoute] = ()
    ) -> None:
        self.name = name
        self._routes = routes
        self._prefix = prefix
        self._sockets = sockets

    def routes(self) -> Sequence[Route]:
        return self._routes

    def sockets(self) -> Sequence[SocketRoute]:
        return self._sockets

    def claims(self, path: str) -> bool:
        return path.startswith(self._prefix)

    def credentials(self, headers: Mapping[str, str], query: str) -> str | None:
        said = headers.get("authorization")
        return said.removeprefix("Bearer ") if said else None

    def refuse(self, error: CallError, call: Call) -> Reply:
        return Reply(400, json.dumps({"by": self.name, "code": error.code, "says": error.message}).encode())

    def crash(self, call: Call) -> Reply:
        return Reply(500, json.dumps({"by": self.name, "id": call.id}).encode())


class Desk:
    def __init__(self, *faults: WireFault) -> None:
        self._faults = list(faults)

    async def inject(self, fault: Fault) -> Fault:
        return fault

    async def faults(self) -> list[Fault]:
        return []

    async def clear(self, id: str) -> bool:
        return False

    def wire_fault(self) -> WireFault | None:
        return self._faults.pop(0) if self._faults else None


async def echo(call: Call) -> Reply:
    said = {"params": dict(call.params), "body": call.body.decode(), "actor": call.actor.name, "q": call.query}
    return Reply(200, json.dumps(said).encode(), headers=(("etag", '"7"'),))


async def broken(call: Call) -> Reply:
    raise RuntimeError("secret inner detail")


async def refused(call: Call) -> Reply:
    raise Invalid("no such colour", field="colour")


async def full(call: Call) -> Reply:
    raise StoreFull("disk")


async def endless(call: Call) -> Stream:
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b": tick\n\n"
            await asyncio.sleep(0)

    return Stream(chunks())


ROUTES = (
    Route("GET", "/things", echo, "things.list"),
    Route("POST", "/things", echo, "things.create", body_limit_bytes=64),
    Route("GET", "/things/{id}", echo, "things.get"),
    Route("GET", "/things/special", echo, "things.special"),
    Route("GET", "/things/{id}/parts/{part}", echo, "parts.get"),
    Route("GET", "/files/{path...}", echo, "files.get"),
    Route("GET", "/open", echo, "open", open=True),
    Route("GET", "/broken", broken, "broken"),
    Route("GET", "/refused", refused, "refused"),
    Route("GET", "/full", full, "full"),
    Route("GET", "/endless", endless, "endless"),
    Route("GET", "/faults", echo, "faults", describe={"fault_free": True}),
)


class Door:
    """An app and the least client that can speak to it."""

    def __init__(self, *dialects: Dialect, limits: Limits | None = None, faults: Desk | None = None) -> None:
        self.metrics = Metrics()
        self.clock = HandClock()
        self.app = App(
            dialects or (Plain("plain", ROUTES),),
            Doors(),
            clock=self.clock,
            entropy=SeededEntropy(1),
            ticks=ticks,
            metrics=self.metrics,
            limits=limits,
            faults=faults,
        )

    def ask(
        self, method: str, path: str, *, key: str | None = "mk-right", body: bytes | None = None, query: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        if body is not None:
            headers["content-length"] = str(len(body))
        return asyncio.run(self.talk(method, path, headers, [body or b""], query))

    async def talk(
        self, method: str, path: str, headers: Mapping[str, str], pieces: Sequence[bytes], query: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
            "client": ("192.0.2.1", 1),
        }
        waiting = [
            {"type": "http.request", "body": piece, "more_body": at < len(pieces) - 1}
            for at, piece in enumerate(pieces)
        ]
        sent: list[Any] = []

        async def receive() -> Any:
            if waiting:
                return waiting.pop(0)
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)
            await asyncio.sleep(0)

        await self.app(scope, receive, send)
        start, *rest = sent
        replied = {k.decode(): v.decode() for k, v in start["headers"]}
        return start["status"], replied, b"".join(m["body"] for m in rest)


def test_a_call_is_found_let_in_read_and_answered() -> None:
    status, headers, body = Door().ask("POST", "/things", body=b'{"a":1}', query="x=1&x=2")
    assert status == 200
    assert json.loads(body) == {"params": {}, "body": '{"a":1}', "actor": "ann", "q": {"x": ["1", "2"]}}
    assert headers["content-length"] == str(len(body))
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["etag"] == '"7"'


def test_every_answer_has_an_id_of_its_own() -> None:
    door = Door()
    ids = {door.ask("GET", "/things")[1]["x-request-id"] for _ in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/things/a b", {"id": "a b"}),
        ("/things/special", {}),
        ("/things/special/parts/3", {"id": "special", "part": "3"}),
        ("/files/a/b/c", {"path": "a/b/c"}),
    ],
)
def test_fixed_segments_win_and_parameters_are_handed_over(path: str, params: dict[str, str]) -> None:
    assert json.loads(Door().ask("GET", path)[2])["params"] == params


def test_an_empty_segment_is_no_parameter() -> None:
    assert json.loads(Door().ask("GET", "/things/")[2])["code"] == "not_found"


def test_a_nul_in_a_path_is_nothing_of_ours() -> None:
    assert json.loads(Door().ask("GET", "/things/a\x00b")[2])["code"] == "not_found"


def test_headers_are_read_whatever_their_case_and_as_a_mapping() -> None:
    headers = RawHeaders([(b"x-api-key", b"1"), (b"x-api-key", b"2"), (b"host", b"h")])
    assert headers["X-Api-Key"] == headers.get("x-api-key") == "1"
    assert (sorted(headers), len(headers)) == (["host", "x-api-key"], 2)
    assert headers.get("absent") is None
    assert "absent" not in headers


def test_strangers_are_refused_in_the_dialects_words_and_open_routes_answer() -> None:
    door = Door()
    assert json.loads(door.ask("GET", "/things", key=None)[2])["code"] == "unauthenticated"
    assert json.loads(door.ask("GET", "/things", key="mk-wrong")[2])["code"] == "unauthenticated"
    assert json.loads(door.ask("GET", "/open", key=None)[2])["actor"] == "nobody"


def test_nothing_is_read_from_a_stranger() -> None:
    """The body never arrives; a server that read it before asking for a key would wait for ever."""
    door = Door()

    async def talk() -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(5):
            return await door.talk("POST", "/things", {"content-length": "10"}, [])

    assert json.loads(asyncio.run(talk())[2])["code"] == "unauthenticated"


def test_wrong_methods_are_405_with_allow_and_options_answers() -> None:
    door = Door()
    status, headers, _ = door.ask("DELETE", "/things")
    assert (status, headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    status, headers, _ = door.ask("OPTIONS", "/things/x", key=None)
    assert (status, headers["allow"]) == (204, "GET, HEAD, OPTIONS")
    assert door.ask("HEAD", "/things")[0] == 200


def test_unknown_paths_are_refused_by_the_dialect_that_claims_them() -> None:
    door = Door(Plain("one", ROUTES[:1], "/one"), Plain("two", (), "/two"))
    assert json.loads(door.ask("GET", "/two/nothing")[2])["by"] == "two"
    assert json.loads(door.ask("GET", "/three")[2])["by"] == "one"


def test_a_long_body_is_refused_before_and_while_it_is_read() -> None:
    door = Door()
    _, _, body = door.ask("POST", "/things", body=b"x" * 65)
    assert json.loads(body)["code"] == "too_large"
    auth = {"authorization": "Bearer mk-right", "transfer-encoding": "chunked"}
    _, _, body = asyncio.run(door.talk("POST", "/things", auth, [b"x" * 40, b"x" * 40]))
    assert json.loads(body)["code"] == "too_large"
    _, _, body = asyncio.run(door.talk("POST", "/things", auth, [b"x" * 30, b"y" * 30]))
    assert json.loads(body)["body"] == "x" * 30 + "y" * 30


def test_a_crash_tells_its_id_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    status, headers, body = Door().ask("GET", "/broken")
    assert status == 500
    assert json.loads(body)["id"] == headers["x-request-id"]
    assert b"inner" not in body
    assert "secret inner detail" in caplog.text


def test_refusals_and_a_full_disk_are_worded_by_the_dialect() -> None:
    door = Door()
    assert json.loads(door.ask("GET", "/refused")[2])["says"] == "no such colour"
    assert json.loads(door.ask("GET", "/full")[2])["code"] == "unavailable"


def test_wire_faults_hit_calls_but_never_the_fault_routes() -> None:
    faults = [
        WireFault(FaultKind.HTTP_500, 500),
        WireFault(FaultKind.HTTP_429, 429),
        WireFault(FaultKind.SLOW_REPLY, 0, 2.5),
    ]
    door = Door(faults=Desk(*faults))
    assert door.ask("GET", "/faults")[0] == 200
    assert door.ask("GET", "/open", key=None)[0] == 200
    assert door.ask("GET", "/things")[0] == 500
    assert json.loads(door.ask("GET", "/things")[2])["code"] == "rate_limited"
    assert door.ask("GET", "/things")[0] == 200
    assert door.clock.slept == [2.5]
    assert door.ask("GET", "/things")[0] == 200


def test_a_stream_ends_when_the_server_stops_and_when_the_client_leaves() -> None:
    async def stopped() -> bytes:
        door = Door()
        talking = asyncio.create_task(door.talk("GET", "/endless", {"authorization": "Bearer mk-right"}, [b""]))
        await asyncio.sleep(0.01)
        assert not talking.done()
        door.app.stop()
        async with asyncio.timeout(5):
            return (await talking)[2]

    assert asyncio.run(stopped()).startswith(b": tick")


def test_the_limit_of_open_calls_counts_streams_and_gives_them_back() -> None:
    async def story() -> list[int]:
        clock = HandClock()
        door = Door(limits=Limits(clock, rate=1_000, burst=1_000, calls=1))
        auth = {"authorization": "Bearer mk-right"}
        stream = asyncio.create_task(door.talk("GET", "/endless", auth, [b""]))
        await asyncio.sleep(0.01)
        during = await door.talk("GET", "/things", auth, [b""])
        door.app.stop()
        await stream
        after = await door.talk("GET", "/things", auth, [b""])
        return [during[0], after[0]]

    assert asyncio.run(story()) == [400, 200]


def test_rates_are_limited_per_key_and_guessing_per_address() -> None:
    clock = HandClock()
    door = Door(limits=Limits(clock, rate=1, burst=2, calls=9))
    codes = [json.loads(door.ask("GET", "/things")[2]).get("code") for _ in range(3)]
    assert codes == [None, None, "rate_limited"]
    clock.at += 1_000
    assert door.ask("GET", "/things")[0] == 200
    guesses = [json.loads(door.ask("GET", "/things", key="mk-guess")[2])["code"] for _ in range(3)]
    assert guesses == ["unauthenticated", "unauthenticated", "rate_limited"]


def test_a_bucket_says_when_to_come_back_and_idle_ones_are_forgotten() -> None:
    clock = HandClock()
    rate = RateLimit(clock, rate=10, burst=1)
    rate.take("a")
    with pytest.raises(RateLimited) as refusal:
        rate.take("a")
    assert refusal.value.retry_after_seconds == pytest.approx(0.1)
    for number in range(BUCKETS_MAX):
        rate.take(f"k{number}")
    clock.at += 10_000
    rate.take("new")
    assert len(rate._buckets) == 1


def test_open_calls_are_given_back() -> None:
    calls = OpenCalls(1)
    calls.enter("a")
    with pytest.raises(RateLimited):
        calls.enter("a")
    calls.leave("a")
    calls.enter("a")


def test_two_dialects_may_not_claim_one_path_however_it_is_spelled() -> None:
    one = Plain("one", ())
    two = Plain("two", ())
    for left, right in (("/x", "/x"), ("/x/{id}", "/x/{name}"), ("/x/{id}", "/x/fixed"), ("/x/{r...}", "/x/y/z")):
        with pytest.raises(RouteClash, match=r"one\.a .* and two\.b"):
            Router([(one, Route("GET", left, echo, "a")), (two, Route("POST", right, echo, "b"))])
    Router([(one, Route("GET", "/x/{id}", echo, "a")), (two, Route("GET", "/y/{id}", echo, "b"))])


def test_a_route_is_declared_once() -> None:
    one = Plain("one", ())
    with pytest.raises(RouteClash):
        Router([(one, Route("GET", "/x/{id}", echo, "a")), (one, Route("GET", "/x/{name}", echo, "b"))])


def test_parameters_keep_each_routes_own_names() -> None:
    one = Plain("one", ())
    router = Router([(one, Route("GET", "/x/{id}", echo, "a")), (one, Route("PUT", "/x/{name}", echo, "b"))])
    found = router.find("/x/7")
    assert found is not None
    assert params_of(found.entries["GET"], found.values) == {"id": "7"}
    assert params_of(found.entries["PUT"], found.values) == {"name": "7"}


def test_metrics_count_by_dialect_route_and_status() -> None:
    door = Door()
    door.ask("GET", "/things")
    door.ask("GET", "/things", key=None)
    steps = Gauge("muster_engine_steps", "Steps.", (), [((), 5.0)], grows=True)
    page = door.metrics.page([Gauge("muster_free_gpus", "Free.", ("region",), [(("Delhi",), 3.0)]), steps]).decode()
    assert 'muster_requests_total{dialect="plain",route="things.list",status="200"} 1.0' in page
    assert 'muster_requests_total{dialect="plain",route="things.list",status="400"} 1.0' in page
    assert 'muster_request_seconds_count{dialect="plain",route="things.list"} 2.0' in page
    assert 'muster_free_gpus{region="Delhi"} 3.0' in page
    assert "# TYPE muster_engine_steps_total counter\nmuster_engine_steps_total 5.0" in page


@pytest.mark.parametrize("lines", [TextLines(), JsonLines()])
def test_logs_carry_no_secret(lines: logging.Formatter) -> None:
    record = logging.makeLogRecord(
        {"name": "x", "levelname": "INFO", "msg": "Authorization: Bearer mk-abcdef123456", "url": "pg://u:pw@h/d"}
    )
    line = lines.format(record)
    assert "abcdef" not in line
    assert "pw@" not in line
    assert hide_secrets("nothing here") == "nothing here"


def test_sockets_are_accepted_on_declared_paths_only() -> None:
    async def handle(socket: WebSocket) -> None:
        said = await socket.receive()
        await socket.send(f"{socket.params['id']} {said!r}")

    plain = Plain("plain", (), sockets=[SocketRoute("/logs/{id}", handle, "logs", frame_limit_bytes=8)])
    app = Door(plain).app
    assert app.has_sockets

    async def talk(path: str, frame: str) -> list[Any]:
        waiting = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": frame}]
        sent: list[Any] = []

        async def receive() -> Any:
            return waiting.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        with contextlib.suppress(IndexError):
            await app({"type": "websocket", "path": path, "headers": []}, receive, send)
        return [message["type"] + str(message.get("text", message.get("code", ""))) for message in sent]

    assert asyncio.run(talk("/logs/7", "hi")) == ["websocket.accept", "websocket.send7 'hi'", "websocket.close1000"]
    assert asyncio.run(talk("/logs/7", "far too long")) == ["websocket.accept", "websocket.close1009"]
    assert asyncio.run(talk("/other", "hi")) == ["websocket.close1008"]

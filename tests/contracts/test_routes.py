"""The one table of routes: no two dialects claim a path, every route is described, every error has its word."""

from __future__ import annotations

import asyncio
import json
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from muster.app import DIALECTS
from muster.clock import RealClock, SeededEntropy, ticks
from muster.contracts.http import Call, Dialect, Route, WrongMethod
from muster.core.access.pool import no_pools
from muster.core.house import FleetFacts, House, build_house
from muster.dialects.native import problem
from muster.dialects.native.openapi import build
from muster.dialects.native.reference import page
from muster.dialects.native.routes import Native
from muster.dialects.native.watch import Watch
from muster.errors import CALL_ERRORS, CallError, RateLimited
from muster.orchestrators.none import NoOrchestrator
from muster.store.sqlite import SqliteStore
from muster.testing.simulation.image import ask
from muster.web.asgi import App
from muster.web.metrics import Metrics
from muster.web.probes import Probes
from muster.web.router import Router


@pytest.fixture
def house(tmp_path: Path) -> Any:
    store = SqliteStore.open(tmp_path / "routes.db", inline=True)
    yield build_house(
        store=store,
        clock=RealClock(),
        entropy=SeededEntropy(1),
        orchestrator=NoOrchestrator(),
        faults=None,
        fleet=FleetFacts("none", ("none",), False),
        pools=no_pools,
    )
    asyncio.run(store.close())


def everybody(house: House) -> list[Dialect]:
    return [*(dialect(house, Watch()) for dialect in DIALECTS), Probes(house, Metrics())]


def test_no_two_dialects_claim_a_path(house: House) -> None:
    dialects = everybody(house)
    table: Router[Route] = Router((d, route) for d in dialects for route in d.routes())
    assert len(list(table)) == sum(len(d.routes()) for d in dialects) > 70


def test_a_name_means_one_handler(house: House) -> None:
    """A dialect may answer the same under several addresses; they are then counted as one."""
    for dialect in everybody(house):
        handlers: dict[str, Any] = {}
        for route in dialect.routes():
            assert handlers.setdefault(route.name, route.handle) == route.handle, f"{dialect.name}: {route.name}"


def make(error: type[CallError]) -> CallError:
    return RateLimited("no", retry_after_seconds=3) if error is RateLimited else error("no", field="f", hint="h")


def test_every_error_has_a_wire_form_in_every_dialect(house: House) -> None:
    call = Call(id="req-1", method="GET", path="/", params={})
    for dialect in everybody(house):
        for error in CALL_ERRORS:
            reply = dialect.refuse(make(error), call)
            assert 400 <= reply.status < 600
            assert reply.body
        assert dialect.crash(call).status >= 500


def test_every_native_error_has_a_status_and_nothing_else_does() -> None:
    assert set(problem.STATUS) == {error.code for error in CALL_ERRORS}


def test_a_native_refusal_says_everything_it_knows(house: House) -> None:
    call = Call(id="req-7", method="GET", path="/", params={})
    told = json.loads(problem.refusal(make(CALL_ERRORS[0]), call).body)
    assert told == {
        "type": "urn:muster:error:invalid",
        "title": "Bad Request",
        "status": 400,
        "code": "invalid",
        "detail": "no",
        "field": "f",
        "hint": "h",
        "request_id": "req-7",
    }
    assert dict(problem.refusal(make(RateLimited), call).headers) == {"retry-after": "3"}
    wrong = problem.refusal(WrongMethod("PUT", "/x", "GET"), call)
    assert (wrong.status, json.loads(wrong.body)["status"]) == (405, 405)


class Links(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        self.anchors.add(f"#{said.get('id')}")
        self.targets |= {said[name] or "" for name in ("href", "src") if name in said}


def test_the_page_to_read_says_what_the_document_says_and_needs_nothing_else(house: House) -> None:
    document = build(Native(house, Watch()).routes())
    html = page(document)
    links = Links(html)
    assert links.targets - links.anchors == {"openapi.json"}
    for path, operations in document["paths"].items():
        assert path in html
        for operation in operations.values():
            assert f"#{operation['operationId']}" in links.anchors
            assert escape(operation["summary"]) in html
    assert {f"#{name}" for name in document["components"]["schemas"]} <= links.anchors


def test_the_page_has_every_route_and_declares_every_refusal(house: House) -> None:
    native = Native(house, Watch())
    document = build(native.routes())
    operations = [(path, method, op) for path, ops in document["paths"].items() for method, op in ops.items()]
    assert len(operations) == len(native.routes())
    ids = [operation["operationId"] for _, _, operation in operations]
    assert len(ids) == len(set(ids))
    for path, method, operation in operations:
        if operation.get("security") == []:
            continue
        assert {"400", "401", "403", "404", "429", "503"} <= set(operation["responses"]), (path, method)
        said = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert said == set(re.findall(r"{(\w+)}", path))


def test_every_reference_on_the_page_leads_somewhere(house: House) -> None:
    document = build(Native(house, Watch()).routes())
    text = json.dumps(document)
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named
    assert named <= set(document["components"]["schemas"])


def test_alive_at_once_and_ready_when_the_fleet_was_read(house: House) -> None:
    app = App(
        [Probes(house, Metrics())],
        house.accounts,
        clock=house.clock,
        entropy=house.entropy,
        ticks=ticks,
        metrics=Metrics(),
    )

    async def statuses() -> list[int]:
        return [(await ask(app, "GET", path, "", None, {}))[0] for path in ("/healthz", "/readyz")]

    async def story() -> None:
        assert await statuses() == [200, 503]
        await house.capacity.ready()
        assert await statuses() == [200, 200]

    asyncio.run(story())

"""One real server, two tenants who know nothing of each other, and things that the second one owns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from muster.testing.server import MusterServer, running_server


class Api:
    """The native wire with one key."""

    def __init__(self, url: str, key: str | None) -> None:
        self.key = key or ""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self.http = httpx.Client(base_url=f"{url}/muster/v1", headers=headers, timeout=60)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.http.request(method, path, **more)

    def make(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.ask("POST", path, json=body)
        assert reply.status_code in (201, 202), reply.text
        made: dict[str, Any] = reply.json()
        return made

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        reply = self.ask("GET", path, params=query)
        assert reply.status_code == 200, reply.text
        seen: dict[str, Any] = reply.json()
        return seen

    def close(self) -> None:
        self.http.close()


@dataclass
class World:
    server: MusterServer
    operator: Api
    ann: Api
    bob: Api
    bob_reader: Api
    ann_project: str
    bob_account: str
    bob_project: str


def _tenant(operator: Api, name: str) -> tuple[str, str, str]:
    account = operator.make("/accounts", {"name": name, "postpaid": True})
    project = operator.make("/projects", {"name": name, "account_id": account["id"]})
    key = operator.make("/keys", {"name": name, "role": "admin", "project_id": project["id"]})
    return account["id"], project["id"], key["secret"]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_server(tmp_path_factory.mktemp("native") / "home") as server:
        operator = Api(server.url, server.operator_key)
        _, ann_project, ann_key = _tenant(operator, "ann")
        bob_account, bob_project, bob_key = _tenant(operator, "bob")
        bob = Api(server.url, bob_key)
        reader = bob.make("/keys", {"name": "reader", "role": "member"})
        ann, bob_reader = Api(server.url, ann_key), Api(server.url, reader["secret"])
        yield World(server, operator, ann, bob, bob_reader, ann_project, bob_account, bob_project)
        for api in (operator, ann, bob, bob_reader):
            api.close()

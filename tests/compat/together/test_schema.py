"""Schemathesis over Together's wire, current and legacy: whatever is sent, no 5xx and no undeclared reply.

The document is the dialect's own, made from the table of its calls. What is generated is mixed with what is right, so
that most attempts get past the first check.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import strategies
from schemathesis import Case, GenerationMode

from muster.dialects.together import openapi
from muster.testing.fuzzing import Caller, operations, troubles
from muster.testing.server import MusterServer

from .conftest import Tenant, Wire
from .test_repairs import BODY, until

EXAMPLES = 60 if os.environ.get("MUSTER_THOROUGH") else 6
LEFT_OVER_MAX = 8
CLUSTERS = "/v1/compute/clusters"
VOLUMES = f"{CLUSTERS}/storage/volumes"
OLD = "/api/v1"
LEGACY_BODY = {
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 8,
    "duration_days": 1,
    "driver_version": "CUDA_12_6_560",
    "billing_type": "ON_DEMAND",
}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture(scope="session")
def page() -> Any:
    return schemathesis.openapi.from_dict(openapi.build())


class Mark:
    """A cluster, a repair of it, and a volume: things to aim at, as good as new before every call that is tried."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._numbers = itertools.count(1)
        self.ids: dict[str, str] = {}

    def name(self) -> str:
        return f"mark-{next(self._numbers)}"

    def renew(self) -> None:
        """What attempts have changed is made anew; what they have made goes when it is much: there must be room."""
        if self._is_whole():
            if len(self._wire.good("GET", CLUSTERS)["clusters"]) > LEFT_OVER_MAX:
                self._sweep()
            return
        self.ids = {}
        self._sweep()
        self._make()

    def _is_whole(self) -> bool:
        if not self.ids:
            return False
        cluster, volume = (
            self._wire.ask("GET", path)
            for path in (f"{CLUSTERS}/{self.ids['cluster_id']}", f"{VOLUMES}/{self.ids['volume_id']}")
        )
        if not cluster.is_success or not volume.is_success:
            return False
        seen = cluster.json()
        return (seen["status"], seen["num_gpus"], volume.json()["status"]) == ("Ready", 8, "available")

    def _sweep(self) -> None:
        for path, kind, id in ((CLUSTERS, "clusters", "cluster_id"), (VOLUMES, "volumes", "volume_id")):
            others = [one[id] for one in self._wire.good("GET", path)[kind] if one[id] != self.ids.get(id)]
            for other in others:
                self._wire.ask("DELETE", f"{path}/{other}")
            for other in others:
                until(lambda at=f"{path}/{other}": self._wire.ask("GET", at).status_code, lambda s: s == 404, "swept")

    def _make(self) -> None:
        id = self._wire.good("POST", CLUSTERS, json=self.right("POST", CLUSTERS))["cluster_id"]
        ready = lambda: self._until(f"{CLUSTERS}/{id}", "status", "Ready")  # noqa: E731
        instance = ready()["gpu_worker_nodes"][0]["instance_id"]
        repairs = f"{CLUSTERS}/{id}/instances/{instance}/remediations"
        repair = self._wire.good("POST", repairs, json={"mode": "REMEDIATION_MODE_REBOOT_VM"})["id"]
        self._until(f"{repairs}/{repair}", "state", "SUCCEEDED")
        ready()
        volume = self._wire.good("POST", VOLUMES, json=self.right("POST", VOLUMES))["volume_id"]
        self._until(f"{VOLUMES}/{volume}", "status", "available")
        self.ids = {"cluster_id": id, "instance_id": instance, "remediation_id": repair, "volume_id": volume}

    def _until(self, path: str, field: str, word: str) -> dict[str, Any]:
        return dict(until(lambda: self._wire.good("GET", path), lambda seen: seen[field] == word, word))

    def right(self, method: str, path: str) -> dict[str, Any]:
        """A body that would do."""
        volume = {"volume_name": self.name(), "size_tib": 1, "region": BODY["region"]}
        return {
            ("POST", CLUSTERS): BODY | {"cluster_name": self.name(), "num_gpus": 8},
            ("PUT", f"{CLUSTERS}/{{cluster_id}}"): {"num_gpus": 8},
            ("POST", VOLUMES): volume,
            ("PUT", VOLUMES): {"volume_id": self.ids.get("volume_id"), "size_tib": 2},
            ("POST", f"{OLD}/gpu_cluster"): LEGACY_BODY | {"cluster_name": self.name()},
            ("PUT", f"{OLD}/gpu_cluster"): {"cluster_id": self.ids.get("cluster_id"), "num_gpus": 8},
            ("POST", f"{OLD}/shared_volume"): volume,
        }.get((method, path), {"mode": "REMEDIATION_MODE_REBOOT_VM"} if path.endswith("/remediations") else {})

    def before_each(self, tried: Iterable[Any]) -> Iterator[Any]:
        for operation in tried:
            self.renew()
            yield operation

    def aim(self, case: Case, draw: Callable[[Any], Any]) -> None:
        """Ids that exist, in three of four cases, and of a generated body some fields over what is right."""
        if draw(strategies.integers(0, 3)) == 0:
            return
        for name in case.path_parameters:
            if name in self.ids:
                case.path_parameters[name] = self.ids[name]
        if isinstance(case.body, dict):
            names = sorted(case.body)
            kept = draw(strategies.sets(strategies.sampled_from(names), max_size=3)) if names else ()
            case.body = self.right(case.method, case.path) | {name: case.body[name] for name in kept}


@pytest.mark.parametrize(
    ("who", "mode"),
    [
        ("tenant", GenerationMode.POSITIVE),
        ("tenant", GenerationMode.NEGATIVE),
        ("operator", GenerationMode.POSITIVE),
    ],
)
def test_nothing_breaks_and_nothing_undeclared_is_said(
    who: str, mode: GenerationMode, tenant: Tenant, server: MusterServer, page: Any
) -> None:
    caller = Caller(tenant.url, tenant.key if who == "tenant" else server.operator_key)
    mark = Mark(tenant.wire)
    found = troubles(mark.before_each(operations(page)), mode, caller, mark.aim, examples=EXAMPLES)
    assert not found, "\n\n".join(found)
    assert min(caller.heard[2], caller.heard[4]) > 15, f"the attempts did not get past the door: {caller.heard}"


def test_what_is_right_is_answered_as_declared(tenant: Tenant, page: Any) -> None:
    """Every call once, with a good answer; proposals of the house are told elsewhere."""
    caller, mark = Caller(tenant.url, tenant.key), Mark(tenant.wire)
    for operation in mark.before_each(operations(page)):
        if operation.path.endswith(("/approve", "/reject", "/cancel")):
            continue
        places = {name: mark.ids[name] for name in openapi.PARAMETER.findall(operation.path)}
        body = {"body": mark.right(operation.method.upper(), operation.path)} if operation.body else {}
        reply = caller.send(operation.Case(path_parameters=places, **body))
        assert reply.status_code == 200, (operation.method, operation.path, reply.text)


def refused_as_declared(reply: Any, status: int, page: Any) -> None:
    assert reply.status_code == status, (reply.status_code, reply.text)
    assert reply.headers["content-type"] == "application/json"
    told = reply.json()["error"]
    assert set(told) == {"message", "type", "param", "code"}
    assert told["message"].endswith(".")
    assert told["type"] in page.raw_schema["components"]["schemas"]["Told"]["properties"]["type"]["enum"]


def test_other_methods_other_paths_and_strangers_are_refused_in_the_same_envelope(tenant: Tenant, page: Any) -> None:
    stranger = Wire(tenant.url, "mk-nobody-knows-this-one")
    for path, calls in page.raw_schema["paths"].items():
        for method in METHODS:
            if method.lower() in calls:
                refused_as_declared(stranger.ask(method, path), 401, page)
            else:
                refused_as_declared(tenant.wire.ask(method, path), 405, page)
        refused_as_declared(tenant.wire.ask("GET", f"{path}/no/such/place"), 404, page)
    stranger.http.close()

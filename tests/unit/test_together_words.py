"""Together's tables are total: every phase, state, condition, error code and field has its word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import muster.core.clusters.conditions
from muster.contracts.http import Call, WrongMethod
from muster.dialects.together import answers, document, refusals, wire, words
from muster.dialects.together.fields import ANSWERS, NEVER_SENT, REQUESTS, Kind, Section
from muster.errors import CALL_ERRORS, CallError, Invalid, OutOfStock, RateLimited, Stale, Unavailable, Unsupported
from muster.model.clusters import Billing, Cluster, ClusterSpec, ClusterType
from muster.model.health import RemediationMode, RemediationState, RemediationTrigger
from muster.model.phases import NodePhase, Phase, VolumePhase

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("table", "enum"),
    [
        (words.STATUS, Phase),
        (words.PHASE, Phase),
        (words.LEGACY_STATUS, Phase),
        (words.NODE_STATUS, NodePhase),
        (words.NODE_PHASE, NodePhase),
        (words.VOLUME_STATUS, VolumePhase),
        (words.TYPE, ClusterType),
        (words.BILLING, Billing),
        (words.MODE, RemediationMode),
        (words.STATE, RemediationState),
        (words.TRIGGER, RemediationTrigger),
    ],
)
def test_every_word_of_ours_has_one_of_theirs(table: dict[Any, str], enum: Any) -> None:
    assert set(table) == set(enum)
    assert all(table.values())


def test_every_condition_the_reconciler_writes_has_a_word() -> None:
    source = Path(muster.core.clusters.conditions.__file__).read_text()
    written = set(re.findall(r'holds\["(\w+)"\]', source))
    assert written
    assert written <= set(words.CONDITION)


def test_every_error_has_a_status_and_a_type() -> None:
    assert set(refusals.STATUS) == {error.code for error in CALL_ERRORS}
    assert set(refusals.STATUS.values()) <= set(refusals.TYPE)


def cluster(phase: Phase, version: int) -> Cluster:
    spec = ClusterSpec(type=ClusterType.SLURM, region="r", gpu_type="g", instance_type="i", workers=1, image_id="x")
    return Cluster(
        id="c",
        version=version,
        account_id="a",
        project_id="p",
        name="n",
        live_name="n",
        region="r",
        phase=phase,
        phase_since=0,
        spec=spec,
        digest="",
        created_at=0,
        updated_at=0,
    )


def test_an_accepted_create_waits_for_its_control_plane_and_nothing_else_does_by_chance() -> None:
    assert words.status_of(cluster(Phase.NETWORK, 1)) == "WaitingForControlPlaneNodes"
    assert words.status_of(cluster(Phase.NETWORK, 2)) == "WaitingForSubnet"
    assert words.status_of(cluster(Phase.QUEUED, 1)) == "Scheduled"


# --- fields -----------------------------------------------------------------------------------------------------


def told_names(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


@pytest.mark.parametrize("section", REQUESTS, ids=lambda section: section.title)
def test_every_field_a_caller_may_say_is_declared(section: Section) -> None:
    assert {field.name for field in section.fields} == told_names(section.struct)


@pytest.mark.parametrize("section", ANSWERS, ids=lambda section: section.title)
def test_every_field_we_say_is_declared_and_what_is_never_sent_says_so(section: Section) -> None:
    declared = {field.name: field for field in section.fields}
    assert len(declared) == len(section.fields)
    assert told_names(section.struct) <= set(declared)
    unsaid = set(declared) - told_names(section.struct)
    assert all(declared[name].kind is Kind.CONSTANT for name in unsaid)
    assert all(declared[name].sentence.startswith(NEVER_SENT) for name in unsaid)


def test_no_body_is_without_its_section() -> None:
    bodies = {
        found
        for found in vars(wire).values()
        if isinstance(found, type) and issubclass(found, wire.Body) and found is not wire.Body
    }
    parts = {
        wire.Switch,
        wire.AddOnConfig,
        wire.AddOnChange,
        wire.NewVolume,
        wire.LegacyNewVolume,
    }  # told within the sections of others
    assert bodies - parts == {section.struct for section in REQUESTS}


def test_the_page_is_what_the_tables_say() -> None:
    assert (ROOT / "docs/dialects/together.md").read_text() == document.page()


# --- refusals ---------------------------------------------------------------------------------------------------


def call(path: str = "/v1/compute/clusters") -> Call:
    return Call(id="req-1", method="POST", path=path, params={})


def told(body: bytes) -> dict[str, Any]:
    error = msgspec.json.decode(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    assert isinstance(error["code"], str)  # the command line wants a string here
    return dict(error)


def test_a_refusal_is_two_sentences_and_names_the_field_as_the_caller_knows_it() -> None:
    reply = refusals.refusal(Invalid("there is a cluster named x", field="name", hint="choose another"), call())
    assert reply.status == 400
    assert told(reply.body) == {
        "message": "There is a cluster named x. Choose another.",
        "type": "invalid_request_error",
        "param": "cluster_name",
        "code": "invalid",
    }
    volumes = call("/v1/compute/clusters/storage/volumes")
    assert told(refusals.refusal(Invalid("x", field="size_gib"), volumes).body)["param"] == "size_tib"
    scripts = refusals.refusal(Invalid("x", field="config.scripts.worker_prolog"), call())
    assert told(scripts.body)["param"] == "cluster_config.slurm_startup_scripts.worker_prolog"
    add_on = refusals.refusal(Invalid("x", field="config.add_ons (dashboard)"), call())
    assert told(add_on.body)["param"] == "add_ons"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Invalid("num_gpus must be a multiple of 8", field="num_gpus"), "num_gpus must be a multiple of 8."),
        (Invalid("us-central-8 has no CUDA 9"), "us-central-8 has no CUDA 9."),
        (Invalid("don't"), "Don't."),
        (Invalid("shm_gib must be more", field="config.shm_gib"), "slurm_shm_size_gib must be more."),
        (
            Unsupported("this fleet cannot honour config.add_ons (x) here", field="config.add_ons (x)"),
            "This fleet cannot honour add_ons (x) here.",
        ),
        (
            Invalid("login_init must start with a shebang", field="config.scripts.login_init"),
            "cluster_config.slurm_startup_scripts.login_init_script must start with a shebang.",
        ),
        (Invalid("this is none", field="cursor", hint="use next_cursor"), "This is none. Use next_page_token."),
    ],
)
def test_names_are_told_as_the_caller_writes_them(error: CallError, message: str) -> None:
    assert told(refusals.refusal(error, call()).body)["message"] == message


def test_a_409_says_whether_asking_again_can_help() -> None:
    out = refusals.refusal(OutOfStock("none are free"), call())
    assert told(out.body)["message"].startswith("Out of stock")
    assert dict(out.headers)["x-should-retry"] == "false"
    assert dict(refusals.refusal(Stale("x"), call()).headers)["x-should-retry"] == "true"
    for error in CALL_ERRORS:
        made = error("x", retry_after_seconds=1) if error is RateLimited else error("x")
        reply = refusals.refusal(made, call())
        assert (reply.status == 409) == ("x-should-retry" in dict(reply.headers))


def test_waiting_is_told_in_whole_seconds() -> None:
    slow = refusals.refusal(RateLimited("slow down", retry_after_seconds=0.2), call())
    assert (slow.status, dict(slow.headers)["retry-after"]) == (429, "1")
    assert dict(refusals.refusal(Unavailable("later"), call()).headers)["retry-after"] == "2"


def test_a_crash_tells_the_id_and_a_wrong_method_is_a_405() -> None:
    assert "req-1" in told(refusals.crash(call()).body)["message"]
    assert refusals.refusal(WrongMethod("PATCH", "/x", "GET"), call()).status == 405


def test_answers_leave_out_what_is_unset_and_nothing_else() -> None:
    volume = answers.Volume(volume_id="v", volume_name="n", size_tib=1, status="bound")
    assert set(msgspec.json.decode(msgspec.json.encode(volume))) == told_names(answers.Volume)

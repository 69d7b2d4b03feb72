"""From Together's words to the house's commands: every field becomes part of the command, or a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from muster.contracts.http import Call
from muster.core.catalog.snapshot import Catalog
from muster.core.clusters.commands import AutoscaleWish, CreateCluster, MountWish, NewVolume, UpdateCluster
from muster.core.clusters.snapshot import ClusterView
from muster.core.demo import demo_catalog
from muster.dialects.together import legacy, wire
from muster.dialects.together.asking import IGNORED, IGNORED_MAX, read
from muster.dialects.together.translate import create_cluster, driver_word, update_cluster
from muster.errors import CallError, Invalid, Unsupported, WrongPhase
from muster.model.base import DAY, HOUR
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region
from muster.model.clusters import (
    AddOn,
    Billing,
    Cluster,
    ClusterConfig,
    ClusterSpec,
    ClusterStatus,
    ClusterType,
    Oidc,
    Scripts,
)
from muster.model.phases import Phase

REGION = "us-central-8"
GOOD: dict[str, Any] = {
    "cluster_name": "demo",
    "region": REGION,
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "billing_type": "ON_DEMAND",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
}
SLURM = {"cluster_type": "SLURM", "slurm_shm_size_gib": 32}
END, END_AT = "2030-01-02T00:00:00Z", 1_893_542_400_000
SCHEDULED = {"billing_type": "SCHEDULED_CAPACITY", "reservation_end_time": END}


def catalog_of() -> Catalog:
    nouns = list(demo_catalog(0))
    tables = {kind: {n.id: n for n in nouns if type(n) is kind} for kind in (Region, GpuType, InstanceType, Image)}
    return Catalog(
        regions=tables[Region],  # type: ignore[arg-type]
        gpu_types=tables[GpuType],  # type: ignore[arg-type]
        instance_types=tables[InstanceType],  # type: ignore[arg-type]
        images=tables[Image],  # type: ignore[arg-type]
        prices={n.id: n for n in nouns if isinstance(n, Price)},
    )


CATALOG = catalog_of()
OIDC = {
    "issuer_url": "https://id.example.org",
    "client_id": "c",
    "username_claim": "email",
    "username_prefix": "o:",
    "group_claim": "groups",
    "group_prefix": "o:",
}


def asked(body: dict[str, Any], kind: Any = wire.NewCluster) -> Any:
    return read(Call(id="r", method="POST", path="/", params={}, body=msgspec.json.encode(body)), kind)


def create(**more: Any) -> CreateCluster:
    return create_cluster(asked(GOOD | more).said, CATALOG)


def refused(error: type[CallError], **more: Any) -> CallError:
    with pytest.raises(error) as caught:
        create(**more)
    assert caught.value.field
    return caught.value


def image(command: CreateCluster) -> Image:
    return CATALOG.images[command.image_id]


# --- create -----------------------------------------------------------------------------------------------------


def test_the_plain_create() -> None:
    command = create()
    assert (command.name, command.region, command.gpu_type) == ("demo", REGION, "H100_SXM")
    assert (command.gpus, command.gpus_per_node, command.type) == (16, 8, ClusterType.KUBERNETES)
    assert (command.lasts_ms, command.failover, command.mounts) == (None, False, ())
    assert command.config == ClusterConfig()
    assert (image(command).cuda_version, image(command).driver_version) == ("12.6", "560")


def test_null_means_absent_at_every_depth() -> None:
    nulls = {"duration_days": None, "cluster_type": None, "shared_volume": None, "cluster_config": None}
    assert create(**nulls) == create()


@pytest.mark.parametrize("missing", ["cluster_name", "region", "gpu_type", "num_gpus", "billing_type"])
def test_what_is_required_is_named(missing: str) -> None:
    assert refused(Invalid, **{missing: None}).field == missing


def test_everything_that_is_missing_is_named_at_once() -> None:
    said = refused(Invalid, cluster_name=None, region=None).message
    assert "cluster_name and region are required" in said


@pytest.mark.parametrize("gpus", [0, -8, 7, 12, 2**31 - 1])
def test_gpus_come_in_eights(gpus: int) -> None:
    assert refused(Invalid, num_gpus=gpus).field == "num_gpus"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"region": "nowhere"}, "region"),
        ({"cluster_type": "NOMAD"}, "cluster_type"),
        ({"billing_type": "GRATIS"}, "billing_type"),
        ({"num_gpus": "many"}, "num_gpus"),
        ({"num_gpus": 2**31}, "num_gpus"),
        ({"cuda_version": "12.6", "nvidia_driver_version": None}, "cuda_version"),
        ({"cuda_version": None, "nvidia_driver_version": None}, "cuda_version"),
        ({"cuda_version": "new"}, "cuda_version"),
        ({"nvidia_driver_version": "1"}, "cuda_version"),
        ({"nvidia_version_id": "no-such"}, "nvidia_version_id"),
        ({"driver_version": "CUDA_12_8_570"}, "driver_version"),
        ({"driver_version": "NEWEST"}, "driver_version"),
        ({"cluster_type": "SLURM"}, "slurm_shm_size_gib"),
        ({"slurm_shm_size_gib": 4}, "slurm_shm_size_gib"),
        ({"slurm_image": "x"}, "slurm_image"),
        ({**SLURM, "install_traefik": True}, "install_traefik"),
        ({**SLURM, "oidc_config": OIDC}, "oidc_config"),
        ({"duration_days": 0}, "duration_days"),
        ({"billing_type": "RESERVED"}, "duration_days"),
        ({"billing_type": "RESERVED", "duration_days": 91}, "duration_days"),
        ({"billing_type": "RESERVED", "duration_days": 9, "num_reserved_gpus": 24}, "num_reserved_gpus"),
        ({"billing_type": "RESERVED", "duration_days": 9, "num_reserved_gpus": 4}, "num_reserved_gpus"),
        ({"billing_type": "RESERVED", "duration_days": 9, "reservation_end_time": END}, "reservation_end_time"),
        ({"billing_type": "SCHEDULED_CAPACITY"}, "reservation_end_time"),
        (SCHEDULED | {"reservation_start_time": END}, "reservation_end_time"),
        (SCHEDULED | {"duration_days": 3}, "duration_days"),
        (SCHEDULED | {"num_reserved_gpus": 24}, "num_reserved_gpus"),
        (SCHEDULED | {"num_reserved_gpus": 8}, "num_reserved_gpus"),
        ({"reservation_end_time": "2030-01-01T00:00:00Z"}, "reservation_end_time"),
        ({"reservation_start_time": "2030-01-01T00:00:00Z"}, "reservation_start_time"),
        ({"num_reserved_gpus": 8}, "num_reserved_gpus"),
        ({"auto_scale_max_gpus": 32}, "auto_scale_max_gpus"),
        ({"auto_scale": True}, "auto_scale_max_gpus"),
        ({"auto_scale": True, "auto_scale_max_gpus": 8}, "auto_scale_max_gpus"),
        ({"num_capacity_pool_gpus": 8}, "num_capacity_pool_gpus"),
        ({"capacity_pool_id": "p", "num_capacity_pool_gpus": 32}, "num_capacity_pool_gpus"),
        ({"num_preemptible_gpus": 4}, "num_preemptible_gpus"),
        ({"num_preemptible_gpus": 8}, "project_id"),
        ({"shared_volume": {"volume_name": "v", "size_tib": 1}, "volume_id": "v"}, "shared_volume"),
        ({"shared_volume": {"volume_name": "v", "size_tib": 0, "region": REGION}}, "shared_volume.size_tib"),
        ({"shared_volume": {"volume_name": "v", "size_tib": 1, "region": "Delhi"}}, "shared_volume.region"),
        ({"shared_volume": {"size_tib": 1}}, "shared_volume.volume_name"),
        ({"shared_volume": {"volume_name": "v", "size_tib": 1, "project_id": "x"}}, "shared_volume.project_id"),
        ({"oidc_config": {"issuer_url": "https://x"}}, "oidc_config.client_id"),
        ({"oidc_config": OIDC | {"username_claim": "shoe"}}, "oidc_config.username_claim"),
        ({"add_ons": [{"add_on_type": "espresso", "name": "x"}]}, "add_ons"),
        ({"add_ons": [{"add_on_type": "dashboard"}]}, "add_ons.name"),
        ({"add_ons": [{"add_on_type": "dashboard", "name": ""}]}, "add_ons.name"),
        (
            {"add_ons": [{"add_on_type": "ingress", "name": "x", "config": {"dashboard": {"enabled": True}}}]},
            "add_ons",
        ),
        ({"cluster_config": {"ingress": {"enabled": True}}}, "cluster_config.load_balancer"),
        ({"cluster_config": {"load_balancer": "HAPROXY"}}, "cluster_config.load_balancer"),
        ({"cluster_config": {"load_balancer": "NGINX"}, "install_traefik": True}, "install_traefik"),
        (
            {
                "cluster_config": {"load_balancer": "NONE", "kubernetes_dashboard_enabled": True},
                "add_ons": [{"add_on_type": "dashboard", "name": "d", "config": {"dashboard": {"enabled": False}}}],
            },
            "cluster_config.kubernetes_dashboard_enabled",
        ),
        (
            {"cluster_config": {"load_balancer": "NONE", "slurm_startup_scripts": {"worker_prolog": "#!/bin/sh"}}},
            "cluster_config.slurm_startup_scripts",
        ),
        ({"acceptance_tests_params": {"gpu_burn_duration": -1}}, "acceptance_tests_params.gpu_burn_duration"),
        ({"acceptance_tests_params": {"dcgm_diag_level": "DEEP"}}, "acceptance_tests_params.dcgm_diag_level"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(more: dict[str, Any], field: str) -> None:
    assert refused(Invalid, **more).field == field


@pytest.mark.parametrize("word", ["auto_scale", "auto_scaled"])
def test_a_cluster_that_may_grow_says_how_far(word: str) -> None:
    assert create(**{word: True, "auto_scale_max_gpus": 32}).autoscale == AutoscaleWish(max_gpus=32)


def test_preemptible_gpus_come_beside_the_others() -> None:
    assert create(num_preemptible_gpus=16, project_id="p").preemptible_gpus == 16
    assert update(num_preemptible_gpus=0) == UpdateCluster(preemptible_gpus=0)


def test_a_pool_is_drawn_from_by_its_id() -> None:
    some = create(capacity_pool_id="p", num_capacity_pool_gpus=8)
    assert (some.pool_id, some.pool_gpus) == ("p", 8)
    assert create(capacity_pool_id="p").pool_gpus is None


def test_a_value_that_asks_for_nothing_passes() -> None:
    nothing = {
        "auto_scale": False,
        "auto_scaled": False,
        "num_preemptible_gpus": 0,
        "num_capacity_pool_gpus": 0,
        "num_reserved_gpus": 0,
        "install_traefik": False,
        "gpu_node_failover_enabled": False,
    }
    assert create(**nothing) == create()


def test_versions_may_be_said_three_ways_and_agree() -> None:
    by_pair = create()
    by_word = create(cuda_version=None, nvidia_driver_version=None, driver_version="CUDA_12_6_560")
    by_id = create(cuda_version=None, nvidia_driver_version=None, nvidia_version_id=by_pair.image_id)
    all_three = create(nvidia_version_id=by_pair.image_id, driver_version="CUDA_12_6_560")
    assert by_pair.image_id == by_word.image_id == by_id.image_id == all_three.image_id
    assert driver_word(image(by_pair)) == "CUDA_12_6_560"
    other = create(cuda_version="12.8", nvidia_driver_version="570")
    assert refused(Invalid, nvidia_version_id=other.image_id).field == "nvidia_version_id"


def test_a_bare_cuda_version_means_the_older_os_and_a_suffix_chooses() -> None:
    systems = {i.os for i in CATALOG.images_in(REGION) if (i.cuda_version, i.driver_version) == ("12.8", "570")}
    bare = image(create(cuda_version="12.8", nvidia_driver_version="570"))
    assert bare.os == "ubuntu-22.04" if "ubuntu-22.04" in systems else min(systems)
    for os in systems:
        chosen = create(cuda_version=f"12.8-{os}", nvidia_driver_version="570")
        assert image(chosen).os == os
        other = "ubuntu-22.04" if os == "ubuntu-24.04" else "ubuntu-24.04"
        pair = {"cuda_version": f"12.8-{other}", "nvidia_driver_version": "570"}
        assert refused(Invalid, nvidia_version_id=chosen.image_id, **pair).field == "nvidia_version_id"


def test_on_demand_may_end_by_itself() -> None:
    assert create(duration_days=3).lasts_ms == 3 * DAY


def test_reserved_lasts_so_many_days_once_it_is_ready() -> None:
    command = create(billing_type="RESERVED", duration_days=90)
    assert (command.billing, command.duration_days) == (Billing.RESERVED, 90)
    assert (command.lasts_ms, command.starts_at, command.ends_at) == (None, None, None)
    for all_of_it in (0, 16):
        assert create(billing_type="RESERVED", duration_days=90, num_reserved_gpus=all_of_it) == command
    half = create(billing_type="RESERVED", duration_days=90, num_reserved_gpus=8)
    assert (half.gpus, half.reserved_gpus) == (16, 8)


@pytest.mark.parametrize("start", ["2030-01-01T00:00:00Z", "2030-01-01T00:00:00", "2030-01-01T02:00:00+02:00"])
def test_scheduled_capacity_has_a_window(start: str) -> None:
    command = create(**SCHEDULED, reservation_start_time=start)
    assert (command.billing, command.starts_at, command.ends_at) == (Billing.SCHEDULED, END_AT - DAY, END_AT)


def test_scheduled_capacity_without_a_start_is_the_same_wish_whenever_it_is_said() -> None:
    command = create(**SCHEDULED)
    assert (command.billing, command.starts_at, command.ends_at) == (Billing.SCHEDULED, None, END_AT)


def test_an_inline_volume_outlives_its_cluster_unless_said_otherwise() -> None:
    inline = {"volume_name": "v", "size_tib": 2, "region": REGION}
    stays = NewVolume(name="v", size_gib=2048, region=REGION)
    assert create(shared_volume=inline).mounts == (MountWish(new=stays),)
    for said, dies in ((True, False), (False, True)):
        [mount] = create(shared_volume=inline | {"is_lifecycle_independent": said}).mounts
        assert mount.new is not None
        assert mount.new.dies_with_cluster is dies
    assert create(volume_id="v").mounts == (MountWish(volume_id="v"),)


def test_an_inline_volume_may_name_the_project_that_its_cluster_is_in() -> None:
    inline = {"volume_name": "v", "size_tib": 2, "region": REGION, "project_id": "mine"}
    said = asked(GOOD | {"shared_volume": inline}).said
    assert create_cluster(said, CATALOG, "mine").mounts
    assert create(project_id="mine", shared_volume=inline).mounts
    with pytest.raises(Invalid, match="belongs to the cluster's project"):
        create_cluster(said, CATALOG, "another")


def test_how_it_is_set_up_inside() -> None:
    scripts = {
        "worker_prolog": "#!/bin/sh\n1",
        "worker_epilog": "#!/bin/sh\n2",
        "controller_prolog": "#!/bin/sh\n3",
        "controller_epilog": "#!/bin/sh\n4",
        "login_init_script": "#!/bin/sh\n5",
        "nodeset_init_script": "#!/bin/sh\n6",
        "extra_slurm_conf": "MaxJobCount=1",
    }
    config = create(
        **SLURM,
        slurm_image="img",
        cluster_config={
            "load_balancer": "ISTIO",
            "gpu_operator_version": "v24.6.2",
            "network_operator_version": "v24.7.0",
            "ingress": {"enabled": True},
            "observability": {},
            "jumphost_enabled": True,
            "kubernetes_dashboard_enabled": True,
            "ssh_ca_enabled": True,
            "slurm_startup_scripts": scripts,
        },
        add_ons=[{"add_on_type": "slurm_web", "name": "web"}],
    ).config
    assert config == ClusterConfig(
        shm_gib=32,
        slurm_image="img",
        load_balancer="istio",
        gpu_operator_version="v24.6.2",
        network_operator_version="v24.7.0",
        ingress=True,
        observability=True,
        jumphost=True,
        ssh_ca=True,
        add_ons=(AddOn(type="slurm_web", name="web"), AddOn(type="dashboard", name="dashboard")),
        scripts=Scripts(
            worker_prolog="#!/bin/sh\n1",
            worker_epilog="#!/bin/sh\n2",
            controller_prolog="#!/bin/sh\n3",
            controller_epilog="#!/bin/sh\n4",
            login_init="#!/bin/sh\n5",
            nodeset_init="#!/bin/sh\n6",
            extra_slurm_conf="MaxJobCount=1",
        ),
    )
    assert create(install_traefik=True).config.load_balancer == "traefik"
    assert create(oidc_config=OIDC).config.oidc == Oidc(**OIDC)
    assert create(gpu_node_failover_enabled=True).failover


def test_which_tests_run() -> None:
    tests = create(
        acceptance_tests_params={
            "enabled": True,
            "dcgm_diag_level": "DCGM_DIAG_LEVEL_LONG",
            "gpu_burn_duration": 60,
            "nccl_single_node_skipped": True,
            "storage_skipped": True,
            "dcgm_diag_skipped": False,
        }
    ).acceptance
    assert (tests.enabled, tests.dcgm_level, tests.gpu_burn_seconds) == (True, "long", 60)
    assert tests.skip == ("nccl_single_node", "storage")
    assert create(acceptance_tests_params={"enabled": False}).acceptance.enabled is False


def test_unknown_fields_are_told_back_at_every_depth() -> None:
    inline = {"volume_name": "v", "size_tib": 1, "colour": "red"}
    config = {"load_balancer": "NONE", "ingress": {"enabled": True, "port": 1}}
    add_ons = [{"add_on_type": "dashboard", "name": "d", "taste": 1}]
    found = asked(GOOD | {"zzz": 1, "shared_volume": inline, "cluster_config": config, "add_ons": add_ons, "\n": 1})
    expected = ("zzz", "shared_volume.colour", "cluster_config.ingress.port", "add_ons.taste", "(unprintable)")
    assert set(found.ignored) == set(expected)
    assert dict(found.headers)[IGNORED].count(",") == len(expected) - 1
    assert set(found.note["ignored_fields"]) == set(expected)
    assert asked(GOOD).headers == ()
    twice = asked(GOOD | {"add_ons": add_ons * 2} | {f"f{number}": 1 for number in range(IGNORED_MAX)})
    assert len(twice.ignored) == len(set(twice.ignored)) == IGNORED_MAX + 1
    assert twice.ignored[-1] == "(1 more)"
    assert create_cluster(found.said, CATALOG).name == "demo"


@pytest.mark.parametrize("body", [b"[]", b"{", b'"x"', b"\xff", b"[" * 5000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        read(Call(id="r", method="POST", path="/", params={}, body=body), wire.NewCluster)


# --- update -----------------------------------------------------------------------------------------------------

SPEC = ClusterSpec(
    type=ClusterType.KUBERNETES,
    region=REGION,
    gpu_type="H100_SXM",
    instance_type="8xH100_SXM",
    workers=2,
    image_id="i",
    config=ClusterConfig(
        load_balancer="nginx", ingress=True, add_ons=(AddOn(type="headlamp", name="headlamp", enabled=False),)
    ),
)


def view(spec: ClusterSpec = SPEC, ready_at: int | None = None) -> ClusterView:
    cluster = Cluster(
        id="c",
        account_id="a",
        project_id="p",
        name="n",
        live_name="n",
        region=REGION,
        phase=Phase.READY,
        phase_since=0,
        spec=spec,
        status=ClusterStatus(first_ready_at=ready_at),
        digest="",
        created_at=END_AT - 10 * DAY,
        updated_at=0,
    )
    return ClusterView(cluster=cluster, nodes=[], instance_type=CATALOG.instance_type_for("H100_SXM", 8))


def update(of: ClusterView | None = None, **said: Any) -> UpdateCluster:
    return update_cluster(asked(said, wire.ClusterChange).said, of or view())


def test_an_update_keeps_what_it_does_not_name() -> None:
    assert update() == UpdateCluster()
    assert update(num_gpus=24, cluster_type="KUBERNETES") == UpdateCluster(gpus=24)
    config = update(cluster_config={"load_balancer": "NONE"}).config
    assert config is not None
    assert (config.load_balancer, config.ingress, config.add_ons) == ("none", True, SPEC.config.add_ons)


def test_add_ons_are_switched_by_name() -> None:
    config = update(add_ons=[{"name": "headlamp", "config": {"headlamp": {"enabled": True}}}]).config
    assert config is not None
    assert config.add_ons == (AddOn(type="headlamp", name="headlamp", enabled=True),)
    with pytest.raises(Invalid, match="no add-on named dashboard"):
        update(add_ons=[{"name": "dashboard"}])


@pytest.mark.parametrize(
    "said",
    [
        {"num_gpus": 12},
        {"num_gpus": 0},
        {"cluster_type": "SLURM"},
        {"num_reserved_gpus": 8},
        {"num_preemptible_gpus": 12},
        {"num_capacity_pool_gpus": 8},
        {"reservation_end_time": "2030-01-01T00:00:00+00:00"},
    ],
)
def test_an_update_refuses_what_cannot_be(said: dict[str, Any]) -> None:
    with pytest.raises((Invalid, Unsupported)):
        update(**said)


RESERVED_SPEC = replace(SPEC, billing=Billing.RESERVED, duration_ms=3 * DAY, reserved_workers=2)
SCHEDULED_SPEC = replace(SPEC, billing=Billing.SCHEDULED, starts_at=END_AT - DAY, ends_at=END_AT - HOUR)


@pytest.mark.parametrize("of", [view(RESERVED_SPEC, ready_at=END_AT - 2 * DAY), view(SCHEDULED_SPEC)])
def test_a_reservation_may_end_later(of: ClusterView) -> None:
    assert update(of, reservation_end_time=END) == UpdateCluster(ends_at=END_AT)
    same = update(of, reservation_end_time=END, num_gpus=16, num_reserved_gpus=16)
    assert same == UpdateCluster(gpus=16, ends_at=END_AT)
    for said in ({"num_gpus": 24, "reservation_end_time": END}, {"reservation_end_time": "2029-12-01T00:00:00Z"}):
        with pytest.raises(Invalid) as refusal:
            update(of, **said)
        assert refusal.value.field == "reservation_end_time"
    for gpus in (8, 24):
        with pytest.raises(Unsupported, match="16 GPUs were reserved"):
            update(of, num_reserved_gpus=gpus)


def test_what_is_above_a_reservation_is_no_part_of_it() -> None:
    grown = view(replace(RESERVED_SPEC, workers=3))
    assert update(grown, num_reserved_gpus=16) == UpdateCluster()


def test_the_end_of_a_reservation_that_has_not_begun_is_not_known() -> None:
    with pytest.raises(WrongPhase, match="first Ready"):
        update(view(RESERVED_SPEC), reservation_end_time=END)


# --- legacy -----------------------------------------------------------------------------------------------------

OLD: dict[str, Any] = {
    "cluster_name": "old",
    "region": REGION,
    "gpu_type": "H100_SXM",
    "num_gpus": 8,
    "duration_days": 2,
    "driver_version": "CUDA_12_5_555",
    "billing_type": "ON_DEMAND",
}


def old(**more: Any) -> CreateCluster:
    return legacy.create_cluster(asked(OLD | more, wire.LegacyNewCluster).said, CATALOG)


def test_a_legacy_create_ends_by_itself() -> None:
    command = old(shared_volume={"volume_name": "v", "size_tib": 1}, cluster_type="UNKNOWN_TYPE")
    assert (command.type, command.lasts_ms) == (ClusterType.KUBERNETES, 2 * DAY)
    [mount] = command.mounts
    assert mount.new is not None
    assert mount.new.region == REGION
    assert old(cluster_type="SLURM").config.shm_gib == ClusterConfig().shm_gib


def test_a_legacy_create_may_be_reserved() -> None:
    command = old(billing_type="RESERVED")
    assert (command.billing, command.duration_days, command.lasts_ms) == (Billing.RESERVED, 2, None)
    with pytest.raises(Invalid, match="between 1 and 90"):
        old(billing_type="RESERVED", duration_days=91)
    with pytest.raises(Invalid, match="billing_type cannot be SCHEDULED_CAPACITY"):
        old(billing_type="SCHEDULED_CAPACITY")


@pytest.mark.parametrize(
    "more",
    [
        *({name: None} for name in OLD),
        {"gpu_type": "UNKNOWN_GPU_TYPE"},
        {"driver_version": "UNKNOWN_DRIVER"},
        {"billing_type": "UNSPECIFIED"},
        {"billing_type": "SCHEDULED_CAPACITY"},
        {"duration_days": -1},
        {"duration_days": 2**32},
        {"duration_days": 0},
        {"num_gpus": 2**31},
        {"shared_volume": {"volume_name": "v", "size_tib": -1}},
    ],
)
def test_a_legacy_create_is_as_strict_as_its_page(more: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        old(**more)

"""How a cluster is set up inside: add-ons, cluster_config, OIDC and acceptance tests, from Together's words. Pure.

Leans on wire and words. *Laws.* What an update leaves out stays as it is. kubernetes_dashboard_enabled and the
dashboard add-on are one switch, and so are install_traefik and the TRAEFIK load balancer: to contradict oneself is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects.together import wire
from muster.dialects.together.asking import required, word
from muster.dialects.together.words import DCGM_LEVEL, LOAD_BALANCER
from muster.errors import Invalid
from muster.model.clusters import Acceptance, AddOn, ClusterConfig, ClusterType, Oidc, Scripts

ADD_ONS: Final = ("dashboard", "headlamp", "ingress", "slurm_web", "torchpass")
DASHBOARD: Final = "dashboard"
BURN_SECONDS_MAX: Final = 86_400
USERNAME_CLAIMS: Final = ("email", "preferred_username", "sub")

SCRIPTS: Final[dict[str, str]] = {
    "worker_prolog": "worker_prolog",
    "worker_epilog": "worker_epilog",
    "controller_prolog": "controller_prolog",
    "controller_epilog": "controller_epilog",
    "login_init_script": "login_init",
    "nodeset_init_script": "nodeset_init",
    "extra_slurm_conf": "extra_slurm_conf",
}
"""Their name of each startup script -> ours."""

_SKIPS: Final[dict[str, str]] = {
    "dcgm_diag_skipped": "dcgm_diag",
    "gpu_burn_skipped": "gpu_burn",
    "nccl_single_node_skipped": "nccl_single_node",
    "nccl_multi_node_skipped": "nccl_multi_node",
    "storage_skipped": "storage",
}


def new_config(said: wire.NewCluster, type_: ClusterType) -> ClusterConfig:
    config = ClusterConfig(
        slurm_image=said.slurm_image or "",
        oidc=None if said.oidc_config is None else oidc(said.oidc_config),
        add_ons=tuple(_new_add_on(add_on) for add_on in said.add_ons or ()),
    )
    if said.slurm_shm_size_gib is not None:
        config = replace(config, shm_gib=said.slurm_shm_size_gib)
    if said.cluster_config is not None:
        _check_dashboard(config.add_ons, said.cluster_config)
        config = _with_config(config, said.cluster_config, type_)
    return _with_traefik(config, said)


def changed_config(config: ClusterConfig, said: wire.ClusterChange, type_: ClusterType) -> ClusterConfig:
    if said.add_ons is not None:
        config = replace(config, add_ons=_merged(config.add_ons, said.add_ons))
    if said.cluster_config is None:
        return config
    named = {change.name for change in said.add_ons or ()}
    _check_dashboard([add_on for add_on in config.add_ons if add_on.name in named], said.cluster_config)
    return _with_config(config, said.cluster_config, type_)


def _with_traefik(config: ClusterConfig, said: wire.NewCluster) -> ClusterConfig:
    if not said.install_traefik:
        return config
    if config.load_balancer not in ("none", "traefik"):
        raise Invalid(
            f"install_traefik and load_balancer {LOAD_BALANCER[config.load_balancer]} contradict each other",
            field="install_traefik",
        )
    return replace(config, load_balancer="traefik")


def _with_config(config: ClusterConfig, said: wire.Config, type_: ClusterType) -> ClusterConfig:
    """What was said of cluster_config over what there was."""
    if said.load_balancer is None:
        raise Invalid("cluster_config needs a load_balancer", field="cluster_config.load_balancer", hint="Or NONE")
    field = "cluster_config.load_balancer"
    fields: dict[str, Any] = {
        "load_balancer": word(said.load_balancer, LOAD_BALANCER, field),
        "gpu_operator_version": said.gpu_operator_version,
        "network_operator_version": said.network_operator_version,
        "ingress": _switched(said.ingress),
        "observability": _switched(said.observability),
        "jumphost": said.jumphost_enabled,
        "ssh_ca": said.ssh_ca_enabled,
    }
    if said.slurm_startup_scripts is not None:
        fields["scripts"] = _scripts(config.scripts, said.slurm_startup_scripts, type_)
    if said.kubernetes_dashboard_enabled is not None:
        fields["add_ons"] = _with_dashboard(config.add_ons, said.kubernetes_dashboard_enabled)
    return replace(config, **{name: value for name, value in fields.items() if value is not None})


def _switched(switch: wire.Switch | None) -> bool | None:
    """Named without a word about `enabled`, it is meant to be on."""
    return None if switch is None else switch.enabled is not False


def _scripts(scripts: Scripts, said: wire.StartupScripts, type_: ClusterType) -> Scripts:
    fields = {ours: getattr(said, theirs) for theirs, ours in SCRIPTS.items()}
    given = {name: text for name, text in fields.items() if text is not None}
    if type_ is not ClusterType.SLURM and any(given.values()):
        raise Invalid(
            "slurm_startup_scripts are only for SLURM clusters", field="cluster_config.slurm_startup_scripts"
        )
    return replace(scripts, **given)


# --- add-ons --------------------------------------------------------------------------------------------------------


def _new_add_on(said: wire.NewAddOn) -> AddOn:
    required(said, within="add_ons")
    if not said.name:
        raise Invalid("an add-on has a name", field="add_ons.name", hint="It is switched on and off by that")
    if said.add_on_type not in ADD_ONS:
        raise Invalid(
            f"there is no add-on {said.add_on_type}", field="add_ons", hint=f"Use one of {', '.join(ADD_ONS)}"
        )
    enabled = _enabled(said.config, said.add_on_type)
    return AddOn(type=said.add_on_type, name=said.name, enabled=True if enabled is None else enabled)


def _enabled(config: wire.AddOnConfig | None, type_: str) -> bool | None:
    """What the add-on's config says of itself; a config for another type of add-on is a mistake."""
    if config is None:
        return None
    for other in ADD_ONS:
        if other != type_ and getattr(config, other) is not None:
            raise Invalid(f"the config of a {type_} add-on says {other}", field="add_ons", hint=f"Say {type_} there")
    return _switched(getattr(config, type_))


def _merged(add_ons: tuple[AddOn, ...], changes: Sequence[wire.AddOnChange]) -> tuple[AddOn, ...]:
    known = {add_on.name: add_on for add_on in add_ons}
    for change in changes:
        required(change, within="add_ons")
        add_on = known.get(change.name or "")
        if add_on is None:
            names = ", ".join(sorted(known)) or "none"
            raise Invalid(
                f"this cluster has no add-on named {change.name}",
                field="add_ons",
                hint=f"It has: {names}. Add-ons are chosen when a cluster is created",
            )
        enabled = _enabled(change.config, add_on.type)
        known[add_on.name] = add_on if enabled is None else replace(add_on, enabled=enabled)
    return tuple(known.values())


def _check_dashboard(said: Iterable[AddOn], config: wire.Config) -> None:
    wanted = config.kubernetes_dashboard_enabled
    if wanted is not None and any(add_on.type == DASHBOARD and add_on.enabled != wanted for add_on in said):
        raise Invalid(
            "kubernetes_dashboard_enabled and the dashboard add-on contradict each other",
            field="cluster_config.kubernetes_dashboard_enabled",
            hint="They are one switch",
        )


def _with_dashboard(add_ons: tuple[AddOn, ...], enabled: bool) -> tuple[AddOn, ...]:
    """The switch in cluster_config is the dashboard add-on by another name."""
    others = tuple(add_on for add_on in add_ons if add_on.type != DASHBOARD)
    mine = [add_on for add_on in add_ons if add_on.type == DASHBOARD]
    if not mine:
        return (*others, AddOn(type=DASHBOARD, name=DASHBOARD)) if enabled else others
    return (*others, *(replace(add_on, enabled=enabled) for add_on in mine))


# --- access and tests -----------------------------------------------------------------------------------------------


def oidc(said: wire.OidcConfig) -> Oidc:
    required(said, within="oidc_config")
    if said.username_claim not in USERNAME_CLAIMS:
        raise Invalid(
            f"username_claim cannot be {said.username_claim}",
            field="oidc_config.username_claim",
            hint=f"Use one of {', '.join(USERNAME_CLAIMS)}",
        )
    return Oidc(
        issuer_url=said.issuer_url or "",
        client_id=said.client_id or "",
        username_claim=said.username_claim or "",
        username_prefix=said.username_prefix or "",
        group_claim=said.group_claim or "",
        group_prefix=said.group_prefix or "",
        ca_cert=said.ca_cert or "",
    )


def acceptance(said: wire.AcceptanceTests | None) -> Acceptance:
    """Tests run unless somebody says not to."""
    if said is None:
        return Acceptance()
    burn = said.gpu_burn_duration or 0
    if not 0 <= burn <= BURN_SECONDS_MAX:
        raise Invalid(
            f"gpu_burn_duration must be between 0 and {BURN_SECONDS_MAX} seconds",
            field="acceptance_tests_params.gpu_burn_duration",
        )
    level = "medium"
    if said.dcgm_diag_level is not None:
        level = word(said.dcgm_diag_level, DCGM_LEVEL, "acceptance_tests_params.dcgm_diag_level")
    return Acceptance(
        enabled=said.enabled is not False,
        skip=tuple(test for field, test in _SKIPS.items() if getattr(said, field)),
        dcgm_level=level,
        gpu_burn_seconds=burn,
    )

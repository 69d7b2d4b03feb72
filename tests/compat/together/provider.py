"""What Together's Terraform provider makes of a configuration and of our answers, written down from its source.

The provider itself is run by test_terraform.py where it can be had. This is its law without it, so that every run
holds our answers against it: which attributes it sends, which it reads back, and what a plan compares. *Law of a
plan:* what was configured (null when it was not) against what was read back; attributes that only we decide are
never compared. So an answer that says more than was asked is a change in every plan to come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx

Values = dict[str, Any]
HEADERS: Final = {"x-stainless-lang": "go", "user-agent": "Together/Go 0.10.0"}


class Attribute(NamedTuple):
    """One attribute that a person may configure."""

    refreshed: bool = True  # whether the provider reads it back
    replaces: bool = True  # whether another value means another cluster
    default: Any = None
    inside: Any = None  # for objects: the names inside, each with None or what is inside it


_SWITCH: Final = {"enabled": None}
_SCRIPTS: Final = (
    *("controller_epilog", "controller_prolog", "extra_slurm_conf", "login_init_script"),
    *("nodeset_init_script", "worker_epilog", "worker_prolog"),
)
_CONFIG: Final = {
    "load_balancer": None,
    "gpu_operator_version": None,
    "ingress": _SWITCH,
    "jumphost_enabled": None,
    "kubernetes_dashboard_enabled": None,
    "observability": _SWITCH,
    "slurm_startup_scripts": dict.fromkeys(_SCRIPTS),
}
_OIDC: Final = (
    "client_id",
    "group_claim",
    "group_prefix",
    "issuer_url",
    "username_claim",
    "username_prefix",
    "ca_cert",
)
_ADD_ON: Final = {"add_on_type": None, "name": None, "config": {"dashboard": _SWITCH, "ingress": _SWITCH}}

CLUSTER: Final[Mapping[str, Attribute]] = {
    "cluster_name": Attribute(),
    "cuda_version": Attribute(),
    "gpu_type": Attribute(),
    "nvidia_driver_version": Attribute(),
    "region": Attribute(),
    "auto_scale": Attribute(refreshed=False),
    "auto_scale_max_gpus": Attribute(refreshed=False),
    "capacity_pool_id": Attribute(),
    "num_capacity_pool_gpus": Attribute(refreshed=False),
    "project_id": Attribute(),
    "reservation_start_time": Attribute(),
    "slurm_image": Attribute(refreshed=False),
    "slurm_shm_size_gib": Attribute(),
    "volume_id": Attribute(refreshed=False),
    "acceptance_tests_params": Attribute(refreshed=False),
    "oidc_config": Attribute(inside=dict.fromkeys(_OIDC)),
    "auto_scaled": Attribute(refreshed=False, replaces=False, default=False),
    "gpu_node_failover_enabled": Attribute(refreshed=False, replaces=False, default=False),
    "install_traefik": Attribute(replaces=False, default=False),
    "num_gpus": Attribute(replaces=False),
    "cluster_type": Attribute(replaces=False),
    "num_preemptible_gpus": Attribute(refreshed=False, replaces=False),
    "num_reserved_gpus": Attribute(refreshed=False, replaces=False),
    "reservation_end_time": Attribute(replaces=False),
    "add_ons": Attribute(replaces=False, inside=_ADD_ON),
    "cluster_config": Attribute(replaces=False, inside=_CONFIG),
}
VOLUME: Final[Mapping[str, Attribute]] = {
    "region": Attribute(refreshed=False),
    "volume_name": Attribute(),
    "is_lifecycle_independent": Attribute(refreshed=False),
    "size_tib": Attribute(replaces=False),
}
VOLUMES: Final = "/v1/compute/clusters/storage/volumes"
CLUSTERS: Final = "/v1/compute/clusters"


class Resource:
    """One block of a configuration, and what the state file would have of it."""

    def __init__(self, http: httpx.Client, kind: Mapping[str, Attribute], config: Values) -> None:
        unknown = set(config) - set(kind)
        assert not unknown, f"the provider knows no {unknown}"
        self._http, self._kind = http, kind
        self.config = config
        self.state: Values = {}
        self.answer: Values = {}
        self.id = ""

    @property
    def _paths(self) -> tuple[str, str, str]:
        """Where it is made, changed and looked at; a volume is changed where it was made, by the id in the body."""
        base = CLUSTERS if self._kind is CLUSTER else VOLUMES
        return base, base if self._kind is VOLUME else f"{base}/{self.id}", f"{base}/{self.id}"

    def wanted(self) -> Values:
        said = {name: self.config.get(name, attribute.default) for name, attribute in self._kind.items()}
        return {name: value for name, value in said.items() if value is not None}

    def create(self) -> Values:
        """It does not wait for what it made."""
        extra = {"billing_type": "ON_DEMAND"} if self._kind is CLUSTER else {}
        self.answer = self._good("POST", self._paths[0], self.wanted() | extra)
        self.id = self.answer["cluster_id" if self._kind is CLUSTER else "volume_id"]
        self.state = self.wanted()
        return self.answer

    def update(self, **config: Any) -> None:
        """All that is configured goes out again, and null for what no longer is."""
        self.config = {**self.config, **config}
        dropped = dict.fromkeys(set(self.state) - set(self.wanted()))
        extra = {"volume_id": self.id} if self._kind is VOLUME else {}
        self.answer = self._good("PUT", self._paths[1], self.wanted() | dropped | extra)
        self.state = self.wanted()

    def refresh(self) -> None:
        self.answer = self._good("GET", self._paths[2])
        for name, attribute in self._kind.items():
            if attribute.refreshed:
                self.state[name] = _kept(self.answer.get(name), attribute.inside)
        self.state = {name: value for name, value in self.state.items() if value is not None}

    def take_in(self, id: str) -> None:
        """`terraform import`."""
        self.id, self.state = id, {}
        self.refresh()

    def changes(self) -> dict[str, tuple[Any, Any]]:
        """What a plan would show: state and configuration, where they differ."""
        wanted = self.wanted()
        names = sorted(set(wanted) | set(self.state))
        told = {name: (self.state.get(name), wanted.get(name)) for name in names}
        return {name: pair for name, pair in told.items() if pair[0] != pair[1]}

    def replacing(self) -> set[str]:
        return {name for name in self.changes() if self._kind[name].replaces}

    def destroy(self) -> None:
        """It does not wait for this either."""
        self._good("DELETE", self._paths[2])

    def _good(self, method: str, path: str, body: Values | None = None) -> Values:
        reply = self._http.request(method, path, json=body, headers=HEADERS)
        assert reply.status_code == 200, (method, path, body, reply.status_code, reply.text)
        return dict(reply.json())


def _kept(told: Any, inside: Any) -> Any:
    """What the provider keeps of an answer: names that it does not know are dropped, what is absent is null."""
    if told is None or inside is None:
        return told
    if isinstance(told, list):
        return [_kept(item, inside) for item in told]
    kept = {name: _kept(told.get(name), within) for name, within in inside.items()}
    return {name: value for name, value in kept.items() if value is not None}

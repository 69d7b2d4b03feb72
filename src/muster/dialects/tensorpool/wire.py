"""What callers say: the bodies of TensorPool's requests. Null means absent."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Nodes = Annotated[int, Meta(ge=1, le=4096)]
Gigabytes = Annotated[int, Meta(ge=1, le=1 << 20)]


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """A request body; unknown fields are passed over, as the provider does."""


class Health(Body, frozen=True, kw_only=True):
    """What `tp` tells of itself before every command. Nothing of it is kept."""

    package_version: str | None = None
    uname: Any = None
    python_version: str | None = None
    python_implementation: str | None = None
    python_compiler: str | None = None
    python_build: Any = None


class NewCluster(Body, frozen=True, kw_only=True):
    instance_type: str
    public_keys: tuple[str, ...] | None = None
    num_nodes: Nodes | None = None
    tp_cluster_name: str | None = None
    container: str | None = None
    deletion_protection: bool | None = None
    save_keys: bool | None = None


class ClusterChange(Body, frozen=True, kw_only=True):
    cluster_name: str | None = None
    deletion_protection: bool | None = None


class NewStorage(Body, frozen=True, kw_only=True):
    size: Gigabytes
    name: str | None = None
    deletion_protection: bool | None = None


class StorageChange(Body, frozen=True, kw_only=True):
    tp_storage_name: str | None = None
    deletion_protection: bool | None = None
    size_gb: Gigabytes | None = None


class Attach(Body, frozen=True, kw_only=True):
    storage_id: str
    cluster_ids: Annotated[tuple[str, ...], Meta(min_length=1, max_length=64)]


class Detach(Body, frozen=True, kw_only=True):
    storage_id: str
    cluster_id: str


class NewKey(Body, frozen=True, kw_only=True):
    public_key: str
    name: str | None = None


class PreferenceChange(Body, frozen=True, kw_only=True):
    notify_email_cluster_create: bool | None = None
    notify_email_cluster_destroy: bool | None = None
    autopay_enabled: bool | None = None
    balance_warning_threshold: float | None = None
    autopay_reload_threshold: float | None = None


class Push(Body, frozen=True, kw_only=True):
    """The second frame of /job/push; the first is the key."""

    tp_config: str
    cluster_id: str
    system: str | None = None
    teardown_cluster: bool | None = None

"""What a dialect may ask of the cluster service: whole, typed, already in the house's words."""

from __future__ import annotations

from muster.model.base import Instant, Part
from muster.model.clusters import Acceptance, Billing, ClusterConfig, ClusterType


class NewVolume(Part, frozen=True, kw_only=True):
    """A volume made together with its cluster, in the same batch."""

    name: str
    size_gib: int
    region: str = ""  # "" = the cluster's
    dies_with_cluster: bool = False


class MountWish(Part, frozen=True, kw_only=True):
    """An existing volume by id, or a new one; `path` "" = the default (/home on Slurm, /mnt/ID elsewhere)."""

    volume_id: str = ""
    new: NewVolume | None = None
    path: str = ""
    read_only: bool = False


class AutoscaleWish(Part, frozen=True, kw_only=True):
    """How many GPUs it may come to have by itself, when jobs wait for them; 0 = it stays as it is."""

    max_gpus: int


class CreateCluster(Part, frozen=True, kw_only=True):
    """`gpus` is the total; `gpus_per_node` 0 = 8 (whole hosts). `image_id` "" = the newest of the region."""

    name: str
    type: ClusterType
    region: str = ""  # "" = where its image, volumes or address are, else where most of this shape is free
    gpu_type: str
    gpus: int
    gpus_per_node: int = 0
    preemptible_gpus: int = 0  # beside `gpus`, on hosts that are idle, given back after notice
    single_node: bool = False
    autoscale: AutoscaleWish | None = None
    image_id: str = ""
    project_id: str | None = None
    billing: Billing = Billing.ON_DEMAND
    ends_at: Instant | None = None
    lasts_ms: int | None = None  # instead of ends_at: so long from its acceptance on
    starts_at: Instant | None = None  # of scheduled capacity: when it is to be ready; None = at once
    duration_days: float | None = None  # of a reserved cluster: so long from its first being ready
    pool_id: str = ""  # a pool to draw workers from
    pool_gpus: int | None = None  # so many of `gpus` come from it; None = all
    reserved_gpus: int | None = None  # of a reserved cluster: so many of its GPUs; None = all, the rest is on demand
    quote_id: str = ""  # a quote or reservation to draw from, instead of billing and times
    queue: bool = False  # when it is not free now: wait for it instead of being refused
    failover: bool = False
    deletion_protection: bool = False
    ssh_keys: tuple[str, ...] = ()  # public keys as text, joined with the project's saved ones
    ssh_key_ids: tuple[str, ...] = ()
    use_saved_keys: bool = True
    security_group_ids: tuple[str, ...] = ()
    reserved_ip_id: str | None = None
    mounts: tuple[MountWish, ...] = ()
    acceptance: Acceptance = Acceptance()
    config: ClusterConfig = ClusterConfig()


class UpdateCluster(Part, frozen=True, kw_only=True):
    """None = keep. `gpus` resizes; the rest is configuration, converged live."""

    name: str | None = None
    gpus: int | None = None
    autoscale: AutoscaleWish | None = None
    preemptible_gpus: int | None = None
    pool_gpus: int | None = None
    leave_first: tuple[str, ...] | None = None
    force: bool = False
    config: ClusterConfig | None = None
    failover: bool | None = None
    deletion_protection: bool | None = None
    ssh_keys: tuple[str, ...] | None = None
    security_group_ids: tuple[str, ...] | None = None
    image_id: str | None = None
    ends_at: Instant | None = None

"""Shared storage that outlives clusters, and its mounts on clusters."""

from __future__ import annotations

from msgspec.structs import replace

from muster.model.base import Instant, Noun
from muster.model.phases import VOLUME_LIMITS, VOLUME_MOVES, IllegalMove, VolumePhase, stuck_since


class Volume(Noun, frozen=True, kw_only=True):
    number: int = 0
    account_id: str
    project_id: str
    name: str
    live_name: str | None  # the name while it is taken; None from the delete wish on
    region: str
    size_gib: int  # the wish
    actual_gib: int = 0  # what the substrate last said
    flavour: str = "shared"  # shared | sfs | pfs | dataset
    phase: VolumePhase = VolumePhase.PROVISIONING
    phase_since: Instant
    because: str = ""
    generation: int = 1
    delete_wished_at: Instant | None = None
    gone_at: Instant | None = None
    created_by: str = ""
    created_at: Instant
    updated_at: Instant
    deletion_protection: bool = False
    unfunded_since: Instant | None = None  # its account has no credit: kept, but not to be used

    def advance(self, phase: VolumePhase, *, because: str, at: Instant) -> Volume:
        """The volume in its next phase; an illegal move is our own bug and raises."""
        if phase not in VOLUME_MOVES[self.phase]:
            raise IllegalMove(f"volume {self.id}: {self.phase} -> {phase}")
        return replace(self, version=self.version + 1, phase=phase, phase_since=at, because=because, updated_at=at)

    def stuck_since(self, now: Instant) -> Instant | None:
        return stuck_since(self.phase_since, VOLUME_LIMITS[self.phase], now)


class Attachment(Noun, frozen=True, kw_only=True):
    """A volume mounted on a cluster; unique per (volume, cluster) and per (cluster, mount_path)."""

    volume_id: str
    cluster_id: str
    project_id: str
    mount_path: str
    read_only: bool = False
    dies_with_cluster: bool = False
    created_at: Instant

"""No orchestrator: no type of cluster can be made, so every wish for one is refused at admission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from muster.contracts.orchestrator import Feature, Progress, Queue, Rendered, Standing, Target, Tested
from muster.contracts.substrate import Fence
from muster.errors import Never
from muster.model.clusters import AccessFacts, ClusterType


def _never() -> NoReturn:
    raise Never("there is no fleet behind this server (--fleet none)")


class NoOrchestrator:
    name = "none"
    simulated = False

    def features(self, type: ClusterType) -> frozenset[Feature] | None:
        return None

    async def images(self, type: ClusterType) -> frozenset[str] | None:
        return frozenset()

    def render(self, target: Target) -> Rendered:
        return Rendered(digest="", files={})

    async def converge(self, target: Target, fence: Fence) -> Progress:
        _never()

    async def observe(self, target: Target) -> dict[str, Standing]:
        return {member.node_id: Standing.ABSENT for member in target.members}

    async def queue(self, target: Target) -> Queue | None:
        return None

    async def test(self, target: Target, run: str, fence: Fence) -> Tested:
        _never()

    async def drain(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        """There is nothing to drain."""

    async def warn(self, target: Target, node_ids: Sequence[str], because: str, fence: Fence) -> None:
        """There is nobody to warn."""

    async def evict(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        """There is nothing to end."""

    async def admit(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        _never()

    async def expel(self, target: Target, node_ids: Sequence[str], fence: Fence) -> None:
        """There is nothing to expel."""

    async def access(self, target: Target) -> AccessFacts:
        return AccessFacts()

    async def kubeconfig(self, target: Target) -> str:
        return ""

    async def close(self) -> None:
        """Nothing is open."""

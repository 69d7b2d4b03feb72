"""No fleet at all: a control plane to look at, or one whose hosts come later. Refuses politely, owns nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.contracts.substrate import Fence, Owned, Seen, Wish
from muster.errors import Never


class NoSubstrate:
    name = "none"
    simulated = False

    async def ensure(self, wishes: Sequence[Wish], fence: Fence) -> None:
        if wishes:
            raise Never("there is no fleet behind this server (--fleet none)")

    async def observe(self, keys: Sequence[str]) -> dict[str, Seen]:
        return {}

    async def ensure_absent(self, keys: Sequence[str], fence: Fence) -> None:
        """What was never made is absent."""

    async def owned(self) -> list[Owned]:
        return []

    def watch(self, wake: Callable[[str], None]) -> None:
        """Nothing ever changes."""

    async def close(self) -> None:
        """Nothing is open."""

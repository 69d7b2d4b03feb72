"""Addresses that can be reserved: a network per region, carved from one block. Pure.

The composition root hands the service a `Pools`; real fleets will hand in what the operator owns.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Set
from typing import Final, TypeAlias

from muster.model.catalog import Region

Network: TypeAlias = ipaddress.IPv4Network
Pools: TypeAlias = Callable[[Region], Network | None]
"""The addresses of a region; None when it has none to give."""

SIMULATED_BLOCK: Final = Network("198.18.0.0/15")
"""Set apart for benchmarks by RFC 2544: routed nowhere, so nobody mistakes a simulated address for a real one."""

SIMULATED_PREFIX: Final = 22  # 1,022 addresses for each of 128 regions


def no_pools(region: Region) -> Network | None:
    return None


def simulated_pools(region: Region) -> Network | None:
    """The same region has the same addresses, by its number; regions beyond the block have none."""
    if not 0 <= region.number < 1 << (SIMULATED_PREFIX - SIMULATED_BLOCK.prefixlen):
        return None
    size = 1 << (32 - SIMULATED_PREFIX)
    return Network((int(SIMULATED_BLOCK.network_address) + region.number * size, SIMULATED_PREFIX))


def free_address(pool: Network, taken: Set[str]) -> str | None:
    """The lowest address of the pool that nobody holds."""
    return next((str(address) for address in pool.hosts() if str(address) not in taken), None)

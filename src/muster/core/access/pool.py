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

REGION_PREFIX: Final = 22  # 1,022 addresses for each region
LOOPBACK_BLOCK: Final = Network("127.96.0.0/12")
"""A part of this machine's own loopback network: every address of it leads to this machine and nowhere else."""


def no_pools(region: Region) -> Network | None:
    return None


def simulated_pools(region: Region) -> Network | None:
    return _share(SIMULATED_BLOCK, region)


def loopback_pools(region: Region) -> Network | None:
    return _share(LOOPBACK_BLOCK, region)


def _share(block: Network, region: Region) -> Network | None:
    """The same region has the same addresses, by its number; regions beyond the block have none."""
    if not 0 <= region.number < 1 << (REGION_PREFIX - block.prefixlen):
        return None
    size = 1 << (32 - REGION_PREFIX)
    return Network((int(block.network_address) + region.number * size, REGION_PREFIX))


def free_address(pool: Network, taken: Set[str]) -> str | None:
    """The lowest address of the pool that nobody holds."""
    return next((str(address) for address in pool.hosts() if str(address) not in taken), None)

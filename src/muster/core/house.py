"""The house: every room behind one door, as the composition root puts it together and the dialects are handed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from muster.contracts.clock import Clock, Entropy
from muster.contracts.faults import FaultDesk
from muster.contracts.store import Store
from muster.core.access.service import AccessService
from muster.core.accounts.events import EventReader
from muster.core.accounts.service import AccountService
from muster.core.capacity.service import Capacity
from muster.core.catalog.service import CatalogService
from muster.core.clusters.requests import RequestReader
from muster.core.clusters.service import ClusterService
from muster.core.hosts.service import HostService
from muster.core.volumes.service import VolumeService


class FleetFacts(NamedTuple):
    """What the fleet is made of; "simulated" is said on every screen."""

    substrate: str
    orchestrators: tuple[str, ...]
    simulated: bool


@dataclass(frozen=True, slots=True)
class House:
    store: Store
    clock: Clock
    entropy: Entropy
    accounts: AccountService
    catalog: CatalogService
    hosts: HostService
    capacity: Capacity
    access: AccessService
    volumes: VolumeService
    clusters: ClusterService
    requests: RequestReader
    events: EventReader
    faults: FaultDesk | None
    fleet: FleetFacts

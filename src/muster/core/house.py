"""The house: every room behind one door, as the composition root puts it together and the dialects are handed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from muster.contracts.clock import Clock, Entropy
from muster.contracts.faults import FaultDesk
from muster.contracts.issuers import IssuerCheck
from muster.contracts.jobs import Archive, Workshop
from muster.contracts.metering import listened
from muster.contracts.objects import ObjectStore
from muster.contracts.orchestrator import Orchestrator
from muster.contracts.reconciler import Reconciler
from muster.contracts.store import Store
from muster.contracts.substrate import Substrate
from muster.core.access.pool import Pools
from muster.core.access.service import AccessService
from muster.core.accounts.events import EventReader
from muster.core.accounts.service import AccountService
from muster.core.billing.metering import Meter
from muster.core.billing.plan import Terms
from muster.core.billing.purse import HousePurse
from muster.core.billing.reconcile import BillingReconciler
from muster.core.billing.service import BillingService
from muster.core.capacity.pools import PoolService
from muster.core.capacity.preemption import NOTICE
from muster.core.capacity.reconcile import ReservationReconciler
from muster.core.capacity.reservations import Reservations
from muster.core.capacity.service import Capacity
from muster.core.capacity.waiting import Patience
from muster.core.catalog.service import CatalogService
from muster.core.clusters.autoscale import Scaling
from muster.core.clusters.lending import PreemptionReconciler
from muster.core.clusters.reconcile import ClusterReconciler
from muster.core.clusters.requests import RequestReader
from muster.core.clusters.service import ClusterService
from muster.core.health.reconcile import HealthReconciler
from muster.core.health.service import RemediationService
from muster.core.hosts.faults import FaultService
from muster.core.hosts.service import HostService
from muster.core.jobs.reconcile import JobReconciler
from muster.core.jobs.service import JobService
from muster.core.numbers import Numbers
from muster.core.objects.service import ObjectService
from muster.core.volumes.reconcile import VolumeReconciler
from muster.core.volumes.service import VolumeService
from muster.model.base import Instant


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
    reservations: Reservations
    pools: PoolService
    access: AccessService
    volumes: VolumeService
    clusters: ClusterService
    requests: RequestReader
    numbers: Numbers
    health: RemediationService
    jobs: JobService
    objects: ObjectService
    billing: BillingService
    terms: Terms
    scaling: Scaling
    notice_ms: Instant
    events: EventReader
    faults: FaultDesk | None  # for the wire's own faults; who asks for one goes through `trouble`
    trouble: FaultService
    fleet: FleetFacts


def build_house(
    *,
    store: Store,
    clock: Clock,
    entropy: Entropy,
    orchestrator: Orchestrator,
    faults: FaultDesk | None,
    fleet: FleetFacts,
    pools: Pools,
    issuers: IssuerCheck | None = None,
    terms: Terms = Terms(),
    scaling: Scaling = Scaling(),
    patience: Patience = Patience(),
    notice_ms: Instant = NOTICE,
    archive: Archive | None = None,
    objects: ObjectStore | None = None,
) -> House:
    """Every room, furnished. A running server and a simulated history are built by these same lines."""
    store = listened(store, Meter(store, clock))
    purse = HousePurse(store, clock)
    catalog = CatalogService(store, clock)
    capacity = Capacity(store, patience) if faults is None else Capacity(store, patience, faults.sold_out)
    return House(
        store=store,
        clock=clock,
        entropy=entropy,
        accounts=AccountService(store, clock, entropy),
        catalog=catalog,
        hosts=HostService(store, clock, entropy, fleet.substrate),
        capacity=capacity,
        reservations=Reservations(store, clock, entropy, catalog, capacity, purse),
        pools=PoolService(store, clock, entropy, capacity),
        access=AccessService(store, clock, entropy, pools),
        volumes=VolumeService(store, clock, entropy, catalog, purse),
        clusters=ClusterService(store, clock, entropy, catalog, capacity, orchestrator, issuers, purse, notice_ms),
        requests=RequestReader(store),
        numbers=Numbers(store),
        health=RemediationService(store, clock, entropy),
        jobs=JobService(store, clock, entropy, archive),
        objects=ObjectService(store, clock, entropy, objects),
        billing=BillingService(store, clock, entropy),
        terms=terms,
        scaling=scaling,
        notice_ms=notice_ms,
        events=EventReader(store),
        faults=faults,
        trouble=FaultService(store, clock, faults),
        fleet=fleet,
    )


def reconcilers_of(
    house: House, substrate: Substrate, orchestrator: Orchestrator, workshop: Workshop | None = None
) -> list[Reconciler]:
    """What the engine turns: one reconciler per kind of work."""
    return [
        *_jobs(house, workshop),
        VolumeReconciler(house.store, house.clock, substrate),
        ClusterReconciler(
            house.store,
            house.clock,
            house.entropy,
            house.catalog,
            house.capacity,
            substrate,
            orchestrator,
            HousePurse(house.store, house.clock),
            house.scaling,
            house.notice_ms,
        ),
        PreemptionReconciler(
            house.store, house.clock, house.entropy, house.catalog, house.capacity, orchestrator, house.notice_ms
        ),
        HealthReconciler(house.store, house.clock, house.entropy),
        BillingReconciler(house.store, house.clock, house.entropy, house.terms),
        ReservationReconciler(house.store, house.clock, house.reservations),
    ]


def _jobs(house: House, workshop: Workshop | None) -> list[Reconciler]:
    archive = house.jobs.archive
    if workshop is None or archive is None:
        return []
    return [JobReconciler(house.store, house.clock, house.clusters, workshop, archive)]

"""What one placement costs among 100,000 hosts, against looking at every host.

    .venv/bin/python bench/placement.py [--hosts 100000] [--no-naive]

The fleet: pods of 16 leaves of 16 hosts of 8 GPUs, all of one region and type; about 60 % of it is taken, unevenly by
leaf, as fleets are. "decide" is the pure decision, "decide + take + free" what a create and a delete cost the index.
Microseconds, best of several rounds: the machine is shared and the best round is the one least disturbed.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Callable

from muster.core.capacity.index import CapacityIndex
from muster.core.capacity.placement import Ask, Placement
from muster.model.hosts import Host, HostRole

WHOLE = 0xFF
ASKS = [(8, 1), (8, 2), (8, 8), (8, 16), (8, 64), (8, 256), (1, 1), (2, 4), (4, 2)]


def make_host(n: int, rng: random.Random) -> Host:
    return Host(
        id=f"{rng.getrandbits(128):032x}",
        name=f"gpu-{n:06d}",
        region="us-central-8",
        pod=f"pod-{n // 256:04d}",
        leaf=f"leaf-{n // 16:05d}",
        gpu_type="H100_SXM",
        slots=8,
        cpus=192,
        memory_gib=2048,
        substrate="simulated",
        created_at=0,
    )


def make_fleet(count: int, seed: int) -> tuple[list[Host], dict[str, int]]:
    """Hosts, and what is taken of them: mostly whole, one in fifty in slices."""
    rng = random.Random(seed)
    hosts, taken, share = [], {}, 0.0
    for n in range(count):
        if n % 16 == 0:
            share = rng.choice((0.2, 0.5, 0.7, 0.9, 1.0))
        host = make_host(n, rng)
        hosts.append(host)
        if rng.random() < 0.02:
            taken[host.id] = rng.choice((0x01, 0x03, 0x0F, 0x3F, 0x7F))
        elif rng.random() < share:
            taken[host.id] = WHOLE
    return hosts, taken


def load(hosts: list[Host], taken: dict[str, int]) -> CapacityIndex:
    """In order of id, as the store hands them out."""
    index = CapacityIndex()
    for host in sorted(hosts, key=lambda host: host.id):
        index.set_host(host, taken.get(host.id, 0))
    for number in range(1, 64):
        control = Host(
            id=f"control-{number}",
            name=f"control-{number}",
            region="us-central-8",
            role=HostRole.CONTROL,
            slots=32,
            cpus=64,
            memory_gib=256,
            substrate="simulated",
            created_at=0,
        )
        index.set_host(control)
    return index


def naive(hosts: list[Host], taken: dict[str, int], gpus: int, nodes: int) -> list[str]:
    """What a first version does: look at every host, group, sort."""
    leaves: dict[tuple[str, str], list[str]] = {}
    partly: list[tuple[int, str, str]] = []
    for host in hosts:
        free = 8 - taken.get(host.id, 0).bit_count()
        if host.region == "us-central-8" and host.gpu_type == "H100_SXM" and free >= gpus:
            if free == 8:
                leaves.setdefault((host.pod, host.leaf), []).append(host.id)
            elif gpus < 8:
                partly.append((free, host.leaf, host.id))
    if gpus < 8:
        return [host_id for _, _, host_id in sorted(partly)[:nodes]]
    fitting = [(len(ids), leaf) for leaf, ids in leaves.items() if len(ids) >= nodes]
    if fitting:
        return sorted(leaves[min(fitting)[1]])[:nodes]
    emptiest = sorted(leaves.items(), key=lambda item: (-len(item[1]), item[0]))
    return [host_id for _, ids in emptiest for host_id in ids][:nodes]


def best_us(call: Callable[[], object], rounds: int, calls: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    return best * 1e6


def there_and_back(index: CapacityIndex, ask: Ask) -> None:
    placement = index.place(ask)
    assert isinstance(placement, Placement)
    index.take(placement.workers + placement.control)
    for host_id, slots, _ in placement.workers + placement.control:
        index.free(host_id, slots)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-naive", action="store_true", help="leave out the slow comparison")
    options = parser.parse_args()
    hosts, taken = make_fleet(options.hosts, options.seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    index = load(hosts, taken)
    index.place(Ask("us-central-8", "H100_SXM", 8, 1))
    seconds = time.perf_counter() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{options.hosts} hosts indexed in {seconds:.2f} s, {grown:.0f} MB beside the hosts themselves")
    print(f"{'nodes x GPUs':>14} {'decide':>10} {'+ take + free':>14} {'naive scan':>12}   µs")
    for gpus, nodes in ASKS:
        ask = Ask("us-central-8", "H100_SXM", gpus, nodes, control=2)
        decide = best_us(lambda ask=ask: index.place(ask), 5, 500)
        both = best_us(lambda ask=ask: there_and_back(index, ask), 5, 100)
        scan = "" if options.no_naive else f"{best_us(lambda a=(gpus, nodes): naive(hosts, taken, *a), 2, 1):.0f}"
        print(f"{f'{nodes} x {gpus}':>14} {decide:>10.1f} {both:>14.1f} {scan:>12}")


if __name__ == "__main__":
    main()
